"""An application that does what the expectation demands: the end state that a perfect run leaves behind."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from local.demo.differences import document_id
from local.demo.expect import Expectation, Park, expect
from local.demo.lines import Line, parse_lines
from local.demo.model import Entry, Ledger, Order, Posting, Stream
from local.demo.verify import Copy, EndState

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def lines_of(*members: dict[str, Any]) -> list[Line]:
    """Read lines as from a file."""
    return list(parse_lines("\n".join(json.dumps(one) for one in members).encode(), "input"))


def expected(*members: dict[str, Any]) -> Expectation:
    """Work out what a few lines demand."""
    return expect(lines_of(*members), set(), NOW)


def placed(order: str = "ORD-1", *amounts: str, sequenced: bool = False, **changes: Any) -> dict[str, Any]:
    """Make the line of a new order, one order line an amount."""
    rows = [
        {"lineId": str(number), "sku": "TEA", "quantity": 1, "unitPrice": amount}
        for number, amount in enumerate(amounts or ("10.00",), start=1)
    ]
    body: dict[str, Any] = {"type": "order.placed", "orderId": order, "currency": "EUR", "lines": rows}
    if sequenced:
        body["sequence"] = 1
    return line("orders", order, order, {**body, **changes})


def amended(order: str, operation: str, *rows: tuple[str, int, str], **members: Any) -> dict[str, Any]:
    """Make the line of an amendment: line id, quantity and price of each named line."""
    lines = [{"lineId": one, "sku": "TEA", "quantity": count, "unitPrice": price} for one, count, price in rows]
    body = {"type": "order.amended", "orderId": order, "operationId": operation, "lines": lines, **members}
    return line("orders", f"{order}:{operation}", order, body)


def cancelled(order: str, operation: str, **members: Any) -> dict[str, Any]:
    """Make the line of a cancellation."""
    body = {"type": "order.cancelled", "orderId": order, "operationId": operation, **members}
    return line("orders", f"{order}:{operation}", order, body)


def status(order: str, name: str, version: int) -> dict[str, Any]:
    """Make the line of a fulfilment status."""
    body = {"type": "order.status", "orderId": order, "status": name, "version": version}
    return line("orders", f"{order}:status.{version}", order, body)


def batch(ledger: str, batch_id: str, *rows: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Make the line of a ledger batch."""
    body = {"ledgerId": ledger, "batchId": batch_id, "currency": "EUR", "transactions": list(rows), **members}
    return line("ledger", f"{ledger}:{batch_id}", ledger, body)


def posting(transaction: str, order: str = "ORD-1", amount: str = "1.00", **members: Any) -> dict[str, Any]:
    """Make a transaction of a batch."""
    row = {"transactionId": transaction, "orderId": order, "kind": "add", "amount": amount, **members}
    return {name: value for name, value in row.items() if value is not None}


def entry(transaction: str, order: str = "ORD-1", stream: str = "ledger.D", **members: Any) -> dict[str, Any]:
    """Make the line of an entry that goes straight to its queue."""
    body = {"orderId": order, "stream": stream, "currency": "EUR", **posting(transaction, order, **members)}
    return line("ledger-entries", f"{order}:{stream}:{transaction}", order, body)


def line(queue: str, message_id: str | None, session: str, body: Any, **more: Any) -> dict[str, Any]:
    """Make a line of the input file."""
    return {"queue": queue, "messageId": message_id, "sessionId": session, "body": body, **more}


def perfect(expectation: Expectation, *, ending: int = 0) -> EndState:
    """Leave behind what the expectation demands, of several allowed ends the one asked for."""
    end, parked = EndState(), list(expectation.parked)
    caused: dict[str, list[list[Posting]]] = defaultdict(list)
    for order, endings in expectation.orders.items():
        assert endings
        chosen = endings[min(ending, len(endings) - 1)]
        parked += chosen.parked
        end.orders += _order_documents(order, chosen.state)
        caused[order].append(list(chosen.state.postings))
    for ledger, ledger_endings in expectation.ledgers.items():
        assert ledger_endings
        picked = ledger_endings[min(ending, len(ledger_endings) - 1)]
        parked += picked.parked
        end.ledgers += _ledger_documents(ledger, picked.state)
        for order in {one.order for one in picked.state.postings}:
            caused[order].append([one for one in picked.state.postings if one.order == order])
    for order in caused.keys() | expectation.entries.keys():
        streams: dict[str, Stream] = {}
        for name, stream_endings in expectation.streams(order, caused[order]).items():
            assert stream_endings
            best = stream_endings[min(ending, len(stream_endings) - 1)]
            parked += best.parked
            streams[name] = best.state
        end.entries += _entry_documents(order, streams)
    end.quarantine = list(_copies(parked))
    return end


def _record(key: str, digest: str, postings: Sequence[Posting], queue: bool = True) -> dict[str, Any]:
    proof = b"".join(
        hashlib.sha256(f"{one.key}\n{min(one.digests)}".encode()).digest()[:8] for one in postings
    )
    text = base64.urlsafe_b64encode(proof).rstrip(b"=").decode()
    outbox = {"queue": "ledger-entries", "total": len(postings), "sent": len(postings), "proof": text}
    return {
        "key": key,
        "payloadHash": digest,
        "status": "completed",
        "outbox": outbox if queue else None,
        "result": {"outcome": "applied"},
    }


def _order_documents(order: str, state: Order) -> list[dict[str, object]]:
    if not state.state:
        return []
    at = len(state.postings) - sum(command.caused for command in state.commands)
    documents: list[dict[str, object]] = [
        {
            "id": document_id(order, may_be_event=False),
            "type": "order",
            "orderId": order,
            "customerId": state.customer,
            "currency": state.currency,
            "state": state.state,
            "fulfilment": state.fulfilment and {"status": state.fulfilment[0], "version": state.fulfilment[1]},
            "lines": [
                {
                    "lineId": one.line_id,
                    "sku": one.sku,
                    "quantity": one.quantity,
                    "unitPrice": str(one.unit_price),
                    "amount": str(one.amount),
                    "entry": one.entry,
                }
                for one in state.lines
            ],
            "total": str(state.total),
            "sequenced": state.sequenced,
            "nextCommand": state.next_command,
            "nextEntry": len(state.postings) + 1,
            "revision": state.revision,
            "record": _record(state.key, state.digest, state.postings[:at]),
        }
    ]
    for command in state.commands:
        mine = state.postings[at : at + command.caused]
        at += command.caused
        record = _record(command.key, command.digest, mine)
        if command.rejected:
            record["result"] = {"outcome": "rejected", "reason": min(command.rejected)}
        documents.append(
            {
                "id": document_id(command.key),
                "type": "command",
                "orderId": order,
                "operationId": command.operation,
                "kind": command.kind,
                "sequence": command.sequence,
                "record": record,
                "ttl": 1,
            }
        )
    return documents


def _ledger_documents(ledger: str, state: Ledger) -> list[dict[str, object]]:
    documents: list[dict[str, object]] = []
    at = 0
    for one in state.batches:
        mine = state.postings[at : at + one.caused]
        at += one.caused
        documents.append(
            {
                "id": document_id(one.key),
                "type": "ledgerBatch",
                "ledgerId": ledger,
                "batchId": one.batch_id,
                "batchSequence": one.sequence,
                "currency": one.currency,
                "record": _record(one.key, one.digest, mine),
                "ttl": 1,
            }
        )
    if documents:
        sequence = {"id": "~state", "type": "ledgerSequence", "ledgerId": ledger}
        documents.append({**sequence, "nextBatch": state.next_batch, "unfinished": None})
    return documents


def _entry_documents(order: str, streams: dict[str, Stream]) -> list[dict[str, object]]:
    documents: list[dict[str, object]] = []
    balances: dict[str, Decimal] = {}
    position = 0
    stored: dict[str, object] = {}
    for name, stream in streams.items():
        if not stream.entries:
            continue
        entries = list(stream.entries)
        if stream.sequenced:
            entries.sort(key=lambda one: one.posting.sequence or 0)
        for one in entries:
            is_applied = one.status == "applied"
            position += is_applied
            if is_applied and one.posting.amount is not None:
                currency = one.posting.currency
                balances[currency] = balances.get(currency, Decimal(0)) + one.posting.amount
            documents.append(_entry_document(order, one, position if is_applied else None))
        stored[name] = {
            "sequenced": stream.sequenced,
            "next": stream.next if stream.sequenced else None,
            "applied": stream.applied,
            "closed": stream.closed and {"entryCount": stream.closed[0], "complete": stream.closed[1]},
            "held": [{"sequence": sequence} for sequence in stream.held()],
        }
    if documents:
        state: dict[str, object] = {"id": "~state", "type": "ledgerState", "orderId": order, "applied": position}
        texts = {currency: str(amount) for currency, amount in balances.items()}
        documents.append({**state, "balances": texts, "streams": stored})
    return documents


def _entry_document(order: str, one: Entry, position: int | None) -> dict[str, object]:
    mine = one.posting
    return {
        "id": document_id(mine.key),
        "type": "ledgerEntry",
        "orderId": order,
        "stream": mine.stream,
        "transactionId": mine.transaction,
        "sequence": mine.sequence,
        "kind": mine.kind,
        "amount": None if mine.amount is None else str(mine.amount),
        "currency": mine.currency,
        "refersTo": mine.refers_to,
        "entryCount": mine.entry_count,
        "status": one.status,
        "position": position,
        "record": {
            "key": mine.key,
            "payloadHash": min(mine.digests),
            "source": mine.source and dict(zip(("consumer", "key", "index"), mine.source, strict=True)),
        },
    }


def _copies(parked: Iterable[Park]) -> Iterable[Copy]:
    for number, park in enumerate(parked):
        if park.certain:
            key = park.key
            yield Copy(f"q~{number}", key.role, key.session, key.message_id, key.body or "sent", min(park.reasons))
