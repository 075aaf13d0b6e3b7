"""shared/domain/effects.py: in_progress, completed, parked, and the replay count (contracts 5)."""

from __future__ import annotations

import pytest

from shared.contracts.documents import Effect, EffectResult
from shared.domain import effects
from shared.domain.verdicts import Known, Policy, Verdict, decide
from shared.errors import Reason


def test_the_call_is_recorded_before_it_is_made() -> None:
    """C18."""
    assert effects.start("ORD-1", 2) == Effect(
        name="payment", status="in_progress", key="ORD-1", replay_count=2, reason=None, result=None
    )


@pytest.mark.parametrize("status", ["approved", "declined"])
def test_an_answer_completes_the_effect_and_is_kept(status: str) -> None:
    result = EffectResult.model_validate({"status": status, "authorizationId": "A-1"})

    assert effects.answered(effects.start("ORD-1", 0), result) == Effect(
        status="completed", key="ORD-1", replay_count=0, result=result
    )


@pytest.mark.parametrize(("stored", "delivery", "after"), [(0, 0, 0), (0, 3, 3), (2, 1, 2), (2, None, 2)])
def test_parking_raises_the_replay_count_and_the_sweep_leaves_it(stored: int, delivery: int | None, after: int) -> None:
    parked = effects.parked(effects.start("ORD-1", stored), Reason.EFFECT_OUTCOME_UNKNOWN, delivery)

    assert (parked.status, parked.reason, parked.replay_count) == ("parked", "EffectOutcomeUnknown", after)


@pytest.mark.parametrize(("delivery", "after"), [(2, 2), (None, 1), (0, 1)])
def test_a_further_call_has_the_same_key_and_no_reason(delivery: int | None, after: int) -> None:
    parked = effects.parked(effects.start("ORD-1", 1), Reason.EFFECT_REFUSED, 1)

    assert effects.again(parked, delivery) == Effect(status="in_progress", key="ORD-1", replay_count=after)


def test_one_replay_calls_a_parked_effect_once() -> None:
    """D45: parked again by the replay that called, it waits for the next one."""

    def verdict(effect: Effect, replay_count: int) -> Verdict:
        return decide(
            Known(
                same_key=True,
                same_hash=True,
                mine=False,
                status="effect",
                effect=effect.status,
                stored_replay_count=effect.replay_count,
                replay_count=replay_count,
                claim_alive=False,
                policy=Policy.PARK,
            )
        )

    parked = effects.parked(effects.start("ORD-1", 0), Reason.EFFECT_OUTCOME_UNKNOWN, 0)
    assert verdict(parked, 0) is Verdict.EFFECT_PARKED
    assert verdict(parked, 1) is Verdict.CALL_AGAIN
    again = effects.parked(effects.again(parked, 1), Reason.EFFECT_OUTCOME_UNKNOWN, 1)
    assert verdict(again, 1) is Verdict.EFFECT_PARKED
    assert verdict(again, 2) is Verdict.CALL_AGAIN
