"""Around every queue trigger: turns whatever the handler does into exactly one outcome and one settlement.

Returning completes the message, raising abandons it, and an abandoned message comes back at once. So a permanent error
is parked and returns; a transient one is raised only after the attempt's budget; nothing but an Exception leaves, since
the worker would never answer the host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shared import telemetry
from shared.contracts.documents import AttemptNote
from shared.domain import failures, reserved
from shared.domain.failures import SETTLEMENTS, Ending, Poison, Settlement, outcome_of
from shared.domain.verdicts import Outcome
from shared.envelope import Envelope
from shared.errors import InFlightError, PermanentError, Reason, TransientError
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Seen
from shared.handlers.intake import Facts
from shared.handlers.notes import Notes
from shared.handlers.quarantine import Quarantine, note_id
from shared.ports import Clock, Tokens

Handler = Callable[[Envelope, Attempt, Facts], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a delivery ended: its outcome, the reason if it was parked, and the error to raise if it was not settled."""

    outcome: Outcome
    reason: Reason | None = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        if (self.error is None) is not (SETTLEMENTS[self.outcome] is Settlement.COMPLETE):
            raise ValueError(f"{self.outcome} is to {SETTLEMENTS[self.outcome]}, and the error is {self.error!r}")


class Guard:
    """Runs handlers on deliveries."""

    def __init__(
        self,
        clock: Clock,
        tokens: Tokens,
        notes: Notes,
        quarantine: Quarantine,
        *,
        budget_seconds: float,
        poison_after_deliveries: int,
    ) -> None:
        self._clock = clock
        self._tokens = tokens
        self._notes = notes
        self._quarantine = quarantine
        self._budget_seconds = budget_seconds
        self._poison_after = poison_after_deliveries

    async def run(self, consumer: str, handler: Handler, envelope: Envelope) -> None:
        """Handle one delivery. Returning completes it.

        Raises: an Exception, which abandons it.
        """
        attempt = Attempt(self._clock, self._tokens, self._budget_seconds)
        facts = Facts(replay_count=reserved.replay_count(envelope.properties))
        with telemetry.process_span(consumer, envelope.role.value, envelope.traceparent, envelope.tracestate):
            try:
                ended = await self._surely_end(consumer, handler, envelope, attempt, facts)
            except BaseException as exc:  # a cancelled task, an interpreter that exits
                error = TransientError(f"the invocation was ended by {type(exc).__name__}")
                self._report(consumer, envelope, attempt, facts, Ended(Outcome.TRANSIENT, error=error), exc)
                raise error from exc
            self._report(consumer, envelope, attempt, facts, ended, ended.error)
            if ended.error is not None:
                raise ended.error

    async def _surely_end(
        self, consumer: str, handler: Handler, envelope: Envelope, attempt: Attempt, facts: Facts
    ) -> Ended:
        try:
            return await self._end(consumer, handler, envelope, attempt, facts)
        except Exception as error:  # unexpected, and not the handler's: from the parking, or from the note
            await attempt.wait(envelope.delivery_count - 1)
            return Ended(Outcome.FAILED, error=error)

    async def _end(
        self, consumer: str, handler: Handler, envelope: Envelope, attempt: Attempt, facts: Facts
    ) -> Ended:
        note: Seen[AttemptNote] | None = None
        poison: Poison | None = None
        try:
            if envelope.delivery_count > self._poison_after:
                note, poison = await self._notes.start(attempt, note_id(envelope), envelope.session_id or "")
                if poison is not None:
                    raise PermanentError(Reason.POISON_MESSAGE, poison.description)
            ended = Ended(await handler(envelope, attempt, facts))
        except PermanentError as error:
            ended = await self._park(consumer, envelope, attempt, facts, error)
        except TransientError as error:
            ended = Ended(outcome_of(error), error=error)
        except InFlightError as error:
            # An abandoned message comes back at once, and would take the claim back from whoever is at work.
            await attempt.wait(envelope.delivery_count - 1)
            ended = Ended(outcome_of(error), error=error)
        except Exception as error:
            return await self._unexpected(consumer, envelope, attempt, facts, note, error)
        if note is not None and ended.error is None:
            await self._notes.end(attempt, note, Ending.SETTLED)
        elif note is not None and poison is None:  # a poison verdict stands until its copy is sent
            await self._notes.end(attempt, note, Ending.ABANDONED)
        return ended

    async def _unexpected(
        self,
        consumer: str,
        envelope: Envelope,
        attempt: Attempt,
        facts: Facts,
        note: Seen[AttemptNote] | None,
        error: Exception,
    ) -> Ended:
        """Not repeated in the invocation: one wait, longer with each delivery, unless it makes the message poison.

        The note goes with the message, not before: if the copy can't be sent, the next exception is enough.
        """
        kind = type(error).__name__
        poison = failures.ended(note.document, Ending.EXCEPTION, kind) if note is not None else None
        if note is not None and isinstance(poison, Poison):
            cause = PermanentError(Reason.POISON_MESSAGE, poison.description)
            cause.__cause__ = error
            ended = await self._park(consumer, envelope, attempt, facts, cause)
            await self._notes.end(attempt, note, Ending.SETTLED if ended.error is None else Ending.EXCEPTION, kind)
            return ended
        if note is not None:
            await self._notes.end(attempt, note, Ending.EXCEPTION, kind)
        await attempt.wait(envelope.delivery_count - 1)
        return Ended(Outcome.FAILED, error=error)

    async def _park(
        self, consumer: str, envelope: Envelope, attempt: Attempt, facts: Facts, error: PermanentError
    ) -> Ended:
        """Send the copy; if that fails, the message stays where it is."""
        try:
            await self._quarantine.park(attempt, envelope, facts, consumer, error)
        except TransientError as failed:
            return Ended(Outcome.TRANSIENT, error.reason, failed)
        except PermanentError as failed:
            telemetry.logger.error(
                telemetry.QUARANTINE_FAILED,
                extra={"reason": error.reason.value, **telemetry.keyed(session_id=envelope.session_id)},
            )
            return Ended(Outcome.FAILED, error.reason, failed)
        return Ended(outcome_of(error), error.reason)

    def _report(
        self,
        consumer: str,
        envelope: Envelope,
        attempt: Attempt,
        facts: Facts,
        ended: Ended,
        error: BaseException | None,
    ) -> None:
        if isinstance(error, TransientError):
            telemetry.log_transient(error)
        handled = telemetry.Handled(
            consumer=consumer,
            role=envelope.role.value,
            outcome=ended.outcome.value,
            reason=ended.reason.value if ended.reason else None,
            dedup_key=facts.dedup_key,
            message_id=envelope.message_id,
            session_id=envelope.session_id,
            correlation_id=envelope.correlation_id,
            delivery_count=envelope.delivery_count,
            attempt_seconds=attempt.seconds,
            lag_seconds=max(0.0, (self._clock.now() - envelope.enqueued_at).total_seconds()),
            is_settled=error is None,
            replay_count=facts.replay_count,
            error_type=type(error).__name__ if error is not None else None,
        )
        telemetry.message_handled(handled, error)
