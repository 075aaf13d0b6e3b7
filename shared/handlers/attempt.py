"""One attempt: an invocation of a handler, or one record in one run of the sweep.

What is repeated is the failed I/O call, never the handler: an attempt keeps its token, its ETags and the answers that
it has had. Repetitions and waits end with the attempt's budget; a first try is always made, so an answer that is
already there is always written once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.domain.failures import backoff_seconds
from shared.errors import AppError, LostRaceError, TransientError
from shared.ports import Clock, Tokens

T = TypeVar("T")

LOST_RACES_AT_ONCE = 5


class Attempt:
    """The claim token and the time budget of one attempt."""

    def __init__(self, clock: Clock, tokens: Tokens, budget_seconds: float) -> None:
        self.token = tokens.token()
        self._clock = clock
        self._tokens = tokens
        self._budget_seconds = budget_seconds
        self._started = clock.monotonic()

    @property
    def seconds(self) -> float:
        """How long this attempt has been running."""
        return self._clock.monotonic() - self._started

    def pace(self) -> Pace:
        """A new row of waits, from the shortest on."""
        return Pace(self)

    def races(self, at_once: int = LOST_RACES_AT_ONCE) -> Races:
        """A new count of lost races."""
        return Races(self, at_once)

    async def io(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make one I/O call, and the same call again while it fails transiently and the budget lasts.

        Raises: what the call raised last.
        """
        pace = self.pace()
        while True:
            try:
                return await call()
            except TransientError as error:
                await pace.wait_or_raise(error)

    async def wait(self, step: int) -> bool:
        """Wait the back-off of a step, at most to the end of the budget; False, without waiting, when that is over.

        The budget is used up to its end: whoever gives up abandons the message, and that comes back at once.
        """
        left = self._budget_seconds - self.seconds
        if left <= 0:
            return False
        await self._clock.sleep(min(backoff_seconds(step, self._tokens.fraction()), left))
        return True


class Pace:
    """Waits that grow, until the budget is over."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._step = 0

    async def wait_or_raise(self, error: AppError) -> None:
        """Wait one step longer than the last time, or raise the error when the budget is over."""
        if not await self._attempt.wait(self._step):
            raise error
        self._step += 1


class Races:
    """Lost races: the first few are decided anew at once, the others at the pace of the back-off."""

    def __init__(self, attempt: Attempt, at_once: int) -> None:
        self._left = at_once
        self._pace = attempt.pace()

    async def lost(self, what: str) -> None:
        """Count a lost race; raises LostRaceError when the budget is over."""
        if self._left > 0:
            self._left -= 1
            return
        await self._pace.wait_or_raise(LostRaceError(f"{what}: somebody else wrote first, again and again"))
