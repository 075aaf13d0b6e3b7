"""The life of one external call, as stored in its record (docs/contracts.md, section 5: Payments).

    in_progress --answer--> completed
         |  ^
         |  +---- called again: by a take-over (policy `retry`), or by a replay that a person ordered
         v  |
       parked      refused by the provider, or outcome unknown (policy `park`)

`replay_count` belongs to the delivery that called, or parked, last. It never falls, so that one and the same replay
calls a parked effect once.
"""

from __future__ import annotations

from shared.contracts.documents import Effect, EffectResult
from shared.errors import Reason


def start(key: str, replay_count: int) -> Effect:
    """The effect as stored before the first call."""
    return Effect(status="in_progress", key=key, replay_count=replay_count)


def answered(effect: Effect, result: EffectResult) -> Effect:
    """The effect with the provider's answer, whatever the answer is."""
    return effect.model_copy(update={"status": "completed", "reason": None, "result": result})


def parked(effect: Effect, reason: Reason, replay_count: int | None) -> Effect:
    """The effect that only a later replay calls again; the sweep, which is no delivery, has no replay count."""
    return effect.model_copy(
        update={"status": "parked", "reason": reason.value, "replay_count": _raised(effect, replay_count)}
    )


def again(effect: Effect, replay_count: int | None) -> Effect:
    """The effect as stored before a further call with the same key."""
    return effect.model_copy(
        update={"status": "in_progress", "reason": None, "replay_count": _raised(effect, replay_count)}
    )


def _raised(effect: Effect, replay_count: int | None) -> int:
    return effect.replay_count if replay_count is None else max(effect.replay_count, replay_count)
