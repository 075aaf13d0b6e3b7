"""One outcome and one settlement for each delivery, whatever the handler meets (docs/contracts.md, section 10)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.domain.failures import SETTLEMENTS, Settlement
from shared.domain.verdicts import Outcome
from shared.envelope import Envelope, OutgoingMessage
from shared.errors import (
    EVENT_CONFIGURATION,
    EVENT_PARTITION_FULL,
    InFlightError,
    LostRaceError,
    PermanentError,
    Reason,
    TransientError,
    UnknownCommitError,
)
from shared.handlers.attempt import Attempt
from shared.handlers.intake import Facts
from shared.ports import Container
from tests.unit.handlers.conftest import Points
from tests.unit.handlers.handler_bench import (
    Bench,
    DiedError,
    Role,
    ScriptedPayments,
    amended,
    entry,
    envelope_of,
    ledger_batch,
    message,
    placed,
    status,
)

BUDGET = 60


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="convoy"):
        yield


def handled(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.message == "message.handled"]


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.message != "message.handled"]


def run(bench: Bench, handler: Callable[..., Any], delivery: int = 1) -> None:
    """A handler of the test's own, behind the guard."""
    bench.send(Role.ORDERS, message("O", "O", {}))
    waiting = bench.queues[Role.ORDERS][-1]
    waiting.delivery_count = delivery
    bench.run(bench.worker()._guard.run("process_order", handler, envelope_of(Role.ORDERS, waiting)))


def raising(error: BaseException) -> Callable[..., Any]:
    async def handler(_envelope: Envelope, _attempt: Attempt, _facts: Facts) -> Outcome:
        raise error

    return handler


def returning(outcome: Outcome) -> Callable[..., Any]:
    async def handler(_envelope: Envelope, _attempt: Attempt, facts: Facts) -> Outcome:
        facts.dedup_key = "O"
        return outcome

    return handler


# ------------------------------------------------------------------------------------------- one outcome, one line each

RAISED: list[tuple[BaseException, str, str | None, type[Exception] | None]] = [
    *((PermanentError(r, "x"), "conflict" if r is Reason.PAYLOAD_MISMATCH else "quarantined", r, None) for r in Reason),
    (TransientError("x"), "transient", None, TransientError),
    (UnknownCommitError("x"), "transient", None, UnknownCommitError),
    (LostRaceError("x"), "transient", None, LostRaceError),
    (InFlightError("x"), "in_flight", None, InFlightError),
    (ValueError("x"), "failed", None, ValueError),
    (TimeoutError("x"), "failed", None, TimeoutError),
    (RecursionError("x"), "failed", None, RecursionError),
    (MemoryError("x"), "failed", None, MemoryError),
    (asyncio.CancelledError(), "transient", None, TransientError),
    (SystemExit(1), "transient", None, TransientError),
    (KeyboardInterrupt(), "transient", None, TransientError),
    (GeneratorExit(), "transient", None, TransientError),
]


@pytest.mark.parametrize(
    ("error", "outcome", "reason", "raised"),
    RAISED,
    ids=[getattr(row[0], "reason", None) or type(row[0]).__name__ for row in RAISED],
)
def test_what_a_handler_raises_has_one_outcome(
    caplog: pytest.LogCaptureFixture,
    measured: Points,
    error: BaseException,
    outcome: str,
    reason: str | None,
    raised: type[Exception] | None,
) -> None:  # R59
    bench = Bench()
    if raised is None:
        run(bench, raising(error))
    else:
        with pytest.raises(raised):
            run(bench, raising(error))
    (line,) = handled(caplog)
    assert (line.outcome, line.reason, line.consumer, line.role) == (outcome, reason, "process_order", "orders")  # type: ignore[attr-defined]
    assert measured("convoy.messages") == [
        ({"consumer": "process_order", "outcome": outcome, "reason": reason or ""}, 1)
    ]
    ((attributes, count),) = measured("messaging.process.duration")
    assert count == 1
    assert attributes["messaging.destination.name"] == "orders"
    assert attributes.get("error.type") == (None if raised is None else type(error).__name__)
    assert bench.reasons() == ([reason] if reason else [])
    is_completed = SETTLEMENTS[Outcome(outcome)] is Settlement.COMPLETE
    assert is_completed is (raised is None)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if SETTLEMENTS[outcome] is Settlement.COMPLETE])
def test_what_a_handler_returns_is_reported_once_with_all_fields(
    caplog: pytest.LogCaptureFixture, measured: Points, outcome: Outcome
) -> None:
    bench = Bench()
    run(bench, returning(outcome), delivery=3)
    (line,) = handled(caplog)
    fields = ("outcome", "dedup_key", "message_id", "session_id", "delivery_count", "replay_count")
    assert [getattr(line, name) for name in fields] == [outcome, "O", "O", "O", 3, 0]
    for name in ("reason", "correlation_id", "attempt_seconds", "lag_seconds", "app_version"):
        assert hasattr(line, name), name
    assert measured("convoy.messages") == [({"consumer": "process_order", "outcome": outcome, "reason": ""}, 1)]
    assert measured("convoy.message.lag") == [({"consumer": "process_order"}, 1)]


def test_no_metric_carries_a_key(measured: Points) -> None:
    bench = Bench()
    bench.send(Role.ORDERS, placed("KEY"))
    bench.send(Role.ORDERS, placed("KEY", currency="USD"))
    bench.drain(bench.worker())
    bench.run(bench.worker().sweep())
    names = ("convoy.messages", "messaging.process.duration", "convoy.message.lag", "convoy.held", "convoy.sweeps")
    found = [point for name in names for point in measured(name)]
    assert len(found) > 6
    assert not [attributes for attributes, _ in found if "KEY" in json.dumps(attributes)]


# ------------------------------------------------------------------------------------------------ nothing but Exception


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), SystemExit(0), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize(
    ("label", "role", "sent"),
    [
        ("create orders", Role.ORDERS, placed()),
        ("send ledger-entries", Role.ORDERS, placed()),
        ("pay", Role.ORDERS, placed()),
        ("send quarantine", Role.ORDERS, amended()),
        ("batch ledgers", Role.LEDGER, ledger_batch()),
        ("batch ledger-entries", Role.LEDGER_ENTRIES, entry(1)),
    ],
)
def test_nothing_but_an_exception_leaves_a_trigger(
    caplog: pytest.LogCaptureFixture, label: str, role: Role, sent: OutgoingMessage, error: BaseException
) -> None:
    bench = Bench(payments=ScriptedPayments())
    fault = bench.fails(label, error, times=1)
    bench.send(role, sent)
    assert isinstance(bench.deliver(bench.worker(), role), TransientError)
    assert fault.seen == 1
    assert [line.outcome for line in handled(caplog)] == ["transient"]  # type: ignore[attr-defined]
    bench.clock.seconds += 100
    assert bench.deliver(bench.worker(), role) is None


# ---------------------------------------------------------------------------------------------- back-off and its bounds


def test_an_outage_is_waited_out_inside_the_invocation(caplog: pytest.LogCaptureFixture) -> None:  # C41 D31 R23
    bench = Bench()
    outage = bench.fails("create orders", times=8)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert (outage.seen, len(bench.waits)) == (8, 8)
    assert 15 < sum(bench.waits) < BUDGET
    assert [line.outcome for line in handled(caplog)] == ["created"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("label", "role", "sent"),
    [
        ("create orders", Role.ORDERS, placed()),
        ("read orders", Role.ORDERS, amended()),
        ("send quarantine", Role.ORDERS, amended()),
        ("send ledger-entries", Role.ORDERS, placed()),
        ("replace orders", Role.ORDERS, placed()),
        ("read ledgers", Role.LEDGER, ledger_batch()),
        ("batch ledgers", Role.LEDGER, ledger_batch()),
        ("read ledger-entries", Role.LEDGER_ENTRIES, entry(1)),
        ("batch ledger-entries", Role.LEDGER_ENTRIES, entry(1)),
    ],
)
def test_transient_is_raised_at_the_end_of_the_budget(
    caplog: pytest.LogCaptureFixture, label: str, role: Role, sent: OutgoingMessage
) -> None:
    bench = Bench()
    outage = bench.fails(label)
    bench.send(role, sent)
    began = bench.clock.seconds
    assert isinstance(bench.deliver(bench.worker(), role), TransientError)
    assert bench.clock.seconds - began == pytest.approx(BUDGET)
    assert max(bench.waits) <= 10
    assert [line.outcome for line in handled(caplog)] == ["transient"]  # type: ignore[attr-defined]
    outage.times = 0
    assert bench.deliver(bench.worker(), role) is None
    assert bench.reasons() == (["OrderUnknown"] if sent.message_id == "O:op2" else [])


def test_back_off_never_sends_a_message_again() -> None:  # D46 R24
    """A copy would go to the tail of its session, or vanish as a duplicate: the message waits where it is."""
    bench = with_order(Bench())
    outage = bench.fails("read orders")
    bench.send(Role.ORDERS, status("confirmed", 1))
    bench.send(Role.ORDERS, status("shipped", 2))
    first = bench.queues[Role.ORDERS][0]
    bench.labels.clear()
    for _ in range(8):
        assert isinstance(bench.deliver(bench.worker()), TransientError)
    assert not [label for label in bench.labels if label.startswith("send")]
    assert bench.queues[Role.ORDERS][0] is first
    outage.times = 0
    bench.drain(bench.worker())
    assert bench.order()["fulfilment"] == {"status": "shipped", "version": 2}


@pytest.mark.parametrize(
    ("delivery", "least", "most"), [(1, 0.15, 0.25), (3, 0.6, 1.0), (5, 2.4, 4.0), (12, 6.0, 10.0)]
)
def test_an_unexpected_exception_is_not_repeated_and_waits_longer_each_time(
    delivery: int, least: float, most: float
) -> None:
    bench, tries = Bench(), 0

    async def handler(*_: object) -> Outcome:
        nonlocal tries
        tries += 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(bench, handler, delivery)
    assert tries == 1
    (wait,) = bench.waits
    assert least <= wait <= most


@pytest.mark.parametrize("error", [ValueError("x"), InFlightError("x")])
def test_no_wait_passes_the_budget(error: Exception) -> None:
    bench = Bench()

    async def slow(_envelope: Envelope, attempt: Attempt, _facts: Facts) -> Outcome:
        while attempt.seconds < BUDGET - 1:
            await attempt.wait(10)
        raise error

    began = bench.clock.seconds
    with pytest.raises(type(error)):
        run(bench, slow, delivery=5)
    assert bench.clock.seconds - began <= BUDGET + 1e-6


def test_a_claim_that_was_taken_comes_back_after_a_wait() -> None:
    bench = Bench()
    with pytest.raises(InFlightError):
        run(bench, raising(InFlightError("another attempt took the claim")), delivery=4)
    assert len(bench.waits) == 1


# ------------------------------------------------------------------------------------------------- contracts 10's table


def with_order(bench: Bench) -> Bench:
    bench.send(Role.ORDERS, placed())
    bench.drain(bench.worker())
    return bench


ERRORS: list[tuple[str, Exception, str | None, str | None]] = [
    # From the adapter: what it is, and whether it heals; the event that is logged, the reason under which it parks.
    ("429, 449, busy, quota, disabled", TransientError("x"), None, None),
    ("408, 500, 503, 410, no answer: not committed", UnknownCommitError("x"), None, None),
    ("no token", TransientError("x", event=EVENT_CONFIGURATION), "configuration", None),
    ("401, 403, 404 on a container", TransientError("x", event=EVENT_CONFIGURATION), "configuration", None),
    ("partition key reached its maximum size", TransientError("x", event=EVENT_PARTITION_FULL), "partition.full", None),
    ("413, message too large", PermanentError(Reason.ITEM_TOO_LARGE, "x"), None, "ItemTooLarge"),
    ("400, ValueError of the SDK", PermanentError(Reason.INVALID_MESSAGE, "x"), None, "InvalidMessage"),
]
PLACES: list[tuple[str, Role, OutgoingMessage]] = [
    ("create orders/O", Role.ORDERS, placed()),
    ("replace orders/O", Role.ORDERS, placed()),
    ("send ledger-entries", Role.ORDERS, placed()),
    ("batch ledgers", Role.LEDGER, ledger_batch()),
    ("batch ledger-entries", Role.LEDGER_ENTRIES, entry(1)),
]


@pytest.mark.parametrize(("label", "role", "sent"), PLACES, ids=[place[0] for place in PLACES])
@pytest.mark.parametrize(("error", "event", "reason"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_each_row_of_the_error_table(  # R47 R48 C41 C45 D40
    caplog: pytest.LogCaptureFixture,
    label: str,
    role: Role,
    sent: OutgoingMessage,
    error: Exception,
    event: str | None,
    reason: str | None,
) -> None:
    bench = Bench()
    trouble = bench.fails(label, error)
    bench.send(role, sent)
    raised = bench.deliver(bench.worker(), role)
    if reason is not None:
        assert raised is None
        assert (trouble.seen, bench.reasons()) == (1, [reason])
        return
    assert raised is error
    assert trouble.seen > 5
    assert bench.reasons() == []
    assert events(caplog) == ([event] if event else [])
    trouble.times = 0
    assert bench.deliver(bench.worker(), role) is None


@pytest.mark.parametrize(("label", "role", "sent"), PLACES, ids=[place[0] for place in PLACES])
def test_a_write_whose_answer_is_lost_is_resolved_by_reading(  # C44 C45 C46 D38 D39 R38
    caplog: pytest.LogCaptureFixture, label: str, role: Role, sent: OutgoingMessage
) -> None:
    bench = Bench()
    lost = bench.loses_answer(label)
    bench.send(role, sent)
    assert bench.deliver(bench.worker(), role) is None
    (line,) = handled(caplog)
    assert lost.seen == 1
    # Only a repeated send shows: its messages are out twice, under the same ids.
    outcome = "created" if label.startswith("send") else "mine"
    assert line.outcome == outcome  # type: ignore[attr-defined]
    assert set(bench.sent()) == {
        Role.ORDERS: {"O:order:1", "O:order:2"},
        Role.LEDGER: {f"O:ledger.L:T{number}" for number in (1, 2, 3)},
        Role.LEDGER_ENTRIES: set(),
    }[role]


@pytest.mark.parametrize(
    ("container", "document", "sent"),
    [
        (Container.ORDERS, "O", placed()),
        (Container.ORDERS, "O", amended()),
        (Container.ORDERS, "O", status("confirmed", 1)),
    ],
)
@pytest.mark.parametrize("change", [{"v": 2}, {"state": "on_hold"}], ids=["v", "shape"])
def test_a_document_of_a_newer_release_is_left_alone(
    caplog: pytest.LogCaptureFixture, container: Container, document: str, sent: OutgoingMessage, change: dict[str, Any]
) -> None:
    bench = with_order(Bench())
    bench.change(container, "O", document, **change)
    before = bench.store.find(container, "O", document)
    caplog.clear()
    bench.send(Role.ORDERS, sent)
    began = bench.clock.seconds
    assert isinstance(bench.deliver(bench.worker()), TransientError)
    assert bench.clock.seconds - began == pytest.approx(BUDGET)
    assert bench.store.find(container, "O", document) is before
    assert (events(caplog), bench.reasons()) == (["configuration"], [])


def test_a_hash_of_a_newer_release_is_no_conflict(caplog: pytest.LogCaptureFixture) -> None:
    bench = with_order(Bench())
    bench.change(Container.ORDERS, "O", "O", record={"payloadHash": "sha256:jcs:v2:" + "0" * 64})
    caplog.clear()
    bench.send(Role.ORDERS, placed())
    assert isinstance(bench.deliver(bench.worker()), TransientError)
    assert (events(caplog), bench.reasons()) == (["configuration"], [])


@pytest.mark.parametrize(
    ("label", "role", "sent", "name"),
    [
        ("batch orders/O", Role.ORDERS, amended(), "orders/O/O"),
        ("replace orders/O", Role.ORDERS, status("confirmed", 1), "orders/O/O"),
        ("batch ledger-entries", Role.LEDGER_ENTRIES, entry(1), "ledger-entries/O/~state"),
    ],
)
@pytest.mark.parametrize("races", [1, 5, 10**6])
def test_a_lost_race_is_read_and_decided_again(  # D40 R47
    label: str, role: Role, sent: OutgoingMessage, name: str, races: int
) -> None:
    """Five times at once, then at the pace of the back-off, to the end of the budget."""
    bench = with_order(Bench())
    container, partition, document = name.split("/")

    def other() -> None:
        row = bench.store.find(Container(container), partition, document)
        assert row is not None
        bench.store.put(Container(container), row.document)

    lost = bench.before(label, other, times=races)
    bench.send(role, sent)
    raised = bench.deliver(bench.worker(), role)
    if races > 5:
        assert isinstance(raised, LostRaceError)
        assert sum(bench.waits) == pytest.approx(BUDGET)
        return
    assert raised is None
    assert (lost.seen, bench.waits) == (races, [])


def test_a_document_that_is_gone_again_is_created_again_three_times_at_once() -> None:  # D41
    bench = Bench()

    def conflict() -> None:
        bench.store.put(Container.ORDERS, {"id": "O", "orderId": "O"})

    def gone() -> None:
        del bench.store.rows[Container.ORDERS, "O", "O"]

    made = bench.before("create orders/O", conflict, times=10**6)
    bench.before("read orders/O", gone, times=10**6)
    bench.send(Role.ORDERS, placed())
    assert isinstance(bench.deliver(bench.worker()), LostRaceError)
    assert made.seen == 3 + 1 + len(bench.waits)
    made.times = 0
    assert bench.deliver(bench.worker()) is None


# -------------------------------------------------------------------------------------------- 412 under one's own claim


def test_a_completing_write_that_finds_the_record_completed_by_another_is_a_duplicate(
    caplog: pytest.LogCaptureFixture,
) -> None:  # C47 C48 C49
    bench = Bench()
    bench.send(Role.ORDERS, placed())

    def other() -> None:
        waiting = bench.queues[Role.ORDERS][0]
        assert bench.deliver(bench.worker()) is None
        bench.queues[Role.ORDERS].insert(0, waiting)

    bench.before("replace orders/O", other)
    assert bench.deliver(bench.worker()) is None
    assert [line.outcome for line in handled(caplog)] == ["resumed", "duplicate"]  # type: ignore[attr-defined]
    assert bench.order()["revision"] == 1


@pytest.mark.parametrize(
    ("role", "sent", "label"),
    [(Role.ORDERS, placed(lines=6), "replace orders/O"), (Role.LEDGER, ledger_batch(count=6), "replace ledgers/L:B1")],
)
def test_an_attempt_whose_claim_was_taken_stops_and_sends_nothing_more(  # D43 D44 C48 C49
    caplog: pytest.LogCaptureFixture, role: Role, sent: OutgoingMessage, label: str
) -> None:
    bench = Bench(batch_messages=2)
    bench.send(role, sent)

    def taken() -> None:
        bench.dies("send ledger-entries")
        assert isinstance(bench.deliver(bench.worker(), role), DiedError)

    bench.before(label, taken)
    assert isinstance(bench.deliver(bench.worker(), role), InFlightError)
    assert len(bench.sent()) == 2  # what was out before
    assert [line.outcome for line in handled(caplog)] == ["in_flight"]  # type: ignore[attr-defined]
    assert bench.deliver(bench.worker(), role) is None
    assert len(set(bench.sent())) == 6


def test_a_change_by_another_message_is_kept_under_the_claim() -> None:
    """412 with the own token: the same change is made on what was read."""
    bench = Bench(batch_messages=1)
    bench.send(Role.ORDERS, placed(lines=3))

    def other() -> None:
        bench.queues[Role.ORDERS].reverse()
        bench.send(Role.ORDERS, status("confirmed", 1))
        bench.queues[Role.ORDERS].reverse()
        assert bench.deliver(bench.worker()) is None

    bench.before("replace orders/O", other, times=1)
    assert bench.deliver(bench.worker()) is None
    order = bench.order()
    assert (order["fulfilment"], order["record"]["status"]) == ({"status": "confirmed", "version": 1}, "completed")
    assert bench.sent() == ["O:order:1", "O:order:2", "O:order:3"]


# -------------------------------------------------------------------------------------------------------------- parking


def test_a_copy_that_cannot_be_sent_leaves_the_message(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    outage = bench.fails("send quarantine")
    bench.send(Role.ORDERS, amended())
    assert isinstance(bench.deliver(bench.worker()), TransientError)
    (line,) = handled(caplog)
    assert (line.outcome, line.reason) == ("transient", "OrderUnknown")  # type: ignore[attr-defined]
    outage.times = 0
    assert bench.deliver(bench.worker()) is None
    assert bench.reasons() == ["OrderUnknown"]


def test_a_copy_that_fits_nowhere_is_left_to_the_broker_at_once(caplog: pytest.LogCaptureFixture) -> None:  # R30 R48
    """Raised without back-off, so that it reaches the broker's dead-letter queue soon; with an alert."""
    bench = Bench()
    refused = bench.fails("send quarantine", PermanentError(Reason.ITEM_TOO_LARGE, "x"))
    bench.send(Role.ORDERS, amended())
    assert isinstance(bench.deliver(bench.worker()), PermanentError)
    assert (refused.seen, bench.waits) == (4, [])
    (line,) = handled(caplog)
    assert (line.outcome, line.reason) == ("failed", "OrderUnknown")  # type: ignore[attr-defined]
    assert events(caplog) == ["message.quarantine_failed"]


@pytest.mark.parametrize("too_large", [0, 1, 2, 3])
def test_the_largest_form_that_fits_is_parked(too_large: int) -> None:
    bench = Bench()
    bench.fails("send quarantine", PermanentError(Reason.ITEM_TOO_LARGE, "x"), times=too_large)
    bench.send(Role.ORDERS, amended())
    assert bench.deliver(bench.worker()) is None
    (copy,) = bench.parked()
    assert ("quarantine-description" in copy.properties) is (too_large == 0)
    assert ("quarantine-body" in copy.properties) is (too_large == 3)


def test_what_is_unexpected_in_the_parking_is_failed_and_waits(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.fails("send quarantine", RuntimeError("bug"), times=1)
    bench.send(Role.ORDERS, amended())
    assert isinstance(bench.deliver(bench.worker()), RuntimeError)
    assert [line.outcome for line in handled(caplog)] == ["failed"]  # type: ignore[attr-defined]
    assert len(bench.waits) == 1


@pytest.mark.parametrize("off", [600.0, -600.0])
def test_a_wrong_clock_shows_in_no_outcome_and_never_as_a_negative_lag(
    caplog: pytest.LogCaptureFixture, off: float
) -> None:
    bench = Bench(worker_clock_off=off)
    for each in (placed(), amended(), placed()):
        bench.send(Role.ORDERS, each)
    bench.drain(bench.worker())
    lines = [line for line in handled(caplog) if line.consumer == "process_order"]  # type: ignore[attr-defined]
    assert [line.outcome for line in lines] == ["created", "applied", "duplicate"]  # type: ignore[attr-defined]
    assert all(line.lag_seconds >= 0 for line in lines)  # type: ignore[attr-defined]


def test_a_copy_that_outlived_its_record_brings_no_old_content_back() -> None:  # D17 R35
    """The record that would recognise it has expired, so its age does."""
    bench = Bench()
    worker = bench.worker()
    line = {"lineId": "1", "sku": "S", "unitPrice": "1.5"}
    order = {"type": "order.placed", "orderId": "O", "currency": "EUR", "lines": [{**line, "quantity": 1}]}
    bench.send(Role.ORDERS, message("O", "O", order))
    for number, quantity in ((1, 9), (2, 5)):
        lines = [{**line, "quantity": quantity}]
        body = {"type": "order.amended", "orderId": "O", "operationId": f"op{number}", "lines": lines}
        bench.send(Role.ORDERS, message(f"O:op{number}", "O", body))
    old = bench.queues[Role.ORDERS][1]
    bench.drain(worker)
    bench.clock.seconds += bench.settings.record_ttl_seconds + 1
    bench.queues[Role.ORDERS].append(old)
    assert bench.deliver(worker) is None
    assert bench.order()["lines"][0]["quantity"] == 5
    assert bench.reasons() == ["DedupExpired"]
