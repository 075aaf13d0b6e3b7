"""Bodies of messages and the identity they must be sent under, restated from docs/contracts.md (sections 2 and 4)."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

Body = dict[str, Any]

_numbers = itertools.count(1)


def fresh(prefix: str = "ORD") -> str:
    """An id that no other test uses, so that tests share a stack and don't meet."""
    return f"{prefix}-{next(_numbers)}-{uuid.uuid4().hex[:8]}"


def line(line_id: str, quantity: int = 1, price: str = "3.50", sku: str = "TEA") -> Body:
    return {"lineId": line_id, "sku": sku, "quantity": quantity, "unitPrice": price}


def placed(order_id: str, *lines: Body, **members: Any) -> Body:
    chosen = lines or (line("1", 2), line("2", 1, "12", "CUP"))
    return {"type": "order.placed", "orderId": order_id, "currency": "EUR", "lines": list(chosen), **members}


def amended(order_id: str, operation: str, *lines: Body, **members: Any) -> Body:
    chosen = lines or (line("1", 5),)
    body = {"type": "order.amended", "orderId": order_id, "operationId": operation, "lines": list(chosen)}
    return {**body, **members}


def cancelled(order_id: str, operation: str, **members: Any) -> Body:
    return {"type": "order.cancelled", "orderId": order_id, "operationId": operation, **members}


def status(order_id: str, value: str, version: int) -> Body:
    return {"type": "order.status", "orderId": order_id, "status": value, "version": version}


def transaction(number: int, order_id: str, amount: str = "1.00", **members: Any) -> Body:
    return {"transactionId": f"T-{number}", "orderId": order_id, "kind": "add", "amount": amount, **members}


def batch(ledger_id: str, batch_id: str, *transactions: Body, **members: Any) -> Body:
    body = {"ledgerId": ledger_id, "batchId": batch_id, "currency": "EUR", "transactions": list(transactions)}
    return {**body, **members}


def entry(order_id: str, transaction_id: str, stream: str = "ledger.L-1", **members: Any) -> Body:
    body = {"type": "ledger.entry", "orderId": order_id, "stream": stream, "transactionId": transaction_id}
    if members.get("kind") != "close":
        body |= {"kind": "add", "amount": "1.00"}
    return {**body, "currency": "EUR", **members}


def message_id_of(body: Body) -> str:
    if "batchId" in body:
        return f"{body['ledgerId']}:{body['batchId']}"
    if "stream" in body:
        return f"{body['orderId']}:{body['stream']}:{body['transactionId']}"
    if body["type"] == "order.placed":
        return str(body["orderId"])
    if body["type"] == "order.status":
        return f"{body['orderId']}:status.{body['version']}"
    return f"{body['orderId']}:{body['operationId']}"


def session_of(body: Body) -> str:
    return str(body["ledgerId"] if "batchId" in body else body["orderId"])


def role_of(body: Body) -> str:
    if "batchId" in body:
        return "ledger"
    return "ledger-entries" if "stream" in body else "orders"
