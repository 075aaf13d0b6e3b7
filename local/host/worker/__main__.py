"""Entry of the worker process: the channel to the host, the event loop, and the logs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import json
import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from local.host.frames import Header, encode_frame, receive_frame
from local.host.worker.indexing import LoadedFunction, index
from local.host.worker.invoking import InvocationContext, answer, argument, log_fields, user_threads
from local.host.worker.traces import trace_of

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar("invocation", default=None)
_REPOSITORY: Final = str(Path(__file__).resolve().parents[3])  # the folder that holds `local`


class Worker:
    """One event loop, one pool of threads, one channel."""

    def __init__(self, connection: socket.socket, project: Path) -> None:
        self._connection = connection
        self._project = project
        self._sending = threading.Lock()
        self._functions: dict[str, LoadedFunction] = {}
        self._running: dict[str, tuple[str, asyncio.Task[None] | None]] = {}
        self._threads = concurrent.futures.ThreadPoolExecutor(_thread_count())
        self._loop = asyncio.new_event_loop()

    def run(self, secret: str) -> None:
        """Index the app and serve invocations until the host says stop or goes away."""
        asyncio.set_event_loop(self._loop)
        self._loop.set_default_executor(self._threads)
        self._send({"type": "hello", "secret": secret, "pid": os.getpid()})
        handler = _Forward(self)
        root = logging.getLogger()
        root.setLevel(logging.DEBUG if os.environ.get("PYTHON_ENABLE_DEBUG_LOGGING") == "1" else logging.INFO)
        root.addHandler(handler)
        try:
            self._functions = index(self._project)
        except Exception as exc:
            self._send({"type": "failed", "traceback": trace_of(exc)})
            return
        self._send({"type": "ready", "functions": [function.description for function in self._functions.values()]})
        # A thread reads the channel, so that the process ends with its host even while user code blocks the event loop.
        threading.Thread(target=self._receive, name="channel", daemon=True).start()
        self._loop.run_forever()
        root.removeHandler(handler)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def log(self, record: logging.LogRecord) -> None:
        """Forward a log record with the function whose invocation wrote it."""
        invocation = _current.get() or getattr(user_threads, "invocation_id", None)
        function, _ = self._running.get(invocation or "", (None, None))
        exception = None
        if record.exc_info and record.exc_info[0] is not None:
            exception = "".join(traceback.format_exception(*record.exc_info))
        self._send(
            {
                "type": "log",
                "function": function,
                "invocation": invocation,
                "level": record.levelname,
                "logger": record.name,
                "message": record.getMessage(),
                "exception": exception or record.exc_text,
                "fields": log_fields(record),
            }
        )

    def _receive(self) -> None:
        while (frame := receive_frame(self._connection)) is not None:
            header, body = frame
            if header["type"] == "stop":
                self._loop.call_soon_threadsafe(self._loop.stop)
            else:
                self._loop.call_soon_threadsafe(self._accept, header, body)
        os._exit(0)  # the host is gone: its messages go to others, so nothing may run on

    def _accept(self, header: Header, body: bytes) -> None:
        invocation, name = str(header["id"]), str(header["function"])
        self._running[invocation] = (name, None)
        context = contextvars.copy_context()
        context.run(_current.set, invocation)
        task = self._loop.create_task(self._invoke(invocation, self._functions[name], header, body), context=context)
        self._running[invocation] = (name, task)  # also the reference that keeps the task alive

    async def _invoke(self, invocation: str, function: LoadedFunction, header: Header, body: bytes) -> None:
        try:
            arguments: dict[str, object] = {function.parameter: argument(function, header, body)}
            if function.wants_context:
                trace: Any = header.get("trace") or {}
                arguments["context"] = InvocationContext(invocation, function.name, str(self._project), trace)
            if function.is_async:
                returned = await function.call(**arguments)
            else:
                call = functools.partial(_in_thread, invocation, function.call, arguments)
                returned = await self._loop.run_in_executor(self._threads, contextvars.copy_context().run, call)
            result, content = answer(function, returned)
            self._send({"type": "result", "id": invocation, "ok": True, **result}, content)
        except Exception as exc:  # user code may raise anything; a BaseException goes unanswered
            text = trace_of(exc)
            error = f"{type(exc).__name__}: {exc}"
            self._send({"type": "result", "id": invocation, "ok": False, "error": error, "traceback": text})
        del self._running[invocation]  # an invocation that is never answered stays, as it does on the platform

    def _send(self, header: Header, body: bytes = b"") -> None:
        frame = encode_frame(header, body)
        try:
            with self._sending:
                self._connection.sendall(frame)
        except OSError:
            os._exit(0)


class _Forward(logging.Handler):
    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._worker.log(record)
        except Exception:  # as every handler of the standard library does
            self.handleError(record)


def _in_thread(invocation: str, call: Callable[..., object], arguments: dict[str, object]) -> object:
    user_threads.invocation_id = invocation
    try:
        return call(**arguments)
    finally:
        user_threads.invocation_id = None


def _thread_count() -> int | None:
    """Size of the pool of threads: the platform's setting, or Python's own default."""
    text = os.environ.get("PYTHON_THREADPOOL_THREAD_COUNT", "")
    return max(1, int(text)) if text.isdecimal() else None


def main() -> None:
    """Connect to the host that wrote the first line of standard input."""
    start = json.loads(sys.stdin.readline())
    project = Path(start["project"])
    sys.argv = [str(project)]
    sys.path[:] = [entry for entry in sys.path if entry not in {"", _REPOSITORY}]
    sys.path.append(str(project))
    os.chdir(project)
    if start["debug"]:
        import debugpy  # noqa: PLC0415  # only a developer who asked for it pays for the import

        debugpy.listen(("127.0.0.1", start["debug"]))
        print(f"waiting for a debugger on 127.0.0.1:{start['debug']}", flush=True)  # noqa: T201
        debugpy.wait_for_client()
    connection = socket.create_connection(("127.0.0.1", start["port"]))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        Worker(connection, project).run(start["secret"])
    except SystemExit as exc:
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads of synchronous functions must not keep a process alive that user code has ended.
        os._exit(exc.code if isinstance(exc.code, int) else int(exc.code is not None))


if __name__ == "__main__":
    main()
