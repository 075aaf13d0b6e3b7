"""Small sets of messages, drawn by a seed, and what is left of them at the end."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence

from local.demo.lines import Line, plan
from local.demo.verify import Copy, EndState
from shared.envelope import OutgoingMessage, PropertyValue, Role
from shared.ports import Container
from shared.settings import Settings
from tests.simulation.engine import WORKING, Simulation


def lines_of(seed: int) -> list[Line]:
    """Two to four orders with commands, statuses, ledgers, duplicates, a conflict, an unknown order."""
    dice = random.Random(seed * 7919 + 1)
    lines: list[Line] = []
    orders = [f"O{number}" for number in range(dice.randint(2, 4))]
    for order in orders:
        _order(dice, lines, order)
    for number in range(dice.randint(1, 2)):
        _ledger(dice, lines, f"L{number}", orders)
    if dice.random() < 0.3:
        _add(lines, "orders", "NONE:op", "NONE", {"type": "order.cancelled", "orderId": "NONE", "operationId": "op"})
    return lines


def _add(lines: list[Line], role: str, message_id: str, session_id: str, body: object, repeat: int = 1) -> None:
    text = json.dumps(body, separators=(",", ":")).encode()
    lines.append(Line(len(lines) + 1, role, message_id, session_id, text, repeat=repeat))


def _order(dice: random.Random, lines: list[Line], order: str) -> None:
    sequenced = dice.random() < 0.6
    placed: dict[str, object] = {
        "type": "order.placed",
        "orderId": order,
        "currency": "EUR",
        "lines": [
            {"lineId": str(line), "sku": "S", "quantity": dice.randint(1, 5), "unitPrice": f"{dice.randint(1, 9)}.5"}
            for line in range(1, dice.randint(2, 6))
        ],
    }
    if sequenced:
        placed["sequence"] = 1
    _add(lines, "orders", order, order, placed, dice.choice((1, 1, 2)))
    sequence = 2
    for number in range(dice.randint(0, 3)):
        kind = dice.choice(("amended", "amended", "cancelled", "status"))
        if kind == "status":
            body: dict[str, object] = {
                "type": "order.status",
                "orderId": order,
                "status": dice.choice(("confirmed", "shipped")),
                "version": dice.randint(1, 3),
            }
            _add(lines, "orders", f"{order}:status.{body['version']}", order, body)
            continue
        body = {"type": f"order.{kind}", "orderId": order, "operationId": f"op{number}"}
        if sequenced:
            body["sequence"] = sequence
            sequence += 2 if dice.random() < 0.08 else 1
        if kind == "amended":
            body["lines"] = [
                {"lineId": str(dice.randint(1, 7)), "sku": "S", "quantity": dice.randint(0, 4), "unitPrice": "2.25"}
            ]
        _add(lines, "orders", f"{order}:op{number}", order, body, dice.choice((1, 1, 2)))
    if dice.random() < 0.25:
        _add(lines, "orders", order, order, {**placed, "currency": "USD"})


def _ledger(dice: random.Random, lines: list[Line], ledger: str, orders: Sequence[str]) -> None:
    sequenced, numbered = dice.random() < 0.7, dice.random() < 0.6
    next_sequence = dict.fromkeys(orders, 1)
    for batch in range(1, dice.randint(2, 4)):
        transactions = []
        for number in range(dice.randint(1, 6)):
            order = dice.choice(orders)
            transaction: dict[str, object] = {
                "transactionId": f"T{batch}.{number}",
                "orderId": order,
                "kind": "add",
                "amount": f"{dice.randint(-9, 9)}.25",
            }
            if sequenced:
                transaction["sequence"] = next_sequence[order]
                next_sequence[order] += 1
            transactions.append(transaction)
        if sequenced and dice.random() < 0.4:
            dice.shuffle(transactions)
        body: dict[str, object] = {
            "ledgerId": ledger,
            "batchId": f"B{batch}",
            "currency": "EUR",
            "transactions": transactions,
        }
        if numbered:
            body["batchSequence"] = batch
        _add(lines, "ledger", f"{ledger}:B{batch}", ledger, body, dice.choice((1, 1, 2)))


def sources_of(lines: Sequence[Line]) -> list[list[tuple[Role, OutgoingMessage]]]:
    """What the producers send: one row of messages per queue and session."""
    sources: dict[tuple[str, str], list[tuple[Role, OutgoingMessage]]] = {}
    for sending in plan(lines):
        line = sending.line
        properties: dict[str, PropertyValue] = dict(line.properties)
        message = OutgoingMessage(
            message_id=line.message_id or "", session_id=line.session_id, body=line.body, properties=properties
        )
        sources.setdefault((line.role, line.session_id), []).append((Role(line.role), message))
    return list(sources.values())


def end_state(simulation: Simulation) -> EndState:
    """What database and queues hold, in the form that the demo's check reads."""
    now = simulation.clock.seconds
    end = EndState()
    places = {
        Container.ORDERS: end.orders,
        Container.LEDGERS: end.ledgers,
        Container.LEDGER_ENTRIES: end.entries,
    }
    for (container, _, _), row in simulation.store.rows.items():
        if container in places:
            places[container].append({**row.document, "_ts": row.ts, "_etag": row.etag})
    for stored in simulation.broker.queue("quarantine").peek(1, 10_000, now):
        message = stored.message
        properties = message.application_properties
        source_id = properties.get("quarantine-message-id")
        end.quarantine.append(
            Copy(
                copy_id=str(message.message_id),
                role=str(properties["quarantine-role"]),
                session=message.session_id or "",
                message_id=None if source_id is None else str(source_id),
                body=hashlib.sha256(message.body).hexdigest(),
                reason=str(properties["quarantine-reason"]),
            )
        )
    for role in WORKING:
        counts = simulation.broker.queue(role.value).counts(now)
        end.waiting[role.value] = counts.active
        for stored in simulation.broker.queue(f"{role.value}/$DeadLetterQueue").peek(1, 10_000, now):
            end.dead_letters.append(
                Copy(
                    f"{role} {stored.sequence_number}",
                    role.value,
                    stored.message.session_id or "",
                    str(stored.message.message_id),
                    hashlib.sha256(stored.message.body).hexdigest(),
                    str(stored.message.application_properties.get("DeadLetterReason")),
                )
            )
    return end


def settings() -> Settings:
    """The local settings."""
    with open("local.settings.json", encoding="utf-8") as file:  # noqa: PTH123
        return Settings.from_env(json.load(file)["Values"])
