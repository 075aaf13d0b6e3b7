"""The budget of an attempt (docs/contracts.md, section 10): it bounds repetitions and waits, never a first try."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from shared.errors import InFlightError, LostRaceError, PermanentError, Reason, TransientError, UnknownCommitError
from shared.handlers.attempt import Attempt, Races

BUDGET = 60.0


@dataclass
class Clock:
    """Passes in waits only."""

    seconds: float = 1000.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds


@dataclass
class Tokens:
    """Always this fraction."""

    part: float = 0.5

    def token(self) -> str:
        return "0" * 32

    def fraction(self) -> float:
        return self.part


@dataclass
class Call:
    """Fails so often, and takes so long each time."""

    clock: Clock
    failures: int
    seconds: float = 0.0
    error: Exception = field(default_factory=lambda: TransientError("away"))
    tries: int = 0

    async def __call__(self) -> str:
        self.tries += 1
        self.clock.seconds += self.seconds
        if self.tries <= self.failures:
            raise self.error
        return "done"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def attempt(clock: Clock, budget: float = BUDGET, part: float = 0.5) -> Attempt:
    return Attempt(clock, Tokens(part), budget)


async def test_a_failed_call_is_made_again_at_growing_distances(clock: Clock) -> None:  # R23 R47
    call = Call(clock, failures=7)
    assert await attempt(clock).io(call) == "done"
    assert call.tries == 8
    assert clock.waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0])


@pytest.mark.parametrize("part", [0.0, 0.37, 1.0])
@pytest.mark.parametrize("seconds", [0.0, 0.1, 7.0])
async def test_giving_up_is_for_the_end_of_the_budget(clock: Clock, part: float, seconds: float) -> None:  # D31
    """Not before it: an abandoned message comes back at once. Not behind it, but for the last try."""
    call = Call(clock, failures=10**6, seconds=seconds)
    with pytest.raises(TransientError, match="away"):
        await attempt(clock, part=part).io(call)
    assert BUDGET <= clock.seconds - 1000 <= BUDGET + seconds + 1e-6
    assert max(clock.waits) <= 10


async def test_a_first_try_is_made_also_when_the_budget_is_over(clock: Clock) -> None:  # C46
    late = attempt(clock)
    clock.seconds += 2 * BUDGET
    assert await late.io(Call(clock, failures=0)) == "done"
    once = Call(clock, failures=1)
    with pytest.raises(TransientError):
        await late.io(once)
    assert (once.tries, clock.waits) == (1, [])


async def test_without_a_budget_nothing_is_repeated(clock: Clock) -> None:
    """So the sweep: the next run is the repetition."""
    call = Call(clock, failures=1)
    with pytest.raises(TransientError):
        await attempt(clock, budget=0).io(call)
    assert (call.tries, clock.waits) == (1, [])


async def test_all_calls_of_an_attempt_share_its_budget(clock: Clock) -> None:
    one = attempt(clock)
    for _ in range(40):
        call = Call(clock, failures=1, seconds=1)
        try:
            await one.io(call)
        except TransientError:
            break
    assert clock.seconds - 1000 <= BUDGET + 1


@pytest.mark.parametrize(
    "error",
    [PermanentError(Reason.ITEM_TOO_LARGE, "x"), InFlightError("x"), ValueError("x"), KeyError("x")],
    ids=lambda error: type(error).__name__,
)
async def test_only_transient_errors_are_repeated(clock: Clock, error: Exception) -> None:
    call = Call(clock, failures=1, error=error)
    with pytest.raises(type(error)):
        await attempt(clock).io(call)
    assert (call.tries, clock.waits) == (1, [])


@pytest.mark.parametrize("error", [UnknownCommitError("x"), LostRaceError("x")], ids=lambda error: type(error).__name__)
async def test_kinds_of_transient_errors_are(clock: Clock, error: Exception) -> None:
    assert await attempt(clock).io(Call(clock, failures=1, error=error)) == "done"


async def test_a_cancelled_call_is_not_repeated(clock: Clock) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await attempt(clock).io(cancelled)
    assert clock.waits == []


async def _lose_for_ever(races: Races) -> None:
    while True:
        await races.lost("x")


async def test_five_lost_races_are_decided_anew_at_once_and_the_others_at_the_pace(clock: Clock) -> None:  # D40
    races = attempt(clock).races()
    for _ in range(5):
        await races.lost("x")
    assert clock.waits == []
    with pytest.raises(LostRaceError):
        await _lose_for_ever(races)
    assert clock.seconds - 1000 == pytest.approx(BUDGET)
    assert clock.waits[:3] == pytest.approx([0.2, 0.4, 0.8])


async def test_a_pace_raises_what_it_is_told_when_the_budget_is_over(clock: Clock) -> None:
    pace = attempt(clock, budget=0.5).pace()
    await pace.wait_or_raise(InFlightError("x"))
    await pace.wait_or_raise(InFlightError("x"))
    with pytest.raises(InFlightError):
        await pace.wait_or_raise(InFlightError("x"))
    assert clock.waits == pytest.approx([0.2, 0.3])


@pytest.mark.parametrize(("deliveries", "wait"), [(1, 0.2), (2, 0.4), (5, 3.2), (6, 6.4), (7, 8.0), (900, 8.0)])
async def test_a_single_wait_is_longer_with_each_delivery(clock: Clock, deliveries: int, wait: float) -> None:
    assert await attempt(clock).wait(deliveries - 1)
    assert clock.waits == pytest.approx([wait])


async def test_there_is_no_wait_behind_the_budget(clock: Clock) -> None:
    late = attempt(clock)
    clock.seconds += BUDGET
    assert not await late.wait(0)
    assert clock.waits == []
