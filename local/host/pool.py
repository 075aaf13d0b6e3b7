"""Worker processes: one per instance, started, watched, started again when it dies.

The host listens on loopback for exactly one connection that knows the worker's secret; the channel's end means death to
both sides: the host fails the worker's invocations, the worker ends itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from local.host.errors import HostError
from local.host.events import HostEvent, LogLine, WorkerDied, WorkerStarted
from local.host.frames import Header, encode_frame, read_frame
from local.host.settlement import Ending

START_SECONDS: Final = 60.0  # the platform's WorkerConstants.ProcessStartTimeoutSeconds
STOP_SECONDS: Final = 5.0
_BACK_OFF_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)  # before a start, by how many starts failed in a row
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_LAST_LINES: Final = 20

Emit = Callable[[HostEvent], None]


@dataclass(frozen=True, slots=True)
class Result:
    """How an invocation ended, and what an HTTP function answered."""

    ending: Ending
    error: str | None = None
    http: Mapping[str, Any] | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Launch:
    """All that a worker's start needs."""

    project: Path
    environment: Mapping[str, str]
    debug_port: int | None = None


class Worker:
    """One process that is up: its channel and the invocations that it has not answered."""

    def __init__(self, instance: int, emit: Emit, on_leaving: Callable[[], None]) -> None:
        self.functions: Sequence[Header] = ()
        self.pid = 0
        self.ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._instance = instance
        self._emit = emit
        self._on_leaving = on_leaving  # told before the first invocation fails, so that none follows it into death
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._last_lines: list[str] = []
        self._stopping = False
        self._end: asyncio.Task[None] | None = None

    async def start(self, launch: Launch) -> None:
        """Start the process and wait until it has indexed the app; HostError holds its traceback or last words."""
        secret = secrets.token_urlsafe(32)
        connected: asyncio.Future[asyncio.StreamReader] = asyncio.get_running_loop().create_future()

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            frame = await read_frame(reader)
            said = str(frame[0].get("secret")) if frame is not None else ""
            if connected.done() or not secrets.compare_digest(said.encode(), secret.encode()):
                writer.close()
                return
            self._writer = writer
            connected.set_result(reader)

        # Not serving at once: cut off meanwhile, the call would leave its socket behind.
        server = await asyncio.start_server(greet, "127.0.0.1", 0, start_serving=False)
        try:
            await server.start_serving()
            port: int = server.sockets[0].getsockname()[1]
            hello = {"port": port, "secret": secret, "project": str(launch.project), "debug": launch.debug_port}
            await self._spawn(launch, hello)
            timeout = None if launch.debug_port else START_SECONDS
            async with asyncio.timeout(timeout):
                either: list[asyncio.Future[Any]] = [connected, self.ended]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not connected.done():
                    raise HostError(self._epitaph())
                reader = connected.result()
                frame = await self._first_answer(reader)
        except TimeoutError:
            raise HostError(f"the worker wasn't ready in {START_SECONDS:g} s: {self._words()}") from None
        finally:
            server.close()
        if frame is None:
            await asyncio.wait({self.ended})
            raise HostError(self._epitaph())
        if frame["type"] == "failed":
            raise HostError(f"the app can't be indexed:\n{str(frame['traceback']).rstrip()}")
        functions: Any = frame["functions"]
        self.functions = functions
        self._tasks.append(asyncio.create_task(self._read(reader)))

    async def _first_answer(self, reader: asyncio.StreamReader) -> Header | None:
        while (frame := await read_frame(reader)) is not None:
            if frame[0]["type"] != "log":
                return frame[0]
            self._emit_log(frame[0])
        return None

    async def _spawn(self, launch: Launch, hello: Mapping[str, object]) -> None:
        # The worker leads a group of its own: Ctrl-C is for the host, which drains it.
        flags: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "local.host.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=_REPOSITORY,
            env={**os.environ, **launch.environment, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
            start_new_session=os.name == "posix",
            creationflags=flags,
            limit=1024 * 1024,
        )
        self.pid = self._process.pid
        self._tasks += [
            asyncio.create_task(self._pass_on(self._process.stdout, "stdout", "INFO")),
            asyncio.create_task(self._pass_on(self._process.stderr, "stderr", "ERROR")),
            asyncio.create_task(self._watch(self._process)),
        ]
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(ConnectionError):
                stdin.write(json.dumps(hello).encode() + b"\n")
                await stdin.drain()
                stdin.close()

    def send(self, invocation: str, header: Mapping[str, object], body: bytes) -> asyncio.Future[Result]:
        """Hand an invocation over; the future ends with its answer or with the worker."""
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if self._writer is None or self.ended.done():
            answered.set_result(Result(Ending.WORKER_DIED, "the worker is gone"))
            return answered
        self._waiting[invocation] = answered
        self._writer.write(encode_frame({"type": "invoke", "id": invocation, **header}, body))
        return answered

    async def stop(self) -> None:
        """End the process: asked first, killed after a while.

        Who stops a dead worker may be cut off by who stops the host. So it is a task of its own, done once and to its
        end; wait_for in it would lose a cancellation that comes when its own task has just ended (Python 3.11).
        """
        if self._end is None:
            self._end = asyncio.create_task(self._stop())
        await asyncio.shield(self._end)

    async def _stop(self) -> None:
        self._stopping = True
        process = self._process
        if process is None:
            return
        if self._writer is not None and not self.ended.done():
            with contextlib.suppress(ConnectionError):
                self._writer.write(encode_frame({"type": "stop"}))
            await asyncio.wait({self.ended}, timeout=STOP_SECONDS)
        self.kill()
        await self.ended
        for task in self._tasks:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(task, 1.0)  # a grandchild may hold the pipes open
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                await asyncio.wait_for(self._writer.wait_closed(), 1.0)

    def kill(self) -> None:
        """End the process at once, as kill -9 does."""
        self._on_leaving()
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if os.name == "posix":
                os.kill(self.pid, signal.SIGKILL)  # Process.kill may take the exit code away from asyncio's watcher
            else:
                self._process.kill()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (frame := await read_frame(reader)) is not None:
            header, body = frame
            if header["type"] == "log":
                self._emit_log(header)
                continue
            answered = self._waiting.pop(str(header["id"]), None)
            if answered is None or answered.done():
                continue
            if header["ok"]:
                http: Any = header.get("http")
                answered.set_result(Result(Ending.SUCCEEDED, http=http, body=body))
            else:
                answered.set_result(Result(Ending.FAILED, str(header["traceback"]).rstrip()))
        self._on_leaving()
        await asyncio.wait({self.ended}, timeout=1.0)  # the channel's end is, nearly always, the end of the process
        self.kill()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._on_leaving()
        self.ended.set_result(code)
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_result(Result(Ending.WORKER_DIED, f"the worker ended with exit code {code}"))
        self._waiting.clear()

    async def _pass_on(self, stream: asyncio.StreamReader | None, name: str, level: str) -> None:
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the limit: the reader has dropped it
                line = b"(a line longer than 1 MiB)\n"
            if not line:
                return
            text = line.decode("utf-8", errors="replace").rstrip("\r\n")
            self._last_lines = [*self._last_lines[-_LAST_LINES:], text]
            if not self._stopping:
                self._emit(LogLine(None, level, text, logger=name, instance=self._instance))

    def _emit_log(self, header: Header) -> None:
        function, exception, fields = header.get("function"), header.get("exception"), header.get("fields")
        self._emit(
            LogLine(
                function=None if function is None else str(function),
                level=str(header["level"]),
                message=str(header["message"]),
                fields=fields if isinstance(fields, dict) else {},
                logger=str(header["logger"]),
                exception=None if exception is None else str(exception),
                instance=self._instance,
            )
        )

    def _epitaph(self) -> str:
        return f"the worker ended at its start with exit code {self.ended.result()}: {self._words()}"

    def _words(self) -> str:
        return "\n".join(self._last_lines) or "it said nothing"


@dataclass(slots=True)
class Instance:
    """A place of the host: its worker, replaced whenever it dies."""

    number: int
    launch: Launch
    emit: Emit
    on_changed: Callable[[], None]  # the app that a new worker found is another one than before
    functions: Sequence[Header] = ()
    _worker: Worker | None = None
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _supervisor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the first worker; raises HostError when the app can't be indexed."""
        self._ready.clear()
        await self._launch()
        self._supervisor = asyncio.create_task(self._supervise())

    async def ready(self) -> None:
        """Wait for a worker that takes invocations."""
        await self._ready.wait()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def invoke(self, header: Mapping[str, object], body: bytes, timeout_seconds: float) -> Result:
        """Run one invocation. A time-out costs the worker its life, as on the platform: it may hang for ever."""
        await self._ready.wait()
        worker = self._worker
        if worker is None:
            return Result(Ending.WORKER_DIED, "the host is stopping")
        answered = worker.send(str(uuid.uuid4()), header, body)
        await asyncio.wait({answered}, timeout=None if timeout_seconds == float("inf") else timeout_seconds)
        if answered.done():
            return answered.result()
        worker.kill()
        return Result(Ending.TIMED_OUT, f"no answer in {timeout_seconds:g} s (functionTimeout); worker restarted")

    def kill(self) -> None:
        """kill -9 for the worker; the next one starts by itself."""
        if self._worker is not None:
            self._worker.kill()

    @property
    def pid(self) -> int | None:
        return None if self._worker is None or self._worker.ended.done() else self._worker.pid

    async def stop(self) -> None:
        """End the worker and watch no more; who waits for it is told that it died."""
        self._ready.clear()
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
            self._supervisor = None
        await self._end_worker()
        self._ready.set()

    async def _launch(self) -> None:
        worker = Worker(self.number, self.emit, self._ready.clear)
        self._worker = worker
        try:
            await worker.start(self.launch)
        except BaseException:
            await worker.stop()
            self._worker = None
            raise
        self.functions = worker.functions
        self._ready.set()
        names = tuple(str(function["name"]) for function in worker.functions)
        self.emit(WorkerStarted(self.number, worker.pid, names))

    async def _supervise(self) -> None:
        failures = 0
        while True:
            if self._worker is not None:
                await asyncio.wait({self._worker.ended})
                self._ready.clear()
                await self._end_worker()
            await asyncio.sleep(_BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)])
            known = self.functions
            try:
                await self._launch()
            except HostError as exc:
                failures += 1
                self.emit(LogLine(None, "ERROR", str(exc), logger="host", instance=self.number))
                continue
            failures = 0
            if self.functions != known:
                self.on_changed()

    async def _end_worker(self) -> None:
        worker = self._worker
        if worker is None:
            return
        is_expected = not worker.ended.done()
        await worker.stop()  # cut off here, whoever stops the instance waits for its end
        self._worker = None
        self.emit(WorkerDied(self.number, worker.pid, worker.ended.result(), is_expected))


async def start_all(instances: Sequence[Instance]) -> None:
    """Start every instance; if one fails, none stays."""
    try:
        await gather_in_order([instance.start for instance in instances])
    except BaseException:
        for instance in instances:
            await instance.stop()
        raise


async def gather_in_order(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run the calls at once; when all have ended, raise the first error."""
    results = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def elapsed_since(start: float) -> float:
    """Seconds since a monotonic moment."""
    return time.monotonic() - start
