"""The sweep (docs/contracts.md, section 7): resumes what is past grace, leaves what lives, and never spins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from shared import telemetry
from shared.errors import (
    EVENT_CONFIGURATION,
    EVENT_PARTITION_FULL,
    PermanentError,
    Reason,
    TransientError,
    UnknownCommitError,
)
from shared.handlers.sweep import MOST_GAPS_LOGGED
from shared.ports import Approved, Container, Refused
from tests.unit.handlers.conftest import Points
from tests.unit.handlers.handler_bench import (
    Bench,
    DiedError,
    Role,
    ScriptedPayments,
    amended,
    entry,
    ledger_batch,
    placed,
)

GRACE = 70
LEASE = 90 + 5
PAST = LEASE + GRACE


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="convoy"):
        yield


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.message == event]


def results(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    return [(line.result, line.swept) for line in told(caplog, "sweep.finished")]  # type: ignore[attr-defined]


def sweep(bench: Bench, *, can_pay: bool = True) -> None:
    bench.labels.clear()
    bench.run(bench.worker(can_pay=can_pay).sweep())


def unfinished(bench: Bench, *order_ids: str) -> Bench:
    """Orders that were accepted, whose worker died before it sent anything, and whose messages are gone."""
    for order_id in order_ids:
        bench.send(Role.ORDERS, placed(order_id))
        bench.dies("send ledger-entries")
        assert isinstance(bench.deliver(bench.worker()), DiedError)
        bench.queues[Role.ORDERS].clear()
    return bench


def due_payments(bench: Bench, *order_ids: str) -> Bench:
    """Orders whose worker died with their payment due."""
    for order_id in order_ids:
        bench.send(Role.ORDERS, placed(order_id))
        bench.dies("pay")
        assert isinstance(bench.deliver(bench.worker()), DiedError)
        bench.queues[Role.ORDERS].clear()
    return bench


def statuses(bench: Bench) -> dict[str, str]:
    return {
        document_id: row.document["record"]["status"]
        for (container, _, document_id), row in bench.store.rows.items()
        if container in (Container.ORDERS, Container.LEDGERS) and not document_id.startswith("~")
    }


def sweeps(bench: Bench, order_id: str = "O") -> int:
    return int(bench.order(order_id)["record"]["claim"]["sweeps"])


# ----------------------------------------------------------------------------------------------------------------- what


def test_it_finishes_orders_commands_and_ledger_batches(caplog: pytest.LogCaptureFixture) -> None:  # C15 C53 D01
    bench = Bench(batch_messages=2)
    bench.send(Role.ORDERS, placed("P"))
    bench.drain(bench.worker())
    bench.queues[Role.LEDGER_ENTRIES].clear()
    for role, sent in ((Role.ORDERS, placed("O", 3)), (Role.ORDERS, amended(2, "P")), (Role.LEDGER, ledger_batch())):
        bench.send(role, sent)
        bench.dies("send ledger-entries", behind=True)
        assert isinstance(bench.deliver(bench.worker(), role), DiedError)
        bench.queues[role].clear()
    bench.clock.seconds += PAST
    sweep(bench)
    assert set(statuses(bench).values()) == {"completed"}
    assert set(bench.sent()) == {f"O:order:{n}" for n in (1, 2, 3)} | {f"O:ledger.L:T{n}" for n in (1, 2, 3)} | {
        "P:order:3"
    }
    assert results(caplog) == [("done", 3)]
    assert sorted(line.record for line in told(caplog, "outbox.swept")) == ["L:B1", "O", "P:op2"]  # type: ignore[attr-defined]
    assert sweeps(bench) == 0
    state = bench.document(Container.LEDGERS, "L", "~state")
    assert state["unfinished"] is None
    assert "ttl" not in bench.order()
    assert bench.document(Container.ORDERS, "P", "P:op2")["ttl"] == 5_184_000


def test_what_is_unfinished_never_expires() -> None:  # D24
    """The `ttl` of a record comes with its completion."""
    bench = Bench()
    bench.send(Role.ORDERS, placed("P"))
    bench.drain(bench.worker())
    for role, sent in ((Role.ORDERS, amended(2, "P")), (Role.LEDGER, ledger_batch())):
        bench.send(role, sent)
        bench.dies("send ledger-entries")
        assert isinstance(bench.deliver(bench.worker(), role), DiedError)
        bench.queues[role].clear()
    assert not [row for row in bench.store.rows.values() if "ttl" in row.document]
    bench.clock.seconds += 10 * bench.settings.record_ttl_seconds
    sweep(bench)
    assert statuses(bench) == {"P": "completed", "P:op2": "completed", "L:B1": "completed"}
    expiring = {row.document["id"] for row in bench.store.rows.values() if "ttl" in row.document}
    assert expiring == {"P:op2", "L:B1"}


@pytest.mark.parametrize(("age", "is_taken"), [(GRACE, False), (GRACE + 1, False), (LEASE, False), (LEASE + 1, True)])
def test_it_leaves_what_is_inside_the_grace_period_or_under_a_live_claim(age: int, is_taken: bool) -> None:  # D43
    bench = unfinished(Bench(), "O")
    bench.clock.seconds = int(bench.clock.seconds) + age
    sweep(bench)
    assert (statuses(bench)["O"] == "completed") is is_taken
    # Inside the grace period the record isn't even read.
    assert ("read orders/O" in bench.labels) is (age > GRACE)


def test_a_grace_longer_than_the_lease_counts_alone() -> None:
    bench = unfinished(Bench(overrides={"sweep_grace_seconds": 120}), "O")
    bench.clock.seconds += 119
    sweep(bench)
    assert statuses(bench) == {"O": "accepted"}
    bench.clock.seconds += 2
    sweep(bench)
    assert statuses(bench) == {"O": "completed"}


def test_it_goes_through_all_pages(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"O{n}" for n in range(7)]
    bench = unfinished(Bench(page_items=2), *names)
    bench.clock.seconds += PAST
    sweep(bench)
    assert statuses(bench) == dict.fromkeys(names, "completed")
    assert results(caplog) == [("done", 7)]


def test_what_is_finished_costs_nothing() -> None:
    bench = Bench()
    for n in range(5):
        bench.send(Role.ORDERS, placed(f"O{n}"))
    bench.drain(bench.worker())
    bench.clock.seconds += PAST
    sweep(bench)
    assert bench.labels == ["query ledger-entries", "query orders", "query ledgers", "query orders", "query ledgers"]


def test_parked_effects_are_left_alone() -> None:
    bench = Bench(payments=ScriptedPayments(Refused(422)))
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    before = bench.store.find(Container.ORDERS, "O", "O")
    bench.clock.seconds += 10_000
    sweep(bench)
    assert not [label for label in bench.labels if not label.startswith("query")]
    assert bench.store.find(Container.ORDERS, "O", "O") is before


def test_an_effect_that_is_parked_between_query_and_read_is_left_alone() -> None:
    bench = due_payments(Bench(payments=ScriptedPayments()), "O")
    bench.clock.seconds += PAST
    effect = {**bench.order()["record"]["effect"], "status": "parked", "reason": "EffectRefused"}
    bench.before("read orders/O", lambda: bench.change(Container.ORDERS, "O", "O", record={"effect": effect}))
    sweep(bench)
    assert not [label for label in bench.labels if label.startswith(("pay", "replace"))]


def test_two_sweeps_at_once_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    """Each record is taken over by its ETag; who loses leaves it."""
    bench = unfinished(Bench(), "A", "B")
    bench.clock.seconds += PAST
    other = bench.worker()
    bench.before("replace orders/", lambda: bench.run(other.sweep()))
    sweep(bench)
    assert statuses(bench) == {"A": "completed", "B": "completed"}
    assert sorted(bench.sent()) == ["A:order:1", "A:order:2", "B:order:1", "B:order:2"]
    assert sorted(swept for _, swept in results(caplog)) == [0, 2]


def test_a_delivery_that_takes_over_from_a_sweep_makes_it_stop(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(batch_messages=1)
    bench.send(Role.ORDERS, placed(lines=3))
    bench.dies("send ledger-entries")
    assert isinstance(bench.deliver(bench.worker()), DiedError)
    bench.clock.seconds += PAST

    def delivery() -> None:
        assert bench.deliver(bench.worker()) is None

    bench.before("send ledger-entries", delivery)
    sweep(bench)
    assert statuses(bench) == {"O": "completed"}
    assert len(set(bench.sent())) == 3
    assert results(caplog) == [("done", 1)]  # it finds the record completed: nothing is left to do
    assert sweeps(bench) == 0


# --------------------------------------------------------------------------------------------------------------- sweeps


def die_with(bench: Bench, times: int, rest: float = PAST) -> None:
    for _ in range(times):
        bench.dies("send ledger-entries")
        bench.clock.seconds += rest
        with pytest.raises(DiedError):
            sweep(bench)


def test_take_overs_that_die_are_counted_and_reported_and_then_tried_once_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = unfinished(Bench(), "O")
    die_with(bench, 6)
    assert sweeps(bench) == 6
    bench.clock.seconds += PAST
    caplog.clear()
    for _ in range(3):
        sweep(bench)
        bench.clock.seconds += 1000
    assert len(told(caplog, "outbox.stuck")) == 3
    assert bench.sent() == []
    assert sweeps(bench) == 6
    bench.clock.seconds += 3602
    die_with(bench, 1, rest=0)  # taken once more
    assert sweeps(bench) == 7
    bench.clock.seconds += 3602
    sweep(bench)
    assert (statuses(bench), sweeps(bench)) == ({"O": "completed"}, 0)


def test_a_delivery_of_its_own_message_always_resumes_a_stuck_record() -> None:
    bench = unfinished(Bench(), "O")
    die_with(bench, 6)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert (statuses(bench), sweeps(bench)) == ({"O": "completed"}, 0)


@pytest.mark.parametrize(
    "error",
    [TransientError("away"), ValueError("bug"), PermanentError(Reason.ITEM_TOO_LARGE, "x")],
    ids=lambda error: type(error).__name__,
)
def test_an_orderly_end_on_an_error_counts_as_none(error: Exception) -> None:
    bench = unfinished(Bench(), "O")
    die_with(bench, 2)
    bench.clock.seconds += PAST
    bench.fails("send ledger-entries", error, times=1)
    sweep(bench)
    assert (statuses(bench), sweeps(bench)) == ({"O": "accepted"}, 0)


def test_races_that_are_lost_under_the_own_claim_count_as_none() -> None:
    bench = unfinished(Bench(), "O")
    bench.clock.seconds += PAST
    bench.before("send ledger-entries", lambda: bench.before("replace orders/O", touched, times=6))

    def touched() -> None:
        bench.store.put(Container.ORDERS, bench.order())

    sweep(bench)
    assert (statuses(bench), sweeps(bench)) == ({"O": "accepted"}, 0)


def test_a_reset_that_fails_in_an_outage_only_delays() -> None:
    bench = unfinished(Bench(), "O")
    bench.clock.seconds += PAST
    bench.fails("send ledger-entries").first = lambda: bench.fails("read orders/O")
    sweep(bench)
    bench.faults.clear()
    assert sweeps(bench) == 1
    bench.clock.seconds += PAST
    sweep(bench)
    assert (statuses(bench), sweeps(bench)) == ({"O": "completed"}, 0)


def test_the_sweep_changes_no_attempts() -> None:
    bench = unfinished(Bench(), "O")
    before = bench.order()["record"]["claim"]
    die_with(bench, 1)
    claim = bench.order()["record"]["claim"]
    assert (claim["attempts"], claim["sequenceNumber"]) == (before["attempts"], before["sequenceNumber"])
    assert claim["token"] != before["token"]


# ----------------------------------------------------------------------------------------- one record, or the whole run


@pytest.mark.parametrize(
    ("label", "error", "event"),
    [
        ("send ledger-entries", ValueError("bug"), "outbox.stuck"),
        ("send ledger-entries", PermanentError(Reason.ITEM_TOO_LARGE, "x"), "outbox.stuck"),
        ("replace orders", TransientError("full", event=EVENT_PARTITION_FULL, of_record=True), "partition.full"),
        ("read orders", TransientError("who", event=EVENT_CONFIGURATION, of_record=True), "configuration"),
    ],
)
def test_what_concerns_one_record_ends_only_that_record(
    caplog: pytest.LogCaptureFixture, label: str, error: Exception, event: str
) -> None:
    names = [f"O{n}" for n in range(6)]
    bench = unfinished(Bench(), *names)
    bench.clock.seconds += PAST
    bench.fails(label, error, times=8 if label == "read orders" else 4)  # giving up reads once more
    sweep(bench)
    assert list(statuses(bench).values()).count("completed") == 2
    assert len(told(caplog, event)) == 4
    assert results(caplog) == [("done", 2)]


def test_a_document_of_a_newer_release_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    bench = unfinished(Bench(), "A", "B")
    bench.change(Container.ORDERS, "A", "A", v=2)
    before = bench.store.find(Container.ORDERS, "A", "A")
    bench.clock.seconds += PAST
    sweep(bench)
    assert bench.store.find(Container.ORDERS, "A", "A") is before
    assert statuses(bench) == {"A": "accepted", "B": "completed"}
    assert len(told(caplog, "configuration")) == 1
    assert results(caplog) == [("done", 1)]


def test_a_document_that_says_no_time_or_number_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture, measured: Points
) -> None:
    """The gauges are read first: what they could not read would end every run before it has begun."""
    bench = unfinished(Bench(), "A", "B", "C")
    for order_id, time in (("A", None), ("B", "yesterday")):
        record = dict(bench.order(order_id)["record"])
        del record["enqueuedAt"]
        bench.change(Container.ORDERS, order_id, order_id, v=2, record=record | ({"enqueuedAt": time} if time else {}))
    held = {"id": "E", "orderId": "O", "stream": "order", "sequence": None, "status": "held"}
    bench.store.put(Container.LEDGER_ENTRIES, held)
    bench.clock.seconds += PAST
    sweep(bench)
    assert statuses(bench) == {"A": "accepted", "B": "accepted", "C": "completed"}
    assert results(caplog) == [("done", 1)]
    counts = {attributes["container"]: value for attributes, value in measured("convoy.outbox.unfinished")}
    assert (counts["orders"], measured("convoy.held")[0][1]) == (3, 1)


def test_the_third_transient_error_in_a_row_ends_the_run(caplog: pytest.LogCaptureFixture, measured: Points) -> None:
    bench = unfinished(Bench(), *(f"O{n}" for n in range(6)))
    bench.clock.seconds += PAST
    outage = bench.fails("send ledger-entries")
    began = bench.clock.seconds
    sweep(bench)
    assert outage.seen == 3
    assert (bench.waits, bench.clock.seconds - began) == ([], 0)
    assert results(caplog) == [("transient", 0)]
    assert measured("convoy.sweeps") == [({"result": "transient"}, 1)]


def test_two_transient_errors_and_a_success_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"O{n}" for n in range(9)]
    bench = unfinished(Bench(), *names)
    bench.clock.seconds += PAST
    for _ in range(3):
        bench.fails("send ledger-entries", times=2)
        bench.before("send ledger-entries", lambda: None)
    sweep(bench)
    assert results(caplog) == [("done", 3)]


def test_an_outage_of_the_queries_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    bench = unfinished(Bench(), "O")
    bench.clock.seconds += PAST
    bench.fails("query orders")
    sweep(bench)
    assert results(caplog) == [("transient", 0)]


@pytest.mark.parametrize(("seconds", "swept"), [(0, 7), (50, 3), (121, 1)])
def test_after_two_minutes_no_further_record_is_started(
    caplog: pytest.LogCaptureFixture, measured: Points, seconds: int, swept: int
) -> None:
    bench = unfinished(Bench(), *(f"O{n}" for n in range(7)))
    bench.clock.seconds += PAST

    def slow() -> None:
        bench.clock.seconds += seconds

    bench.before("send ledger-entries", slow, times=100)
    sweep(bench)
    result = "done" if seconds == 0 else "time"
    assert results(caplog) == [(result, swept)]
    assert measured("convoy.sweeps") == [({"result": result}, 1)]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(0), KeyboardInterrupt()])
@pytest.mark.parametrize("label", ["query orders", "read orders", "send ledger-entries"])
def test_nothing_but_an_exception_leaves_the_sweep(error: BaseException, label: str) -> None:
    bench = unfinished(Bench(), "O")
    bench.clock.seconds += PAST
    bench.fails(label, error, times=1)
    with pytest.raises(TransientError):
        sweep(bench)
    bench.clock.seconds += PAST
    sweep(bench)
    assert statuses(bench) == {"O": "completed"}


# ------------------------------------------------------------------------------------------------------------- payments


def test_due_payments_are_called_with_their_key() -> None:
    payments = ScriptedPayments()
    bench = due_payments(Bench(payments=payments), "A", "B")
    bench.clock.seconds += PAST
    sweep(bench)
    assert sorted(payments.keys) == ["A", "B"]
    assert statuses(bench) == {"A": "completed", "B": "completed"}
    assert sweeps(bench, "A") == 0


def test_trouble_of_the_payment_provider_ends_the_payments_of_this_run_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    payments = ScriptedPayments(*[UnknownCommitError("payments: HTTP 401", event=EVENT_CONFIGURATION)] * 9)
    bench = Bench(payments=payments)
    due_payments(bench, "A", "B", "C")
    for order_id in ("D", "E"):
        bench.send(Role.ORDERS, placed(order_id))
        bench.dies("send ledger-entries")
        payments.script.insert(0, Approved(f"A-{order_id}"))
        assert isinstance(bench.deliver(bench.worker()), DiedError)
        bench.queues[Role.ORDERS].clear()
    payments.keys.clear()
    bench.clock.seconds += PAST
    sweep(bench)
    assert len(payments.keys) == 1
    found = statuses(bench)
    assert (found["D"], found["E"]) == ("completed", "completed")
    assert [found[name] for name in "ABC"] == ["effect"] * 3
    assert len(told(caplog, "configuration")) == 1
    assert [sweeps(bench, name) for name in "ABC"] == [0, 0, 0]
    assert results(caplog) == [("done", 2)]


def test_due_payments_without_a_provider_are_reported_and_left(caplog: pytest.LogCaptureFixture) -> None:
    bench = due_payments(Bench(payments=ScriptedPayments()), "A", "B", "C", "D")
    before = dict(bench.store.rows)
    bench.clock.seconds += PAST
    sweep(bench, can_pay=False)
    assert bench.store.rows == before
    assert len(told(caplog, "configuration")) == 4
    assert results(caplog) == [("done", 0)]


def test_a_refused_payment_is_parked_by_the_sweep(caplog: pytest.LogCaptureFixture) -> None:
    bench = due_payments(Bench(payments=ScriptedPayments(Refused(422))), "O")
    bench.clock.seconds += PAST
    sweep(bench)
    effect = bench.order()["record"]["effect"]
    assert (effect["status"], effect["reason"], effect["replayCount"]) == ("parked", "EffectRefused", 0)
    assert len(told(caplog, "effect.parked")) == 1
    assert sweeps(bench) == 0


# -------------------------------------------------------------------------------------------------------------- reports


def test_gauges_and_gaps_are_reported_before_anything_is_resumed(
    caplog: pytest.LogCaptureFixture, measured: Points
) -> None:  # C65 D47 R21 R22
    bench = Bench()
    for number in (3, 5, 2):
        bench.send(Role.LEDGER_ENTRIES, entry(number))
        bench.drain(bench.worker())
        bench.clock.seconds += 100
    unfinished(bench, "A")
    bench.clock.seconds += 50
    unfinished(bench, "B")
    bench.clock.seconds += 20
    bench.fails("query orders", times=10)  # a run that ends early has reported what it got to
    sweep(bench)
    assert measured("convoy.held") == [({}, 3)]
    assert measured("convoy.gap.oldest") == [({}, 370)]
    (gap,) = told(caplog, "gap.open")
    assert (gap.session_id, gap.stream, gap.lowest_held, gap.seconds) == ("O", "ledger.L", 2, 370)  # type: ignore[attr-defined]
    bench.faults.clear()
    sweep(bench)
    assert {attributes["container"]: value for attributes, value in measured("convoy.outbox.unfinished")} == {
        "orders": 2,
        "ledgers": 0,
    }
    assert {attributes["container"]: value for attributes, value in measured("convoy.outbox.oldest")} == {
        "orders": 70,
        "ledgers": 0,
    }
    assert bench.labels[0] == "query ledger-entries"
    held = [row.document for key, row in bench.store.rows.items() if row.document.get("status") == "held"]
    assert len(held) == 3  # reported, not changed


@pytest.mark.parametrize(("age", "alarms"), [(60, 0), (61, 1)])
def test_a_gap_alarms_when_its_oldest_entry_is_too_old(
    caplog: pytest.LogCaptureFixture, age: int, alarms: int
) -> None:
    bench = Bench()
    bench.send(Role.LEDGER_ENTRIES, entry(2))
    bench.drain(bench.worker())
    bench.clock.seconds = int(bench.clock.seconds) + age
    sweep(bench)
    assert len(told(caplog, "gap.open")) == alarms


def test_request_units_are_charged_to_whoever_makes_the_requests(measured: Points) -> None:
    bench = Bench()

    def charged() -> None:
        telemetry.count_request_units("x", 1.0)

    bench.before("create orders", charged)
    bench.before("query orders", charged)
    bench.send(Role.ORDERS, placed())
    bench.drain(bench.worker())
    sweep(bench)
    assert [attributes["consumer"] for attributes, _ in measured("convoy.request_units")] == ["process_order", "sweep"]


def test_a_run_that_finds_nothing_is_counted(caplog: pytest.LogCaptureFixture, measured: Points) -> None:
    """Its absence is an alert."""
    bench = Bench()
    sweep(bench)
    sweep(bench)
    assert results(caplog) == [("done", 0), ("done", 0)]
    assert measured("convoy.sweeps") == [({"result": "done"}, 2)]
    assert measured("convoy.held") == [({}, 0)]


# ----------------------------------------------------------------------------------------------------------- next batch


def test_the_next_batch_resumes_its_predecessor_and_counts_in_sweeps_too() -> None:  # C74 D04
    bench = Bench(batch_messages=2)
    bench.send(Role.LEDGER, ledger_batch(1))
    bench.dies("send ledger-entries")
    assert isinstance(bench.deliver(bench.worker(), Role.LEDGER), DiedError)
    bench.queues[Role.LEDGER].clear()
    bench.send(Role.LEDGER, ledger_batch(2))
    for expected in range(1, 7):
        bench.dies("send ledger-entries")
        assert isinstance(bench.deliver(bench.worker(), Role.LEDGER), DiedError)
        claim = bench.document(Container.LEDGERS, "L", "L:B1")["record"]["claim"]
        assert (claim["sweeps"], claim["attempts"]) == (expected, 1)
    raised = bench.deliver(bench.worker(), Role.LEDGER)  # above 5 it isn't resumed here
    assert isinstance(raised, TransientError)
    assert bench.sent() == []
    bench.clock.seconds += 3601
    sweep(bench)
    assert bench.deliver(bench.worker(), Role.LEDGER) is None
    assert bench.sent() == [f"O:ledger.L:T{n}" for n in range(1, 7)]


def test_the_age_of_what_is_unfinished_is_that_of_its_message(measured: Points) -> None:
    """Each vain attempt writes: by the last write nothing would ever be old, and the alert would sleep."""
    bench = unfinished(Bench(), "O")
    bench.fails("send ledger-entries")
    for _ in range(10):
        bench.clock.seconds += PAST
        sweep(bench)
    ages = {attributes["container"]: value for attributes, value in measured("convoy.outbox.oldest")}
    assert ages["orders"] >= 10 * PAST


def test_services_that_refuse_the_app_end_the_run_as_an_outage_does(caplog: pytest.LogCaptureFixture) -> None:
    """A right that is missing fails for every record: no use in asking for each."""
    bench = unfinished(Bench(), *(f"O{number}" for number in range(10)))
    refused = bench.fails("send ledger-entries", TransientError("no right", event=EVENT_CONFIGURATION))
    bench.clock.seconds += PAST
    sweep(bench)
    assert refused.seen == 3
    assert results(caplog) == [("transient", 0)]


def test_open_gaps_are_counted_and_not_all_of_them_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for number in range(MOST_GAPS_LOGGED + 5):
        held = {"id": f"E{number}", "orderId": f"O{number}", "stream": "order", "sequence": 2, "status": "held"}
        bench.store.put(Container.LEDGER_ENTRIES, held)
    bench.clock.seconds += PAST
    sweep(bench)
    assert len(told(caplog, "gap.open")) == MOST_GAPS_LOGGED
    assert vars(told(caplog, "sweep.finished")[0])["open_gaps"] == MOST_GAPS_LOGGED + 5
