"""How the commands that run to an end of their own are ended before it, and where their words go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from rich.console import Console

T = TypeVar("T")

INTERRUPTED: Final = 130


class LastingConsole(Console):
    """A console that falls silent when nobody reads it any more (`… | head`): the work goes on, the exit code tells.

    On Windows a pipe without a reader is another error, which ends the command.
    """

    def on_broken_pipe(self) -> None:
        """Write no more. Rich would leave the program, from wherever the line came: here, from inside of a task."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


def run_to_the_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. The first Ctrl-C or SIGTERM lets it end in order, the second leaves at once.

    In order means: only this task is cancelled. asyncio's own handling of a second Ctrl-C cancels every task, also
    those that make the order, and then waits for them for ever.

    Raises: KeyboardInterrupt, when it was ended so.
    """
    asked: list[str] = []
    try:
        return asyncio.run(_handled(coroutine, asked))
    except asyncio.CancelledError:
        if not asked:
            raise
        raise KeyboardInterrupt from None


async def _handled(coroutine: Coroutine[Any, Any, T], asked: list[str]) -> T:
    task = asyncio.ensure_future(coroutine)

    def end(name: str) -> None:
        asked.append(name)
        if len(asked) > 1:
            os._exit(INTERRUPTED)  # worker processes end with this one
        task.cancel()

    with on_signals(end):
        return await task


@contextlib.contextmanager
def on_signals(call: Callable[[str], None]) -> Iterator[None]:
    """Let the running loop make a call with the name of each signal that asks this process to end, in this block."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as back:
        for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
            number = getattr(signal, name, None)
            if number is None:
                continue
            try:
                loop.add_signal_handler(number, call, name)
                back.callback(loop.remove_signal_handler, number)
            except NotImplementedError:  # Windows
                before = signal.signal(number, lambda *_, name=name: loop.call_soon_threadsafe(call, name))
                back.callback(signal.signal, number, before)
        yield
