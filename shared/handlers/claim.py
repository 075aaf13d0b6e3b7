"""Claims: an attempt's hold on a record, from the conflict that found it to the last write under it.

The create of the record's document is the only arbiter of who was first, and the caller makes it. From a 409 on, this
module reads what is there, lets the decision table say what it means, and takes the claim over where that is the
verdict. Every later write has the ETag of the write before it: a zombie's write fails, and it stops there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from shared import telemetry
from shared.contracts.documents import (
    DOCUMENT_VERSION,
    Claim,
    Command,
    LedgerBatchRecord,
    Order,
    Record,
)
from shared.contracts.values import Stored
from shared.domain import effects
from shared.domain.failures import is_poison_claim
from shared.domain.payload import is_known_hash
from shared.domain.verdicts import Known, Outcome, Policy, Verdict, claim_alive, decide
from shared.errors import (
    EVENT_CONFIGURATION,
    AppError,
    InFlightError,
    PermanentError,
    Reason,
    TransientError,
    UnknownCommitError,
)
from shared.handlers.attempt import Attempt
from shared.handlers.delivery import Delivery
from shared.ports import Container, Documents, Found, Stale, Written

SWEEPS_BEFORE_STUCK = 5
STUCK_REST_SECONDS = 3600


S = TypeVar("S", bound=Stored)
D = TypeVar("D", Order, Command, LedgerBatchRecord)


@dataclass(frozen=True, slots=True)
class Seen(Generic[S]):
    """A document as read: the model, its ETag, and the server's clock at its last write and at the read."""

    document: S
    etag: str
    written_at: int
    read_at: int


@dataclass(frozen=True, slots=True)
class Claimed(Generic[D]):
    """A record under this attempt's claim."""

    document: D
    etag: str

    @property
    def record(self) -> Record:
        """The protocol's part."""
        return self.document.record


@dataclass(frozen=True, slots=True)
class GoOn(Generic[D]):
    """The record is this attempt's to finish; `outcome` says how it came to that."""

    claimed: Claimed[D]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing is left to do."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Gone:
    """The document that caused the conflict is not there any more."""


@dataclass(frozen=True, slots=True)
class Left:
    """An unfinished record that is not taken over. `stuck`: too many attempts died with it."""

    stuck: bool = False


def dump(document: Stored) -> dict[str, Any]:
    """The JSON form of a document, without the members that Cosmos DB adds, and without a `ttl` that is not set (it
    refuses null there)."""
    members = document.model_dump(mode="json", by_alias=True)
    return {
        name: value
        for name, value in members.items()
        if not name.startswith("_") and (name != "ttl" or value is not None)
    }


def parse(model: type[S], found: Found) -> Seen[S]:
    """Read a document that this release understands.

    Raises: TransientError, as a matter of configuration, for another document version or shape: a newer worker wrote
    it, and it must neither be overwritten nor be taken for another message's.
    """
    version = found.document.get("v")
    if version != DOCUMENT_VERSION:
        raise TransientError(
            f"document {found.document.get('type')}: version {version!r} is unknown to this release",
            event=EVENT_CONFIGURATION,
            of_record=True,
        )
    try:
        document = model.model_validate(found.document)
    except ValidationError as error:
        raise TransientError(
            f"document {found.document.get('type')}: this release cannot read it ({error.error_count()} faults)",
            event=EVENT_CONFIGURATION,
            of_record=True,
        ) from None  # its text holds what is stored
    return Seen(document, found.etag, found.written_at, found.read_at)


async def read_as(
    documents: Documents, model: type[S], container: Container, partition: str, document_id: str
) -> Seen[S] | None:
    """Read a document as a model; None if there is none."""
    found = await documents.read(container, partition, document_id)
    return None if found is None else parse(model, found)


def with_record(document: D, **members: object) -> D:
    """The same document with some members of its record replaced."""
    return document.model_copy(update={"record": document.record.model_copy(update=members)})


def finished(document: D, record_ttl_seconds: int, **members: object) -> D:
    """The same document, completed. Commands and ledger batches expire from here on; an order is business data."""
    claim = document.record.claim.model_copy(update={"sweeps": 0})
    done = with_record(document, status="completed", claim=claim, **members)
    return done if isinstance(done, Order) else done.model_copy(update={"ttl": record_ttl_seconds})


@dataclass(frozen=True, slots=True)
class Access(Generic[D]):
    """How the documents of one record are read and written; `complete` may write more than the record."""

    read: Callable[[], Awaitable[Seen[D] | None]]
    write: Callable[[D, str], Awaitable[Written | Stale]]
    complete: Callable[[D, str], Awaitable[Written | Stale]]


class Claims:
    """Takes, checks and keeps claims on records."""

    def __init__(self, documents: Documents, *, lease_seconds: int, policy: Policy, can_call: bool) -> None:
        self._documents = documents
        self._lease_seconds = lease_seconds
        self._policy = policy
        self._can_call = can_call

    def first(self, delivery: Delivery[Any]) -> Claim:
        """The claim that a record is created with."""
        return Claim(
            token=delivery.attempt.token,
            attempts=1,
            sequence_number=str(delivery.envelope.sequence_number),
            lease_seconds=self._lease_seconds,
        )

    async def resolve(self, delivery: Delivery[Any], access: Access[D]) -> GoOn[D] | Settled | Gone:
        """Say what the record that is there means for this message, and take it over where that is the verdict.

        Raises: PermanentError for a conflict or a parked effect; InFlightError while another attempt lives;
        TransientError when the budget is over.
        """
        attempt = delivery.attempt
        pace, races = attempt.pace(), attempt.races()
        while True:
            seen = await attempt.io(access.read)
            if seen is None:
                return Gone()
            record = seen.document.record
            delivery.facts.stored_hash = record.payload_hash
            if not is_known_hash(record.payload_hash):
                await pace.wait_or_raise(unknown_hash())
                continue
            verdict = decide(self._known(delivery, seen))
            match verdict:
                case Verdict.ORDER_EXISTS:
                    raise PermanentError(Reason.ORDER_EXISTS, "orderId: the order was placed under another dedup key")
                case Verdict.CONFLICT:
                    raise PermanentError(
                        Reason.PAYLOAD_MISMATCH, "body: the dedup key is known with another payload hash"
                    )
                case Verdict.EFFECT_PARKED:
                    if record.claim.token == attempt.token:  # parked by this attempt, whose write lost its answer
                        telemetry.effect_parked(_parked_reason(record))
                    raise PermanentError(_parked_reason(record), "effect: parked; only a replay calls again")
                case Verdict.DUPLICATE:
                    return Settled(Outcome.DUPLICATE)
                case Verdict.IN_FLIGHT:
                    await pace.wait_or_raise(InFlightError("another attempt holds a live claim on the record"))
                    continue
                case Verdict.MINE if record.status == "completed":
                    return Settled(Outcome.MINE)
                case Verdict.MINE | Verdict.TAKE_OVER | Verdict.CALL_AGAIN if (
                    record.status == "effect" and not self._can_call
                ):
                    await pace.wait_or_raise(payments_unset())
                    continue
                case Verdict.MINE:
                    return GoOn(Claimed(seen.document, seen.etag), Outcome.MINE)
            taken = self._taken(delivery, verdict, seen.document)
            answer = await attempt.io(partial(access.write, taken, seen.etag))
            if isinstance(answer, Stale):
                await races.lost("taking a record over")
                continue
            if verdict is Verdict.PARK_EFFECT:
                telemetry.effect_parked(Reason.EFFECT_OUTCOME_UNKNOWN)
                raise PermanentError(Reason.EFFECT_OUTCOME_UNKNOWN, "effect: its caller died before an answer came")
            outcome = Outcome.RESUMED if verdict is Verdict.RESUME else Outcome.TAKEN_OVER
            return GoOn(Claimed(taken, answer.etag), outcome)

    async def adopt(
        self,
        attempt: Attempt,
        access: Access[D],
        *,
        sweeping: bool,
        leave_effects: bool = False,
    ) -> GoOn[D] | Settled | Gone | Left:
        """Take an unfinished record over without a delivery of its message: for the sweep, and for a ledger's next
        batch.

        `claim.sweeps` counts such take-overs that died. An effect is called again only under the policy `retry`;
        under `park` its record is parked here, without a call.
        """
        races = attempt.races()
        while True:
            seen = await attempt.io(access.read)
            if seen is None:
                return Gone()
            record = seen.document.record
            if record.status == "completed":
                return Settled(Outcome.DUPLICATE)
            if record.claim.token == attempt.token:  # its own write lost its answer
                if not _is_parked(record):
                    return GoOn(Claimed(seen.document, seen.etag), Outcome.MINE)
                telemetry.effect_parked(Reason.EFFECT_OUTCOME_UNKNOWN)
            if _is_parked(record) or (sweeping and _is_alive(seen)) or (leave_effects and record.status == "effect"):
                return Left()
            if record.claim.sweeps > SWEEPS_BEFORE_STUCK:
                rested = seen.read_at - seen.written_at > STUCK_REST_SECONDS
                if not (sweeping and rested):
                    return Left(stuck=True)
            effect, parking = record.effect, record.status == "effect" and self._policy is Policy.PARK
            if effect is not None and parking:
                effect = effects.parked(effect, Reason.EFFECT_OUTCOME_UNKNOWN, effect.replay_count)
            elif record.status == "effect" and not self._can_call:
                raise payments_unset()
            claim = record.claim.model_copy(
                update={
                    "token": attempt.token,
                    "lease_seconds": self._lease_seconds,
                    "sweeps": record.claim.sweeps + 1,
                }
            )
            taken = with_record(seen.document, claim=claim, effect=effect)
            try:
                answer = await attempt.io(partial(access.write, taken, seen.etag))
            except UnknownCommitError:
                if parking:  # perhaps it is parked, and nobody comes by again
                    telemetry.effect_parked(Reason.EFFECT_OUTCOME_UNKNOWN)
                raise
            if isinstance(answer, Stale):
                await races.lost("taking a record over")
            elif parking:
                telemetry.effect_parked(Reason.EFFECT_OUTCOME_UNKNOWN)
                return Left()
            else:
                return GoOn(Claimed(taken, answer.etag), Outcome.RESUMED)

    async def give_up(self, attempt: Attempt, access: Access[D]) -> None:
        """Note that an adopted record was given up in order, on an error: its attempts that died count from 0 again.

        One try: if it fails in an outage, this attempt counts as one that died, which only delays the next.
        """
        with suppress(AppError):
            seen = await access.read()
            if seen is None or seen.document.record.claim.token != attempt.token:
                return
            claim = seen.document.record.claim.model_copy(update={"sweeps": 0})
            await access.write(with_record(seen.document, claim=claim), seen.etag)

    async def update(
        self,
        attempt: Attempt,
        claimed: Claimed[D],
        change: Callable[[D], D],
        holds: Callable[[Record], bool],
        access: Access[D],
        *,
        completing: bool = False,
    ) -> Claimed[D] | Settled:
        """Make a change under this attempt's claim; `holds` tells whether what was read has the change already.

        A refused write (412) never takes the claim back: with the own token the same change is made on what was read,
        with another's the attempt stops. Settled when the record is completed by now.

        Raises: InFlightError when another attempt took the claim.
        """
        races = attempt.races()
        write = access.complete if completing else access.write
        while True:
            target = change(claimed.document)
            answer = await attempt.io(partial(write, target, claimed.etag))
            if isinstance(answer, Written):
                return Claimed(target, answer.etag)
            seen = await attempt.io(access.read)
            if seen is None:
                return Settled(Outcome.DUPLICATE)
            record = seen.document.record
            mine = record.claim.token == attempt.token
            if record.status == "completed":
                return Settled(Outcome.MINE if mine else Outcome.DUPLICATE)
            if not mine:
                raise InFlightError("another attempt took the claim")
            claimed = Claimed(seen.document, seen.etag)
            if holds(record):
                return claimed
            await races.lost("writing under the claim")

    def _known(self, delivery: Delivery[Any], seen: Seen[D]) -> Known:
        record, checked = seen.document.record, delivery.checked
        return Known(
            same_key=record.key == checked.key,
            same_hash=record.payload_hash == checked.payload_hash,
            mine=record.claim.token == delivery.attempt.token,
            status=record.status,
            effect=record.effect.status if record.effect else None,
            stored_replay_count=record.effect.replay_count if record.effect else 0,
            replay_count=checked.replay_count,
            claim_alive=_is_alive(seen),
            policy=self._policy,
        )

    def _taken(self, delivery: Delivery[Any], verdict: Verdict, document: D) -> D:
        record, envelope, checked = document.record, delivery.envelope, delivery.checked
        same_message = record.claim.sequence_number == str(envelope.sequence_number)
        attempts = record.claim.attempts + 1 if same_message else 1
        if is_poison_claim(attempts, envelope.delivery_count):
            raise PermanentError(Reason.POISON_MESSAGE, f"attempts: {attempts} workers died with this message's claim")
        claim = record.claim.model_copy(
            update={
                "token": delivery.attempt.token,
                "attempts": attempts,
                "sequence_number": str(envelope.sequence_number),
                "lease_seconds": self._lease_seconds,
                "sweeps": 0,
            }
        )
        effect = record.effect
        if effect is not None and verdict in (Verdict.TAKE_OVER, Verdict.CALL_AGAIN):
            effect = effects.again(effect, checked.replay_count)
        elif effect is not None and verdict is Verdict.PARK_EFFECT:
            effect = effects.parked(effect, Reason.EFFECT_OUTCOME_UNKNOWN, checked.replay_count)
        return with_record(document, claim=claim, effect=effect)


def unknown_hash() -> TransientError:
    """A newer worker hashed what is stored: nobody can compare with it here."""
    return TransientError(
        "the stored hash is of a kind unknown to this release", event=EVENT_CONFIGURATION, of_record=True
    )


def payments_unset() -> TransientError:
    """A call is due, and nobody to call."""
    return TransientError(
        "a payment is due and PAYMENTS_URL is not set", event=EVENT_CONFIGURATION, of_record=True
    )


def _is_alive(seen: Seen[D]) -> bool:
    return claim_alive(
        written_at=seen.written_at,
        read_at=seen.read_at,
        lease_seconds=seen.document.record.claim.lease_seconds,
    )


def _is_parked(record: Record) -> bool:
    return record.effect is not None and record.effect.status == "parked"


def _parked_reason(record: Record) -> Reason:
    return Reason(record.effect.reason) if record.effect and record.effect.reason else Reason.EFFECT_OUTCOME_UNKNOWN
