"""shared/domain/verdicts.py: the decision table of contracts 7, over its whole input space.

The oracle below was written from the contract's text, not from the code's rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import pytest

from shared.contracts.documents import EffectStatus, RecordStatus
from shared.domain import verdicts
from shared.domain.verdicts import TABLE, Known, Outcome, Policy, Verdict, claim_alive, decide

YES_NO = (True, False)
EFFECTS: tuple[EffectStatus | None, ...] = (None, *get_args(EffectStatus))


def inputs() -> Iterator[Known]:
    """Everything that can be told apart; replay counts below, at and above the stored one."""
    for same_key, same_hash, mine, alive in itertools.product(YES_NO, repeat=4):
        for status, effect, policy in itertools.product(get_args(RecordStatus), EFFECTS, Policy):
            for stored, count in itertools.product(range(3), repeat=2):
                yield Known(same_key, same_hash, mine, status, effect, stored, count, alive, policy)


def oracle(known: Known) -> Verdict | None:
    """Contracts 7, "What the create of a record says"; None for a record that no release writes."""
    waiting = known.status == "effect"
    parked = waiting and known.effect == "parked"
    calling = waiting and known.effect == "in_progress"
    if not known.same_key:
        return Verdict.ORDER_EXISTS
    if not known.same_hash:
        return Verdict.CONFLICT
    if parked:
        return Verdict.EFFECT_PARKED if known.replay_count <= known.stored_replay_count else Verdict.CALL_AGAIN
    if known.mine:
        return Verdict.MINE
    if known.status == "completed":
        return Verdict.DUPLICATE
    if known.status == "accepted":
        return Verdict.RESUME
    if calling and known.claim_alive:
        return Verdict.IN_FLIGHT
    if calling:
        return {Policy.RETRY: Verdict.TAKE_OVER, Policy.PARK: Verdict.PARK_EFFECT}[known.policy]
    return None


def test_the_whole_table_is_the_contracts() -> None:
    """D01, D10, D38, D43, C20, C37 to C40: every combination."""
    for known in inputs():
        expected = oracle(known)
        if expected is None:
            with pytest.raises(ValueError, match="nobody writes"):
                decide(known)
        else:
            assert decide(known) is expected, known


@pytest.mark.parametrize("left_out", range(len(TABLE)), ids=[row.verdict.value for row in TABLE])
def test_each_row_is_needed(left_out: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [known for known in inputs() if oracle(known) is TABLE[left_out].verdict]
    monkeypatch.setattr(verdicts, "TABLE", TABLE[:left_out] + TABLE[left_out + 1 :])

    assert cases
    for known in cases:
        try:
            decided: Verdict | None = decide(known)
        except ValueError:
            decided = None
        assert decided is not TABLE[left_out].verdict


def test_each_verdict_has_one_row() -> None:
    assert sorted(row.verdict for row in TABLE) == sorted(Verdict)


def test_an_unfinished_record_with_an_equal_hash_is_never_a_duplicate() -> None:
    """D01, R11, R37."""
    for known in inputs():
        if known.status != "completed" and oracle(known) is not None:
            assert decide(known) is not Verdict.DUPLICATE


def test_under_park_only_a_newer_replay_calls() -> None:
    """D45: nobody calls twice without a person's decision."""
    calls = {Verdict.CALL_AGAIN, Verdict.TAKE_OVER}
    for known in inputs():
        if known.policy is Policy.PARK and oracle(known) in calls:
            assert known.effect == "parked"
            assert known.replay_count > known.stored_replay_count


def test_the_outcomes_are_those_of_the_contract() -> None:
    assert {row.verdict: row.outcome for row in TABLE} == {
        Verdict.ORDER_EXISTS: Outcome.QUARANTINED,
        Verdict.CONFLICT: Outcome.CONFLICT,
        Verdict.EFFECT_PARKED: Outcome.QUARANTINED,
        Verdict.CALL_AGAIN: Outcome.TAKEN_OVER,
        Verdict.MINE: Outcome.MINE,
        Verdict.DUPLICATE: Outcome.DUPLICATE,
        Verdict.RESUME: Outcome.RESUMED,
        Verdict.IN_FLIGHT: Outcome.IN_FLIGHT,
        Verdict.TAKE_OVER: Outcome.TAKEN_OVER,
        Verdict.PARK_EFFECT: Outcome.QUARANTINED,
    }


def test_outcome_names_are_the_contracts() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "created",
        "applied",
        "rejected",
        "duplicate",
        "stale",
        "mine",
        "resumed",
        "taken_over",
        "held",
        "conflict",
        "quarantined",
        "in_flight",
        "transient",
        "failed",
    ]


@pytest.mark.parametrize(
    ("passed", "lease", "alive"),
    [
        (0, 90, True),
        (95, 90, True),
        (96, 90, False),
        (-3, 90, True),
        (0, 0, False),
        (0, -1, False),
        (6, 1, True),
        (7, 1, False),
    ],
)
def test_a_claim_lives_until_its_lease_and_five_seconds_are_over(passed: int, lease: int, alive: bool) -> None:
    """R20, D43: by the server's clock; a lease of 0 or less never held."""
    assert claim_alive(written_at=1_000, read_at=1_000 + passed, lease_seconds=lease) is alive


def test_a_record_that_nobody_writes_is_named() -> None:
    known = replace(next(inputs()), mine=False, status="effect", effect="completed")

    with pytest.raises(ValueError, match="status effect with effect completed"):
        decide(known)
