"""One trace from the producer's message to its entries, and records that say which rules decided them."""

from __future__ import annotations

import pytest

from shared.handlers.delivery import HANDLER_VERSION

from .harness import App
from .messages import amended, fresh, line, message_id_of, placed

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def trace_of(traceparent: object) -> str:
    return str(traceparent).split("-")[1]


@pytest.mark.parametrize("name", ["traceparent", "Diagnostic-Id"])
async def test_a_producers_trace_goes_through_record_and_outbox_to_the_entries(app: App, name: str) -> None:
    """C31 R67."""
    order_id = fresh()
    await app.send(placed(order_id), properties={name: PARENT})
    assert await app.outcomes(f"{order_id}:order:2") == ["applied"]
    order = await app.order(order_id)
    assert order is not None
    assert trace_of(order["record"]["traceparent"]) == TRACE
    for entry in await app.entries(order_id):
        assert trace_of(entry["record"]["traceparent"]) == TRACE
    for message_id in (order_id, f"{order_id}:order:1", f"{order_id}:order:2"):
        assert app.fields_of(message_id)["trace_id"] == TRACE


@pytest.mark.parametrize("garbage", ["", "00-zz-1-01", f"00-{'0' * 32}-00f067aa0ba902b7-01", "x" * 500])
async def test_garbage_in_the_place_of_a_trace_is_ignored(app: App, garbage: str) -> None:
    """R67: the message gets a trace of its own, the same for all that it causes."""
    order_id = fresh()
    await app.send(placed(order_id), properties={"traceparent": garbage})
    assert await app.outcomes(f"{order_id}:order:1") == ["applied"]
    order = await app.order(order_id)
    assert order is not None
    own = trace_of(order["record"]["traceparent"])
    assert len(own) == 32
    assert own != "0" * 32
    assert {trace_of(entry["record"]["traceparent"]) for entry in await app.entries(order_id)} == {own}


async def test_each_record_says_which_rules_decided_it(app: App) -> None:
    """D60: an order, its command and its entries; a session may see two releases."""
    order_id = fresh()
    await app.send(placed(order_id, line("1", 2)))
    await app.send(amended(order_id, "op-1", line("1", 3)))
    assert await app.outcomes(f"{order_id}:order:2") == ["applied"]
    documents = await app.documents("orders", order_id) + await app.entries(order_id)
    versions = [document["record"]["handlerVersion"] for document in documents]
    assert versions == [HANDLER_VERSION] * 4


async def test_a_thousandth_order_needs_no_more_than_the_first(app: App) -> None:
    """C64 R75: sessions and partitions come and go by themselves, one for each order."""
    orders = [fresh("MANY") for _ in range(60)]
    await app.send_all([placed(order_id, line("1")) for order_id in orders])
    for order_id in orders:
        assert await app.outcomes(message_id_of(placed(order_id))) == ["created"]
        found = await app.order(order_id)
        assert found is not None
        assert found["orderId"] == order_id
        assert {document["orderId"] for document in await app.documents("orders", order_id)} == {order_id}
