"""`ops order ID`: everything that is known about one order."""

from __future__ import annotations

from typing import Any

from ops.bus import Bus
from ops.database import Database
from ops.errors import DONE, LEFT_OVER
from ops.output import Output
from ops.parking import moment, read_parked
from shared.domain.identity import document_id
from shared.ports import Container


async def show_order(bus: Bus, database: Database, out: Output, order_id: str) -> int:
    """Show an order with its commands, entries, parked messages and operations."""
    orders = [item async for item in database.partition(Container.ORDERS, order_id)]
    entries = [item async for item in database.partition(Container.LEDGER_ENTRIES, order_id)]
    operations = [
        item
        async for item in database.partition(Container.OPERATIONS, order_id)
        if item.get("type") in ("replay", "discard", "skip")
    ]
    session = order_id.lower()
    parked = await read_parked(bus, lambda one: one.session_id.lower() == session)
    order = next((item for item in orders if item["id"] == document_id(order_id)), None)
    commands = [item for item in orders if item["type"] == "command"]
    postings = sorted(
        (item for item in entries if item["type"] == "ledgerEntry"),
        key=lambda item: (item["position"] is None, item["position"] or 0, item["stream"], item["sequence"] or 0),
    )
    state = next((item for item in entries if item["type"] == "ledgerState"), None)
    if order is not None:
        for name in ("state", "fulfilment", "currency", "total", "revision", "nextCommand", "nextEntry"):
            out.line(f"{name:<12} {order.get(name)}")
        out.line(f"{'record':<12} {_record(order['record'])}")
    else:
        out.line(f"there is no order {order_id}")
    out.table(
        "Commands",
        ("key", "kind", "number", "record"),
        [(item["record"]["key"], item["kind"], item["sequence"], _record(item["record"])) for item in commands],
    )
    out.table(
        "Entries",
        ("position", "stream", "number", "kind", "amount", "status", "key"),
        [
            (e["position"], e["stream"], e["sequence"], e["kind"], e["amount"], e["status"], e["record"]["key"])
            for e in postings
        ],
    )
    if state is not None:
        out.line(f"balances {state['balances']}")
    out.table(
        "Parked",
        ("id", "role", "reason", "description", "parked"),
        [(one.id, one.role.value, one.reason, one.description, moment(one.parked_at)) for one in parked],
    )
    out.table(
        "Operations",
        ("type", "key", "status", "actor", "reason"),
        [(item["type"], item["key"], item["status"], item["actor"], item["reason"]) for item in operations],
    )
    out.result(
        {
            "orderId": order_id,
            "order": _plain(order),
            "commands": [_plain(item) for item in commands],
            "ledger": _plain(state),
            "entries": [_plain(item) for item in postings],
            "parked": [{"id": one.id, "role": one.role.value, "reason": one.reason} for one in parked],
            "operations": [_plain(item) for item in operations],
        }
    )
    return DONE if order is not None or postings or parked else LEFT_OVER


def _record(record: dict[str, Any]) -> str:
    told = [record["status"]]
    if record.get("result"):
        told += [record["result"]["outcome"], record["result"].get("reason") or ""]
    if record.get("effect"):
        told.append(f"{record['effect']['name']} {record['effect']['status']} {record['effect'].get('reason') or ''}")
    if record.get("outbox"):
        told.append(f"{record['outbox']['sent']} of {record['outbox']['total']} sent")
    return ", ".join(each.strip() for each in told if each)


def _plain(item: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if item is None else {name: value for name, value in item.items() if not name.startswith("_")}
