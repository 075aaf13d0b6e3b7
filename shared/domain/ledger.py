"""A ledger's batches: their order, and the entries that they cause (docs/contracts.md, section 6: Ledger batches)."""

from __future__ import annotations

from dataclasses import dataclass

from shared.contracts.documents import LedgerSequence
from shared.contracts.ledger import LedgerBatch, LedgerEntry, Transaction
from shared.domain.streams import SkipRefused, unskippable
from shared.errors import Reason


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch is next: store it with this state, in which it is the unfinished one."""

    state: LedgerSequence


@dataclass(frozen=True, slots=True)
class ResumeFirst:
    """Another batch (a document id) is unfinished; no batch overtakes the rest of its predecessor."""

    document_id: str


@dataclass(frozen=True, slots=True)
class ThisOne:
    """This very batch is the unfinished one: its record decides."""


@dataclass(frozen=True, slots=True)
class Known:
    """Its number was used: its record decides, and without one the number belongs to another batch."""

    description: str
    reason: Reason = Reason.SEQUENCE_CONFLICT


@dataclass(frozen=True, slots=True)
class Refuse:
    """The batch is parked."""

    reason: Reason
    description: str


BatchVerdict = Accept | ResumeFirst | ThisOne | Known | Refuse


def stream_of(ledger_id: str) -> str:
    """The stream of each order that a ledger's transactions belong to."""
    return f"ledger.{ledger_id}"


def entries_of(batch: LedgerBatch) -> tuple[LedgerEntry, ...]:
    """One entry for each transaction, in order."""
    return tuple(_entry_of(batch, transaction) for transaction in batch.transactions)


def decide_batch(state: LedgerSequence | None, batch: LedgerBatch, document_id: str) -> BatchVerdict:
    """Say what to do with a batch whose document would have this id; no state means that none was ever accepted."""
    number = batch.batch_sequence
    if state is None:
        state = LedgerSequence(ledger_id=batch.ledger_id, next_batch=None if number is None else 1)
    if state.unfinished == document_id:
        return ThisOne()
    if state.unfinished is not None:
        return ResumeFirst(state.unfinished)
    if (number is None) != (state.next_batch is None):
        needs = "none" if state.next_batch is None else "a number"
        return Refuse(Reason.SEQUENCE_CONFLICT, f"batchSequence: expected {needs}, as in the ledger's other batches")
    if number is None or state.next_batch is None:
        return Accept(state.model_copy(update={"unfinished": document_id}))
    if number > state.next_batch:
        return Refuse(Reason.SEQUENCE_GAP, f"batchSequence: expected {state.next_batch}, found {number}")
    if number < state.next_batch:
        return Known(f"batchSequence: {number} belongs to another batch or was skipped, expected {state.next_batch}")
    return Accept(state.model_copy(update={"unfinished": document_id, "next_batch": number + 1}))


def skip_batches(
    state: LedgerSequence | None, *, ledger_id: str, first: int, last: int
) -> LedgerSequence | SkipRefused:
    """Pass over batches that will never come; a ledger that starts in the middle is skipped up to its first number."""
    state = state or LedgerSequence(ledger_id=ledger_id, next_batch=1)
    if state.next_batch is None:
        return SkipRefused("batch: the ledger's batches have no numbers")
    refused = unskippable("batch", state.next_batch, first, last)
    return refused or state.model_copy(update={"next_batch": last + 1})


def _entry_of(batch: LedgerBatch, transaction: Transaction) -> LedgerEntry:
    members = transaction.model_dump(by_alias=True, exclude_none=True)
    return LedgerEntry.model_validate({**members, "stream": stream_of(batch.ledger_id), "currency": batch.currency})
