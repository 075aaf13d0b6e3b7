"""The embedded stack in a process of its own, and what that process costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 60.0
END_SECONDS = 10.0
MIB = 1 << 20


class ServerError(Exception):
    """A server did not start; the message has what it said."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running server: where it is, and its process."""

    address: dict[str, str]
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """Processor time so far, user and system."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_mib(self) -> float:
        """Memory that the process holds."""
        return float(self.process.memory_info().rss) / MIB


def own_cpu_seconds() -> float:
    """Processor time of this process, the client."""
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


@contextlib.asynccontextmanager
async def running_stack(config: dict[str, object] | None = None) -> AsyncIterator[Served]:
    """Run `python -m local` on free ports, with the queues of this `Config.json`.

    Raises: ServerError, with what it said, when it doesn't start.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "host.json").write_text("{}", encoding="utf-8")  # so that it writes .stack.json here
        arguments = [part for port in ("amqp", "admin", "cosmos", "control") for part in (f"--{port}-port", "0")]
        if config is not None:
            (folder / "Config.json").write_text(json.dumps(config), encoding="utf-8")
            arguments += ["--config", str(folder / "Config.json")]
        async with running("-m", "local", *arguments, folder=folder, ready=b"ready") as process:
            yield Served(json.loads((folder / ".stack.json").read_text(encoding="utf-8")), process)


@contextlib.asynccontextmanager
async def running(*arguments: str, folder: Path, ready: bytes) -> AsyncIterator[psutil.Process]:
    """Run Python with these arguments from its first line that begins with `ready` until the block ends.

    Raises: ServerError, with what it said, when that line does not come.
    """
    with (folder / "log").open("w+b") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=folder, env=_environment(), stdout=log, stderr=log
        )
        try:
            await _until_ready(process, folder / "log", ready)
            yield psutil.Process(process.pid)
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _until_ready(process: asyncio.subprocess.Process, log: Path, ready: bytes) -> None:
    for _ in range(int(START_SECONDS * 10)):
        said = await asyncio.to_thread(log.read_bytes)
        if any(line.startswith(ready) for line in said.splitlines()):
            return
        if process.returncode is not None:
            break
        await asyncio.sleep(0.1)
    raise ServerError(f"the server did not start: {said.decode(errors='replace')}")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def queue_config(name: str, **properties: object) -> dict[str, object]:
    """Make a `Config.json` of one queue."""
    queue = {"Name": name, "Properties": properties}
    namespace = {"Name": "sbemulatorns", "Queues": [queue], "Topics": []}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}
