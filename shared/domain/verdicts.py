"""What the create of a record says: the decision table of docs/contracts.md, section 7, as data.

`decide` walks the same rows that docs/decisions.md shows. It is asked only when the create met a document with the
record's id (409) and that document was read; a 201 and a document that is gone again need no table.

    record.status   effect --------------> accepted --------------> completed
                    (a call comes first)   (messages to send)       (nothing is left to do)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.contracts.documents import EffectStatus, RecordStatus

LEASE_MARGIN_SECONDS: Final = 5


class Outcome(StrEnum):
    """What became of a delivery: exactly one for each, in the log line and in the metric."""

    CREATED = "created"
    APPLIED = "applied"
    REJECTED = "rejected"
    DUPLICATE = "duplicate"
    STALE = "stale"
    MINE = "mine"
    RESUMED = "resumed"
    TAKEN_OVER = "taken_over"
    HELD = "held"
    CONFLICT = "conflict"
    QUARANTINED = "quarantined"
    IN_FLIGHT = "in_flight"
    TRANSIENT = "transient"
    FAILED = "failed"


class Policy(StrEnum):
    """What to do about an external call whose outcome is unknown."""

    RETRY = "retry"
    PARK = "park"


class Verdict(StrEnum):
    """What a found record means for this message; one for each row behind a 409."""

    ORDER_EXISTS = "order_exists"
    CONFLICT = "conflict"
    EFFECT_PARKED = "effect_parked"
    CALL_AGAIN = "call_again"
    MINE = "mine"
    DUPLICATE = "duplicate"
    RESUME = "resume"
    IN_FLIGHT = "in_flight"
    TAKE_OVER = "take_over"
    PARK_EFFECT = "park_effect"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known when a create met a record: the message's side, the record's side, and the lease between them.

    `mine`: the record's claim token is this attempt's. `stored_replay_count`: that of the effect's last caller.
    """

    same_key: bool
    same_hash: bool
    mine: bool
    status: RecordStatus
    effect: EffectStatus | None
    stored_replay_count: int
    replay_count: int
    claim_alive: bool
    policy: Policy


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a condition that is None does not matter. `reaction` is prose for the docs."""

    verdict: Verdict
    outcome: Outcome
    reaction: str
    same_key: bool | None = None
    same_hash: bool | None = None
    status: RecordStatus | None = None
    effect: EffectStatus | None = None
    is_newer_replay: bool | None = None
    mine: bool | None = None
    claim_alive: bool | None = None
    policy: Policy | None = None

    def matches(self, known: Known) -> bool:
        """Whether every condition of the row that matters holds."""
        return all(
            wanted is None or wanted == found
            for wanted, found in (
                (self.same_key, known.same_key),
                (self.same_hash, known.same_hash),
                (self.status, known.status),
                (self.effect, known.effect),
                (self.is_newer_replay, known.replay_count > known.stored_replay_count),
                (self.mine, known.mine),
                (self.claim_alive, known.claim_alive),
                (self.policy, known.policy),
            )
        )


TABLE: Final[tuple[Row, ...]] = (
    Row(
        Verdict.ORDER_EXISTS,
        Outcome.QUARANTINED,
        "quarantine `OrderExists`",
        same_key=False,
    ),
    Row(
        Verdict.CONFLICT,
        Outcome.CONFLICT,
        "quarantine `PayloadMismatch`; the stored document is not touched",
        same_hash=False,
    ),
    Row(
        Verdict.EFFECT_PARKED,
        Outcome.QUARANTINED,
        "quarantine with the effect's reason; no call",
        status="effect",
        effect="parked",
        is_newer_replay=False,
    ),
    Row(
        Verdict.CALL_AGAIN,
        Outcome.TAKEN_OVER,
        "effect `in_progress` with this `replay-count`, call with the same key",
        status="effect",
        effect="parked",
        is_newer_replay=True,
    ),
    Row(
        Verdict.MINE,
        Outcome.MINE,
        "my own lost answer, of the create or of a take-over: go on from the status that was read",
        mine=True,
    ),
    Row(
        Verdict.DUPLICATE,
        Outcome.DUPLICATE,
        "nothing is left to do",
        status="completed",
    ),
    Row(
        Verdict.RESUME,
        Outcome.RESUMED,
        "take the claim over (If-Match), go on at `sent`",
        status="accepted",
    ),
    Row(
        Verdict.IN_FLIGHT,
        Outcome.IN_FLIGHT,
        "wait within `TRANSIENT_BUDGET_SECONDS`, then abandon",
        status="effect",
        effect="in_progress",
        claim_alive=True,
    ),
    Row(
        Verdict.TAKE_OVER,
        Outcome.TAKEN_OVER,
        "take the claim over (If-Match), call with the same key",
        status="effect",
        effect="in_progress",
        claim_alive=False,
        policy=Policy.RETRY,
    ),
    Row(
        Verdict.PARK_EFFECT,
        Outcome.QUARANTINED,
        "effect becomes `parked`; quarantine `EffectOutcomeUnknown`; no call",
        status="effect",
        effect="in_progress",
        claim_alive=False,
        policy=Policy.PARK,
    ),
)


def decide(known: Known) -> Verdict:
    """Say what the record that is there means for this message: the first row that matches.

    Refuses, with a ValueError, a record in `effect` whose effect is missing or completed: the write of an answer
    changes both at once, so no release stores that.
    """
    for row in TABLE:
        if row.matches(known):
            return row.verdict
    raise ValueError(f"record: status {known.status} with effect {known.effect} is a state that nobody writes")


def claim_alive(*, written_at: int, read_at: int, lease_seconds: int) -> bool:
    """Whether the claim of a document written and read at these server times (Unix seconds) still holds.

    The margin covers whole seconds of two machines. A lease of no length never held (R20): a worker that reads "0" as
    "not set" would block the key for ever.
    """
    return lease_seconds > 0 and read_at <= written_at + lease_seconds + LEASE_MARGIN_SECONDS
