"""The invariants of docs/contracts.md, section 7, over one order's or one ledger's documents. Pure: documents in,
findings out.

Documents are read as they are stored, not through the app's models: what was tampered with must be seen, not refused.
A `violation` can't come from the app as it is; a `left over` waits for somebody or something; a `note` is business that
a person should look at.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final

from shared.contracts.documents import DOCUMENT_VERSION, STATE_ID
from shared.domain.identity import document_id, outbox_id
from shared.domain.payload import payload_hash

Json = Mapping[str, Any]

PROOF_BYTES: Final = 8
ORDER_STREAM: Final = "order"
_KNOWN: Final = frozenset(
    {"order", "command", "skip", "ledgerBatch", "ledgerOutbox", "ledgerSequence", "ledgerEntry", "ledgerState"}
)


class Kind(StrEnum):
    """How bad a finding is."""

    VIOLATION = "violation"
    LEFT_OVER = "left over"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    kind: Kind
    rule: str
    owner: str
    detail: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Messages for `ledger-entries` that have no entry yet, by digest: parked ones, and those in the queue."""

    parked: frozenset[bytes] = frozenset()
    waiting: frozenset[bytes] = frozenset()


@dataclass(slots=True)
class Report:
    """Findings about one owner."""

    owner: str
    findings: list[Finding] = field(default_factory=list)

    def violation(self, rule: str, detail: str) -> None:
        """Note what must not be."""
        self.findings.append(Finding(Kind.VIOLATION, rule, self.owner, detail))

    def left_over(self, rule: str, detail: str) -> None:
        """Note what is not finished."""
        self.findings.append(Finding(Kind.LEFT_OVER, rule, self.owner, detail))

    def note(self, rule: str, detail: str) -> None:
        """Note what a person should know."""
        self.findings.append(Finding(Kind.NOTE, rule, self.owner, detail))


def digest(message_id: str, hashed: str) -> bytes:
    """What a proof keeps of a message."""
    return hashlib.sha256(f"{message_id}\n{hashed}".encode()).digest()[:PROOF_BYTES]


def digest_of_entry(entry: Json) -> bytes:
    """The same of a stored entry."""
    record = entry.get("record") or {}
    return digest(str(record.get("key")), str(record.get("payloadHash")))


def check_order(owner: str, documents: Sequence[Json], entries: Sequence[Json], elsewhere: Elsewhere) -> list[Finding]:
    """Check an order's partitions: `documents` of the container `orders`, `entries` of `ledger-entries`."""
    report = Report(owner)
    _documents(report, [*documents, *entries])
    order = next((each for each in documents if each.get("type") == "order"), None)
    commands = [each for each in documents if each.get("type") == "command"]
    if order is None and commands:
        report.violation("document", f"{len(commands)} commands of an order that isn't there")
    stored = {digest_of_entry(each) for each in entries if each.get("type") == "ledgerEntry"}
    is_whole = True
    for each in [*([order] if order else []), *commands]:
        is_whole &= _record(report, each, stored, elsewhere, None)
    _ledger_state(report, entries)
    if order is not None:
        _order(report, order, commands, [each for each in documents if each.get("type") == "skip"])
        _order_stream(report, order, entries, is_whole=is_whole)
    return report.findings


def check_ledger(
    owner: str, documents: Sequence[Json], stored: frozenset[bytes] | set[bytes], elsewhere: Elsewhere
) -> list[Finding]:
    """Check a ledger's partition; `stored` are the digests of the entries in its stream, over all orders."""
    report = Report(owner)
    _documents(report, documents)
    batches = [each for each in documents if each.get("type") == "ledgerBatch"]
    outboxes = {str(each.get("id")): each for each in documents if each.get("type") == "ledgerOutbox"}
    state = next((each for each in documents if each.get("id") == STATE_ID), None)
    if batches and state is None:
        report.violation("state", "there are batches and no `~state`")
    for batch in batches:
        messages = outboxes.pop(outbox_id(str(batch.get("id"))), None)
        is_completed = (batch.get("record") or {}).get("status") == "completed"
        if is_completed and messages is not None:
            report.violation("outbox", f"batch {batch.get('id')} is completed, and its ledgerOutbox is still there")
        if not is_completed and messages is None:
            report.violation("outbox", f"batch {batch.get('id')} is not completed, and its ledgerOutbox is gone")
        _record(report, batch, stored, elsewhere, messages)
    for name in outboxes:
        report.violation("outbox", f"{name} belongs to no batch")
    if state is not None:
        _ledger_sequence(report, state, batches, [each for each in documents if each.get("type") == "skip"])
    return report.findings


def _documents(report: Report, documents: Iterable[Json]) -> None:
    for each in documents:
        if each.get("type") not in _KNOWN:
            report.violation("document", f"{each.get('id')!r}: unknown type {each.get('type')!r}")
        elif each.get("v") != DOCUMENT_VERSION:
            report.violation("document", f"{each.get('id')!r}: version {each.get('v')!r} is unknown to this release")
        if each.get("ttl") is not None:
            is_mortal = each.get("type") in ("command", "ledgerBatch")
            if not is_mortal or (each.get("record") or {}).get("status") != "completed":
                report.violation("ttl", f"{each.get('id')!r} must not expire")


def _record(
    report: Report, document: Json, stored: set[bytes] | frozenset[bytes], elsewhere: Elsewhere, beside: Json | None
) -> bool:
    """Check a record and its outbox; says whether everything that it caused is there."""
    record, name = document.get("record") or {}, document.get("id")
    effect = record.get("effect") or {}
    if effect.get("status") == "parked":
        report.note("effect", f"{name}: payment parked, {effect.get('reason')}")
    status = record.get("status")
    if status == "effect":
        report.left_over("unfinished", f"{name}: its payment is not decided")
        return False
    outbox = record.get("outbox")
    if outbox is None:
        if status != "completed":
            report.violation("record", f"{name}: {status!r} with nothing to send")
        return True
    total, sent = outbox.get("total"), outbox.get("sent")
    messages = (beside or {}).get("messages") if beside is not None else outbox.get("messages")
    if status == "completed":
        wanted = _proof(outbox.get("proof"))
        if sent != total or wanted is None or len(wanted) != total:
            report.violation("proof", f"{name}: {sent} of {total} sent, proof of {len(wanted or ())}")
            return False
        return _found(report, f"{name}", wanted, stored, elsewhere)
    report.left_over("unfinished", f"{name}: {sent} of {total} messages sent")
    if isinstance(messages, list):
        if len(messages) != total:
            report.violation("outbox", f"{name}: {len(messages)} messages stored, {total} announced")
        wanted = [digest(str(each.get("messageId")), payload_hash(each.get("body") or {})) for each in messages]
        _found(report, f"{name}", wanted[: sent if isinstance(sent, int) else 0], stored, elsewhere)
    return False


def _found(
    report: Report,
    name: str,
    wanted: Sequence[bytes],
    stored: set[bytes] | frozenset[bytes],
    elsewhere: Elsewhere,
) -> bool:
    missing = [place for place, one in enumerate(wanted) if one not in stored]
    parked = [place for place in missing if wanted[place] in elsewhere.parked]
    waiting = [place for place in missing if wanted[place] in elsewhere.waiting and place not in parked]
    gone = [place for place in missing if place not in parked and place not in waiting]
    if gone:
        told = ", ".join(str(place) for place in gone[:10])
        report.violation("entry", f"{name}: {len(gone)} of {len(wanted)} messages have no such entry (places {told})")
    if parked:
        report.left_over("parked", f"{name}: {len(parked)} of its entries are parked")
    if waiting:
        report.left_over("waiting", f"{name}: {len(waiting)} of its entries wait in the queue")
    return not missing


def _proof(text: object) -> list[bytes] | None:
    if not isinstance(text, str):
        return None
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return None if len(data) % PROOF_BYTES else [data[at : at + PROOF_BYTES] for at in range(0, len(data), PROOF_BYTES)]


def _order(report: Report, order: Json, commands: Sequence[Json], skips: Sequence[Json]) -> None:
    if order.get("id") != document_id(report.owner):
        report.violation("document", f"order under the id {order.get('id')!r}")
    for line in order.get("lines") or ():
        amount, price = _decimal(line.get("amount")), _decimal(line.get("unitPrice"))
        if amount is None or price is None or amount != line.get("quantity", 0) * price:
            report.violation("total", f"line {line.get('lineId')}: amount isn't quantity × price")
    lines = _sum(line.get("amount") for line in order.get("lines") or ())
    if lines != _decimal(order.get("total")):
        report.violation("total", f"total {order.get('total')!r}, the lines have {lines}")
    numbers = [each.get("sequence") for each in commands]
    if not order.get("sequenced"):
        if any(number is not None for number in numbers) or order.get("nextCommand") is not None:
            report.violation("commands", "numbers on an unsequenced order")
        return
    _numbers(report, "commands", numbers, order.get("nextCommand"), skips)


def _numbers(report: Report, rule: str, numbers: Sequence[Any], following: Any, skips: Sequence[Json]) -> None:
    """Used once each, all below the expected one, none skipped. Those of expired records are not here any more."""
    skipped = _skipped(skips)
    if any(not isinstance(number, int) for number in numbers) or not isinstance(following, int):
        report.violation(rule, "numbers are missing")
        return
    for number, count in Counter(numbers).items():
        if count > 1:
            report.violation(rule, f"number {number} was used {count} times")
        if number >= following:
            report.violation(rule, f"number {number} was used, and {following} is expected next")
        if number in skipped:
            report.violation(rule, f"number {number} was used, and was skipped")


def _order_stream(report: Report, order: Json, entries: Sequence[Json], *, is_whole: bool) -> None:
    """With nothing unfinished, the order's own stream is complete and sums up to the order."""
    state = next((each for each in entries if each.get("id") == STATE_ID), {})
    stream = (state.get("streams") or {}).get(ORDER_STREAM) or {}
    if not is_whole:
        return
    expected, reached = order.get("nextEntry"), stream.get("next", 1)
    if expected != reached:
        report.violation("order stream", f"the order posted up to {expected} (exclusive), the ledger expects {reached}")
        return
    if any(each.get("type") == "skip" and each.get("what") == ORDER_STREAM for each in entries):
        return
    posted = _sum(
        each.get("amount")
        for each in entries
        if each.get("stream") == ORDER_STREAM and each.get("status") == "applied" and each.get("type") == "ledgerEntry"
    )
    wanted = _decimal(order.get("total")) if order.get("state") == "open" else Decimal(0)
    if posted != wanted:
        report.violation("total", f"the stream `order` sums up to {posted}, the order to {wanted}")


def _ledger_state(report: Report, documents: Sequence[Json]) -> None:
    entries = [each for each in documents if each.get("type") == "ledgerEntry"]
    state = next((each for each in documents if each.get("id") == STATE_ID), None)
    if state is None:
        if entries:
            report.violation("state", f"{len(entries)} entries and no `~state`")
        return
    applied = [each for each in entries if each.get("status") == "applied"]
    positions = sorted(each.get("position") or 0 for each in applied)
    if positions != list(range(1, len(applied) + 1)):
        report.violation("positions", f"not 1 to {len(applied)}: {_gaps(positions)}")
    if state.get("applied") != len(applied):
        report.violation("applied", f"`~state` counts {state.get('applied')} entries, {len(applied)} are applied")
    balances: dict[str, Decimal] = defaultdict(Decimal)
    for each in applied:
        if each.get("kind") != "close":
            balances[str(each.get("currency"))] += _decimal(each.get("amount")) or Decimal(0)
    kept = {str(name): _decimal(value) for name, value in (state.get("balances") or {}).items()}
    for currency in sorted(balances.keys() | kept.keys()):
        if kept.get(currency) != balances.get(currency):
            report.violation(
                "balances", f"{currency}: `~state` has {kept.get(currency)}, the entries {balances.get(currency)}"
            )
    streams = state.get("streams") or {}
    for name in sorted({str(each.get("stream")) for each in entries} | set(streams)):
        rows = [each for each in entries if each.get("stream") == name]
        skips = [each for each in documents if each.get("type") == "skip" and each.get("what") == name]
        stream = streams.get(name)
        if stream is None:
            report.violation("state", f"stream {name}: entries, and nothing about it in `~state`")
        else:
            _stream(report, name, stream, rows, skips)


def _stream(report: Report, name: str, stream: Json, rows: Sequence[Json], skips: Sequence[Json]) -> None:
    where = f"stream {name}"
    applied = sorted(
        (each for each in rows if each.get("status") == "applied"), key=lambda each: each.get("position") or 0
    )
    postings = sum(each.get("kind") != "close" for each in applied)
    if stream.get("applied") != postings:
        report.violation("applied", f"{where}: counts {stream.get('applied')} postings, {postings} are applied")
    held = sorted((each.get("sequence"), each.get("id")) for each in rows if each.get("status") == "held")
    kept = sorted((each.get("sequence"), each.get("id")) for each in stream.get("held") or ())
    if held != kept:
        report.violation("held", f"{where}: {len(kept)} held in `~state`, {len(held)} entries are")
    elif held:
        report.left_over("held", f"{where}: {len(held)} entries wait for number {stream.get('next')}")
    if stream.get("sequenced"):
        _sequences(report, where, stream, applied, skips)
    elif any(each.get("sequence") is not None for each in rows):
        report.violation("sequence", f"{where}: numbers in a stream without")
    closed = stream.get("closed")
    if closed is not None:
        expected = closed.get("entryCount") if stream.get("next") is None else stream["next"] - 2
        if closed.get("complete") != (postings == expected):
            report.violation("closed", f"{where}: complete is {closed.get('complete')}, {postings} of {expected} came")
        elif not closed.get("complete"):
            report.note("incomplete", f"{where}: closed with {postings} of {closed.get('entryCount')} entries")
    names = {each.get("transactionId") for each in rows}
    for each in rows:
        if each.get("refersTo") is not None and each["refersTo"] not in names:
            report.note("refersTo", f"{where}: {each.get('transactionId')} refers to an entry that isn't there")
    refused = sum(each.get("status") == "refused" for each in rows)
    if refused:
        report.left_over("refused", f"{where}: {refused} entries were refused behind the close")


def _sequences(report: Report, where: str, stream: Json, applied: Sequence[Json], skips: Sequence[Json]) -> None:
    numbers = [number for each in applied if isinstance(number := each.get("sequence"), int)]
    if len(numbers) != len(applied) or not isinstance(stream.get("next"), int):
        report.violation("sequence", f"{where}: numbers are missing")
        return
    if numbers != sorted(numbers):
        report.violation("sequence", f"{where}: applied out of order")
    used = sorted([*numbers, *_skipped(skips)])
    if used != list(range(1, stream["next"])):
        report.violation("sequence", f"{where}: applied and skipped are not 1 to {stream['next'] - 1}: {_gaps(used)}")


def _ledger_sequence(report: Report, state: Json, batches: Sequence[Json], skips: Sequence[Json]) -> None:
    unfinished = sorted(
        str(each.get("id")) for each in batches if (each.get("record") or {}).get("status") != "completed"
    )
    named = [str(state["unfinished"])] if state.get("unfinished") is not None else []
    if unfinished != named:
        report.violation("unfinished", f"`~state` names {named}, unfinished are {unfinished}")
    numbers = [each.get("batchSequence") for each in batches]
    if state.get("nextBatch") is None:
        if any(number is not None for number in numbers):
            report.violation("batches", "numbers in a ledger without")
        return
    _numbers(report, "batches", numbers, state.get("nextBatch"), skips)


def _skipped(skips: Iterable[Json]) -> list[int]:
    return [number for each in skips for number in range(int(each.get("from", 1)), int(each.get("to", 0)) + 1)]


def _sum(amounts: Iterable[object]) -> Decimal:
    return sum((_decimal(amount) or Decimal(0) for amount in amounts), Decimal(0))


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None


def _gaps(numbers: Sequence[int]) -> str:
    """What is missing, and what is there more than once."""
    there = Counter(numbers)
    missing = [number for number in range(1, max(numbers, default=0) + 1) if number not in there]
    doubled = [number for number, count in there.items() if count > 1]
    told = [f"missing {_cut(missing)}"] if missing else []
    told += [f"twice {_cut(doubled)}"] if doubled else []
    return "; ".join(told) or "ends early or late"


def _cut(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (", …" if len(numbers) > 10 else "")
