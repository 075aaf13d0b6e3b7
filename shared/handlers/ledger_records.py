"""A ledger batch's documents: its record, its messages, and the ledger's state that names it while it is unfinished."""

from __future__ import annotations

from functools import partial

from shared.contracts.documents import LedgerBatchRecord, LedgerOutbox, LedgerSequence, OutboxMessage
from shared.domain.identity import outbox_id
from shared.domain.verdicts import Outcome
from shared.errors import InFlightError
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Access, Claimed, Settled, dump, read_as
from shared.handlers.relay import Relay, access_to
from shared.handlers.states import States
from shared.ports import Committed, Container, Delete, Documents, Operation, Replace, Stale, Written


class LedgerRecords:
    """Brings accepted batches to their end: for their own message, for the next batch, and for the sweep."""

    def __init__(self, documents: Documents, relay: Relay, states: States[LedgerSequence]) -> None:
        self._documents = documents
        self._relay = relay
        self._states = states

    def access(self, attempt: Attempt, ledger_id: str, batch: str) -> Access[LedgerBatchRecord]:
        """Access to a batch's record; its completion also deletes the messages and clears the ledger's state."""
        plain = access_to(self._documents, LedgerBatchRecord, Container.LEDGERS, ledger_id, batch)
        return Access(plain.read, plain.write, partial(self._complete, attempt))

    async def finish(
        self,
        attempt: Attempt,
        claimed: Claimed[LedgerBatchRecord],
        messages: tuple[OutboxMessage, ...] | None = None,
    ) -> Settled | None:
        """Send what is left of a batch and complete it; None when this attempt completed it.

        Raises: as the relay does; RuntimeError when the messages of an unfinished batch are not there.
        """
        document = claimed.document
        access = self.access(attempt, document.ledger_id, document.id)
        if messages is None:
            seen = await attempt.io(partial(self._read_messages, document))
            if seen is None:
                return await self._without_messages(attempt, access)
            messages = seen
        return await self._relay.finish(attempt, claimed, access, messages)

    async def _read_messages(self, document: LedgerBatchRecord) -> tuple[OutboxMessage, ...] | None:
        seen = await read_as(
            self._documents, LedgerOutbox, Container.LEDGERS, document.ledger_id, outbox_id(document.id)
        )
        return None if seen is None else seen.document.messages

    async def _without_messages(self, attempt: Attempt, access: Access[LedgerBatchRecord]) -> Settled:
        """The messages go with the completion, so somebody completed the batch since its record was read."""
        seen = await attempt.io(access.read)
        if seen is None or seen.document.record.status == "completed":
            return Settled(Outcome.DUPLICATE)
        if seen.document.record.claim.token != attempt.token:
            raise InFlightError("another attempt took the claim")
        raise RuntimeError("an unfinished ledger batch has no ledgerOutbox")

    async def _complete(self, attempt: Attempt, document: LedgerBatchRecord, etag: str) -> Written | Stale:
        """Complete the record, delete its messages and clear the ledger's state, all or nothing."""
        ledger_id = document.ledger_id
        races = attempt.races()
        kept = await self._states.get(attempt, ledger_id)
        while True:
            operations: list[Operation] = [Replace(dump(document), etag), Delete(outbox_id(document.id))]
            cleared = None
            if kept.state is not None and kept.state.unfinished == document.id:
                cleared = kept.state.model_copy(update={"unfinished": None})
                operations.append(Replace(dump(cleared), kept.etag))
            elif not kept.fresh:
                kept = await self._states.read(attempt, ledger_id)
                continue
            self._states.forget(ledger_id)
            answer = await self._documents.batch(Container.LEDGERS, ledger_id, operations)
            if isinstance(answer, Committed):
                if cleared is not None:
                    self._states.keep(ledger_id, cleared, answer.etags[-1])
                return Written(answer.etags[0])
            if answer.index < 2:
                return Stale()
            await races.lost("clearing a ledger's state")
            kept = await self._states.read(attempt, ledger_id)
