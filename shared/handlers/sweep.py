"""The sweep: resumes what is still unfinished after a grace period, and reports what waits too long.

An accepted record's messages are sent even if its own message is gone. Two sweeps at once do no harm: each record is
taken over by its ETag, a live claim is left alone, and the messages have the same ids whoever sends them. Gaps are only
reported: what closes one applies all that waited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from shared import telemetry
from shared.contracts.documents import Command, Order
from shared.domain.identity import document_id
from shared.errors import InFlightError, LostRaceError, TransientError
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Access, Claimed, Claims, D, GoOn, Left, Settled
from shared.handlers.effect import PaymentEffect, PaymentError
from shared.handlers.ledger_records import LedgerRecords
from shared.handlers.relay import Relay, access_to, messages_of
from shared.ports import Clock, Container, Documents, Json, Page, Tokens

CONSUMER = "sweep"
LONGEST_RUN_SECONDS = 120
TRANSIENT_ERRORS_IN_A_ROW = 3
MOST_GAPS_LOGGED = 50

HELD = 'SELECT c.orderId, c.stream, c.sequence, c._ts FROM c WHERE c.status = "held"'
_UNFINISHED = (
    'c.record.status IN ("effect", "accepted")'
    ' AND (NOT IS_DEFINED(c.record.effect.status) OR c.record.effect.status != "parked")'
)
UNFINISHED_SINCE = f"SELECT c.record.enqueuedAt FROM c WHERE {_UNFINISHED}"  # noqa: S608 - constants only
UNFINISHED = f"SELECT c.id, c.{{partition}} FROM c WHERE {_UNFINISHED} AND c._ts < @before"  # noqa: S608
PARTITIONS = {Container.ORDERS: "orderId", Container.LEDGERS: "ledgerId"}


@dataclass(slots=True)
class Run:
    """One run of the sweep: when it started, and how it goes."""

    started: float
    transient_in_a_row: int = 0
    payments_failed: bool = False
    swept: int = 0
    open_gaps: int = 0
    gave_up: str | None = None


class Sweep:
    """Looks for unfinished work, on a timer."""

    def __init__(
        self,
        documents: Documents,
        claims: Claims,
        relay: Relay,
        records: LedgerRecords,
        payment: PaymentEffect | None,
        clock: Clock,
        tokens: Tokens,
        *,
        grace_seconds: int,
        gap_alarm_seconds: int,
    ) -> None:
        self._documents = documents
        self._claims = claims
        self._relay = relay
        self._records = records
        self._payment = payment
        self._clock = clock
        self._tokens = tokens
        self._grace_seconds = grace_seconds
        self._gap_alarm_seconds = gap_alarm_seconds

    async def __call__(self) -> None:
        """One run. What one record meets ends only that record, and the next run is the repetition.

        Raises: an Exception for what is unexpected outside of the records; nothing else ever leaves, since the worker
        would not answer the host.
        """
        run = Run(self._clock.monotonic())
        with telemetry.span("sweep", consumer=CONSUMER):
            try:
                server_time = await self._report(run)
                for container in PARTITIONS:
                    await self._sweep(run, container, server_time - self._grace_seconds)
            except TransientError as error:
                telemetry.log_transient(error)
                run.gave_up = "transient"
            except Exception:
                raise
            except BaseException as exc:  # a cancelled task, an interpreter that exits
                raise TransientError(f"the sweep was ended by {type(exc).__name__}") from exc
        result = run.gave_up or "done"
        telemetry.count_sweep(result)
        telemetry.logger.info(
            telemetry.SWEEP_FINISHED,
            extra={
                "result": result,
                "swept": run.swept,
                "open_gaps": run.open_gaps,
                "seconds": round(self._elapsed(run), 3),
            },
        )

    async def _report(self, run: Run) -> int:
        """Gauges and open gaps; returns the server's clock."""
        server_time = await self._report_held(run)
        for container in PARTITIONS:
            records, oldest = 0, 0.0
            async for page in self._pages(run, container, UNFINISHED_SINCE, {}):
                server_time = page.read_at
                records += len(page.items)
                # Counted from the message, not from the last write: every vain attempt is a write.
                oldest = max(oldest, *(server_time - _enqueued(item, server_time) for item in page.items), 0.0)
            telemetry.set_unfinished(container.value, records, oldest)
        return server_time

    async def _report_held(self, run: Run) -> int:
        server_time, entries = 0, 0
        held: dict[tuple[str, str], tuple[int, int]] = {}
        async for page in self._pages(run, Container.LEDGER_ENTRIES, HELD, {}):
            server_time = page.read_at
            for item in page.items:
                entries += 1
                written_at, number = item.get("_ts"), item.get("sequence")
                if not isinstance(written_at, int) or not isinstance(number, int):
                    continue  # no entry that this app held; it must not cost the others their sweep
                stream = (str(item.get("orderId")), str(item.get("stream")))
                since, lowest = held.get(stream, (written_at, number))
                held[stream] = (min(since, written_at), min(lowest, number))
        oldest = max((server_time - since for since, _ in held.values()), default=0)
        telemetry.set_held(entries, max(0, oldest))
        gaps = sorted(
            (since, order_id, stream, lowest)
            for (order_id, stream), (since, lowest) in held.items()
            if server_time - since > self._gap_alarm_seconds
        )
        run.open_gaps = len(gaps)
        for since, order_id, stream_name, lowest in gaps[:MOST_GAPS_LOGGED]:
            telemetry.logger.warning(
                telemetry.GAP_OPEN,
                extra={
                    **telemetry.keyed(session_id=order_id, stream=stream_name),
                    "lowest_held": lowest,
                    "seconds": server_time - since,
                },
            )
        return server_time

    async def _sweep(self, run: Run, container: Container, before: int) -> None:
        partition = PARTITIONS[container]
        text = UNFINISHED.format(partition=partition)
        async for page in self._pages(run, container, text, {"@before": before}):
            for item in self._shuffled(page):
                if self._is_over(run):
                    return
                await self._sweep_one(run, container, str(item[partition]), str(item["id"]))

    async def _pages(self, run: Run, container: Container, text: str, parameters: Json) -> AsyncIterator[Page]:
        """The pages of a query, the first one always, the others while the run may go on."""
        async for page in self._documents.query(container, text, parameters):
            yield page
            if self._is_over(run):
                return

    def _is_over(self, run: Run) -> bool:
        if run.gave_up is None and self._elapsed(run) > LONGEST_RUN_SECONDS:
            run.gave_up = "time"
        return run.gave_up is not None

    def _shuffled(self, page: Page) -> Iterable[Json]:
        """In random order, so that sweeps at once work on different records and a killer is not always first."""
        return sorted(page.items, key=lambda _: self._tokens.fraction())

    async def _sweep_one(self, run: Run, container: Container, partition: str, record: str) -> None:
        attempt = Attempt(self._clock, self._tokens, budget_seconds=0)
        if container is Container.LEDGERS:
            batch = self._records.access(attempt, partition, record)
            await self._guarded(run, attempt, record, batch, partial(self._records.finish, attempt))
        elif record == document_id(partition):
            order = access_to(self._documents, Order, container, partition, record)
            await self._guarded(run, attempt, record, order, partial(self._finish_order, attempt, order))
        else:
            command = access_to(self._documents, Command, container, partition, record)
            await self._guarded(run, attempt, record, command, partial(self._finish, attempt, command))

    async def _guarded(
        self,
        run: Run,
        attempt: Attempt,
        record: str,
        access: Access[D],
        finish: Callable[[Claimed[D]], Awaitable[object]],
    ) -> None:
        """One record under its own guard: what concerns it ends only it."""
        try:
            adopted = await self._claims.adopt(
                attempt, access, sweeping=True, leave_effects=run.payments_failed
            )
            if isinstance(adopted, GoOn):
                await finish(adopted.claimed)
                run.swept += 1
                telemetry.logger.info(telemetry.OUTBOX_SWEPT, extra=telemetry.keyed(record=record))
            elif isinstance(adopted, Left) and adopted.stuck:
                telemetry.log_stuck(record, None)
        except InFlightError:
            run.transient_in_a_row = 0
        except PaymentError as error:
            telemetry.log_transient(error)
            run.payments_failed = True
            await self._claims.give_up(attempt, access)
        except TransientError as error:
            telemetry.log_transient(error)
            await self._claims.give_up(attempt, access)
            of_record = error.of_record or isinstance(error, LostRaceError)
            run.transient_in_a_row = 0 if of_record else run.transient_in_a_row + 1
            if run.transient_in_a_row >= TRANSIENT_ERRORS_IN_A_ROW:
                run.gave_up = "transient"
        except Exception as error:
            telemetry.log_stuck(record, error)
            await self._claims.give_up(attempt, access)
        else:
            run.transient_in_a_row = 0

    async def _finish_order(self, attempt: Attempt, access: Access[Order], claimed: Claimed[Order]) -> None:
        effect = claimed.record.effect
        if claimed.record.status == "effect" and effect is not None and self._payment is not None:
            paid = await self._payment.run(attempt, claimed, access, effect.replay_count)
            if isinstance(paid, Settled) or paid.record.status == "completed":
                return
            claimed = paid
        await self._finish(attempt, access, claimed)

    async def _finish(self, attempt: Attempt, access: Access[D], claimed: Claimed[D]) -> None:
        await self._relay.finish(attempt, claimed, access, messages_of(claimed.record))

    def _elapsed(self, run: Run) -> float:
        return self._clock.monotonic() - run.started


def _enqueued(row: Json, server_time: int) -> float:
    """When a record's message was enqueued; now, where the document says no time: what concerns one record, such as
    another version of it, must not cost the others their sweep."""
    try:
        return datetime.fromisoformat(str(row.get("enqueuedAt"))).timestamp()
    except (ValueError, OverflowError):
        return server_time
