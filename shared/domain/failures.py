"""Errors and their reactions, the back-off, and the poison rule (docs/contracts.md, section 10).

A delivery count alone never means poison: it cannot tell a bad message from one that sat through an outage. From
`POISON_AFTER_DELIVERIES` on each attempt is noted (document `attempt`); the note tells dead workers and unexpected
exceptions from orderly ends:

    no note --start--> worker W, crashes 0, exceptions 0
    a note  --start--> worker W; crashes + 1 if it named another worker (that one died in the attempt)
            --end----> settled (completed or parked): no note
                       abandoned in order:            worker null, crashes 0
                       unexpected exception:          worker null, crashes 0, exceptions + 1
    crashes 3 at a start, exceptions 3 at an end: poison
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.contracts.documents import AttemptNote
from shared.domain.verdicts import Outcome
from shared.errors import InFlightError, PermanentError, Reason, TransientError

FIRST_BACKOFF_SECONDS: Final = 0.2
LONGEST_BACKOFF_SECONDS: Final = 10.0
POISON_CRASHES: Final = 3
POISON_EXCEPTIONS: Final = 3
POISON_ATTEMPTS_AHEAD: Final = 10

_JITTER: Final = 0.25


class Settlement(StrEnum):
    """What the host does with the message: the trigger returned, or it raised."""

    COMPLETE = "complete"
    ABANDON = "abandon"


SETTLEMENTS: Final[dict[Outcome, Settlement]] = {
    Outcome.CREATED: Settlement.COMPLETE,
    Outcome.APPLIED: Settlement.COMPLETE,
    Outcome.REJECTED: Settlement.COMPLETE,
    Outcome.DUPLICATE: Settlement.COMPLETE,
    Outcome.STALE: Settlement.COMPLETE,
    Outcome.MINE: Settlement.COMPLETE,
    Outcome.RESUMED: Settlement.COMPLETE,
    Outcome.TAKEN_OVER: Settlement.COMPLETE,
    Outcome.HELD: Settlement.COMPLETE,
    Outcome.CONFLICT: Settlement.COMPLETE,
    Outcome.QUARANTINED: Settlement.COMPLETE,
    Outcome.IN_FLIGHT: Settlement.ABANDON,
    Outcome.TRANSIENT: Settlement.ABANDON,
    Outcome.FAILED: Settlement.ABANDON,
}


def outcome_of(error: Exception) -> Outcome:
    """The outcome of a delivery whose handler raised this; a permanent one presumes that the copy can be parked."""
    match error:
        case PermanentError(reason=Reason.PAYLOAD_MISMATCH):
            return Outcome.CONFLICT
        case PermanentError():
            return Outcome.QUARANTINED
        case InFlightError():
            return Outcome.IN_FLIGHT
        case TransientError():
            return Outcome.TRANSIENT
        case _:
            return Outcome.FAILED


def backoff_seconds(step: int, fraction: float) -> float:
    """How long to wait at a step, counted from 0: about 0.2 s first, doubled to at most 10 s.

    `fraction`, from 0 to 1, spreads each wait by a quarter to both sides, also the longest, so that workers that
    failed together do not come back together.
    """
    doubled = FIRST_BACKOFF_SECONDS * 2.0 ** min(max(step, 0), 10)
    spread = 1 - _JITTER + 2 * _JITTER * fraction
    return min(doubled, LONGEST_BACKOFF_SECONDS / (1 + _JITTER)) * spread


def is_poison_claim(attempts: int, delivery_count: int) -> bool:
    """Whether so many attempts had the claim that most of them died where the broker did not count the delivery."""
    return attempts - delivery_count > POISON_ATTEMPTS_AHEAD


class Ending(StrEnum):
    """How an attempt ended, where it did end."""

    SETTLED = "settled"
    ABANDONED = "abandoned"
    EXCEPTION = "exception"


@dataclass(frozen=True, slots=True)
class Poison:
    """The message is to be parked as `PoisonMessage`; `note` is the note as it stands until it is deleted."""

    description: str
    note: AttemptNote


def started(note: AttemptNote | None, *, note_id: str, session_id: str, worker: str) -> AttemptNote | Poison:
    """The note to write before an attempt of this worker process, from the one that is there."""
    if note is None:
        return AttemptNote(id=note_id, session_id=session_id, worker=worker)
    # The own id is what a removal that failed in an outage leaves behind: no crash.
    died = note.worker is not None and note.worker != worker
    mine = note.model_copy(update={"worker": worker, "crashes": note.crashes + 1 if died else note.crashes})
    if mine.crashes >= POISON_CRASHES:
        return Poison(f"the worker died in each of the last {mine.crashes} attempts", mine)
    return mine


def ended(note: AttemptNote, ending: Ending, exception: str | None = None) -> AttemptNote | Poison | None:
    """The note to write after an attempt that ended; None: delete it. `exception` names the type of an unexpected
    one."""
    if ending is Ending.SETTLED:
        return None
    exceptions = note.exceptions + 1 if ending is Ending.EXCEPTION else note.exceptions
    free = note.model_copy(update={"worker": None, "crashes": 0, "exceptions": exceptions})
    if ending is Ending.EXCEPTION and exceptions >= POISON_EXCEPTIONS:
        return Poison(f"unexpected {exception or 'exception'}, {exceptions} attempts ended so", free)
    return free
