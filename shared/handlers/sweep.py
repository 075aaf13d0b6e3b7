"""The sweep: resumes what is still unfinished after a grace period, and reports what waits too long.

An accepted record's messages are sent even if its own message is gone. Two sweeps at once do no harm: each record is
taken over by its ETag, a live claim is left alone, and the messages have the same ids whoever sends them. Gaps are only
reported: what closes one applies all that waited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from shared import telemetry
from shared.contracts.documents import Command, LedgerBatchRecord, Order
from shared.domain.identity import document_id
from shared.errors import InFlightError, LostRaceError, TransientError
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Claims, Gone, GoOn, Left, Settled
from shared.handlers.effect import PaymentEffect, PaymentUnknownError
from shared.handlers.ledger_records import LedgerRecords
from shared.handlers.relay import Access, Relay, access_to, messages_of
from shared.ports import Clock, Container, Documents, Json, Page, Tokens

CONSUMER = "sweep"
LONGEST_RUN_SECONDS = 120
TRANSIENT_ERRORS_IN_A_ROW = 3

HELD = 'SELECT c.orderId, c.stream, c.sequence, c._ts FROM c WHERE c.status = "held"'
UNFINISHED_TIMES = 'SELECT c._ts FROM c WHERE c.record.status IN ("effect", "accepted")'
UNFINISHED = (
    'SELECT c.id, c.{partition} FROM c WHERE c.record.status IN ("effect", "accepted") AND c._ts < @before'
    ' AND (NOT IS_DEFINED(c.record.effect.status) OR c.record.effect.status != "parked")'
)
PARTITIONS = {Container.ORDERS: "orderId", Container.LEDGERS: "ledgerId"}


@dataclass(slots=True)
class Run:
    """One run of the sweep: when it started, and how it goes."""

    started: float
    transient_in_a_row: int = 0
    payments_failed: bool = False
    swept: int = 0
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
                server_time = await self._report()
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
            extra={"result": result, "swept": run.swept, "seconds": round(self._elapsed(run), 3)},
        )

    async def _report(self) -> int:
        """Gauges and open gaps; returns the server's clock."""
        server_time = 0
        held: dict[tuple[str, str], tuple[int, int]] = {}
        entries = 0
        async for page in self._documents.query(Container.LEDGER_ENTRIES, HELD, {}):
            server_time = page.read_at
            for item in page.items:
                entries += 1
                stream = (str(item["orderId"]), str(item["stream"]))
                since, lowest = held.get(stream, (_int(item["_ts"]), _int(item["sequence"])))
                held[stream] = (min(since, _int(item["_ts"])), min(lowest, _int(item["sequence"])))
        oldest = max((server_time - since for since, _ in held.values()), default=0)
        telemetry.set_held(entries, max(0, oldest))
        for (order_id, stream_name), (since, lowest) in sorted(held.items()):
            if server_time - since > self._gap_alarm_seconds:
                telemetry.logger.warning(
                    telemetry.GAP_OPEN,
                    extra={
                        **telemetry.keyed(session_id=order_id),
                        "stream": telemetry.key_text(stream_name),
                        "lowest_held": lowest,
                        "seconds": server_time - since,
                    },
                )
        for container in PARTITIONS:
            times: list[int] = []
            async for page in self._documents.query(container, UNFINISHED_TIMES, {}):
                server_time = page.read_at
                times.extend(_int(item["_ts"]) for item in page.items)
            telemetry.set_unfinished(container.value, len(times), max(0, server_time - min(times, default=server_time)))
        return server_time

    async def _sweep(self, run: Run, container: Container, before: int) -> None:
        partition = PARTITIONS[container]
        text = UNFINISHED.format(partition=partition)
        async for page in self._documents.query(container, text, {"@before": before}):
            for item in self._shuffled(page):
                if run.gave_up is not None:
                    return
                if self._elapsed(run) > LONGEST_RUN_SECONDS:
                    run.gave_up = "time"
                    return
                await self._guarded(run, container, str(item[partition]), str(item["id"]))

    def _shuffled(self, page: Page) -> Iterable[Json]:
        """In random order, so that sweeps at once work on different records and a killer is not always first."""
        return sorted(page.items, key=lambda _: self._tokens.fraction())

    async def _guarded(self, run: Run, container: Container, partition: str, record: str) -> None:
        """One record under its own guard: what concerns it ends only it."""
        attempt = Attempt(self._clock, self._tokens, budget_seconds=0)
        give_up: Callable[[], Awaitable[None]] | None = None
        try:
            if container is Container.LEDGERS:
                ledger_access = self._records.access(attempt, partition, record)
                give_up = partial(self._claims.give_up, attempt, ledger_access.read, ledger_access.write)
                done = await self._finish_ledger(attempt, ledger_access)
            elif record == document_id(partition):
                order_access = access_to(self._documents, Order, container, partition, record)
                give_up = partial(self._claims.give_up, attempt, order_access.read, order_access.write)
                done = await self._finish_order(run, attempt, order_access)
            else:
                command_access = access_to(self._documents, Command, container, partition, record)
                give_up = partial(self._claims.give_up, attempt, command_access.read, command_access.write)
                done = await self._finish_command(attempt, command_access)
        except InFlightError:
            run.transient_in_a_row = 0
            return
        except TransientError as error:
            telemetry.log_transient(error)
            if give_up is not None:
                await give_up()
            if isinstance(error, LostRaceError):
                run.transient_in_a_row = 0
            elif error.event is None:
                run.transient_in_a_row += 1
                if run.transient_in_a_row >= TRANSIENT_ERRORS_IN_A_ROW:
                    run.gave_up = "transient"
            return
        except Exception as error:
            telemetry.log_stuck(record, error)
            if give_up is not None:
                await give_up()
            return
        run.transient_in_a_row = 0
        if done:
            run.swept += 1
            telemetry.logger.info(telemetry.OUTBOX_SWEPT, extra=telemetry.keyed(record=record, session_id=partition))

    async def _finish_order(self, run: Run, attempt: Attempt, access: Access[Order]) -> bool:
        adopted = await self._claims.adopt(
            attempt, access.read, access.write, sweeping=True, leave_effects=run.payments_failed
        )
        if not isinstance(adopted, GoOn):
            return _left(adopted)
        claimed = adopted.claimed
        if claimed.record.status == "effect":
            if self._payment is None:
                raise TypeError("a claim on an effect is taken only where payments can be called")
            replay_count = claimed.record.effect.replay_count if claimed.record.effect else 0
            try:
                paid = await self._payment.run(attempt, claimed, access, replay_count)
            except PaymentUnknownError as error:
                telemetry.log_transient(error)
                run.payments_failed = True
                await self._claims.give_up(attempt, access.read, access.write)
                return False
            if isinstance(paid, Settled) or paid.record.status == "completed":
                return True
            claimed = paid
        await self._relay.finish(attempt, claimed, access, messages_of(claimed.record))
        return True

    async def _finish_command(self, attempt: Attempt, access: Access[Command]) -> bool:
        adopted = await self._claims.adopt(attempt, access.read, access.write, sweeping=True)
        if not isinstance(adopted, GoOn):
            return _left(adopted)
        await self._relay.finish(attempt, adopted.claimed, access, messages_of(adopted.claimed.record))
        return True

    async def _finish_ledger(self, attempt: Attempt, access: Access[LedgerBatchRecord]) -> bool:
        adopted = await self._claims.adopt(attempt, access.read, access.write, sweeping=True)
        if not isinstance(adopted, GoOn):
            return _left(adopted)
        await self._records.finish(attempt, adopted.claimed)
        return True

    def _elapsed(self, run: Run) -> float:
        return self._clock.monotonic() - run.started


class StuckError(Exception):
    """Too many attempts died with a record."""


def _left(adopted: Settled | Gone | Left) -> bool:
    if isinstance(adopted, Left) and adopted.stuck:
        raise StuckError
    return False


def _int(value: object) -> int:
    """A whole number of a query's row."""
    if isinstance(value, int):
        return value
    raise TypeError(f"a number was expected in a query's row, not {type(value).__name__}")
