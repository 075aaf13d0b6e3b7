"""Seeded schedules of payments: a provider that approves, declines, refuses and keeps silent, replays, cancellations.

Checked at the end, whatever went wrong on the way: who was asked how often, and that order, ledger and provider agree.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from shared.domain.verdicts import Policy
from shared.envelope import OutgoingMessage, Role
from shared.errors import UnknownCommitError
from shared.ports import Approved, Container, Declined, Refused
from tests.simulation.cases import settings
from tests.simulation.engine import ROUGH, Simulation, StuckError
from tests.unit.handlers.ports_in_memory import Io, Store

SEEDS = 120
ORDERS = ("O0", "O1", "O2", "O3")


class FicklePayments:
    """Decides once for each key, and often does not, or says nothing of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed * 31 + 5)
        self.calls: Counter[str] = Counter()
        self.decided: dict[str, Approved | Declined] = {}
        self.faults: list[str] = []
        self.store: Store | None = None

    async def authorize(self, key: str, order_id: str, amount: str, currency: str) -> Approved | Declined | Refused:
        return await Io(f"pay {key}", lambda: self._answer(key, order_id), write=True)

    def _answer(self, key: str, order_id: str) -> Any:
        """An answer, or the error that the caller gets instead of one."""
        self.calls[key] += 1
        assert self.store is not None
        if self.store.find(Container.ORDERS, order_id, order_id) is None:
            self.faults.append(f"{key}: called before anything was stored")
        dice = self.random.random()
        if dice < 0.15:
            return Refused(422)
        if dice < 0.3:
            return UnknownCommitError("simulated: not decided")
        decision = Declined(f"D-{key}") if self.random.random() < 0.25 else Approved(f"A-{key}")
        answer = self.decided.setdefault(key, decision)
        return UnknownCommitError("simulated: decided, and no answer") if dice < 0.45 else answer


def sources(seed: int) -> tuple[list[list[tuple[Role, OutgoingMessage]]], Counter[str]]:
    """Per order: its placing and replays that a person orders, some of them twice, and perhaps a cancellation."""
    dice = random.Random(seed * 17 + 3)
    rows, replays = [], Counter[str]()
    for order in ORDERS:
        lines = [{"lineId": str(n), "sku": "S", "quantity": 1, "unitPrice": "2.5"} for n in range(1, 4)]
        body = json.dumps({"type": "order.placed", "orderId": order, "currency": "EUR", "lines": lines}).encode()
        placed = OutgoingMessage(order, order, body)
        row = [placed] * dice.choice((1, 2))
        for count in range(1, dice.randint(1, 4)):
            properties = {"dedup-id": order, "replay-count": str(count)}
            replay = OutgoingMessage(f"{order}~r{count}", order, body, properties=properties)
            row += [replay] * dice.choice((1, 1, 2))
            replays[order] += 1
        if dice.random() < 0.4:
            cancel = {"type": "order.cancelled", "orderId": order, "operationId": "op"}
            message = OutgoingMessage(f"{order}:op", order, json.dumps(cancel).encode())
            row.insert(dice.randint(1, len(row)), message)
        rows.append([(Role.ORDERS, message) for message in row])
    return rows, replays


def violations_of(seed: int, policy: Policy) -> tuple[list[str], Simulation, FicklePayments]:
    """Run one seed; what is wrong at its end."""
    payments = FicklePayments(seed)
    rows, replays = sources(seed)
    chosen = dataclasses.replace(settings(), payments_unknown_outcome=policy.value)
    run = Simulation(seed, chosen, rows, faults=ROUGH, payments=payments, duplicate_detection=False)  # type: ignore[arg-type]
    payments.store = run.store
    try:
        run.run()
    except StuckError as stuck:
        return [str(stuck)], run, payments
    found = [*payments.faults]
    for order in ORDERS:
        found += _wrong_with(order, policy, replays[order], run, payments)
    return found, run, payments


def _wrong_with(order: str, policy: Policy, replays: int, run: Simulation, payments: FicklePayments) -> Iterator[str]:
    row = run.store.find(Container.ORDERS, order, order)
    if row is None:
        yield f"{order}: lost"
        return
    document, effect = row.document, row.document["record"]["effect"]
    state, decided = document["state"], payments.decided.get(order)
    calls = payments.calls[order]
    if policy is Policy.PARK and calls > 1 + replays:
        yield f"{order}: {calls} calls, {replays} replays"
    if policy is Policy.RETRY and effect["reason"] == "EffectOutcomeUnknown":
        yield f"{order}: parked as unknown under the policy retry"
    if effect["status"] == "completed":
        result = {"approved": Approved, "declined": Declined}[effect["result"]["status"]]
        if decided != result(effect["result"]["authorizationId"]):
            yield f"{order}: stored {effect['result']}, decided {decided}"
        if state == "pending_payment" or (state == "declined") is not isinstance(decided, Declined):
            yield f"{order}: {state} with {effect['result']}"
    elif effect["status"] == "parked":
        if state not in ("pending_payment", "cancelled"):
            yield f"{order}: {state} with a parked effect"
        if effect["reason"] not in _reasons(run, order):
            yield f"{order}: parked as {effect['reason']}, and no message to replay"
    else:
        yield f"{order}: effect {effect['status']} at the end"
    state_of_ledger = run.store.find(Container.LEDGER_ENTRIES, order, "~state")
    stream = state_of_ledger.document["streams"].get("order") if state_of_ledger else None
    reached = stream["next"] - 1 if stream else 0
    if reached != document["nextEntry"] - 1:
        yield f"{order}: {reached} entries of {document['nextEntry'] - 1}"
    if effect["status"] != "completed" and reached:
        yield f"{order}: entries without an answer"
    if "ttl" in document:
        yield f"{order}: business data with a ttl"


def _reasons(run: Simulation, order: str) -> set[str]:
    copies = run.broker.queue("quarantine").peek(1, 10_000, run.clock.seconds)
    return {
        str(stored.message.application_properties["quarantine-reason"])
        for stored in copies
        if stored.message.session_id == order
    }


@pytest.fixture
def _no_logs() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_no_logs")
@pytest.mark.parametrize("policy", Policy)
def test_order_ledger_and_provider_agree_at_the_end(policy: Policy) -> None:  # C18 C19 C20 C32 C46 D43 D45
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        found, run, payments = violations_of(seed, policy)
        assert not found, "\n".join((f"seed {seed}", *run.history, "", *found))
        for order in ORDERS:
            row = run.store.find(Container.ORDERS, order, order)
            assert row is not None
            seen[row.document["state"]] += 1
            seen[str(row.document["record"]["effect"]["reason"])] += 1
            seen["called again"] += payments.calls[order] > 1
    # The schedules hold what they are about.
    wanted = ["open", "declined", "cancelled", "pending_payment", "EffectRefused", "called again"]
    wanted += ["EffectOutcomeUnknown"] if policy is Policy.PARK else []
    assert not [each for each in wanted if seen[each] < 5], seen
