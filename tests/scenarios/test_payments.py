"""Orders that wait for a payment: recorded before the call, called with the same key, answered from the record."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from local.payments import ANSWER_LOST, APPROVE, DECLINE, PaymentProvider, answers

from .harness import App, enc, running
from .messages import cancelled, fresh, placed

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def provider() -> AsyncIterator[PaymentProvider]:
    async with PaymentProvider() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def retrying(provider: PaymentProvider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with running(tmp_path_factory.mktemp("retry"), settings={"PAYMENTS_URL": provider.url}) as app:
        yield app


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def parking(provider: PaymentProvider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    settings = {"PAYMENTS_URL": provider.url, "PAYMENTS_UNKNOWN_OUTCOME": "park"}
    async with running(tmp_path_factory.mktemp("park"), settings=settings) as app:
        yield app


async def replay(app: App, order_id: str, count: int) -> str:
    """What the operators' tool sends for a person."""
    properties = {"dedup-id": order_id, "replay-count": str(count)}
    await app.send(placed(order_id), message_id=f"{order_id}~r{count}", properties=properties)
    return (await app.outcomes(f"{order_id}~r{count}"))[-1]


async def test_approved_order_opens_and_its_duplicate_makes_no_call(retrying: App, provider: PaymentProvider) -> None:
    """C18 C19 C32 C46: called once under the dedup key, answered from the record; one request more than without."""
    order_id = fresh("Jörg/")
    with retrying.counting(order_id, "orders") as first:
        assert await retrying.outcome(placed(order_id)) == "created"
    await retrying.outcomes(f"{order_id}:order:2")
    with retrying.counting(order_id, "orders") as again:
        assert await retrying.outcome(placed(order_id)) == "duplicate"
    assert provider.count(enc(order_id)) == 1
    assert (first.requests, again.requests, again.sends) == (3, 2, 0)
    order = await retrying.order(order_id)
    assert order is not None
    effect = order["record"]["effect"]
    assert (order["state"], order["record"]["status"], effect["status"]) == ("open", "completed", "completed")
    assert effect["result"]["status"] == "approved"
    assert (await retrying.state(order_id))["balances"] == {"EUR": "19.00"}


async def test_order_is_in_progress_before_the_call_and_its_copy_waits(
    retrying: App, provider: PaymentProvider
) -> None:
    """C18 C20 R20: stored first, then called; a copy in the meantime neither calls nor is taken for done."""
    order_id = fresh("wait")
    provider.script(APPROVE.after(1.0), key=order_id)
    await retrying.send(placed(order_id))
    await retrying.until(lambda: provider.count(order_id) == 1, "the provider is called")
    order = await retrying.order(order_id)
    assert order is not None
    assert (order["state"], order["record"]["status"]) == ("pending_payment", "effect")
    assert (order["record"]["effect"]["status"], order["record"]["outbox"]) == ("in_progress", None)
    await retrying.send(placed(order_id), session=order_id.upper())
    assert sorted(await retrying.outcomes(order_id, 2)) == ["created", "duplicate"]
    assert provider.count(order_id) == 1


async def test_declined_order_sends_nothing(retrying: App, provider: PaymentProvider) -> None:
    """C14: the answer and what it causes are one write."""
    order_id = fresh()
    provider.script(DECLINE, key=order_id)
    assert await retrying.outcome(placed(order_id)) == "created"
    assert await retrying.outcome(placed(order_id)) == "duplicate"
    order = await retrying.order(order_id)
    assert order is not None
    assert (order["state"], order["record"]["outbox"]) == ("declined", None)
    assert await retrying.entries(order_id) == []
    assert await retrying.outcome(cancelled(order_id, "op-1")) == "rejected"


async def test_lost_answer_is_asked_for_again_with_the_same_key(retrying: App, provider: PaymentProvider) -> None:
    """C44 C46 D45: the provider has decided once, whoever heard of it."""
    order_id = fresh()
    provider.script(ANSWER_LOST, answers(503), key=order_id)
    assert await retrying.outcome(placed(order_id)) == "created"
    assert provider.count(order_id) == 3
    assert [end.delivery_count for end in retrying.ends_of(order_id)] == [1]
    assert retrying.parked(order_id) == []


async def test_worker_that_dies_behind_the_call_is_followed_by_one_that_calls_under_the_same_key(
    retrying: App, provider: PaymentProvider
) -> None:
    """C20 C46 D43: once the claim is over, by the server's clock, the next delivery takes it."""
    order_id = fresh()
    with retrying.crashing_when_all_are_at({("orders", order_id): (2, False)}) as crash:
        await retrying.send(placed(order_id))
        await retrying.until(lambda: crash.happened, "the worker died before it could store the answer")
    retrying.clock.ahead += 100  # before the next worker is up: its claim has ended by then
    assert await retrying.outcomes(order_id) == ["taken_over"]
    assert provider.count(order_id) == 2
    await retrying.outcomes(f"{order_id}:order:2")
    assert len(await retrying.entries(order_id)) == 2


async def test_refused_payment_is_parked_until_a_person_replays_it(retrying: App, provider: PaymentProvider) -> None:
    """C20 C39: a copy is parked with the same reason and makes no call; a replay calls, once."""
    order_id = fresh()
    provider.script(answers(422), key=order_id)
    assert await retrying.outcome(placed(order_id)) == "quarantined"
    assert await retrying.outcome(placed(order_id)) == "quarantined"
    assert [copy.reason for copy in retrying.parked(order_id)] == ["EffectRefused"] * 2
    assert provider.count(order_id) == 1
    assert await replay(retrying, order_id, 1) == "taken_over"
    assert provider.count(order_id) == 2
    assert await replay(retrying, order_id, 1) in ("duplicate", "taken_over")
    assert provider.count(order_id) == 2


async def test_unknown_outcome_is_parked_where_nobody_may_call_twice(parking: App, provider: PaymentProvider) -> None:
    """C45 C48 D45: neither redelivery nor copy calls again; a person's replay does."""
    order_id = fresh()
    provider.script(ANSWER_LOST, key=order_id)
    assert await parking.outcome(placed(order_id)) == "quarantined"
    assert await parking.outcome(placed(order_id)) == "quarantined"
    assert [copy.reason for copy in parking.parked(order_id)] == ["EffectOutcomeUnknown"] * 2
    assert provider.count(order_id) == 1
    assert any(line.fields.get("reason") == "EffectOutcomeUnknown" for line in parking.told("effect.parked"))
    order = await parking.order(order_id)
    assert order is not None
    assert (order["state"], order["record"]["effect"]["status"]) == ("pending_payment", "parked")
    assert await replay(parking, order_id, 1) == "taken_over"
    assert provider.count(order_id) == 2
    order = await parking.order(order_id)
    assert order is not None
    assert (order["state"], order["record"]["status"]) == ("open", "completed")


async def test_worker_that_dies_in_the_call_leaves_a_parked_effect(parking: App, provider: PaymentProvider) -> None:
    """C20 D45: whoever takes over parks it and makes no call."""
    order_id = fresh()
    with parking.crashing_when_all_are_at({("orders", order_id): (2, False)}) as crash:
        await parking.send(placed(order_id))
        await parking.until(lambda: crash.happened, "the worker died before it could store the answer")
    parking.clock.ahead += 100
    assert await parking.outcomes(order_id) == ["quarantined"]
    assert (await parking.only_parked(order_id)).reason == "EffectOutcomeUnknown"
    assert provider.count(order_id) == 1


async def test_order_with_a_parked_payment_can_be_cancelled(parking: App, provider: PaymentProvider) -> None:
    """The money stays to be looked at; the order has no entries."""
    order_id = fresh()
    provider.script(ANSWER_LOST, key=order_id)
    assert await parking.outcome(placed(order_id)) == "quarantined"
    assert await parking.outcome(cancelled(order_id, "op-1")) == "applied"
    order = await parking.order(order_id)
    assert order is not None
    assert (order["state"], order["record"]["status"], order["record"]["effect"]["status"]) == (
        "cancelled",
        "completed",
        "parked",
    )
    assert await parking.entries(order_id) == []
