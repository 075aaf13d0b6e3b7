"""Runs one external call under its record: stored as in_progress before it, with its answer after it.

The claim's create or take-over has stored `in_progress`. A crash behind that leaves a record whose next reader is told
by the policy for an unknown outcome what to do; a crash behind the answer's write leaves an accepted record.
"""

from __future__ import annotations

from typing import Literal

from shared import telemetry
from shared.contracts.documents import Effect, EffectResult, Order, Outbox, Record
from shared.domain import effects, orders, outbox
from shared.domain.identity import document_id
from shared.domain.verdicts import Policy
from shared.errors import PermanentError, Reason, TransientError, UnknownCommitError
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Access, Claimed, Claims, Settled, finished, with_record
from shared.ports import Approved, Declined, Payments, Refused

CONSUMER = "process_order"



class PaymentError(TransientError):
    """The provider could not be called, or gave no answer, within the attempt's budget; the next attempt calls again,
    with the same key."""


class PaymentEffect:
    """Authorises the payment of an order that waits for it."""

    def __init__(self, claims: Claims, payments: Payments, policy: Policy, record_ttl_seconds: int) -> None:
        self._claims = claims
        self._payments = payments
        self._policy = policy
        self._record_ttl_seconds = record_ttl_seconds

    async def run(
        self, attempt: Attempt, claimed: Claimed[Order], access: Access[Order], replay_count: int
    ) -> Claimed[Order] | Settled:
        """Call, and store the answer together with what it causes.

        Raises: PermanentError when the effect is parked; TransientError when the outcome is unknown and the policy
        allows the next attempt to call again.
        """
        answer = await self._call(attempt, claimed.document)
        if answer is None or isinstance(answer, Refused):
            reason = Reason.EFFECT_OUTCOME_UNKNOWN if answer is None else Reason.EFFECT_REFUSED
            found = "no answer" if answer is None else f"HTTP {answer.status}"
            written = await self._park(attempt, claimed, access, reason, replay_count)
            if isinstance(written, Settled):
                return written
            raise PermanentError(reason, f"effect: the payment provider gave {found}")
        return await self._store(attempt, claimed, access, answer)

    async def _call(self, attempt: Attempt, order: Order) -> Approved | Declined | Refused | None:
        """The provider's answer; None when it is unknown and must stay so.

        A call that was surely not made (no token) is made again under both policies.
        """

        async def call() -> Approved | Declined | Refused | None:
            answer: Approved | Declined | Refused | None = None
            try:
                with telemetry.span("effect payment"):
                    answer = await self._payments.authorize(
                        idempotency_key_of(order), order.order_id, order.total, order.currency
                    )
            except UnknownCommitError as error:
                telemetry.effect_called(None)
                if self._policy is Policy.RETRY:
                    raise
                telemetry.log_transient(error)
                return None
            telemetry.effect_called(type(answer).__name__.lower())
            return answer

        try:
            return await attempt.io(call)
        except TransientError as error:
            raise PaymentError(str(error), event=error.event) from error

    async def _park(
        self, attempt: Attempt, claimed: Claimed[Order], access: Access[Order], reason: Reason, replay_count: int
    ) -> Claimed[Order] | Settled:
        def change(order: Order) -> Order:
            return with_record(order, effect=effects.parked(_effect(order.record), reason, replay_count))

        def holds(record: Record) -> bool:
            return record.effect is not None and record.effect.status == "parked"

        written = await self._claims.update(attempt, claimed, change, holds, access)
        if isinstance(written, Claimed):
            telemetry.effect_parked(reason)
        return written

    async def _store(
        self, attempt: Attempt, claimed: Claimed[Order], access: Access[Order], answer: Approved | Declined
    ) -> Claimed[Order] | Settled:
        def change(order: Order) -> Order:
            effect = effects.answered(_effect(order.record), _result(answer))
            if isinstance(answer, Declined):
                return finished(orders.decline_order(order), self._record_ttl_seconds, effect=effect)
            opened, entries = orders.open_order(order)
            messages = outbox.outbox_messages(entries, consumer=CONSUMER, key=order.record.key)
            return with_record(
                opened, status="accepted", effect=effect, outbox=Outbox(total=len(messages), messages=messages)
            )

        def holds(record: Record) -> bool:
            return record.effect is not None and record.effect.status == "completed"

        return await self._claims.update(attempt, claimed, change, holds, access)


def idempotency_key_of(order: Order) -> str:
    """The idempotency key for the provider: ASCII, whatever the dedup key is (a CloudEvent's is never the order id)."""
    return document_id(order.record.key, cloud_event=order.record.key != order.order_id)


def _result(answer: Approved | Declined) -> EffectResult:
    status: Literal["approved", "declined"] = "approved" if isinstance(answer, Approved) else "declined"
    return EffectResult(status=status, authorization_id=answer.authorization_id)


def _effect(record: Record) -> Effect:
    if record.effect is None:
        raise TypeError("an order that waits for its payment has an effect")
    return record.effect
