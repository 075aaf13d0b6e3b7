"""One seed from its messages to its verdict."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from local.demo.expect import expect
from local.demo.lines import Line
from local.demo.verify import EndState, verify
from shared.domain.verdicts import Policy
from tests.simulation.cases import end_state, lines_of, settings, sources_of
from tests.simulation.engine import Faults, Simulation, StuckError
from tests.simulation.world import SimulatedPayments


@dataclass(frozen=True, slots=True)
class Report:
    """What a seed showed."""

    seed: int
    violations: tuple[str, ...]
    history: tuple[str, ...]
    calls: int
    crashes: int

    def __str__(self) -> str:
        return "\n".join((f"seed {self.seed}", *self.history, "", *self.violations))


def run_seed(seed: int, faults: Faults | None = None) -> Report:
    """Run one seed and compare what is left with what its messages demand.

    Every third seed authorises payments; half of those under the policy `park`, where the outcome may be that a person
    has to look, but never that the provider was called twice.
    """
    lines = lines_of(seed)
    payments = SimulatedPayments() if seed % 3 == 2 else None
    policy = Policy.PARK if seed % 6 == 5 else Policy.RETRY
    detects = seed % 2 == 0
    simulation = Simulation(
        seed,
        dataclasses.replace(settings(), payments_unknown_outcome=policy.value),
        sources_of(lines),
        faults=faults,
        duplicate_detection=detects,
        payments=payments,
    )
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        simulation.run()
        violations = list(_violations(simulation, lines, payments, policy))
    except StuckError as stuck:
        violations = [str(stuck)]
    finally:
        logging.disable(before)
    return Report(
        seed,
        tuple(violations),
        tuple(simulation.history),
        sum(payments.calls.values()) if payments else 0,
        simulation.crashes,
    )


def _violations(
    simulation: Simulation, lines: Sequence[Line], payments: SimulatedPayments | None, policy: Policy
) -> Iterator[str]:
    end = end_state(simulation)
    if payments is not None and policy is Policy.PARK:
        yield from _paid_once(end, payments)
    else:
        verdict = verify(expect(lines, (), datetime.fromtimestamp(simulation.clock.seconds, UTC)), end)
        for item in verdict.violations:
            # The check knows no payments, and an approval is a business change of its own.
            if payments is None or not item.detail.startswith("revision:"):
                yield f"{item.rule}: {item.order_id}: {item.detail}"
    if end.dead_letters:
        yield f"{len(end.dead_letters)} messages reached a dead-letter queue"
    if not simulation.detects_duplicates:
        yield from _conflicts_parked(lines, end)
    yield from _batches_in_order(lines, end)
    for document in (*end.orders, *end.entries, *end.ledgers):
        if document["type"] not in ("command", "ledgerBatch") and "ttl" in document:
            yield f"{document['id']}: business data with a ttl"


def _paid_once(end: EndState, payments: SimulatedPayments) -> Iterator[str]:
    """Under `park` nobody calls twice without a person's word, and every order is open or waits for that word."""
    yield from (f"{key}: {calls} calls" for key, calls in payments.calls.items() if calls > 1)
    for document in end.orders:
        if document["type"] == "order" and document["record"]["status"] == "effect":  # type: ignore[index]
            effect = document["record"]["effect"]  # type: ignore[index]
            if effect["status"] != "parked":
                yield f"{document['id']}: effect {effect['status']} at the end"


def _conflicts_parked(lines: Sequence[Line], end: EndState) -> Iterator[str]:
    """Where the broker swallows nothing, each second body under a known id is parked (C39)."""
    parked = {copy.body for copy in end.quarantine}
    first: dict[tuple[str, str | None], bytes] = {}
    for line in lines:
        if first.setdefault((line.role, line.message_id), line.body) != line.body and ":status." not in (
            line.message_id or ""
        ):
            digest = hashlib.sha256(line.body).hexdigest()
            if digest not in parked:
                yield f"{line.message_id}: a second body under this id was neither refused nor parked"


def _batches_in_order(lines: Sequence[Line], end: EndState) -> Iterator[str]:
    """Of an unnumbered stream the entries are applied as its batches list them: no batch overtakes its predecessor."""
    places: dict[str, int] = {}
    for line in lines:
        if line.role == "ledger":
            body = json.loads(line.body)
            for transaction in body["transactions"]:
                if "sequence" not in transaction:
                    key = f"{transaction['orderId']}:ledger.{body['ledgerId']}:{transaction['transactionId']}"
                    places.setdefault(key, len(places))
    streams: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for document in end.entries:
        if str(document["id"]) in places and document["position"] is not None:
            position = int(str(document["position"]))
            streams[str(document["orderId"]), str(document["stream"])].append((position, places[str(document["id"])]))
    for (order, stream), found in streams.items():
        order_of_places = [place for _, place in sorted(found)]
        if order_of_places != sorted(order_of_places):
            yield f"{order}: {stream}: applied in another order than sent"
