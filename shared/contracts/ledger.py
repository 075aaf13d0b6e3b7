"""The messages of the queues `ledger` and `ledger-entries` (docs/contracts.md, sections 4.5 and 4.6)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.values import Amount, Count, Currency, Id, Listed, Part, Position, Stream

LARGEST_BATCH_TRANSACTIONS = 2000

EntryKind = Literal["add", "amend", "void", "close"]


class Transaction(Part):
    """One transaction of a ledger: it names one order and never spans two."""

    transaction_id: Id
    order_id: Id
    kind: EntryKind
    amount: Amount | None = None
    refers_to: Id | None = None
    sequence: Position | None = None
    entry_count: Count | None = None


class LedgerBatch(Part):
    """Transactions of a ledger, in order."""

    type: Literal["ledger.batch"] = "ledger.batch"
    schema_version: Literal[1] = 1
    ledger_id: Id
    batch_id: Id
    batch_sequence: Position | None = None
    currency: Currency
    transactions: Annotated[
        tuple[Transaction, ...],
        Listed,
        Field(min_length=1, max_length=LARGEST_BATCH_TRANSACTIONS),
    ]
    meta: dict[str, object] | None = None


class LedgerEntry(Part):
    """One posting for one order."""

    type: Literal["ledger.entry"] = "ledger.entry"
    schema_version: Literal[1] = 1
    order_id: Id
    stream: Stream
    transaction_id: Id
    sequence: Position | None = None
    kind: EntryKind
    amount: Amount | None = None
    currency: Currency
    refers_to: Id | None = None
    entry_count: Count | None = None
    meta: dict[str, object] | None = None
