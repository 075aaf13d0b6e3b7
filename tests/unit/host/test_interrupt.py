"""Commands end in order at the first signal, at once at the second, and never for a reason that nobody gave."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from local.interrupt import on_signals, run_to_the_end

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


async def killed(number: int) -> str:
    try:
        os.kill(os.getpid(), number)
        await asyncio.sleep(30)
    finally:
        ended.append(number)
    return "never"


ended: list[int] = []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_lets_the_work_end_in_order(number: int) -> None:
    ended.clear()
    with pytest.raises(KeyboardInterrupt):
        run_to_the_end(killed(number))
    assert ended == [number]


def test_a_result_is_given_and_a_cancellation_of_its_own_is_no_interruption() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def done() -> str:
        return "done"

    assert run_to_the_end(done()) == "done"
    with pytest.raises(asyncio.CancelledError):
        run_to_the_end(cancelled())


@pytest.mark.parametrize("has_loops_own", [True, False], ids=["posix", "windows"])
async def test_signals_are_the_block_s_and_then_whose_they_were(
    has_loops_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    if not has_loops_own:

        def missing(*_: object) -> None:
            raise NotImplementedError

        monkeypatch.setattr(loop, "add_signal_handler", missing)
    before, told = signal.getsignal(signal.SIGTERM), asyncio.Queue[str]()
    with on_signals(told.put_nowait):
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(told.get(), 10) == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == before
