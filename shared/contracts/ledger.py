"""The messages of the queues `ledger` and `ledger-entries` (docs/contracts.md, "Messages")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.values import (
    Amount,
    Count,
    Currency,
    Id,
    Maybe,
    Meta,
    One,
    Part,
    Position,
    Stream,
    listed,
)

LARGEST_BATCH_TRANSACTIONS = 2000

EntryKind = Literal["add", "amend", "void", "close"]


class Transaction(Part):
    """One transaction of a ledger: it names one order and never spans two."""

    transaction_id: Id
    order_id: Id
    kind: EntryKind
    amount: Maybe[Amount] = None
    refers_to: Maybe[Id] = None
    sequence: Maybe[Position] = None
    entry_count: Maybe[Count] = None


class LedgerBatch(Part):
    """Transactions of a ledger, in order."""

    type: Literal["ledger.batch"] = "ledger.batch"
    schema_version: One = 1
    ledger_id: Id
    batch_id: Id
    batch_sequence: Maybe[Position] = None
    currency: Currency
    transactions: Annotated[
        tuple[Transaction, ...],
        Field(min_length=1, max_length=LARGEST_BATCH_TRANSACTIONS),
        listed(LARGEST_BATCH_TRANSACTIONS),
    ]
    meta: Maybe[Meta] = None


class LedgerEntry(Part):
    """One posting for one order."""

    type: Literal["ledger.entry"] = "ledger.entry"
    schema_version: One = 1
    order_id: Id
    stream: Stream
    transaction_id: Id
    sequence: Maybe[Position] = None
    kind: EntryKind
    amount: Maybe[Amount] = None
    currency: Currency
    refers_to: Maybe[Id] = None
    entry_count: Maybe[Count] = None
    meta: Maybe[Meta] = None
