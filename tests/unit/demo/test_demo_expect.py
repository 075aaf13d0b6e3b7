"""What orders, ledgers and streams must become: contracts 5 and 6, table by table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from local.demo.expect import Ending, expect, may_be_refused, must_be_refused
from local.demo.model import Ledger, Order, Stream
from tests.unit.demo.ideal import (
    NOW,
    amended,
    batch,
    cancelled,
    entry,
    expected,
    line,
    lines_of,
    placed,
    posting,
    status,
)


def order_of(*members: dict[str, Any]) -> Ending[Order]:
    endings = expected(*members).orders["ORD-1"]
    assert endings is not None
    (only,) = endings
    return only


def ledger_of(*members: dict[str, Any]) -> Ending[Ledger]:
    endings = expected(*members).ledgers["L"]
    assert endings is not None
    (only,) = endings
    return only


def streams_of(*members: dict[str, Any], order: str = "ORD-1") -> dict[str, list[Ending[Stream]]]:
    expectation = expected(*members)
    caused = []
    for endings in (*expectation.orders.values(), *expectation.ledgers.values()):
        assert endings
        caused.append([one for one in endings[0].state.postings if one.order == order])
    found = expectation.streams(order, caused)
    return {name: endings for name, endings in found.items() if endings is not None}


def stream_of(*members: dict[str, Any], name: str = "ledger.D") -> Ending[Stream]:
    (only,) = streams_of(*members)[name]
    return only


def parked(ending: Ending[Any]) -> list[str]:
    return sorted(reason for park in ending.parked for reason in park.reasons)


def posted(ending: Ending[Order]) -> list[tuple[str, str | None]]:
    return [(one.kind, None if one.amount is None else str(one.amount)) for one in ending.state.postings]


# Contracts 5: entries caused


def test_an_order_posts_each_line_in_line_order() -> None:
    found = order_of(placed("ORD-1", "10.00", "0.50"))
    assert posted(found) == [("add", "10.00"), ("add", "0.50")]
    assert [one.key for one in found.state.postings] == ["ORD-1:order:1", "ORD-1:order:2"]
    assert found.state.total == Decimal("10.50")


def test_an_amendment_posts_what_changed_and_refers_to_the_add() -> None:
    found = order_of(
        placed("ORD-1", "10", "5", "7"),
        amended("ORD-1", "op", ("1", 2, "10"), ("2", 0, "0"), ("3", 1, "7"), ("4", 1, "2")),
    )
    assert posted(found)[3:] == [("amend", "10"), ("void", "-5"), ("add", "2")]
    assert [one.refers_to for one in found.state.postings[3:]] == ["1", "2", None]
    assert [one.line_id for one in found.state.lines] == ["1", "3", "4"]
    assert found.state.revision == 2


def test_a_cancellation_voids_every_line_and_closes() -> None:
    found = order_of(placed("ORD-1", "10", "5"), cancelled("ORD-1", "op"))
    assert posted(found)[2:] == [("void", "-10"), ("void", "-5"), ("close", None)]
    close = found.state.postings[-1]
    assert (close.sequence, close.entry_count) == (5, 4)
    assert found.state.state == "cancelled"


# Contracts 5: the table of states


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ([status("ORD-1", "shipped", 1)], "OrderShipped"),
        ([status("ORD-1", "delivered", 1)], "OrderShipped"),
        ([status("ORD-1", "returned", 1)], "OrderShipped"),
        ([cancelled("ORD-1", "op-0")], "OrderCancelled"),
        ([cancelled("ORD-1", "op-0"), status("ORD-1", "shipped", 1)], "OrderCancelled"),
        ([status("ORD-1", "confirmed", 1)], None),
    ],
)
@pytest.mark.parametrize("command", [amended("ORD-1", "op", ("1", 2, "1")), cancelled("ORD-1", "op")])
def test_a_command_is_applied_or_rejected_by_the_state(
    before: list[dict[str, Any]], reason: str | None, command: dict[str, Any]
) -> None:
    found = order_of(placed("ORD-1"), *before, command)
    assert found.state.commands[-1].rejected == frozenset({reason} if reason else ())
    assert parked(found) == []


def test_removing_an_unknown_line_rejects_the_whole_command() -> None:
    found = order_of(placed("ORD-1"), amended("ORD-1", "op", ("1", 5, "1"), ("9", 0, "0")))
    assert found.state.commands[-1].rejected == frozenset({"LineUnknown"})
    assert found.state.total == Decimal("10.00")
    assert len(found.state.postings) == 1


def test_what_comes_before_its_order_is_parked() -> None:
    found = order_of(amended("ORD-1", "op", ("1", 1, "1")), status("ORD-1", "shipped", 1), placed("ORD-1"))
    assert parked(found) == ["OrderUnknown", "OrderUnknown"]
    assert found.state.fulfilment is None


def test_a_known_command_is_compared_before_the_state_is_looked_at() -> None:
    first = amended("ORD-1", "op", ("1", 2, "1"))
    again = {**first, "repeat": 3}
    found = order_of(placed("ORD-1"), first, cancelled("ORD-1", "op-2"), again)
    assert parked(found) == []
    other = amended("ORD-1", "op", ("1", 3, "1"))
    assert parked(order_of(placed("ORD-1"), first, cancelled("ORD-1", "op-2"), other)) == ["PayloadMismatch"]


def test_a_second_body_under_an_order_is_a_conflict_that_may_vanish() -> None:
    found = order_of(placed("ORD-1", "1"), placed("ORD-1", "2"))
    (park,) = found.parked
    assert park.reasons == {"PayloadMismatch"}
    assert not park.certain
    assert found.state.total == Decimal(1)


def test_an_order_of_another_key_exists() -> None:
    event = {"specversion": "1.0", "id": "ORD-1", "source": "/a", "type": "order.placed", "data": placed()["body"]}
    second = line("orders", "m-2", "ORD-1", event, contentType="application/cloudevents+json")
    assert parked(order_of(placed("ORD-1"), second)) == ["OrderExists"]


@pytest.mark.parametrize(
    ("versions", "ends", "reasons"),
    [
        ([("confirmed", 1), ("shipped", 2)], ("shipped", 2), []),
        ([("shipped", 2), ("confirmed", 1)], ("shipped", 2), []),
        ([("shipped", 2), ("confirmed", 2)], ("shipped", 2), ["PayloadMismatch"]),
        ([("confirmed", 7)], ("confirmed", 7), []),
    ],
)
def test_a_status_follows_the_version_rule(
    versions: list[tuple[str, int]], ends: tuple[str, int], reasons: list[str]
) -> None:
    lines = [status("ORD-1", name, version) for name, version in versions]
    for number, one in enumerate(lines):
        one["messageId"] = f"ORD-1:status.{number}"  # distinct, so that the broker delivers each
    found = order_of(placed("ORD-1"), *lines)
    assert found.state.fulfilment == ends
    assert parked(found) == reasons


# Contracts 5: command sequence


def test_a_gap_parks_the_followers_and_rejections_use_up_a_number() -> None:
    found = order_of(
        placed("ORD-1", sequenced=True),
        amended("ORD-1", "op-2", ("9", 0, "0"), sequence=2),
        amended("ORD-1", "op-4", ("1", 2, "1"), sequence=4),
        amended("ORD-1", "op-3", ("1", 3, "1"), sequence=3),
        amended("ORD-1", "op-x", ("1", 3, "1"), sequence=3),
    )
    assert parked(found) == ["SequenceConflict", "SequenceGap"]
    assert found.state.next_command == 4
    assert [one.sequence for one in found.state.commands] == [2, 3]


@pytest.mark.parametrize("sequenced", [True, False])
def test_sequence_on_one_side_only_is_invalid(sequenced: bool) -> None:
    members = {} if sequenced else {"sequence": 2}
    found = order_of(placed("ORD-1", sequenced=sequenced), amended("ORD-1", "op", ("1", 1, "1"), **members))
    assert parked(found) == ["InvalidMessage"]


# Contracts 6: ledgers


def test_batches_fan_out_in_order_with_ids_of_their_own() -> None:
    found = ledger_of(batch("L", "1", posting("T-1"), posting("T-2", "ORD-2")), batch("L", "2", posting("T-3")))
    assert [one.key for one in found.state.postings] == [
        "ORD-1:ledger.L:T-1",
        "ORD-2:ledger.L:T-2",
        "ORD-1:ledger.L:T-3",
    ]
    assert found.state.next_batch is None


def test_numbered_batches_keep_their_order() -> None:
    row = posting("T-1")
    found = ledger_of(
        batch("L", "2", row, batchSequence=2),
        batch("L", "1", row, batchSequence=1),
        batch("L", "1b", row, batchSequence=1),
        batch("L", "3", row),
    )
    assert parked(found) == ["SequenceConflict", "SequenceConflict", "SequenceGap"]
    assert found.state.next_batch == 2


def test_a_second_body_under_a_batch_is_a_conflict() -> None:
    assert parked(ledger_of(batch("L", "1", posting("T-1")), batch("L", "1", posting("T-2")))) == ["PayloadMismatch"]


# Contracts 6: streams, row by row


def test_a_stream_applies_in_order_whatever_the_order_of_arrival() -> None:
    found = stream_of(*(entry(f"T-{number}", sequence=number) for number in (3, 1, 4, 2, 6)))
    assert {one.posting.sequence: one.status for one in found.state.entries} == {
        1: "applied",
        2: "applied",
        3: "applied",
        4: "applied",
        6: "held",
    }
    assert (found.state.next, found.state.applied, parked(found)) == (5, 4, [])


def test_numbers_compare_as_numbers() -> None:
    found = stream_of(*(entry(f"T-{number}", sequence=number) for number in range(1, 12)))
    assert found.state.next == 12


@pytest.mark.parametrize(
    ("members", "reasons"),
    [
        ([entry("A", sequence=1), entry("B", sequence=1)], ["SequenceConflict"]),
        ([entry("A", sequence=3), entry("B", sequence=3)], ["SequenceConflict"]),
        ([entry("A", sequence=1), entry("B")], ["SequenceConflict"]),
        ([entry("A"), entry("B", sequence=1)], ["SequenceConflict"]),
        ([entry("A", amount="1"), entry("A", amount="2")], ["PayloadMismatch"]),
        ([entry("A", amount="1"), entry("A", amount="1")], []),
        ([entry("A", amount="1"), entry("A", amount="1.0")], ["PayloadMismatch"]),
        ([entry("A", kind="close", amount=None, entryCount=0), entry("B")], ["SequenceClosed"]),
        ([entry("A", kind="close", amount=None, entryCount=1), entry("B")], []),
        (
            [entry("A", kind="close", amount=None, entryCount=5), entry("B", kind="close", amount=None, entryCount=5)],
            ["SequenceClosed"],
        ),
        ([entry("A", kind="close", amount=None, entryCount=0, sequence=1), entry("B", sequence=2)], ["SequenceClosed"]),
        ([entry("A", sequence=number + 2) if not number else entry(f"T-{number}", sequence=number + 2)
          for number in range(96)], ["HeldLimitExceeded"]),
    ],
)  # fmt: skip
def test_the_rows_that_park(members: list[dict[str, Any]], reasons: list[str]) -> None:
    assert parked(stream_of(*members)) == reasons


def test_what_waits_above_a_close_is_refused() -> None:
    found = stream_of(
        entry("D", sequence=4),
        entry("C", sequence=2, kind="close", amount=None, entryCount=1),
        entry("A", sequence=1),
    )
    assert {one.posting.transaction: one.status for one in found.state.entries} == {
        "A": "applied",
        "C": "applied",
        "D": "refused",
    }
    assert found.state.closed == (1, True)


def test_an_unnumbered_stream_is_complete_when_the_count_is_reached() -> None:
    early = entry("C", kind="close", amount=None, entryCount=2)
    found = stream_of(entry("A"), early, entry("B"), entry("X"))
    assert found.state.closed == (2, True)
    assert parked(found) == ["SequenceClosed"]


def test_a_transaction_sent_again_in_another_batch_is_no_second_entry() -> None:
    found = streams_of(batch("L", "1", posting("T-1")), batch("L", "2", posting("T-1")))["ledger.L"]
    (only,) = found
    assert only.state.applied == 1
    assert parked(only) == []


# Where order or window decides


def test_sessions_that_differ_in_case_may_overtake_each_other() -> None:
    other = {**amended("ORD-1", "op", ("1", 2, "1")), "sessionId": "ord-1"}
    endings = expected(placed("ORD-1"), other).orders["ORD-1"]
    assert endings is not None
    assert {(len(ending.state.commands), *parked(ending)) for ending in endings} == {(1,), (0, "OrderUnknown")}


def test_an_entry_that_also_comes_from_an_order_may_win_or_lose() -> None:
    twin = entry("1", stream="order", amount="99", sequence=1)
    endings = streams_of(placed("ORD-1", "10"), twin)["order"]
    kept = {str(ending.state.entries[0].posting.amount) for ending in endings}
    assert kept == {"10", "99"}
    assert all(len(ending.state.entries) == 1 for ending in endings)


def test_the_same_entry_from_an_order_and_from_the_input_is_one_entry() -> None:
    twin = entry("1", stream="order", amount="10", sequence=1)
    endings = streams_of(placed("ORD-1", "10"), twin)["order"]
    assert {ending.state.applied for ending in endings} == {1}


def test_a_bad_message_under_the_id_of_an_entry_may_make_that_one_vanish() -> None:
    thief = line("ledger-entries", "ORD-1:order:1", "ORD-2", {"nothing": True})
    endings = streams_of(placed("ORD-1", "10"), thief)["order"]
    assert {ending.state.applied for ending in endings} == {0, 1}


def test_a_late_copy_may_succeed_where_the_first_failed() -> None:
    early = {**amended("ORD-1", "op", ("1", 2, "1")), "repeat": 3}  # its third copy goes out behind everything
    endings = expected(early, placed("ORD-1")).orders["ORD-1"]
    assert endings is not None
    assert {len(ending.state.commands) for ending in endings} == {0, 1}


def test_too_many_orders_of_delivery_are_left_to_the_invariants() -> None:
    lines = [placed("ORD-1", sequenced=False)]
    for number in range(12):
        for session in ("ORD-1", "ord-1", "Ord-1"):
            change = amended("ORD-1", f"{session}{number}", (f"{session}{number}", 1, "1"))
            lines.append({**change, "sessionId": session})
    assert expected(*lines).orders["ORD-1"] is None


def test_messages_without_an_id_never_vanish_as_copies() -> None:
    nameless = {**placed("ORD-1"), "messageId": None, "repeat": 3}
    assert [park.certain for park in expected(nameless).parked] == [True] * 3


# What the broker refuses


@pytest.mark.parametrize(
    ("changes", "must", "may"),
    [
        ({}, False, False),
        ({"messageId": "m" * 128}, False, False),
        ({"messageId": "m" * 129}, True, True),
        ({"messageId": "\U0001f600" * 65}, False, True),
        ({"sessionId": "s" * 129}, True, True),
        ({"body": "x" * 262_144}, True, True),
        ({"body": "x" * 261_900}, False, True),
        ({"body": "x" * 200_000}, False, False),
    ],
)
def test_what_is_beyond_the_limits_may_or_must_be_refused(changes: dict[str, Any], must: bool, may: bool) -> None:
    (only,) = lines_of({**placed("ORD-1"), **changes})
    assert (must_be_refused(only), may_be_refused(only)) == (must, may)


def test_a_refusal_without_a_cause_is_noted_and_so_is_a_missing_one() -> None:
    lines = lines_of(placed("ORD-1"), {**placed("ORD-2"), "messageId": "m" * 200})
    expectation = expect(lines, {1}, NOW)
    assert expectation.wrongly_refused == [1]
    assert expectation.wrongly_accepted == [2]
    assert "ORD-1" not in expectation.orders
