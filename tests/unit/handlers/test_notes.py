"""Notes of attempts and poison (docs/contracts.md, section 10): what a delivery count cannot tell."""

from __future__ import annotations

from typing import Any

import pytest

from shared.bootstrap import Services
from shared.errors import LostRaceError, PermanentError, Reason, TransientError
from shared.ports import Container
from tests.unit.handlers.handler_bench import Bench, DiedError, Role, message, placed, status

POISON_AFTER = 5
OPERATIONS = "operations"


class Breaks(Exception):  # noqa: N818 - what a bug might raise
    """In no table."""


def bench_at(delivery: int = POISON_AFTER + 1, *, sent: Any = None) -> Bench:
    """One message whose next delivery has this number."""
    bench = Bench()
    bench.send(Role.ORDERS, sent or status("confirmed", 1))
    bench.queues[Role.ORDERS][0].delivery_count = delivery - 1
    bench.labels.clear()
    return bench


def with_order(delivery: int = POISON_AFTER + 1) -> Bench:
    bench = Bench()
    bench.send(Role.ORDERS, placed())
    bench.drain(bench.worker())
    bench.send(Role.ORDERS, status("confirmed", 1))
    bench.queues[Role.ORDERS][0].delivery_count = delivery - 1
    bench.labels.clear()
    return bench


def notes(bench: Bench) -> list[tuple[object, object, object]]:
    return [
        (row.document["worker"], row.document["crashes"], row.document["exceptions"])
        for (container, _, _), row in bench.store.rows.items()
        if container is Container.OPERATIONS and row.document["type"] == "attempt"
    ]


def worker_id(services: Services) -> str:
    return services._guard._notes._worker


def dies(bench: Bench, services: Services, label: str = "read orders", **options: Any) -> None:
    bench.dies(label)
    assert isinstance(bench.deliver(services, **options), DiedError)


def breaks(bench: Bench, services: Services | None = None) -> Exception | None:
    bench.fails("read orders", Breaks("bug"), times=1)
    return bench.deliver(services or bench.worker())


def test_nothing_is_noted_up_to_the_limit() -> None:
    bench = with_order(POISON_AFTER)
    assert bench.deliver(bench.worker()) is None
    assert not [label for label in bench.labels if OPERATIONS in label]


def test_the_note_comes_before_the_body_is_parsed_and_goes_with_the_message() -> None:
    bench = bench_at(sent=message("O", "O", b"no JSON"))
    assert bench.deliver(bench.worker()) is None
    assert [label.partition("/")[0] for label in bench.labels] == [
        "read operations",
        "create operations",
        "send quarantine",
        "delete operations",
    ]
    assert bench.reasons() == ["InvalidMessage"]
    assert notes(bench) == []


def test_a_note_is_free_of_payload_and_under_the_copys_id_in_the_messages_session() -> None:
    bench = with_order()
    services = bench.worker()
    dies(bench, services)
    ((_, session, note_id),) = [key for key in bench.store.rows if key[0] is Container.OPERATIONS]
    document = bench.document(Container.OPERATIONS, session, note_id)
    assert session == "O"
    assert note_id.startswith("q~")
    assert document == {
        "id": note_id,
        "type": "attempt",
        "v": 1,
        "sessionId": "O",
        "worker": worker_id(services),
        "crashes": 0,
        "exceptions": 0,
    }


def test_the_third_death_in_a_row_parks_the_message_without_another_try() -> None:  # C67 R50
    bench = with_order()
    for expected in range(3):
        services = bench.worker()
        dies(bench, services)
        assert notes(bench) == [(worker_id(services), expected, 0)]
    bench.labels.clear()
    assert bench.deliver(bench.worker()) is None
    assert bench.reasons() == ["PoisonMessage"]
    assert "worker died" in str(bench.parked()[0].properties["quarantine-description"])
    assert not [label for label in bench.labels if "orders" in label]
    assert notes(bench) == []


def test_the_rest_of_the_session_goes_on_behind_a_killer() -> None:  # C67
    bench = with_order()
    bench.send(Role.ORDERS, status("shipped", 2))
    for _ in range(3):
        dies(bench, bench.worker())
    services = bench.worker()
    bench.drain(services)
    assert bench.order()["fulfilment"] == {"status": "shipped", "version": 2}


def test_one_worker_that_is_there_again_did_not_die() -> None:
    """Its removal of the note failed in an outage; the id that stays is its own."""
    bench = with_order()
    services = bench.worker()
    for _ in range(10):
        outage = [bench.fails("read orders"), bench.fails("replace operations")]
        assert isinstance(bench.deliver(services), TransientError)
        for each in outage:
            each.times = 0
        assert notes(bench) == [(worker_id(services), 0, 0)]
    assert bench.deliver(services) is None
    assert (bench.reasons(), notes(bench)) == ([], [])


def test_an_orderly_end_breaks_the_row_of_deaths() -> None:
    bench = with_order()
    for _ in range(3):
        dies(bench, bench.worker())
        dies(bench, bench.worker())
        outage = bench.fails("read orders")
        assert isinstance(bench.deliver(bench.worker()), TransientError)
        outage.times = 0
        assert notes(bench) == [(None, 0, 0)]
    assert bench.deliver(bench.worker()) is None
    assert bench.reasons() == []


def test_the_third_exception_parks_the_message_and_names_its_type() -> None:  # C67
    bench = with_order()
    assert isinstance(breaks(bench), Breaks)
    assert isinstance(breaks(bench), Breaks)
    assert notes(bench) == [(None, 0, 2)]
    assert breaks(bench) is None
    assert bench.reasons() == ["PoisonMessage"]
    description = str(bench.parked()[0].properties["quarantine-description"])
    assert "Breaks" in description
    assert "bug" not in description  # an exception's text may hold payload
    assert notes(bench) == []


def test_exceptions_before_the_limit_do_not_count() -> None:
    bench = with_order(1)
    for _ in range(POISON_AFTER + 2):
        assert isinstance(breaks(bench), Breaks)
    assert breaks(bench) is None
    assert bench.reasons() == ["PoisonMessage"]
    assert bench.parked()[0].properties["quarantine-delivery-count"] == str(POISON_AFTER + 3)


def test_exceptions_count_over_orderly_ends_and_deaths_between_them() -> None:
    bench = with_order()
    breaks(bench)
    dies(bench, bench.worker())
    breaks(bench)
    outage = bench.fails("read orders")
    bench.deliver(bench.worker())
    outage.times = 0
    assert notes(bench) == [(None, 0, 2)]
    assert breaks(bench) is None
    assert bench.reasons() == ["PoisonMessage"]


def test_poison_that_cannot_be_parked_stays_one_exception_from_it() -> None:
    """The evidence goes with the message, not before it."""
    bench = with_order()
    breaks(bench)
    breaks(bench)
    outage = bench.fails("send quarantine")
    assert isinstance(breaks(bench), TransientError)
    assert notes(bench) == [(None, 0, 3)]
    outage.times = 0
    assert breaks(bench) is None
    assert (bench.reasons(), notes(bench)) == (["PoisonMessage"], [])


def test_an_outage_is_never_poison() -> None:  # D31 R23
    bench = with_order()
    outage = bench.fails("read orders")
    services = bench.worker()
    for number in range(40):
        assert isinstance(bench.deliver(services if number % 3 else bench.worker()), TransientError)
    outage.times = 0
    assert bench.deliver(bench.worker()) is None
    assert (bench.reasons(), notes(bench)) == ([], [])
    assert bench.order()["fulfilment"] == {"status": "confirmed", "version": 1}


@pytest.mark.parametrize("label", ["read operations", "create operations"])
def test_a_note_that_cannot_be_written_makes_the_attempt_transient(label: str) -> None:
    bench = with_order()
    outage = bench.fails(label)
    assert isinstance(bench.deliver(bench.worker()), TransientError)
    assert not [each for each in bench.labels if "orders" in each]
    assert (outage.seen > 5, notes(bench)) == (True, [])


@pytest.mark.parametrize(("label", "crashes"), [("create operations", 0), ("replace operations", 1)])
def test_a_lost_answer_of_the_start_counts_nobody_twice(label: str, crashes: int) -> None:  # C44
    bench = with_order()
    if crashes:
        dies(bench, bench.worker())
    lost = bench.loses_answer(label)
    services = bench.worker()
    dies(bench, services)
    assert lost.seen == 1
    assert notes(bench) == [(worker_id(services), crashes, 0)]


def test_a_note_that_others_keep_taking_is_transient() -> None:
    bench = with_order()
    dies(bench, bench.worker())

    def other() -> None:
        ((key, row),) = [item for item in bench.store.rows.items() if item[0][0] is Container.OPERATIONS]
        bench.store.put(key[0], {**row.document, "worker": "f" * 32, "crashes": 0})

    bench.before("replace operations", other, times=1000)
    assert isinstance(bench.deliver(bench.worker()), LostRaceError)
    assert bench.reasons() == []


def test_a_note_that_another_worker_took_is_left_to_it() -> None:
    """The lock was lost, and the message is with somebody else by now."""
    bench = with_order()

    def other() -> None:
        ((key, row),) = [item for item in bench.store.rows.items() if item[0][0] is Container.OPERATIONS]
        bench.store.put(key[0], {**row.document, "worker": "f" * 32, "crashes": 1})

    bench.before("delete operations", other)
    assert bench.deliver(bench.worker()) is None
    assert notes(bench) == [("f" * 32, 1, 0)]


@pytest.mark.parametrize("label", ["delete operations", "replace operations"])
def test_a_removal_that_fails_takes_nothing_back_and_counts_no_crash(label: str) -> None:
    bench = with_order()
    services = bench.worker()
    bench.fails(label)
    if label.startswith("delete"):
        assert bench.deliver(services) is None
        assert bench.order()["fulfilment"] == {"status": "confirmed", "version": 1}
    else:
        assert isinstance(breaks(bench, services), Breaks)
    assert notes(bench) == [(worker_id(services), 0, 0)]


# ------------------------------------------------------------------------------------- a broker that counts no deaths


def test_a_claim_finds_a_killer_where_the_broker_does_not_count() -> None:  # R50
    """Ten more attempts than deliveries; the message dies behind its claim each time."""
    bench = Bench()
    bench.send(Role.ORDERS, placed())
    deaths = 0
    while bench.queues[Role.ORDERS]:
        bench.dies("send ledger-entries")
        deaths += isinstance(bench.deliver(bench.worker(), counts=False), DiedError)
        assert deaths < 50
    assert deaths == 11
    assert bench.reasons() == ["PoisonMessage"]
    assert bench.order()["record"]["claim"]["attempts"] == 11
    assert bench.sent() == []


def test_an_outage_with_orderly_abandons_raises_attempts_and_deliveries_alike() -> None:  # D31
    bench = Bench()
    bench.send(Role.ORDERS, placed())
    outage = bench.fails("send ledger-entries")
    for number in range(30):
        assert isinstance(bench.deliver(bench.worker()), TransientError)
        claim = bench.order()["record"]["claim"]
        assert claim["attempts"] == number + 1 == bench.queues[Role.ORDERS][0].delivery_count
    outage.times = 0
    assert bench.deliver(bench.worker()) is None
    assert (bench.reasons(), bench.sent()) == ([], ["O:order:1", "O:order:2"])


def test_attempts_of_another_broker_message_begin_anew() -> None:
    """A replay, or a producer's resend, is not guilty of what was before it."""
    bench = Bench()
    bench.send(Role.ORDERS, placed())
    for _ in range(9):
        dies(bench, bench.worker(), "send ledger-entries", counts=False)
    bench.queues[Role.ORDERS].clear()
    bench.send(Role.ORDERS, placed())
    dies(bench, bench.worker(), "send ledger-entries", counts=False)
    assert bench.order()["record"]["claim"]["attempts"] == 1
    assert bench.deliver(bench.worker()) is None
    assert bench.order()["record"]["status"] == "completed"


def test_a_killer_whose_copy_can_not_be_sent_stays_found_out() -> None:  # C67
    """Else it would take three more workers with it."""
    bench = with_order()
    for _ in range(3):
        dies(bench, bench.worker())
    away = bench.fails("send quarantine")
    for _ in range(2):
        assert isinstance(bench.deliver(bench.worker()), TransientError)
    away.times = 0
    assert bench.deliver(bench.worker()) is None
    assert bench.reasons() == ["PoisonMessage"]
    assert notes(bench) == []


def test_a_replay_that_kills_is_counted_as_a_failed_replay() -> None:  # R36
    """The verdict falls before the body is read, and the count must not wait for it."""
    bench = bench_at(sent=message("O:status.1~r2", "O", b"{}", {"dedup-id": "O:status.1", "replay-count": "2"}))
    for _ in range(3):
        dies(bench, bench.worker(), "send quarantine")
    assert bench.deliver(bench.worker()) is None
    assert bench.reasons() == ["PoisonMessage"]
    assert bench.parked()[0].properties["replay-failures"] == "1"


def test_a_note_that_the_database_refuses_parks_nothing() -> None:
    bench = with_order()
    refused = PermanentError(Reason.INVALID_MESSAGE, "batch: HTTP 400")
    bench.fails("create operations", refused, times=1)
    assert isinstance(bench.deliver(bench.worker()), TransientError)
    assert bench.reasons() == []
    bench.fails("delete operations", refused, times=1)
    assert bench.deliver(bench.worker()) is None
