"""Orders that wait for a payment: recorded before the call, called with the same key, answered from the record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from local.payments import ANSWER_LOST, APPROVE, DECLINE, SILENT, PaymentProvider, answers

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


# The least that the relations among the settings allow beside a short budget.
HURRIED = {
    "TRANSIENT_BUDGET_SECONDS": "2",
    "PAYMENTS_TIMEOUT_SECONDS": "1",
    "CLAIM_LEASE_SECONDS": "23",
    "SWEEP_GRACE_SECONDS": "3",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hurried(provider: PaymentProvider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with running(tmp_path_factory.mktemp("hurried"), settings={**HURRIED, "PAYMENTS_URL": provider.url}) as app:
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


async def test_silent_provider_is_asked_again_when_its_time_is_over(hurried: App, provider: PaymentProvider) -> None:
    """C45: a call is bounded, and what follows has the same key."""
    order_id = fresh()
    provider.script(SILENT, key=order_id)
    assert await hurried.outcome(placed(order_id)) == "created"
    assert provider.count(order_id) == 2


async def test_provider_that_is_away_is_transient_and_the_next_attempt_calls_under_the_same_key(
    hurried: App, provider: PaymentProvider
) -> None:
    """C41 D43 D45: the calls end with the budget; the claim is waited for, and taken when the server says that it is
    over."""
    order_id = fresh()
    port = provider.port
    provider.usually = answers(401)
    try:
        await hurried.send(placed(order_id))
        await hurried.until(lambda: "transient" in hurried.outcomes_of(order_id), "the budget is over")
        asked = provider.count(order_id)
        assert asked > 2
        await provider.stop()
        await hurried.until(lambda: "in_flight" in hurried.outcomes_of(order_id), "the next one waits for the lease")
        assert any("401" in str(line.fields) for line in hurried.told("configuration"))
    finally:
        provider.usually = APPROVE
        await provider.start(port=port)
    hurried.clock.ahead += 30
    outcomes = await hurried.outcomes(order_id)
    assert (outcomes[-1], set(outcomes[:-1])) == ("taken_over", {"transient", "in_flight"})
    assert provider.count(order_id) == asked + 1
    assert hurried.parked(order_id) == []


async def test_call_that_takes_longer_than_the_session_lock_keeps_its_session(
    provider: PaymentProvider, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """C52 R20: the host renews the lock while the handler runs: one delivery, one call, and its successor waits."""
    order_id = fresh()
    provider.script(APPROVE.after(4.0), key=order_id)
    async with running(tmp_path_factory.mktemp("long"), settings={"PAYMENTS_URL": provider.url}) as app:
        queue = app.stack.service.broker.queue("orders")
        queue.options = replace(queue.options, lock_seconds=1.5)
        await app.send_all([placed(order_id), cancelled(order_id, "op-1")])
        assert await app.outcomes(order_id) == ["created"]
        assert await app.outcomes(f"{order_id}:op-1") == ["applied"]
        (end,) = app.ends_of(order_id)
        assert end.seconds > 2 * 1.5
        assert end.delivery_count == 1
        await app.quiet()
        assert queue.counts(app.clock()).active == 0
    assert provider.count(order_id) == 1


async def test_due_payment_without_a_provider_is_left_as_it_is(
    provider: PaymentProvider, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A deployment that lost PAYMENTS_URL: nothing is written, nothing parked, and the log says why."""
    folder, order_id = tmp_path_factory.mktemp("without"), fresh()
    data: Path = folder / "cosmos.db"
    async with running(folder, data=data, settings={**HURRIED, "PAYMENTS_URL": provider.url}) as app:
        with app.crashing_when_all_are_at({("orders", order_id): (2, False)}) as crash:
            await app.send(placed(order_id))
            await app.until(lambda: crash.happened, "the worker died before it could store the answer")
        before = await app.order(order_id)
    async with running(folder, data=data, settings=HURRIED) as app:
        app.clock.ahead += 40
        await app.send(placed(order_id))
        await app.until(lambda: "transient" in app.outcomes_of(order_id), "the budget is over")
        assert any("PAYMENTS_URL" in str(line.fields) for line in app.told("configuration"))
        assert await app.order(order_id) == before
        assert app.parked(order_id) == []
    assert provider.count(order_id) == 1
