"""Compares one stored document, or one owner's, with the one state that is expected: pure, a difference at a time.

Each difference is the rule that it breaks and what it is.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from local.demo.jsontext import url_text
from local.demo.model import Command, Entry, Ledger, Order, Posting, Stream
from local.demo.readings import entry_id

Document = Mapping[str, object]


def document_id(key: str, *, may_be_event: bool = True) -> str:
    """Make the id of a key's document: itself where that is safe, else encoded (contracts 3)."""
    safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    if key and key[0] in safe and all(character in safe + "._:@+=-" for character in key):
        return key
    return f"~{'c' if may_be_event and key.startswith('[') and _is_event_key(key) else 'x'}~{url_text(key.encode())}"


def _is_event_key(key: str) -> bool:
    try:
        value = json.loads(key)
    except ValueError:
        return False
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def decimal_of(value: object) -> Decimal | None:
    """A stored amount; None where it is none."""
    try:
        return Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None


def member(document: object, *path: str) -> object:
    """What stands at a path of names; None where nothing does."""
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def integer_of(value: object) -> int | None:
    """A stored whole number; None where it is none."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def order_differences(order: str, state: Order, documents: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """An order and its commands."""
    rest = {str(document.get("id")): document for document in documents}
    if len(rest) != len(documents):
        yield "order", "a document stands twice"
    if state.state:
        document = rest.pop(document_id(order, may_be_event=False), None)
        if document is None:
            yield "lost", "the order is not there"
        else:
            first = len(state.postings) - sum(command.caused for command in state.commands)
            yield from _content_differences(state, document)
            yield from record_differences(document, state.key, state.digest, state.postings[:first])
        at = len(state.postings) - sum(command.caused for command in state.commands)
        for command in state.commands:
            stored = rest.pop(document_id(command.key), None)
            mine = state.postings[at : at + command.caused]
            at += command.caused
            if stored is None:
                yield "lost", f"the command {command.key!r} left no record"
            else:
                yield from _command_differences(command, stored, mine)
    for name in rest:
        yield "order", f"unexpected document {name!r}"


def _content_differences(state: Order, document: Document) -> Iterator[tuple[str, str]]:
    lines = document.get("lines")
    stored = [
        (
            member(line, "lineId"),
            member(line, "sku"),
            integer_of(member(line, "quantity")),
            decimal_of(member(line, "unitPrice")),
            decimal_of(member(line, "amount")),
            member(line, "entry"),
        )
        for line in (lines if isinstance(lines, list) else [])
    ]
    fulfilment = document.get("fulfilment")
    pairs: list[tuple[str, object, object]] = [
        ("type", document.get("type"), "order"),
        ("customerId", document.get("customerId"), state.customer),
        ("currency", document.get("currency"), state.currency),
        ("state", document.get("state"), state.state),
        (
            "fulfilment",
            None if fulfilment is None else (member(fulfilment, "status"), integer_of(member(fulfilment, "version"))),
            state.fulfilment,
        ),
        ("lines", stored, [tuple(line) for line in state.lines]),
        ("total", decimal_of(document.get("total")), state.total),
        ("sequenced", document.get("sequenced"), state.sequenced),
        ("nextCommand", integer_of(document.get("nextCommand")), state.next_command),
        ("nextEntry", integer_of(document.get("nextEntry")), len(state.postings) + 1),
    ]
    if not any(command.rejected for command in state.commands):
        pairs.append(("revision", integer_of(document.get("revision")), state.revision))
    for name, found, wanted in pairs:
        if found != wanted:
            yield "total" if name == "total" else "order", f"{name}: {_short(found)}, expected {_short(wanted)}"
    if "ttl" in document:
        yield "order", "an order must not expire, but has a ttl"


def _command_differences(
    command: Command, document: Document, postings: Sequence[Posting]
) -> Iterator[tuple[str, str]]:
    for name, found, wanted in (
        ("type", document.get("type"), "command"),
        ("kind", document.get("kind"), command.kind),
        ("operationId", document.get("operationId"), command.operation),
        ("sequence", integer_of(document.get("sequence")), command.sequence),
    ):
        if found != wanted:
            yield "command", f"{command.key!r}: {name} {found!r}, expected {wanted!r}"
    outcome, reason = member(document, "record", "result", "outcome"), member(document, "record", "result", "reason")
    is_told = reason in command.rejected if command.rejected else reason is None
    if outcome != ("rejected" if command.rejected else "applied") or not is_told:
        yield "command", f"{command.key!r}: {outcome} {reason or ''}, expected {sorted(command.rejected) or 'applied'}"
    yield from record_differences(document, command.key, command.digest, postings)
    if "ttl" not in document:
        yield "command", f"{command.key!r}: a completed command expires, but has no ttl"


def record_differences(
    document: Document, key: str, digest: str, postings: Sequence[Posting] | None
) -> Iterator[tuple[str, str]]:
    """Check the protocol's part: the right message, completed, and the proof of what it sent."""
    if member(document, "record", "key") != key:
        yield "record", f"{document.get('id')!r} has the key {member(document, 'record', 'key')!r}, expected {key!r}"
    if member(document, "record", "payloadHash") != digest:
        yield "record", f"{key!r}: payload hash {member(document, 'record', 'payloadHash')!r}, expected {digest!r}"
    if member(document, "record", "status") != "completed":
        yield "unfinished", f"{key!r} is {member(document, 'record', 'status')!r}"
    outbox = member(document, "record", "outbox")
    if postings is None or (outbox is None and not postings):
        return
    total, sent = integer_of(member(outbox, "total")), integer_of(member(outbox, "sent"))
    if (total, sent) != (len(postings), len(postings)):
        yield "outbox", f"{key!r}: sent {sent} of {total}, expected {len(postings)}"
    proof = _proof(member(outbox, "proof"))
    if len(proof) != len(postings):
        yield "outbox", f"{key!r}: the proof has {len(proof)} messages, expected {len(postings)}"
        return
    for posting, mark in zip(postings, proof, strict=True):
        marks = {hashlib.sha256(f"{posting.key}\n{one}".encode()).digest()[:8] for one in posting.digests}
        if mark not in marks:
            yield "outbox", f"{key!r}: what it sent as {posting.key!r} has another content"


def _proof(value: object) -> list[bytes]:
    try:
        data = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)) if isinstance(value, str) else b""
    except ValueError:
        return []
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def ledger_differences(ledger: str, state: Ledger, documents: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """A ledger and its batches."""
    rest = {str(document.get("id")): document for document in documents}
    if len(rest) != len(documents):
        yield "ledger", "a document stands twice"
    at = 0
    for batch in state.batches:
        document = rest.pop(document_id(batch.key), None)
        mine = state.postings[at : at + batch.caused]
        at += batch.caused
        if document is None:
            yield "lost", f"the batch {batch.key!r} left no record"
            continue
        for name, found, wanted in (
            ("batchId", document.get("batchId"), batch.batch_id),
            ("batchSequence", integer_of(document.get("batchSequence")), batch.sequence),
            ("currency", document.get("currency"), batch.currency),
            ("ttl", "ttl" in document, True),
        ):
            if found != wanted:
                yield "ledger", f"{batch.key!r}: {name} {found!r}, expected {wanted!r}"
        yield from record_differences(document, batch.key, batch.digest, mine)
    order = rest.pop("~state", None)
    if state.batches and order is None:
        yield "ledger", f"{ledger!r} has no `~state`"
    elif order is not None:
        found_next, unfinished = integer_of(order.get("nextBatch")), order.get("unfinished")
        if found_next != state.next_batch:
            yield "ledger", f"nextBatch {found_next}, expected {state.next_batch}"
        if unfinished is not None:
            yield "unfinished", f"the ledger names {unfinished!r} as unfinished"
    for name in rest:
        yield "unfinished" if name.startswith("~outbox.") else "ledger", f"unexpected document {name!r}"


def stream_differences(rows: Sequence[Document], stored: object, end: Stream) -> Iterator[tuple[str, str]]:
    """A stream's entries, and what the order's state has of it."""
    by_key: dict[object, list[Document]] = defaultdict(list)
    for row in rows:
        by_key[member(row, "record", "key")].append(row)
    for entry in end.entries:
        found = by_key.pop(entry.posting.key, [])
        if not found:
            yield "lost", f"the entry {entry.posting.key!r} is not there"
        elif len(found) > 1:
            yield "double", f"the entry {entry.posting.key!r} stands {len(found)} times"
        else:
            yield from _entry_differences(entry, found[0])
    for key, extra in by_key.items():
        yield "double", f"unexpected entry {key!r} ({len(extra)} times)"
    if not end.entries:
        return
    closed = member(stored, "closed")
    held = member(stored, "held")
    for name, was, wanted in (
        ("sequenced", member(stored, "sequenced"), end.sequenced),
        ("next", integer_of(member(stored, "next")), end.next if end.sequenced else None),
        ("applied", integer_of(member(stored, "applied")), end.applied),
        (
            "closed",
            None if closed is None else (integer_of(member(closed, "entryCount")), member(closed, "complete")),
            end.closed,
        ),
        (
            "held",
            sorted(integer_of(member(one, "sequence")) or 0 for one in held) if isinstance(held, list) else [],
            sorted(end.held()),
        ),
    ):
        if was != wanted:
            yield "state", f"{name} {_short(was)}, expected {_short(wanted)}"


def _entry_differences(entry: Entry, row: Document) -> Iterator[tuple[str, str]]:
    posting = entry.posting
    own = entry_id(posting.order, posting.stream, posting.transaction)
    if row.get("id") not in (document_id(posting.key), document_id(own)):
        yield "entry", f"{posting.key!r} has the id {row.get('id')!r}"
    for name, found, wanted in (
        ("orderId", row.get("orderId"), posting.order),
        ("transactionId", row.get("transactionId"), posting.transaction),
        ("sequence", integer_of(row.get("sequence")), posting.sequence),
        ("kind", row.get("kind"), posting.kind),
        ("amount", decimal_of(row.get("amount")), posting.amount),
        ("currency", row.get("currency"), posting.currency),
        ("refersTo", row.get("refersTo"), posting.refers_to),
        ("entryCount", integer_of(row.get("entryCount")), posting.entry_count),
        ("status", row.get("status"), entry.status),
    ):
        if found != wanted:
            rule = "amount" if name == "amount" else "entry"
            yield rule, f"{posting.key!r}: {name} {_short(found)}, expected {_short(wanted)}"
    if member(row, "record", "payloadHash") not in posting.digests:
        yield "entry", f"{posting.key!r}: its payload hash is that of another content"
    if posting.source is not None:
        source = tuple(member(row, "record", "source", name) for name in ("consumer", "key"))
        if source != posting.source[:2] and posting.stream == "order":
            yield "entry", f"{posting.key!r}: caused by {source!r}, expected {posting.source[:2]!r}"
    if "ttl" in row:
        yield "entry", f"{posting.key!r}: an entry must not expire, but has a ttl"


def invariants(documents: Sequence[Document], state: Document) -> Iterator[tuple[str, str]]:
    """Contracts 7: balances are sums, positions run from 1 without hole or repeat, streams keep their order."""
    rows = [document for document in documents if document.get("type") == "ledgerEntry"]
    applied = [row for row in rows if row.get("status") == "applied"]
    places = sorted(integer_of(row.get("position")) or 0 for row in applied)
    if places != list(range(1, len(applied) + 1)):
        yield "position", f"positions {_short(places)}, expected 1 to {len(applied)}"
    for row in rows:
        if row.get("status") != "applied" and row.get("position") is not None:
            yield "position", f"{row.get('id')!r} is {row.get('status')} and has a position"
    if applied and integer_of(state.get("applied")) != len(applied):
        yield "state", f"applied {state.get('applied')!r}, expected {len(applied)}"
    stored = state.get("balances")
    stated = {name: decimal_of(value) for name, value in stored.items()} if isinstance(stored, Mapping) else {}
    sums = balances(documents)
    for currency in stated.keys() | sums.keys():
        if (stated.get(currency, Decimal(0))) != sums.get(currency, Decimal(0)):
            yield "balance", f"{currency} {stated.get(currency)}, the entries sum up to {sums.get(currency)}"
    streams: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for row in applied:
        sequence = integer_of(row.get("sequence"))
        if sequence is not None:
            streams[row.get("stream")].append((integer_of(row.get("position")) or 0, sequence))
    for name, found in streams.items():
        numbers = [sequence for _, sequence in sorted(found)]
        if numbers != list(range(1, len(numbers) + 1)):
            yield "order", f"stream {name}: applied in the order {_short(numbers)}"


def balances(documents: Iterable[Document]) -> dict[str, Decimal]:
    """Sum up the applied entries, by currency."""
    sums: dict[str, Decimal] = {}
    for document in documents:
        amount = decimal_of(document.get("amount"))
        if document.get("type") == "ledgerEntry" and document.get("status") == "applied" and amount is not None:
            currency = str(document.get("currency"))
            sums[currency] = sums.get(currency, Decimal(0)) + amount
    return sums


def _short(value: object) -> str:
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
