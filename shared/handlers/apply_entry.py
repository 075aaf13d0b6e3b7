"""Applies ledger entries to an order's ledger: in order per stream, each exactly once.

An entry, the held entries that it releases and the ledger's state are written in one transactional batch. The entry's
create is operation 0: a conflict there means that this entry is known, a conflict on the state that others were first.
"""

from __future__ import annotations

from functools import partial

from shared import telemetry
from shared.contracts.documents import EntryRecord, EntrySource, LedgerEntryDocument, LedgerState
from shared.contracts.ledger import LedgerEntry
from shared.domain import outbox, streams
from shared.domain.payload import is_known_hash
from shared.domain.verdicts import Outcome
from shared.envelope import Envelope
from shared.errors import PermanentError, Reason
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Seen, dump, read_as, unknown_hash
from shared.handlers.delivery import HANDLER_VERSION, Delivery
from shared.handlers.intake import Facts, Intake
from shared.handlers.states import Kept, States
from shared.ports import Committed, Container, Create, Documents, Operation, PatchSet, Rejected, Replace

CONSUMER = "apply_entry"
CREATES_AFTER_GONE = 3



class ApplyEntry:
    """Handles one message of the queue `ledger-entries`."""

    def __init__(
        self, documents: Documents, intake: Intake, states: States[LedgerState], held_max_per_stream: int
    ) -> None:
        self._documents = documents
        self._intake = intake
        self._states = states
        self._held_max = held_max_per_stream

    async def __call__(self, envelope: Envelope, attempt: Attempt, facts: Facts) -> Outcome:
        """Say what became of the message.

        Raises: the errors of `shared.errors`; the guard around the trigger turns each into its reaction.
        """
        delivery = Delivery(envelope, self._intake.entry(envelope, facts), facts, attempt)
        body, entry_id = delivery.body, delivery.checked.document_id
        races, gone = attempt.races(), attempt.races(CREATES_AFTER_GONE)
        kept = await self._states.get(attempt, body.order_id)
        while True:
            decision = streams.decide_entry(kept.state, body, entry_id, self._held_max)
            if isinstance(decision, streams.Refuse):
                if not kept.fresh:
                    kept = await self._states.read(attempt, body.order_id)
                    continue
                # The state was read first: an entry that made it so is visible to this read.
                known = await self._known(delivery)
                if known is not None:
                    return known
                raise PermanentError(decision.reason, decision.description)
            answer = await self._commit(delivery, decision, kept)
            if isinstance(answer, Committed):
                self._states.keep(body.order_id, decision.state, answer.etags[-1])
                return self._report(body, decision)
            if answer.index == 0:
                known = await self._known(delivery)
                if known is Outcome.MINE:  # this very batch lost its answer, and nobody else tells what it did
                    self._report(body, decision)
                if known is not None:
                    return known
                await gone.lost("storing an entry that others delete")
            else:
                await races.lost("writing a ledger's state")
            kept = await self._states.read(attempt, body.order_id)

    async def _commit(
        self, delivery: Delivery[LedgerEntry], decision: streams.Apply | streams.Hold, kept: Kept[LedgerState]
    ) -> Committed | Rejected:
        order_id = delivery.body.order_id
        entry, state = dump(self._document(delivery, decision)), dump(decision.state)
        outbox.check_batch([entry, state])
        releases = decision.releases if isinstance(decision, streams.Apply) else ()
        operations: list[Operation] = [
            Create(entry),
            *(PatchSet(item.id, {"status": item.status, "position": item.position}) for item in releases),
            Create(state) if kept.state is None else Replace(state, kept.etag),
        ]
        self._states.forget(order_id)
        return await delivery.attempt.io(
            partial(self._documents.batch, Container.LEDGER_ENTRIES, order_id, operations)
        )

    async def _known(self, delivery: Delivery[LedgerEntry]) -> Outcome | None:
        """What the entry's document says, if there is one."""
        seen = await delivery.attempt.io(partial(self._read_entry, delivery))
        if seen is None:
            return None
        record = seen.document.record
        delivery.facts.stored_hash = record.payload_hash
        outcome = streams.decide_known(
            same_hash=record.payload_hash == delivery.checked.payload_hash,
            mine=record.token == delivery.attempt.token,
        )
        if outcome is Outcome.CONFLICT:
            raise PermanentError(Reason.PAYLOAD_MISMATCH, "body: the dedup key is known with another payload hash")
        return outcome

    async def _read_entry(self, delivery: Delivery[LedgerEntry]) -> Seen[LedgerEntryDocument] | None:
        seen = await read_as(
            self._documents,
            LedgerEntryDocument,
            Container.LEDGER_ENTRIES,
            delivery.body.order_id,
            delivery.checked.document_id,
        )
        if seen is not None and not is_known_hash(seen.document.record.payload_hash):
            raise unknown_hash()
        return seen

    def _document(
        self, delivery: Delivery[LedgerEntry], decision: streams.Apply | streams.Hold
    ) -> LedgerEntryDocument:
        body, checked, envelope = delivery.body, delivery.checked, delivery.envelope
        applied = isinstance(decision, streams.Apply)
        return LedgerEntryDocument(
            id=checked.document_id,
            order_id=body.order_id,
            stream=body.stream,
            transaction_id=body.transaction_id,
            sequence=body.sequence,
            kind=body.kind,
            amount=body.amount,
            currency=body.currency,
            refers_to=body.refers_to,
            entry_count=body.entry_count,
            status="applied" if applied else "held",
            position=decision.position if isinstance(decision, streams.Apply) else None,
            record=EntryRecord(
                key=checked.key,
                message_id=envelope.message_id or checked.key,
                payload_hash=checked.payload_hash,
                raw_hash=checked.raw_hash,
                token=delivery.attempt.token,
                schema_version=body.schema_version,
                handler_version=HANDLER_VERSION,
                correlation_id=envelope.correlation_id,
                traceparent=telemetry.current_traceparent() or envelope.traceparent,
                source=_source(body),
            ),
        )

    def _report(self, body: LedgerEntry, decision: streams.Apply | streams.Hold) -> Outcome:
        if isinstance(decision, streams.Hold):
            return Outcome.HELD
        stream = decision.state.streams[body.stream]
        for item in decision.releases:
            if item.status == "refused":
                fields = telemetry.keyed(entry=item.id, session_id=body.order_id)
                telemetry.logger.error(telemetry.ENTRY_REFUSED, extra=fields)
        released = sum(item.status == "applied" for item in decision.releases)
        telemetry.count_released(released)
        if stream.closed is not None and not stream.closed.complete:
            telemetry.logger.warning(
                telemetry.STREAM_INCOMPLETE, extra=telemetry.keyed(stream=body.stream, session_id=body.order_id)
            )
        return Outcome.APPLIED


def _source(body: LedgerEntry) -> EntrySource | None:
    """Evidence only: what does not have the shape of `meta.source` is left out."""
    source = (body.meta or {}).get("source")
    if not isinstance(source, dict):
        return None
    consumer, key, index = source.get("consumer"), source.get("key"), source.get("index")
    if not isinstance(consumer, str) or not isinstance(key, str) or isinstance(index, bool):
        return None
    return EntrySource(consumer=consumer, key=key, index=index) if isinstance(index, int) else None
