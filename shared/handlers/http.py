"""The HTTP functions: submit an order message, look at an order, health.

`submit_order` decides nothing about orders: it gives a message its identity and puts it on the queue. Sending the same
body again gets the same answer, so a client may repeat a request whose answer it did not see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from pydantic import BaseModel

from shared import telemetry
from shared.contracts.documents import Command, Order
from shared.contracts.http import (
    PROBLEM_CONTENT_TYPE,
    FulfilmentView,
    Healthy,
    LineView,
    Misconfigured,
    OrderAccepted,
    OrderView,
    Problem,
    ProblemError,
    ProblemKind,
)
from shared.contracts.orders import OrderMessage, OrderPlaced, OrderStatus
from shared.domain import identity, payload, validation
from shared.envelope import HttpAnswer, HttpRequest, OutgoingMessage, Role
from shared.errors import PermanentError, Reason, TransientError
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Seen, read_as, unknown_hash
from shared.ports import Clock, Container, Documents, Sender, Tokens

HTTP_BUDGET_SECONDS = 5
LARGEST_BODY = 1024 * 1024
"""Bytes; the largest message of any tier's default."""

_ENCODED_SLASH = re.compile("%2F", re.IGNORECASE)


class OrderApi:
    """What clients may ask."""

    def __init__(self, documents: Documents, sender: Sender, clock: Clock, tokens: Tokens) -> None:
        self._documents = documents
        self._sender = sender
        self._clock = clock
        self._tokens = tokens

    async def submit(self, request: HttpRequest) -> HttpAnswer:
        """Accept an order message: 202, or a problem that names the field."""
        content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if content_type != "application/json":
            return _problem(request, ProblemKind.CONTENT_TYPE, "content-type: application/json is expected")
        if len(request.body) > LARGEST_BODY:
            return _problem(request, ProblemKind.TOO_LARGE, f"at most {LARGEST_BODY} bytes are accepted")
        try:
            value = payload.read(request.body, None).value
            message = validation.order_message(value)
            addressed = identity.address(value)
        except validation.InvalidBody as invalid:
            errors = tuple(ProblemError(pointer=item.pointer, reason=item.reason) for item in invalid.violations)
            return _problem(request, ProblemKind.INVALID_MESSAGE, validation.describe(invalid.violations), errors)
        except PermanentError as error:
            return _problem(request, ProblemKind.NOT_JSON, error.description, _place(error))
        attempt = Attempt(self._clock, self._tokens, HTTP_BUDGET_SECONDS)
        try:
            known = await self._known_hash(attempt, message, addressed.message_id)
            if known is None:
                await attempt.io(partial(self._sender.send, Role.ORDERS, [_outgoing(request, addressed)]))
            elif known != payload.payload_hash(value):
                return _problem(request, ProblemKind.OTHER_CONTENT, f"{addressed.message_id}: known with other content")
        except TransientError as error:
            return _unavailable(request, error)
        except PermanentError as error:
            if error.reason is not Reason.ITEM_TOO_LARGE:
                raise
            return _problem(request, ProblemKind.TOO_LARGE, "the message would exceed the broker's limit")
        accepted = OrderAccepted(order_id=message.order_id, message_id=addressed.message_id)
        return _answer(202, accepted, {"Location": f"/api/orders/{quote(message.order_id, safe='')}"})

    async def get(self, request: HttpRequest, order_id: str) -> HttpAnswer:
        """An order as it is now: 200 or 404. `order_id` is the rest of the path as the host gives it."""
        attempt = Attempt(self._clock, self._tokens, HTTP_BUDGET_SECONDS)
        try:
            for reading in _readings(order_id):
                seen = await attempt.io(partial(self._read_order, reading, identity.document_id(reading)))
                if seen is not None:
                    return _answer(200, _view(seen.document), {"ETag": seen.etag})
        except TransientError as error:
            return _unavailable(request, error)
        except PermanentError as error:  # the database's client refuses the id, so no order can have it
            if error.reason is not Reason.INVALID_MESSAGE:
                raise
        return _problem(request, ProblemKind.UNKNOWN_ORDER, "there is no such order")

    async def _read_order(self, order_id: str, document_id: str) -> Seen[Order] | None:
        return await read_as(self._documents, Order, Container.ORDERS, order_id, document_id)

    async def _read_command(self, order_id: str, document_id: str) -> Seen[Command] | None:
        return await read_as(self._documents, Command, Container.ORDERS, order_id, document_id)

    async def _known_hash(self, attempt: Attempt, message: OrderMessage, message_id: str) -> str | None:
        """The payload hash under which this message is known; "" when the order is another message's."""
        if isinstance(message, OrderStatus):
            return None
        read = self._read_order if isinstance(message, OrderPlaced) else self._read_command
        seen: Seen[Order] | Seen[Command] | None = await attempt.io(
            lambda: read(message.order_id, identity.document_id(message_id))
        )
        if seen is None:
            return None
        record = seen.document.record
        if not payload.is_known_hash(record.payload_hash):
            raise unknown_hash()
        return record.payload_hash if record.key == message_id else ""


def _readings(text: str) -> tuple[str, ...]:
    """The ids that a path may mean: hosts decode all of it but an encoded slash, so `%2F` is a slash or itself."""
    decoded = _ENCODED_SLASH.sub("/", text)
    return (text,) if decoded == text else (decoded, text)


def healthy(functions: tuple[str, ...]) -> HttpAnswer:
    """The settings can be read; nobody is asked."""
    return _answer(200, Healthy(version=telemetry.VERSION, functions=functions))


def misconfigured(names: tuple[str, ...]) -> HttpAnswer:
    """These settings are missing or wrong; no values."""
    return _answer(503, Misconfigured(missing=names))


def _outgoing(request: HttpRequest, addressed: identity.Addressed) -> OutgoingMessage:
    traceparent = telemetry.current_traceparent() or request.traceparent
    return OutgoingMessage(
        message_id=addressed.message_id,
        session_id=addressed.session_id,
        body=addressed.body,
        subject=addressed.subject,
        correlation_id=request.headers.get("x-correlation-id") or addressed.message_id,
        properties={"traceparent": traceparent} if traceparent else {},
    )


def _view(order: Order) -> OrderView:
    fulfilment = order.fulfilment
    return OrderView(
        order_id=order.order_id,
        state=order.state,
        fulfilment=FulfilmentView(status=fulfilment.status, version=fulfilment.version) if fulfilment else None,
        currency=order.currency,
        total=order.total,
        lines=tuple(
            LineView(
                line_id=line.line_id,
                sku=line.sku,
                quantity=line.quantity,
                unit_price=line.unit_price,
                amount=line.amount,
            )
            for line in order.lines
        ),
        revision=order.revision,
        processing=order.record.status,
    )


def _answer(status: int, body: BaseModel, headers: Mapping[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(status, body.model_dump_json(by_alias=True).encode(), headers=headers or {})


def _problem(
    request: HttpRequest,
    kind: ProblemKind,
    detail: str,
    errors: tuple[ProblemError, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> HttpAnswer:
    trace_id = request.traceparent.split("-")[1] if request.traceparent else None
    body = Problem.of(kind, detail, errors=errors, trace_id=trace_id).model_dump_json(by_alias=True).encode()
    return HttpAnswer(kind.status, body, PROBLEM_CONTENT_TYPE, headers or {})


def _place(error: PermanentError) -> tuple[ProblemError, ...]:
    """Where a body can't be read, and why: as for a broken rule, so that clients have one way to show it."""
    if error.pointer is None:
        return ()
    reason = error.description.removeprefix(f"{error.pointer or 'body'}: ")
    return (ProblemError(pointer=error.pointer, reason=reason),)


def _unavailable(request: HttpRequest, error: TransientError) -> HttpAnswer:
    detail = "the request was not answered in time; send the same body again"
    answer = _problem(request, ProblemKind.UNAVAILABLE, detail, headers={"Retry-After": "5"})
    telemetry.log_transient(error)
    return answer
