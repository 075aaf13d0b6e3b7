"""What the HTTP functions answer, as a client reads it."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from shared.contracts.http import (
    Healthy,
    LineView,
    Misconfigured,
    OrderAccepted,
    OrderView,
    Problem,
    ProblemError,
    ProblemKind,
)


def test_answers_are_written_in_camel_case() -> None:
    view = OrderView(
        order_id="ORD-1",
        state="open",
        fulfilment=None,
        currency="EUR",
        total="7.00",
        lines=(LineView(line_id="1", sku="TEA", quantity=2, unit_price="3.50", amount="7.00"),),
        revision=1,
        processing="completed",
    )
    assert json.loads(view.model_dump_json()) == {
        "orderId": "ORD-1",
        "state": "open",
        "fulfilment": None,
        "currency": "EUR",
        "total": "7.00",
        "lines": [{"lineId": "1", "sku": "TEA", "quantity": 2, "unitPrice": "3.50", "amount": "7.00"}],
        "revision": 1,
        "processing": "completed",
    }
    accepted = OrderAccepted(order_id="ORD-1", message_id="ORD-1:op-7")
    assert json.loads(accepted.model_dump_json()) == {"orderId": "ORD-1", "messageId": "ORD-1:op-7"}


def test_health_tells_names_only() -> None:
    healthy = Healthy(version="1.0.0", functions=("sweep",))
    assert json.loads(healthy.model_dump_json()) == {"status": "ok", "version": "1.0.0", "functions": ["sweep"]}
    wrong = Misconfigured(missing=("ORDERS_QUEUE",))
    assert json.loads(wrong.model_dump_json()) == {"status": "misconfigured", "missing": ["ORDERS_QUEUE"]}


def test_a_problem_has_a_urn_a_status_and_pointers() -> None:
    problem = Problem.of(
        ProblemKind.INVALID_MESSAGE,
        "/lines/0/quantity: must be at least 1",
        errors=(ProblemError(pointer="/lines/0/quantity", reason="must be at least 1"),),
        trace_id="0af7651916cd43dd8448eb211c80319c",
    )
    assert json.loads(problem.model_dump_json()) == {
        "type": "urn:problem:invalid-message",
        "title": "The message breaks the schema or a rule",
        "status": 422,
        "detail": "/lines/0/quantity: must be at least 1",
        "errors": [{"pointer": "/lines/0/quantity", "reason": "must be at least 1"}],
        "traceId": "0af7651916cd43dd8448eb211c80319c",
    }


def test_each_problem_is_told_apart_by_its_type() -> None:
    assert sorted(kind.status for kind in ProblemKind) == [400, 404, 409, 413, 415, 422, 503]
    assert len({kind.urn for kind in ProblemKind}) == len(ProblemKind)


def test_an_answer_has_no_member_that_the_contract_does_not_name() -> None:
    with pytest.raises(ValidationError):
        OrderAccepted.model_validate({"orderId": "a", "messageId": "b", "secret": 1})
