"""What a chaos run sends: repeatable, under ids of its own, and with one end that is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from local.demo.expect import expect, uncertain
from local.demo.lines import ROLES
from tests.chaos.traffic import make_round


def test_a_round_is_repeatable_and_shares_no_id_with_another() -> None:
    assert make_round(3, 5) == make_round(3, 5)
    rounds = [make_round(3, number) for number in range(1, 13)]
    ids = [{(line.role, line.message_id) for line in lines} for lines in rounds]
    sessions = [{(line.role, line.session_id) for line in lines} for lines in rounds]
    assert len(set().union(*ids)) == sum(map(len, ids))
    assert len(set().union(*sessions)) == sum(map(len, sessions))


def test_rounds_feed_every_queue_and_hold_copies_and_what_must_be_parked() -> None:
    lines = [line for number in range(1, 13) for line in make_round(3, number)]
    assert {line.role for line in lines} == set(ROLES)
    assert len({(line.role, line.message_id) for line in lines}) < len(lines)
    numbered = [replace(line, number=number, repeat=1) for number, line in enumerate(lines, start=1)]
    assert expect(numbered, (), datetime.now(UTC)).parked


def test_the_end_is_known_however_often_a_send_was_made_again() -> None:
    """Each chunk of each queue goes out twice, as when the first answer was lost."""
    tried = []
    for number in range(1, 13):
        lines = make_round(3, number)
        for at in range(0, len(lines), 12):
            tried += lines[at : at + 12] * 2
    numbered = [replace(line, number=number, repeat=1) for number, line in enumerate(tried, start=1)]
    assert uncertain(expect(numbered, (), datetime.now(UTC)))["open"] == 0
