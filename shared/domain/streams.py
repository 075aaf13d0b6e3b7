"""The resequencer: what happens to an entry, as data (docs/contracts.md, section 6).

An order's ledger has streams. In a sequenced stream the entry with the number `next` is applied, a later one is held
(stored durably, its message completed) until its predecessors came or were skipped, and the entry or the skip that
closes a gap releases the whole run behind it: nothing is left to release later. A stream without numbers is applied as
it comes. A `close` ends a stream: it has a place in `next` and in the order's positions, but is no posting, so the
stream's `applied` does not count it.

`decide_entry` walks the rows that docs/decisions.md shows. State in, state out: the caller stores the entry, the
releases and the state in one batch, conditional on the state's ETag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeVar

from shared.contracts.documents import Closed, HeldEntry, LedgerState, StreamState
from shared.contracts.ledger import LedgerEntry
from shared.domain import amounts
from shared.domain.verdicts import Outcome
from shared.errors import Reason

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Release:
    """A held entry (its document id) that is not held any more."""

    id: str
    status: Literal["applied", "refused"]
    position: int | None


@dataclass(frozen=True, slots=True)
class Apply:
    """The entry takes its place in the order's ledger, and so do the held ones behind it."""

    state: LedgerState
    position: int
    releases: tuple[Release, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """The entry waits for its predecessor."""

    state: LedgerState


@dataclass(frozen=True, slots=True)
class Refuse:
    """The entry is parked."""

    reason: Reason
    description: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Numbers that will never come are passed over, and the held entries behind them released."""

    state: LedgerState
    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True)
class SkipRefused:
    """The numbers cannot be skipped."""

    description: str


EntryVerdict = Apply | Hold | Refuse


class Action(StrEnum):
    """What a row says about an entry whose document is not there."""

    APPLY = "apply"
    HOLD = "hold"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Situation:
    """An entry beside its stream. `sequence` and `next` are 0 where there is none: those rows come first."""

    entry: LedgerEntry
    stream: StreamState
    held_max: int

    @property
    def sequence(self) -> int:
        """The entry's number."""
        return self.entry.sequence or 0

    @property
    def next(self) -> int:
        """The number that is expected."""
        return self.stream.next or 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row; the first whose condition holds decides.

    In words: `when` is the condition, for the docs; `says` is what happens, or why an entry is refused.
    """

    when: str
    holds: Callable[[Situation], bool]
    action: Action
    reason: Reason | None = None
    says: str = ""


TABLE: Final[tuple[Row, ...]] = (
    Row(
        "the stream's entries have numbers and this has none, or the reverse",
        lambda it: (it.entry.sequence is None) == it.stream.sequenced,
        Action.REFUSE,
        Reason.SEQUENCE_CONFLICT,
        "the stream's entries have numbers and this one has none, or the reverse",
    ),
    Row(
        "no sequence; closed and complete, or this is a second `close`",
        lambda it: (
            not it.stream.sequenced
            and it.stream.closed is not None
            and (it.stream.closed.complete or it.entry.kind == "close")
        ),
        Action.REFUSE,
        Reason.SEQUENCE_CLOSED,
        "the stream is closed",
    ),
    Row(
        "no sequence, otherwise",
        lambda it: not it.stream.sequenced,
        Action.APPLY,
        says="apply",
    ),
    Row(
        "sequence < next",
        lambda it: it.sequence < it.next,
        Action.REFUSE,
        Reason.SEQUENCE_CONFLICT,
        "another entry has this number, or it was skipped",
    ),
    Row(
        "sequence ≥ next, closed",
        lambda it: it.stream.closed is not None,
        Action.REFUSE,
        Reason.SEQUENCE_CLOSED,
        "the stream is closed",
    ),
    Row(
        "sequence = next",
        lambda it: it.sequence == it.next,
        Action.APPLY,
        says="apply, and release held successors",
    ),
    Row(
        "sequence > next, number already held by another entry",
        lambda it: any(held.sequence == it.sequence for held in it.stream.held),
        Action.REFUSE,
        Reason.SEQUENCE_CONFLICT,
        "another entry with this number is held",
    ),
    Row(
        "sequence > next, fewer than `HELD_MAX_PER_STREAM` held",
        lambda it: len(it.stream.held) < it.held_max,
        Action.HOLD,
        says="store as `held`, complete",
    ),
    Row(
        "sequence > next, held full",
        lambda _: True,
        Action.REFUSE,
        Reason.HELD_LIMIT_EXCEEDED,
        "the stream holds as many entries as it may",
    ),
)


def decide_known(*, same_hash: bool, mine: bool) -> Outcome:
    """Say what an entry's document that is there already means for this message, whatever the stream's state."""
    if not same_hash:
        return Outcome.CONFLICT
    return Outcome.MINE if mine else Outcome.DUPLICATE


def decide_entry(state: LedgerState | None, entry: LedgerEntry, document_id: str, held_max: int) -> EntryVerdict:
    """Say what to do with an entry that has no document yet; no state means that its order has no entries."""
    state = state or LedgerState(order_id=entry.order_id)
    stream = state.streams.get(entry.stream) or _new_stream(sequenced=entry.sequence is not None)
    situation = Situation(entry, stream, held_max)
    row = next(row for row in TABLE if row.holds(situation))
    match row.action:
        case Action.APPLY:
            position, work = state.applied + 1, _Work(state, entry.stream, stream)
            work.apply(entry.kind, entry.amount, entry.currency, entry.entry_count)
            work.release()
            return Apply(work.state(), position, tuple(work.releases))
        case Action.HOLD:
            return Hold(_with_stream(state, entry.stream, _holding(stream, entry, document_id)))
        case Action.REFUSE:
            return Refuse(row.reason or Reason.SEQUENCE_CONFLICT, _description(row, situation))


def skip(state: LedgerState | None, *, order_id: str, stream: str, first: int, last: int) -> Skipped | SkipRefused:
    """Pass over the numbers from `first` to `last`, and release what waited for them.

    Refuses anything but a run that begins with the expected number and ends below the lowest held one.
    """
    state = state or LedgerState(order_id=order_id)
    found = state.streams.get(stream) or _new_stream(sequenced=True)
    if found.next is None:
        return SkipRefused(f"{stream}: its entries have no numbers")
    if found.closed is not None:
        return SkipRefused(f"{stream}: it is closed")
    refused = unskippable(stream, found.next, first, last)
    if refused is not None:
        return refused
    if found.held and last >= found.held[0].sequence:
        return SkipRefused(f"{stream}: {found.held[0].sequence} is held, so a skip ends below it, not with {last}")
    work = _Work(state, stream, found)
    work.next = last + 1
    work.release()
    return Skipped(work.state(), tuple(work.releases))


def unskippable(what: str, expected: int, first: int, last: int) -> SkipRefused | None:
    """Why these numbers of a stream, of commands or of batches cannot be skipped; None if they can."""
    if first != expected:
        return SkipRefused(f"{what}: a skip begins with the expected number, {expected}, not with {first}")
    if last < first:
        return SkipRefused(f"{what}: the last number, {last}, is below the first, {first}")
    return None


class _Work:
    """A ledger's state on its way from one value to the next."""

    def __init__(self, state: LedgerState, name: str, stream: StreamState) -> None:
        self._state, self._name, self._stream = state, name, stream
        self.next = stream.next
        self.releases: list[Release] = []
        self._applied, self._closed, self._held = stream.applied, stream.closed, list(stream.held)
        self._positions, self._balances = state.applied, dict(state.balances)

    def apply(self, kind: str, amount: str | None, currency: str, entry_count: int | None) -> int:
        """Give an entry the next position; returns it."""
        self._positions += 1
        if kind == "close":
            self._close(_given(entry_count))
        else:
            self._applied += 1
            self._balances[currency] = amounts.add(self._balances.get(currency, "0"), _given(amount))
            if self._closed is not None:
                self._close(self._closed.entry_count)
        if self.next is not None:
            self.next += 1
        return self._positions

    def release(self) -> None:
        """Apply the run of held entries that begins with the expected number; behind a close refuse the rest."""
        while self._held and self._closed is None and self._held[0].sequence == self.next:
            held = self._held.pop(0)
            position = self.apply(held.kind, held.amount, held.currency, held.entry_count)
            self.releases.append(Release(held.id, "applied", position))
        if self._closed is not None:
            self.releases += [Release(held.id, "refused", None) for held in self._held]
            self._held = []

    def _close(self, entry_count: int) -> None:
        # In a sequenced stream, whatever below the close was not applied was skipped.
        expected = entry_count if self.next is None else self.next - 1
        self._closed = Closed(entry_count=entry_count, complete=self._applied == expected)

    def state(self) -> LedgerState:
        """The new state; members that this release does not know are kept."""
        stream = self._stream.model_copy(
            update={"next": self.next, "applied": self._applied, "closed": self._closed, "held": tuple(self._held)}
        )
        state = self._state.model_copy(update={"applied": self._positions, "balances": self._balances})
        return _with_stream(state, self._name, stream)


def _new_stream(*, sequenced: bool) -> StreamState:
    return StreamState(sequenced=sequenced, next=1 if sequenced else None)


def _with_stream(state: LedgerState, name: str, stream: StreamState) -> LedgerState:
    return state.model_copy(update={"streams": {**state.streams, name: stream}})


def _holding(stream: StreamState, entry: LedgerEntry, document_id: str) -> StreamState:
    held = HeldEntry(
        sequence=entry.sequence or 0,
        id=document_id,
        kind=entry.kind,
        amount=entry.amount,
        currency=entry.currency,
        entry_count=entry.entry_count,
    )
    return stream.model_copy(update={"held": tuple(sorted((*stream.held, held), key=lambda one: one.sequence))})


def _given(value: T | None) -> T:
    if value is None:
        raise ValueError("entry: a posting has an amount, a close an entryCount")
    return value


def _description(row: Row, it: Situation) -> str:
    if not it.stream.sequenced or it.entry.sequence is None:
        return f"sequence: {row.says}"
    return f"sequence: expected {it.next}, found {it.entry.sequence}; {row.says}"
