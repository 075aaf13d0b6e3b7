"""Payments through the handlers (docs/contracts.md, sections 5 and 7): called under a stored record, one key, and never
against the policy for an unknown outcome."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from shared.errors import EVENT_CONFIGURATION, InFlightError, TransientError, UnknownCommitError
from shared.ports import Approved, Container, Declined, Refused
from tests.unit.handlers.handler_bench import (
    Bench,
    DiedError,
    Role,
    ScriptedPayments,
    amended,
    cancelled,
    message,
    placed,
    status,
)

LEASE = 90 + 5
BEHIND_THE_LEASE = LEASE + 1
UNKNOWN = UnknownCommitError("scripted: no answer")


def bench_of(*script: Approved | Declined | Refused | Exception, policy: str = "retry", seconds: float = 0.0) -> Bench:
    return Bench(payments=ScriptedPayments(*script, seconds=seconds), policy=policy)


def keys(bench: Bench) -> list[str]:
    assert isinstance(bench.payments, ScriptedPayments)
    return bench.payments.keys


def effect(bench: Bench) -> tuple[str, str | None, int]:
    found = bench.order()["record"]["effect"]
    return found["status"], found["reason"], found["replayCount"]


def outcomes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.outcome for record in caplog.records if record.message == "message.handled"]  # type: ignore[attr-defined]


def told(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(record.message == event for record in caplog.records)


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="convoy"):
        yield


# -------------------------------------------------------------------------------------------------------------- answers


def test_the_effect_is_stored_before_the_call_and_its_answer_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    """C18 C50."""
    bench = bench_of()
    stored: list[tuple[object, ...]] = []

    def look() -> None:
        order = bench.order()
        stored.append((order["state"], effect(bench)[0], order["record"]["outbox"]))

    bench.before("pay", look)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert stored == [("pending_payment", "in_progress", None)]
    order = bench.order()
    assert (order["state"], order["record"]["status"]) == ("open", "completed")
    assert (order["revision"], order["nextEntry"]) == (2, 3)
    assert order["record"]["effect"]["result"] == {"status": "approved", "authorizationId": "A-O"}
    assert bench.sent() == ["O:order:1", "O:order:2"]
    calls = [label.partition("/")[0].removesuffix(" O") for label in bench.labels]
    assert calls == ["create orders", "pay", "replace orders", "send ledger-entries", "replace orders"]
    assert outcomes(caplog) == ["created"]


def test_a_redelivery_with_the_answer_stored_makes_no_call(caplog: pytest.LogCaptureFixture) -> None:
    """C19 C46."""
    bench = bench_of()
    for _ in range(2):
        bench.send(Role.ORDERS, placed())
        assert bench.deliver(bench.worker()) is None
    assert keys(bench) == ["O"]
    assert outcomes(caplog) == ["created", "duplicate"]


def test_a_declined_payment_sends_nothing_and_is_the_answer_to_later_commands(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of(Declined("A-1"))
    worker = bench.worker()
    for each in (placed(), amended(2), cancelled(3), placed()):
        bench.send(Role.ORDERS, each)
        assert bench.deliver(worker) is None
    order = bench.order()
    assert (order["state"], order["record"]["status"], order["record"]["outbox"]) == ("declined", "completed", None)
    assert order["record"]["effect"]["result"] == {"status": "declined", "authorizationId": "A-1"}
    assert bench.sent() == []
    assert outcomes(caplog) == ["created", "rejected", "rejected", "duplicate"]
    for operation in ("O:op2", "O:op3"):
        result = bench.document(Container.ORDERS, "O", operation)["record"]["result"]
        assert result == {"outcome": "rejected", "reason": "OrderDeclined"}
    assert keys(bench) == ["O"]


@pytest.mark.parametrize("policy", ["retry", "park"])
@pytest.mark.parametrize("code", [400, 422])
def test_a_refused_call_is_parked_and_only_a_newer_replay_calls_again(
    caplog: pytest.LogCaptureFixture, policy: str, code: int
) -> None:
    bench = bench_of(Refused(code), Refused(code), policy=policy)
    worker = bench.worker()

    def deliver(replay: int) -> None:
        bench.send(Role.ORDERS, placed(replay=replay))
        assert bench.deliver(worker) is None

    deliver(0)
    assert effect(bench) == ("parked", "EffectRefused", 0)
    assert bench.order()["state"] == "pending_payment"
    assert str(code) in str(bench.parked()[0].properties["quarantine-description"])
    deliver(0)
    assert keys(bench) == ["O"]  # a producer's resend calls nobody
    deliver(1)
    assert effect(bench) == ("parked", "EffectRefused", 1)
    deliver(1)
    assert keys(bench) == ["O", "O"]  # neither does the same replay once more
    deliver(2)
    assert keys(bench) == ["O", "O", "O"]
    assert (bench.order()["state"], *effect(bench)) == ("open", "completed", None, 2)
    deliver(1)
    deliver(3)
    assert keys(bench) == ["O", "O", "O"]
    assert bench.reasons() == ["EffectRefused"] * 4
    assert outcomes(caplog) == ["quarantined"] * 4 + ["taken_over", "duplicate", "duplicate"]
    assert told(caplog, "effect.parked") == 2
    assert bench.sent() == ["O:order:1", "O:order:2"]


@pytest.mark.parametrize(
    ("order_id", "event", "key"),
    [
        ("ORD-1", None, "ORD-1"),
        ("Größe 7", None, "~x~R3LDtsOfZSA3"),
        ("ORD-1", {"id": "ORD-1", "source": "/erp"}, "~c~WyIvZXJwIiwiT1JELTEiXQ"),
    ],
    ids=["plain", "not ASCII", "CloudEvent"],
)
def test_the_key_of_the_call_is_the_encoded_dedup_key(order_id: str, event: dict[str, str] | None, key: str) -> None:
    """C32."""
    bench = bench_of()
    body = json.loads(placed(order_id).body)
    properties = {f"cloudEvents:{name}": value for name, value in (event or {}).items()}
    if event:
        properties |= {"cloudEvents:specversion": "1.0", "cloudEvents:type": body.pop("type")}
    bench.send(Role.ORDERS, message(order_id, order_id, body, dict(properties)))
    assert bench.deliver(bench.worker()) is None
    assert keys(bench) == [key]
    assert bench.reasons() == []


# ------------------------------------------------------------------------------------------------------ unknown outcome


def test_under_retry_an_unknown_outcome_is_called_again_with_the_same_key(caplog: pytest.LogCaptureFixture) -> None:
    """D45 C45."""
    bench = bench_of(UNKNOWN, UNKNOWN, UNKNOWN)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert keys(bench) == ["O"] * 4
    assert len(bench.waits) == 3
    assert outcomes(caplog) == ["created"]


def test_under_retry_the_budget_bounds_the_calls_and_the_next_attempt_takes_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = bench_of()
    outage = bench.fails("pay", UnknownCommitError("payments: HTTP 401", event=EVENT_CONFIGURATION))
    bench.send(Role.ORDERS, placed())
    began = bench.clock.seconds
    assert isinstance(bench.deliver(bench.worker()), TransientError)
    assert bench.clock.seconds - began == pytest.approx(60)
    assert outage.seen > 5
    assert effect(bench) == ("in_progress", None, 0)
    assert told(caplog, "configuration") == 1
    outage.times = 0
    assert bench.deliver(bench.worker()) is None  # waits for the lease of the first attempt inside its own budget
    assert bench.clock.seconds - began >= LEASE
    assert keys(bench) == ["O"]
    assert outcomes(caplog) == ["transient", "taken_over"]
    assert bench.reasons() == []


def test_under_park_an_unknown_outcome_is_parked_once_and_nobody_calls_without_a_replay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D45: neither redelivery, nor resend, nor sweep."""
    bench = bench_of(UNKNOWN, policy="park")
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert effect(bench) == ("parked", "EffectOutcomeUnknown", 0)
    assert bench.waits == []
    assert bench.reasons() == ["EffectOutcomeUnknown"]
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    bench.clock.seconds += 4000
    bench.run(bench.worker().sweep())
    assert keys(bench) == ["O"]
    assert bench.reasons() == ["EffectOutcomeUnknown"] * 2  # two broker messages, one copy each
    bench.send(Role.ORDERS, placed(replay=1))
    assert bench.deliver(bench.worker()) is None
    assert keys(bench) == ["O", "O"]
    assert bench.order()["state"] == "open"
    assert outcomes(caplog) == ["quarantined", "quarantined", "taken_over"]
    assert told(caplog, "effect.parked") == 1


def test_under_park_a_crash_before_the_message_is_parked_leaves_one_parked_message() -> None:
    bench = bench_of(UNKNOWN, policy="park")
    bench.send(Role.ORDERS, placed())
    bench.dies("send quarantine", behind=True)
    assert isinstance(bench.deliver(bench.worker()), DiedError)
    assert bench.deliver(bench.worker()) is None
    assert bench.reasons() == ["EffectOutcomeUnknown"]
    assert keys(bench) == ["O"]


def test_under_park_a_take_over_parks_without_a_call(caplog: pytest.LogCaptureFixture) -> None:
    """D43 D45."""
    bench = bench_of(policy="park")
    bench.send(Role.ORDERS, placed())
    bench.dies("pay", behind=True)
    assert isinstance(bench.deliver(bench.worker()), DiedError)
    bench.clock.seconds += BEHIND_THE_LEASE
    assert bench.deliver(bench.worker()) is None
    assert keys(bench) == ["O"]
    assert effect(bench) == ("parked", "EffectOutcomeUnknown", 0)
    assert told(caplog, "effect.parked") == 1
    bench.send(Role.ORDERS, placed(replay=1))
    assert bench.deliver(bench.worker()) is None
    assert bench.order()["record"]["effect"]["result"] == {"status": "approved", "authorizationId": "A-O"}


def test_under_park_the_sweep_parks_and_a_resend_of_the_lost_message_is_parked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = bench_of(policy="park")
    bench.send(Role.ORDERS, placed())
    bench.dies("pay", behind=True)
    assert isinstance(bench.deliver(bench.worker()), DiedError)
    bench.queues[Role.ORDERS].clear()
    bench.clock.seconds += BEHIND_THE_LEASE
    bench.run(bench.worker().sweep())
    assert effect(bench) == ("parked", "EffectOutcomeUnknown", 0)
    assert told(caplog, "effect.parked") == 1
    assert bench.reasons() == []
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert (bench.reasons(), keys(bench)) == (["EffectOutcomeUnknown"], ["O"])
    bench.send(Role.ORDERS, placed(replay=1))
    assert bench.deliver(bench.worker()) is None
    assert bench.order()["state"] == "open"


@pytest.mark.parametrize("by", ["handler", "sweep"])
def test_the_alert_comes_also_when_the_answer_of_the_parking_write_is_lost(
    caplog: pytest.LogCaptureFixture, by: str
) -> None:
    bench = bench_of(policy="park")
    bench.send(Role.ORDERS, placed())
    bench.dies("pay", behind=True)
    assert isinstance(bench.deliver(bench.worker()), DiedError)
    bench.clock.seconds += BEHIND_THE_LEASE
    bench.loses_answer("replace orders/O")
    if by == "sweep":
        bench.run(bench.worker().sweep())
        bench.run(bench.worker().sweep())
    else:
        assert bench.deliver(bench.worker()) is None
    assert effect(bench) == ("parked", "EffectOutcomeUnknown", 0)
    assert told(caplog, "effect.parked") == 1


# ----------------------------------------------------------------------------------------------------- answers are kept


def test_an_answer_is_written_also_when_the_budget_is_over(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of(seconds=61)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert (bench.order()["state"], keys(bench), outcomes(caplog)) == ("open", ["O"], ["created"])


@pytest.mark.parametrize("policy", ["retry", "park"])
def test_an_answer_stays_in_memory_while_its_write_fails(policy: str) -> None:
    """C46: what is repeated is the write, never the call."""
    bench = bench_of(policy=policy)
    bench.fails("replace orders/O", times=4)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert (bench.order()["state"], keys(bench)) == ("open", ["O"])


@pytest.mark.parametrize("policy", ["retry", "park"])
def test_a_lost_answer_of_the_answers_write_is_found_by_its_token(policy: str) -> None:
    """C44."""
    bench = bench_of(policy=policy)
    bench.loses_answer("replace orders/O", times=2)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert (bench.order()["state"], bench.order()["revision"], keys(bench)) == ("open", 2, ["O"])
    assert bench.sent() == ["O:order:1", "O:order:2"]


@pytest.mark.parametrize("policy", ["retry", "park"])
def test_a_status_that_came_between_call_and_answer_stays(policy: str) -> None:
    """Another message changed the order: the same change is made on what was read, with the answer at hand."""
    bench = bench_of(policy=policy)

    def other() -> None:
        bench.send(Role.ORDERS, status("confirmed", 1))
        bench.queues[Role.ORDERS].reverse()
        assert bench.deliver(bench.worker()) is None

    bench.before("replace orders/O", other)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    order = bench.order()
    assert (order["state"], order["fulfilment"]) == ("open", {"status": "confirmed", "version": 1})
    assert (keys(bench), bench.sent()) == (["O"], ["O:order:1", "O:order:2"])


@pytest.mark.parametrize("policy", ["retry", "park"])
def test_a_lost_answer_of_the_create_calls_once(caplog: pytest.LogCaptureFixture, policy: str) -> None:
    """C44 C20: my own record, so no take-over, and no wait for a lease."""
    bench = bench_of(policy=policy)
    bench.loses_answer("create orders/O")
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert (keys(bench), outcomes(caplog), bench.order()["state"]) == (["O"], ["mine"], "open")


@pytest.mark.parametrize("policy", ["retry", "park"])
def test_a_lost_answer_of_the_replays_write_calls_once(caplog: pytest.LogCaptureFixture, policy: str) -> None:
    bench = bench_of(Refused(422), policy=policy)
    bench.send(Role.ORDERS, placed())
    bench.deliver(bench.worker())
    bench.loses_answer("replace orders/O")
    bench.send(Role.ORDERS, placed(replay=1))
    assert bench.deliver(bench.worker()) is None
    assert (keys(bench), outcomes(caplog)) == (["O", "O"], ["quarantined", "mine"])
    assert bench.order()["state"] == "open"


# -------------------------------------------------------------------------------------------------------------- crashes


@pytest.mark.parametrize(
    ("label", "behind", "calls", "outcome"),
    [
        ("create orders", False, 1, "created"),
        ("create orders", True, 1, "taken_over"),
        ("pay", False, 1, "taken_over"),
        ("pay", True, 2, "taken_over"),
        ("replace orders", False, 2, "taken_over"),
        ("replace orders", True, 1, "resumed"),
        ("send ledger-entries", True, 1, "resumed"),
    ],
)
def test_whoever_takes_over_calls_with_the_same_key(
    caplog: pytest.LogCaptureFixture, label: str, behind: bool, calls: int, outcome: str
) -> None:
    """C18 C20 C42 D45: and the provider decides once for a key."""
    bench = bench_of(Approved("A-1"))
    bench.send(Role.ORDERS, placed())
    bench.dies(label, behind=behind)
    assert isinstance(bench.deliver(bench.worker()), DiedError)
    bench.clock.seconds += BEHIND_THE_LEASE
    assert bench.deliver(bench.worker()) is None
    assert keys(bench) == ["O"] * calls
    assert (bench.order()["state"], outcomes(caplog)) == ("open", [outcome])
    assert bench.order()["record"]["effect"]["result"]["authorizationId"] == "A-1"
    assert set(bench.sent()) == {"O:order:1", "O:order:2"}


def test_a_zombie_that_hears_its_answer_late_stops(caplog: pytest.LogCaptureFixture) -> None:
    """D43 R20: whoever took over goes on; the late one writes nothing and sends nothing."""
    bench = bench_of()

    def taken_over() -> None:
        bench.clock.seconds += BEHIND_THE_LEASE
        bench.dies("send ledger-entries")
        assert isinstance(bench.deliver(bench.worker()), DiedError)

    bench.before("replace orders/O", taken_over)
    bench.send(Role.ORDERS, placed())
    assert isinstance(bench.deliver(bench.worker()), InFlightError)
    assert bench.sent() == []
    assert outcomes(caplog) == ["in_flight"]
    assert bench.deliver(bench.worker()) is None
    assert (bench.order()["record"]["status"], bench.sent()) == ("completed", ["O:order:1", "O:order:2"])


# ---------------------------------------------------------------------------------------------------------------- lease


def left_in_progress(bench: Bench) -> None:
    """The worker died with its call; its message is back in the queue."""
    bench.send(Role.ORDERS, placed())
    bench.dies("pay")
    assert isinstance(bench.deliver(bench.worker()), DiedError)


def test_a_live_claim_is_waited_for_within_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    """C20 R20: neither a duplicate nor a second call."""
    bench = bench_of()
    left_in_progress(bench)
    began = bench.clock.seconds
    assert isinstance(bench.deliver(bench.worker()), InFlightError)
    assert bench.clock.seconds - began == pytest.approx(60)
    assert (keys(bench), outcomes(caplog)) == ([], ["in_flight"])


def test_a_wait_for_a_live_claim_ends_with_its_work(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of(seconds=20)
    bench.send(Role.ORDERS, placed())

    def second() -> None:
        bench.before("read orders/O", lambda: None)
        bench.send(Role.ORDERS, placed())
        first = bench.queues[Role.ORDERS].pop(0)
        # The first one's answer comes while the second waits: the bench runs one at a time, so it is written here.
        bench.before("read orders/O", lambda: bench.change(Container.ORDERS, "O", "O", record={"status": "completed"}))
        assert bench.deliver(bench.worker()) is None
        bench.queues[Role.ORDERS].insert(0, first)

    bench.before("pay", second)
    bench.deliver(bench.worker())
    assert outcomes(caplog)[0] == "duplicate"
    assert keys(bench) == ["O"]


@pytest.mark.parametrize("off", [0.0, 600.0, -600.0])
def test_the_lease_is_judged_by_the_servers_clock(off: float) -> None:
    """D43 R74: a worker whose clock is wrong takes over at the same moment."""
    bench = bench_of()
    bench.worker_clock_off = off
    left_in_progress(bench)
    written = bench.clock.seconds
    bench.clock.seconds = written + LEASE - 61
    assert isinstance(bench.deliver(bench.worker()), InFlightError)
    assert keys(bench) == []
    bench.clock.seconds = written + BEHIND_THE_LEASE
    assert bench.deliver(bench.worker()) is None
    assert keys(bench) == ["O"]


@pytest.mark.parametrize("off", [0.0, 600.0, -600.0])
def test_the_sweep_judges_grace_and_lease_by_the_servers_clock(off: float) -> None:
    bench = bench_of()
    bench.worker_clock_off = off
    left_in_progress(bench)
    bench.clock.seconds += LEASE - 5
    bench.run(bench.worker().sweep())
    assert keys(bench) == []
    bench.clock.seconds += 6
    bench.run(bench.worker().sweep())
    assert keys(bench) == ["O"]


@pytest.mark.parametrize("lease", [0, -30])
def test_a_lease_of_no_length_never_held(lease: int) -> None:
    """R20."""
    bench = bench_of()
    left_in_progress(bench)
    claim = bench.order()["record"]["claim"]
    bench.change(Container.ORDERS, "O", "O", record={"claim": {**claim, "leaseSeconds": lease}})
    assert bench.deliver(bench.worker()) is None
    assert (keys(bench), bench.waits) == (["O"], [])


# --------------------------------------------------------------------------------------------------------- PAYMENTS_URL


def test_a_call_that_is_due_while_payments_are_off_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of()
    left_in_progress(bench)
    bench.clock.seconds += BEHIND_THE_LEASE
    before = bench.store.find(Container.ORDERS, "O", "O")
    began = bench.clock.seconds
    assert isinstance(bench.deliver(bench.worker(can_pay=False)), TransientError)
    assert bench.clock.seconds - began == pytest.approx(60)
    bench.run(bench.worker(can_pay=False).sweep())
    assert bench.store.find(Container.ORDERS, "O", "O") is before
    assert told(caplog, "configuration") == 2
    assert outcomes(caplog) == ["transient"]
    assert bench.deliver(bench.worker()) is None
    assert (keys(bench), bench.order()["state"]) == (["O"], "open")


def test_a_replay_of_a_parked_effect_while_payments_are_off_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of(Refused(422))
    bench.send(Role.ORDERS, placed())
    bench.deliver(bench.worker())
    before = bench.store.find(Container.ORDERS, "O", "O")
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker(can_pay=False)) is None  # answered as always
    assert bench.reasons() == ["EffectRefused"] * 2
    bench.send(Role.ORDERS, placed(replay=1))
    assert isinstance(bench.deliver(bench.worker(can_pay=False)), TransientError)
    assert bench.store.find(Container.ORDERS, "O", "O") is before
    assert told(caplog, "configuration") == 1
    assert bench.deliver(bench.worker()) is None
    assert keys(bench) == ["O", "O"]


def test_under_park_a_due_call_is_parked_also_while_payments_are_off() -> None:
    """Nobody would call, so nothing is missing."""
    bench = bench_of(policy="park")
    left_in_progress(bench)
    bench.clock.seconds += BEHIND_THE_LEASE
    assert bench.deliver(bench.worker(can_pay=False)) is None
    assert (effect(bench), keys(bench)) == (("parked", "EffectOutcomeUnknown", 0), [])


# ------------------------------------------------------------------------------------------- orders that wait for money


def test_an_order_that_waits_for_its_payment_takes_no_commands() -> None:
    bench = bench_of()
    left_in_progress(bench)
    bench.queues[Role.ORDERS].clear()
    for each in (amended(2), cancelled(2)):
        bench.send(Role.ORDERS, each)
        assert bench.deliver(bench.worker()) is None
    assert bench.reasons() == ["OrderNotReady", "OrderNotReady"]


@pytest.mark.parametrize("reason", ["EffectRefused", "EffectOutcomeUnknown"])
def test_a_cancellation_ends_an_order_whose_effect_is_parked(caplog: pytest.LogCaptureFixture, reason: str) -> None:
    """The effect stays parked: money to be looked at."""
    bench = bench_of(Refused(400) if reason == "EffectRefused" else UNKNOWN, policy="park")
    worker = bench.worker()
    for each in (placed(), amended(2), cancelled(2), placed(), placed(replay=1), cancelled(2)):
        bench.send(Role.ORDERS, each)
        assert bench.deliver(worker) is None
    order = bench.order()
    assert (order["state"], order["record"]["status"]) == ("cancelled", "completed")
    assert effect(bench) == ("parked", reason, 0)
    assert (bench.sent(), keys(bench)) == ([], ["O"])
    assert outcomes(caplog) == ["quarantined", "quarantined", "applied", "duplicate", "duplicate", "duplicate"]
    assert "ttl" not in order


def test_a_cancellation_while_a_replay_calls_loses_the_race_or_comes_too_early() -> None:
    """A replay sets the effect in progress before it calls, so a cancellation that read it parked is refused."""
    bench = bench_of(Refused(422))
    worker = bench.worker()
    bench.send(Role.ORDERS, placed())
    bench.deliver(worker)
    bench.send(Role.ORDERS, cancelled(2))

    def replay() -> None:
        waiting = bench.queues[Role.ORDERS].pop()
        bench.send(Role.ORDERS, placed(replay=1))
        assert bench.deliver(bench.worker()) is None
        bench.queues[Role.ORDERS].append(waiting)

    bench.before("batch orders/O", replay)
    assert bench.deliver(worker) is None
    order = bench.order()
    # Paid, then cancelled: two adds, two voids, a close.
    assert (order["state"], order["nextEntry"]) == ("cancelled", 6)
    assert keys(bench) == ["O", "O"]


@pytest.mark.parametrize("policy", ["retry", "park"])
def test_a_call_that_was_surely_not_made_is_made_again_under_both_policies(policy: str) -> None:
    """No token: nobody was asked, so nobody has to look at money that never moved."""
    bench = bench_of(policy=policy)
    bench.fails("pay", TransientError("payments: no token", event=EVENT_CONFIGURATION), times=3)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    assert (bench.order()["state"], keys(bench), bench.reasons()) == ("open", ["O"], [])


def test_a_call_without_an_answer_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of(UNKNOWN)
    bench.send(Role.ORDERS, placed())
    assert bench.deliver(bench.worker()) is None
    answers = [vars(record)["answer"] for record in caplog.records if record.message == "effect.called"]
    assert answers == ["unknown", "approved"]
