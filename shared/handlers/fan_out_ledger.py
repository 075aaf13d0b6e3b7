"""The ledger processor: walks a batch transaction by transaction and sends each to its order's session.

Accepting a batch is one transactional batch: its record, its messages, and the ledger's state, which names the batch
that is not finished yet. That one is brought to its end before the next is accepted, so that no batch overtakes the
rest of its predecessor, even if the predecessor's message is gone.
"""

from __future__ import annotations

from functools import partial

from shared import telemetry
from shared.contracts.documents import (
    LedgerBatchRecord,
    LedgerOutbox,
    LedgerSequence,
    Outbox,
    Result,
)
from shared.contracts.ledger import LedgerBatch
from shared.domain import ledger, outbox
from shared.domain.identity import outbox_id
from shared.domain.verdicts import Outcome
from shared.envelope import Envelope
from shared.errors import AppError, InFlightError, PermanentError, TransientError
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Claimed, Claims, Gone, GoOn, Left, Settled, dump
from shared.handlers.delivery import Delivery, new_record
from shared.handlers.intake import Facts, Intake
from shared.handlers.ledger_records import LedgerRecords
from shared.handlers.relay import check_outgoing
from shared.handlers.states import Kept, States
from shared.ports import Committed, Container, Create, Documents, Operation, Rejected, Replace

CONSUMER = "fan_out_ledger"
ACCEPTS_AFTER_GONE = 3


class FanOutLedger:
    """Handles one message of the queue `ledger`."""

    def __init__(
        self,
        documents: Documents,
        intake: Intake,
        claims: Claims,
        records: LedgerRecords,
        states: States[LedgerSequence],
    ) -> None:
        self._documents = documents
        self._intake = intake
        self._claims = claims
        self._records = records
        self._states = states

    async def __call__(self, envelope: Envelope, attempt: Attempt, facts: Facts) -> Outcome:
        """Say what became of the message.

        Raises: the errors of `shared.errors`; the guard around the trigger turns each into its reaction.
        """
        delivery = Delivery(envelope, self._intake.ledger_batch(envelope, facts), facts, attempt)
        body, batch_id = delivery.body, delivery.checked.document_id
        document, box = self._new_documents(delivery)
        races, gone = attempt.races(), attempt.races(ACCEPTS_AFTER_GONE)
        resumed, predecessor = attempt.races(), attempt.pace()
        kept = await self._states.get(attempt, body.ledger_id)
        while True:
            decision = ledger.decide_batch(kept.state, body, batch_id)
            match decision:
                case ledger.ResumeFirst(document_id=other):
                    failed = await self._resume(delivery, other)
                    if failed is not None:
                        await predecessor.wait_or_raise(failed)
                    await resumed.lost("finishing a ledger's earlier batches")
                    kept = await self._states.read(attempt, body.ledger_id)
                    continue
                case ledger.ThisOne() | ledger.Known() | ledger.Refuse() if not kept.fresh:
                    kept = await self._states.read(attempt, body.ledger_id)
                    continue
                case ledger.ThisOne() | ledger.Known() | ledger.Refuse():
                    known = await self._known(delivery)
                    if known is not None:
                        return known
                    if not isinstance(decision, ledger.ThisOne):
                        raise PermanentError(decision.reason, decision.description)
                    await races.lost("finding a ledger's unfinished batch")
                    kept = await self._states.read(attempt, body.ledger_id)
                    continue
                case ledger.Accept(state=state):
                    answer = await self._accept(attempt, document, box, state, kept)
            if isinstance(answer, Committed):
                self._states.keep(body.ledger_id, state, answer.etags[2])
                claimed = Claimed(document, answer.etags[0])
                settled = await self._records.finish(attempt, claimed, box.messages)
                return settled.outcome if settled else Outcome.CREATED
            if answer.index == 0:
                known = await self._known(delivery)
                if known is not None:
                    return known
                await gone.lost("recording a batch that others delete")
            else:
                await races.lost("accepting a ledger batch")
                kept = await self._states.read(attempt, body.ledger_id)

    def _new_documents(self, delivery: Delivery[LedgerBatch]) -> tuple[LedgerBatchRecord, LedgerOutbox]:
        body, checked = delivery.body, delivery.checked
        messages = outbox.outbox_messages(ledger.entries_of(body), consumer=CONSUMER, key=checked.key)
        record = new_record(
            delivery,
            CONSUMER,
            self._claims.first(delivery),
            "accepted",
            Result(outcome="created"),
            outbox=Outbox(total=len(messages)),
        )
        check_outgoing(record, messages)
        document = LedgerBatchRecord(
            id=checked.document_id,
            ledger_id=body.ledger_id,
            batch_id=body.batch_id,
            batch_sequence=body.batch_sequence,
            currency=body.currency,
            record=record,
        )
        box = LedgerOutbox(
            id=outbox_id(checked.document_id), ledger_id=body.ledger_id, batch=checked.document_id, messages=messages
        )
        return document, box

    async def _accept(
        self,
        attempt: Attempt,
        document: LedgerBatchRecord,
        box: LedgerOutbox,
        state: LedgerSequence,
        kept: Kept[LedgerSequence],
    ) -> Committed | Rejected:
        """Record, messages and state, all or nothing: the record's create is operation 0."""
        documents = [dump(document), dump(box), dump(state)]
        outbox.check_batch(documents)
        last: Operation = Create(documents[2]) if kept.state is None else Replace(documents[2], kept.etag)
        self._states.forget(document.ledger_id)
        return await attempt.io(
            partial(
                self._documents.batch,
                Container.LEDGERS,
                document.ledger_id,
                [Create(documents[0]), Create(documents[1]), last],
            )
        )

    async def _known(self, delivery: Delivery[LedgerBatch]) -> Outcome | None:
        """What the batch's record says, if there is one."""
        attempt = delivery.attempt
        access = self._records.access(attempt, delivery.body.ledger_id, delivery.checked.document_id)
        resolved = await self._claims.resolve(delivery, access)
        match resolved:
            case Settled(outcome=outcome):
                return outcome
            case GoOn(claimed=claimed, outcome=outcome):
                settled = await self._records.finish(attempt, claimed)
                return settled.outcome if settled else outcome
            case Gone():
                return None

    async def _resume(self, delivery: Delivery[LedgerBatch], other: str) -> AppError | None:
        """Bring another batch to its end. Neither its outcome nor its errors are this message's.

        Returns why it could not be brought there, if so: the state is read again after a wait, since whoever took its
        claim is at work, and must not be robbed of it at once. Raises: what the outage of a service raises, since
        this message would meet it as well.
        """
        attempt = delivery.attempt
        access = self._records.access(attempt, delivery.body.ledger_id, other)
        try:
            adopted = await self._claims.adopt(attempt, access, sweeping=False)
            if isinstance(adopted, GoOn):
                await self._records.finish(attempt, adopted.claimed)
        except InFlightError as error:
            return error
        except TransientError:
            await self._claims.give_up(attempt, access)
            raise
        except Exception as error:
            telemetry.log_stuck(other, error)
            await self._claims.give_up(attempt, access)
            return TransientError(f"an earlier batch of the ledger could not be finished: {type(error).__name__}")
        if isinstance(adopted, Left):
            telemetry.log_stuck(other, None)
            return TransientError("an earlier batch of the ledger is not resumed: too many attempts died with it")
        if isinstance(adopted, Gone):
            telemetry.log_stuck(other, None)
            return TransientError("the ledger's state names an unfinished batch that has no record")
        return None
