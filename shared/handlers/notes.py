"""Notes of attempts: which worker process is at a message that has failed before, and how often it ended badly.

A delivery count can't tell a bad message from one that sat through an outage; the note can. It is written before the
body is parsed, so that a message that kills its worker while it is parsed is found too.
"""

from __future__ import annotations

from functools import partial

from shared import telemetry
from shared.contracts.documents import AttemptNote
from shared.domain import failures
from shared.errors import EVENT_CONFIGURATION, PermanentError, TransientError
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Seen, dump, read_as
from shared.ports import Conflict, Container, Documents, Stale, Written


class Notes:
    """Keeps the note of each message that this worker process has in hand."""

    def __init__(self, documents: Documents, worker: str) -> None:
        self._documents = documents
        self._worker = worker

    async def start(
        self, attempt: Attempt, note_id: str, session_id: str
    ) -> tuple[Seen[AttemptNote], failures.Poison | None]:
        """Write down that this worker process is at the message; says so when workers died with it too often.

        Raises: TransientError when the note can't be written.
        """
        try:
            return await self._start(attempt, note_id, session_id)
        except PermanentError as error:  # the database refuses the note, not the message
            raise TransientError(f"the note of the attempt: {error.description}", event=EVENT_CONFIGURATION) from error

    async def _start(
        self, attempt: Attempt, note_id: str, session_id: str
    ) -> tuple[Seen[AttemptNote], failures.Poison | None]:
        races = attempt.races()
        while True:
            seen = await attempt.io(partial(self._read, note_id, session_id))
            note = failures.started(
                seen.document if seen else None, note_id=note_id, session_id=session_id, worker=self._worker
            )
            if isinstance(note, failures.Poison):
                return Seen(note.note, seen.etag if seen else "", 0, 0), note
            written = await attempt.io(partial(self._write, note, seen.etag if seen else None))
            if isinstance(written, Written):
                return Seen(note, written.etag, 0, 0), None
            await races.lost("writing the note of an attempt")

    async def end(
        self, attempt: Attempt, note: Seen[AttemptNote], ending: failures.Ending, exception: str | None = None
    ) -> None:
        """Write down how the attempt ended. Failing to write it takes nothing back: the own id that stays behind counts
        as no crash."""
        after = failures.ended(note.document, ending, exception)
        left = after.note if isinstance(after, failures.Poison) else after
        try:
            await attempt.io(partial(self._write_end, note, left))
        except TransientError as error:
            telemetry.log_transient(error)
        except PermanentError:
            telemetry.logger.exception(telemetry.CONFIGURATION, extra={"description": "the note of an attempt"})

    async def _write_end(self, note: Seen[AttemptNote], left: AttemptNote | None) -> None:
        document = note.document
        if left is None:
            await self._documents.delete(Container.OPERATIONS, document.session_id, document.id, note.etag)
        else:
            await self._documents.replace(Container.OPERATIONS, dump(left), note.etag)

    async def _read(self, note_id: str, session_id: str) -> Seen[AttemptNote] | None:
        return await read_as(self._documents, AttemptNote, Container.OPERATIONS, session_id, note_id)

    async def _write(self, note: AttemptNote, etag: str | None) -> Written | Conflict | Stale:
        if etag is None:
            return await self._documents.create(Container.OPERATIONS, dump(note))
        return await self._documents.replace(Container.OPERATIONS, dump(note), etag)
