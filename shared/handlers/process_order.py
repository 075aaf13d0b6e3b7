"""The order handler, and three ways to be idempotent.

* order.placed: the business document is the marker. One atomic create; its id is the order id.
* order.amended, order.cancelled: an inbox record and the business document in one transactional batch.
* order.status: natural idempotency. An absolute state with a version; no record is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shared.contracts.documents import Command, Order, Outbox, Record, RecordStatus, Result
from shared.contracts.ledger import LedgerEntry
from shared.contracts.orders import OrderCommand, OrderMessage, OrderPlaced, OrderStatus
from shared.domain import effects, orders, outbox
from shared.domain.identity import document_id
from shared.domain.verdicts import Outcome
from shared.envelope import Envelope
from shared.errors import PermanentError, Reason
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Access, Claimed, Claims, Gone, GoOn, Seen, Settled, dump, finished, read_as
from shared.handlers.delivery import Delivery, new_record
from shared.handlers.effect import PaymentEffect
from shared.handlers.intake import Facts, Intake
from shared.handlers.relay import Relay, access_to, check_outgoing, messages_of
from shared.ports import Committed, Container, Create, Documents, Operation, Rejected, Replace, Written

CONSUMER = "process_order"
CREATES_AFTER_GONE = 3


class ProcessOrder:
    """Handles one message of the queue `orders`."""

    def __init__(
        self,
        documents: Documents,
        intake: Intake,
        claims: Claims,
        relay: Relay,
        payment: PaymentEffect | None,
        record_ttl_seconds: int,
    ) -> None:
        self._documents = documents
        self._intake = intake
        self._claims = claims
        self._relay = relay
        self._payment = payment
        self._record_ttl_seconds = record_ttl_seconds

    async def __call__(self, envelope: Envelope, attempt: Attempt, facts: Facts) -> Outcome:
        """Say what became of the message.

        Raises: the errors of `shared.errors`; the guard around the trigger turns each into its reaction.
        """
        delivery: Delivery[OrderMessage] = Delivery(envelope, self._intake.order(envelope, facts), facts, attempt)
        match delivery.body:
            case OrderPlaced() as placed:
                return await self._place(delivery, placed)
            case OrderStatus() as status:
                return await self._set_status(delivery, status)
            case command:
                return await self._command(delivery, command)

    async def _place(self, delivery: Delivery[OrderMessage], body: OrderPlaced) -> Outcome:
        attempt = delivery.attempt
        order = self._new_order(delivery, body)
        document = dump(order)
        access = access_to(self._documents, Order, Container.ORDERS, order.order_id, order.id)
        gone = attempt.races(CREATES_AFTER_GONE)
        while True:
            created = await attempt.io(
                partial(self._documents.create, Container.ORDERS, document)
            )
            if isinstance(created, Written):
                return await self._finish_order(delivery, GoOn(Claimed(order, created.etag), Outcome.CREATED), access)
            resolved = await self._claims.resolve(delivery, access)
            match resolved:
                case Settled(outcome=outcome):
                    return outcome
                case GoOn():
                    return await self._finish_order(delivery, resolved, access)
                case Gone():
                    await gone.lost("creating an order that others delete")

    def _new_order(self, delivery: Delivery[OrderMessage], body: OrderPlaced) -> Order:
        placement = orders.place(body)
        accepted = self._record(delivery, "created", placement.entries)
        opened = orders.new_order(body, placement, accepted, pending_payment=False)
        # Checked in this form although a payment may come first: what an approval stores must fit as well.
        outbox.check_document(dump(opened))
        if self._payment is None:
            return opened
        effect = effects.start(delivery.checked.key, delivery.checked.replay_count)
        record = new_record(
            delivery, CONSUMER, self._claims.first(delivery), "effect", Result(outcome="created"), effect=effect
        )
        return orders.new_order(body, placement, record, pending_payment=True)

    async def _finish_order(
        self, delivery: Delivery[OrderMessage], found: GoOn[Order], access: Access[Order]
    ) -> Outcome:
        claimed = found.claimed
        if claimed.record.status == "effect":
            if self._payment is None:
                raise TypeError("a claim on an effect is taken only where payments can be called")
            paid = await self._payment.run(delivery.attempt, claimed, access, delivery.checked.replay_count)
            if isinstance(paid, Settled):
                return paid.outcome
            claimed = paid
        if claimed.record.status == "completed":
            return found.outcome
        settled = await self._relay.finish(delivery.attempt, claimed, access, messages_of(claimed.record))
        return settled.outcome if settled else found.outcome

    async def _command(self, delivery: Delivery[OrderMessage], body: OrderCommand) -> Outcome:
        attempt = delivery.attempt
        access = access_to(
            self._documents, Command, Container.ORDERS, body.order_id, delivery.checked.document_id
        )
        races, gone = attempt.races(), attempt.races(CREATES_AFTER_GONE)
        while True:
            seen = await self._read_order(delivery, body.order_id)
            decision = orders.decide_command(seen.document, body)
            if not isinstance(decision, orders.Apply):
                # An applied command may be illegal in today's state: its record decides, if there is one.
                known = await self._known_command(delivery, access)
                if known is not None:
                    return known
                if isinstance(decision, orders.Park):
                    raise PermanentError(decision.reason, decision.description)
            command = self._new_command(delivery, body, decision)
            answer = await self._commit(attempt, command, decision.order, seen.etag)
            if isinstance(answer, Committed):
                return await self._finish_command(delivery, Claimed(command, answer.etags[0]), access)
            if answer.index > 0:
                await races.lost("changing an order")
                continue
            known = await self._known_command(delivery, access)
            if known is not None:
                return known
            await gone.lost("recording a command that others delete")

    def _new_command(
        self, delivery: Delivery[OrderMessage], body: OrderCommand, decision: orders.Apply | orders.Reject
    ) -> Command:
        if isinstance(decision, orders.Apply):
            record = self._record(delivery, "applied", decision.entries)
        else:
            record = self._record(delivery, "rejected", (), decision.reason)
        command = Command(
            id=delivery.checked.document_id,
            order_id=body.order_id,
            operation_id=body.operation_id,
            kind=body.type,
            sequence=body.sequence,
            record=record,
        )
        return finished(command, self._record_ttl_seconds) if record.status == "completed" else command

    async def _commit(self, attempt: Attempt, command: Command, order: Order, etag: str) -> Committed | Rejected:
        """Inbox record and business document, both or neither: the record's create is operation 0."""
        documents = [dump(command), dump(order)]
        outbox.check_batch(documents)
        operations: list[Operation] = [Create(documents[0]), Replace(documents[1], etag)]
        return await attempt.io(
            partial(self._documents.batch, Container.ORDERS, order.order_id, operations)
        )

    async def _known_command(self, delivery: Delivery[OrderMessage], access: Access[Command]) -> Outcome | None:
        """What the command's record says, if there is one."""
        resolved = await self._claims.resolve(delivery, access)
        match resolved:
            case Settled(outcome=outcome):
                return outcome
            case GoOn():
                return await self._finish_command(delivery, resolved.claimed, access, resolved.outcome)
            case Gone():
                return None

    async def _finish_command(
        self,
        delivery: Delivery[OrderMessage],
        claimed: Claimed[Command],
        access: Access[Command],
        outcome: Outcome | None = None,
    ) -> Outcome:
        if claimed.record.status != "completed":
            settled = await self._relay.finish(delivery.attempt, claimed, access, messages_of(claimed.record))
            if settled is not None:
                return settled.outcome
        if outcome is not None:
            return outcome
        return Outcome(claimed.record.result.outcome) if claimed.record.result else Outcome.APPLIED

    async def _set_status(self, delivery: Delivery[OrderMessage], body: OrderStatus) -> Outcome:
        attempt = delivery.attempt
        races = attempt.races()
        while True:
            seen = await self._read_order(delivery, body.order_id)
            decision = orders.decide_status(seen.document, body)
            match decision:
                case orders.StatusStale():
                    return Outcome.STALE
                case orders.StatusDuplicate():
                    return Outcome.DUPLICATE
                case orders.StatusConflict():
                    raise PermanentError(
                        Reason.PAYLOAD_MISMATCH, "status: this version is known with another status"
                    )
                case orders.StatusSet(order=order):
                    document = dump(order)
                    outbox.check_document(document)
                    answer = await attempt.io(
                        partial(self._documents.replace, Container.ORDERS, document, seen.etag)
                    )
                    if isinstance(answer, Written):
                        return Outcome.APPLIED
            await races.lost("setting an order's status")

    async def _read_order(self, delivery: Delivery[OrderMessage], order_id: str) -> Seen[Order]:
        seen = await delivery.attempt.io(
            partial(read_as, self._documents, Order, Container.ORDERS, order_id, document_id(order_id))
        )
        if seen is None:
            raise PermanentError(Reason.ORDER_UNKNOWN, "orderId: there is no such order")
        return seen

    def _record(
        self,
        delivery: Delivery[OrderMessage],
        outcome: str,
        entries: Sequence[LedgerEntry],
        reason: orders.Rejection | None = None,
    ) -> Record:
        """A record with its outbox, or one that is completed because there is nothing to send."""
        messages = outbox.outbox_messages(entries, consumer=CONSUMER, key=delivery.checked.key)
        status: RecordStatus = "accepted" if messages else "completed"
        record = new_record(
            delivery,
            CONSUMER,
            self._claims.first(delivery),
            status,
            Result.model_validate({"outcome": outcome, "reason": reason.value if reason else None}),
            outbox=Outbox(total=len(messages), messages=messages) if messages else None,
        )
        check_outgoing(record, messages)
        return record
