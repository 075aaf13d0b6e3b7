"""Brings parked messages back: one session at a time, in order, each watched until something has become of it.

What a crash leaves behind, and how the next run goes on:

    nothing written                          the message is parked as before
    operation `planned`, nothing sent        sent by the next run
    operation `planned`, sent, no answer     sent again under the same MessageId and dedup key: at most a duplicate
    operation `sent`                         the next run goes on waiting and sends nothing
    operation `verified` or `failed`         the next run completes the parked copy
    copy completed                           nothing is left to do

So nothing is ever sent later than the copy is completed, and the copy is completed only when the replay has left a
trace of its own: a finished record, or a new parked copy.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ops.audit import Audit, Operation, Seen, Status, operation_id
from ops.bus import Bus, Entity, SessionSettler, TooLargeError
from ops.database import Database
from ops.errors import OpsError
from ops.locate import Location, locate
from ops.parking import Parked, moment, parked_of, text_of
from ops.replaying import RefusedError, Replay, check_limits, compressed, replay_of
from shared.domain import reserved
from shared.envelope import Role
from shared.errors import Reason
from shared.handlers.intake import Intake
from shared.ports import Clock, Container
from shared.settings import Settings

POLL_SECONDS: Final = 0.2
LONGEST_POLL_SECONDS: Final = 2.0
DEAD_LETTERS_EVERY: Final = 8
"""Polls between two looks into the role's dead-letter queue, which is read as a whole."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a replay is asked for."""

    actor: str
    because: str
    wait_seconds: float
    out_of_order: bool = False
    corrected: bytes | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one parked message. `state`: planned, verified, failed, sent, refused or left."""

    parked: Parked
    state: str
    detail: str
    new_message_id: str | None = None
    count: int | None = None

    @property
    def is_fine(self) -> bool:
        """Whether the next message of the session may follow."""
        return self.state in ("planned", "verified", "discarded")


class Watch:
    """Which replays were parked again. Reads only what is new in the quarantine."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._last: dict[Entity, int] = {}
        self._marks: dict[tuple[Role, str, int], dict[str, str]] = defaultdict(dict)

    def note(self, parked: Parked) -> bool:
        """Remember a parked message; always true, so that it can stand where messages are chosen."""
        for place in parked.places:
            self._last[place.entity] = max(place.sequence_number, self._last.get(place.entity, 0))
        dedup_id = text_of(parked.properties.get(reserved.DEDUP_ID))
        if parked.replay_count and dedup_id:
            told = f"{parked.reason}: {parked.description}" if parked.description else parked.reason
            self._marks[parked.role, dedup_id, parked.replay_count][parked.id] = told
        return True

    async def refresh(self, role: Role, *, dead_letters: bool) -> None:
        """Look for new ones."""
        quarantine = self._bus.queue(Role.QUARANTINE)
        async for message in self._bus.peek(quarantine, self._last.get(quarantine, 0) + 1):
            self.note(parked_of(message))
        if dead_letters:
            async for message in self._bus.peek(self._bus.dead_letters(role)):
                self.note(parked_of(message))

    def find(self, role: Role, dedup_id: str, count: int, other_than: str) -> str | None:
        """The reason for which this replay was parked again; None if it wasn't."""
        found = self._marks.get((role, dedup_id, count), {})
        return next((told for copy, told in found.items() if copy != other_than), None)


class Replays:
    """One run of the command."""

    def __init__(
        self, bus: Bus, database: Database, settings: Settings, clock: Clock, watch: Watch, options: Options
    ) -> None:
        self._bus = bus
        self._database = database
        self._settings = settings
        self._clock = clock
        self._watch = watch
        self._options = options
        self._audit = Audit(database.documents)
        self._intake = Intake(clock, settings.record_ttl_seconds)
        self._dead: dict[Entity, set[int]] = defaultdict(set)
        self._settled: dict[tuple[Entity, int], Parked] = {}

    async def plan(self, groups: Sequence[Sequence[Parked]]) -> list[Result]:
        """Say what would be done; nothing is written or sent."""
        results: list[Result] = []
        for group in groups:
            for place, parked in enumerate(group):
                result = await self._planned(parked)
                results.append(result)
                if not result.is_fine:
                    results += _left(group[place + 1 :])
                    break
        return results

    async def run(self, groups: Sequence[Sequence[Parked]], tell: Callable[[Result], None]) -> list[Result]:
        """Replay session by session; each stops at its first failure."""
        results: list[Result] = []

        def told(result: Result) -> None:
            results.append(result)
            tell(result)

        try:
            for group in groups:
                settler = self._bus.session_settler(self._bus.queue(Role.QUARANTINE), group[0].session_id)
                try:
                    for place, parked in enumerate(group):
                        result = await self._one(parked, settler)
                        told(result)
                        if not result.is_fine:
                            for left in _left(group[place + 1 :]):
                                told(left)
                            break
                finally:
                    self._bus.close_beside(settler)
        finally:
            await self._settle_dead_letters(results)
        return results

    async def finish(self, still_parked: Mapping[str, Parked]) -> list[Operation]:
        """Close the books on replays whose copy is gone; says which can't be closed."""
        begun = {operation_id("replay", one.id, one.replay_count + 1) for one in still_parked.values()}
        query = 'SELECT * FROM c WHERE c.type = "replay" AND c.status IN ("planned", "sent")'
        open_ones: list[Operation] = []
        async for item in self._database.everywhere(Container.OPERATIONS, query):
            operation = Operation.model_validate(item)
            seen = await self._audit.find(operation.session_id, operation.id)
            if operation.id in begun or seen is None or seen.operation.status not in ("planned", "sent"):
                continue
            state, _ = await self._outcome(seen.operation, "")
            if state is not None:
                await self._audit.advance(seen, state)
            else:
                open_ones.append(operation)
        return open_ones

    async def _planned(self, parked: Parked) -> Result:
        count = parked.replay_count + 1
        seen = await self._audit.find(parked.session_id, operation_id("replay", parked.id, count))
        if seen is not None and seen.operation.status != "planned":
            new = seen.operation.new.message_id if seen.operation.new else None
            return Result(parked, "planned", f"go on: an earlier run left it {seen.operation.status}", new, count)
        try:
            replay = await self._checked(parked)
        except RefusedError as refused:
            return Result(parked, "refused", str(refused))
        detail = f"this release would park it again: {replay.warning}" if replay.warning else "replay"
        return Result(parked, "planned", detail, replay.message.message_id, replay.count)

    async def _checked(self, parked: Parked) -> Replay:
        now = self._clock.now()
        check_limits(
            parked,
            now,
            replay_max=self._settings.replay_max,
            horizon=timedelta(seconds=self._settings.replay_horizon_seconds),
        )
        replay = replay_of(parked, self._intake, now, self._options.corrected)
        if replay.expected is None:
            return replay
        location = locate(parked.role, replay.expected.key)
        known = None if location is None else await self._known(location)
        if replay.is_corrected and known is not None:
            raise RefusedError(
                "there is a document of its key, so its body can't be corrected: discard it,"
                " or send the change again as a new operation"
            )
        mismatched = known is not None and known.get("payloadHash") != replay.expected.payload_hash
        if parked.reason == Reason.PAYLOAD_MISMATCH and mismatched:
            raise RefusedError("its key is known with other content: discard it, or send it again as a new operation")
        if replay.expected.is_unnumbered_command and not self._options.out_of_order:
            await self._check_order(parked, replay)
        return replay

    async def _check_order(self, parked: Parked, replay: Replay) -> None:
        """Lines of an amendment are absolute: behind a later one they would go back to older content."""
        assert replay.expected is not None  # noqa: S101 - for the type checker; the caller knows
        query = 'SELECT c.record FROM c WHERE c.type = "command"'
        enqueued = moment(parked.original_enqueued_at)
        async for item in self._database.partition(Container.ORDERS, replay.expected.partition, query):
            record = item["record"]
            if record["key"] != replay.expected.key and record["enqueuedAt"] > enqueued:
                raise RefusedError(
                    f"{record['key']} came later and is recorded already; --out-of-order replays it all the same"
                )

    async def _one(self, parked: Parked, settler: SessionSettler) -> Result:
        count = parked.replay_count + 1
        seen = await self._audit.find(parked.session_id, operation_id("replay", parked.id, count))
        if seen is None or seen.operation.status == "planned":
            try:
                replay = await self._checked(parked)
            except RefusedError as refused:
                return Result(parked, "refused", str(refused))
            try:
                seen = await self._send(parked, replay, seen)
            except TooLargeError:
                return Result(parked, "refused", "the broker takes no message of this size", None, count)
        operation = seen.operation
        new = operation.new.message_id if operation.new else None
        detail = "by an earlier run"
        if operation.status == "sent":
            state, detail = await self._wait(operation, parked, settler)
            if state is None:
                return Result(parked, "sent", detail, new, count)
            seen = await self._audit.advance(seen, state)
        if seen.operation.status not in ("verified", "failed"):
            raise OpsError(f"operation {operation.id} is {seen.operation.status}; run the command again")
        left = await self._complete(parked, settler)
        if left:
            detail = f"{detail}; its parked copy is held by somebody else: run the command again"
        return Result(parked, "left" if left else seen.operation.status, detail, new, count)

    async def _send(self, parked: Parked, replay: Replay, seen: Seen | None) -> Seen:
        """Send under an operation. Raises: TooLargeError, after which the operation is still planned."""
        wanted = Operation(
            id=operation_id("replay", parked.id, replay.count),
            type="replay",
            session_id=parked.session_id,
            role=parked.role.value,
            key=replay.expected.key if replay.expected else parked.notes.get("dedup-key"),
            original_sequence_number=str(parked.original_sequence_number),
            count=replay.count,
            old=replay.old,
            new=replay.new,
            out_of_order=self._options.out_of_order,
            actor=self._options.actor,
            reason=self._options.because,
            status="planned",
        )
        if seen is None:
            seen = await self._audit.begin(wanted)
        if seen.operation.status != "planned":  # another operator was faster
            return seen
        state, _ = await self._outcome(seen.operation, parked.id) if seen.operation is not wanted else (None, "")
        if state is None:
            try:
                await self._bus.send(parked.role, replay.message)
            except TooLargeError:  # it filled the link's limit, and a replay has more properties
                smaller = compressed(replay.message)
                if smaller is None:
                    raise
                await self._bus.send(parked.role, smaller)
        seen = Seen(seen.operation.model_copy(update={"key": wanted.key, "new": wanted.new}), seen.etag)
        return await self._audit.advance(seen, "sent")

    async def _wait(self, operation: Operation, parked: Parked, settler: SessionSettler) -> tuple[Status | None, str]:
        """Wait for what becomes of it: (verified or failed, what), or (None, ...) when the time is over."""
        ends = self._clock.monotonic() + self._options.wait_seconds
        polls = 0
        while True:
            state, detail = await self._outcome(operation, parked.id)
            if state is None:
                polls += 1
                await self._watch.refresh(parked.role, dead_letters=polls % DEAD_LETTERS_EVERY == 0)
                state, detail = await self._outcome(operation, parked.id)
            if state is not None:
                return state, detail
            if self._clock.monotonic() >= ends:
                told = f"nothing has become of it in {self._options.wait_seconds:g} s"
                return None, f"{told}; the next run goes on waiting"
            await settler.keep()
            await asyncio.sleep(min(POLL_SECONDS * 1.25**polls, LONGEST_POLL_SECONDS))

    async def _outcome(self, operation: Operation, parked_id: str) -> tuple[Status | None, str]:
        """What has become of a replay, as far as it left a trace."""
        role, new = Role(operation.role), operation.new
        if new is None or new.dedup_id is None:
            return None, ""
        if operation.key is not None and new.payload_hash is not None:
            location = locate(role, operation.key)
            if location is None:
                return ("verified", "accepted by the broker") if operation.status == "sent" else (None, "")
            record = await self._known(location)
            if record is not None and _is_finished(role, record, operation.key, new.payload_hash):
                result = record.get("result")
                told = result.get("outcome", "applied") if isinstance(result, Mapping) else "applied"
                reason = result.get("reason") if isinstance(result, Mapping) else None
                return "verified", f"{told} {reason}" if reason else str(told)
        again = self._watch.find(role, new.dedup_id, operation.count, parked_id)
        return ("failed", f"parked again: {again}") if again is not None else (None, "")

    async def _known(self, location: Location) -> Mapping[str, object] | None:
        """The record in a key's document; None if there is none."""
        found = await self._database.documents.read(location.container, location.partition, location.document_id)
        record = found.document.get("record") if found is not None else None
        return record if isinstance(record, Mapping) else None

    async def _complete(self, parked: Parked, settler: SessionSettler) -> set[int]:
        """Complete the parked copies; those in dead-letter queues later, all in one pass."""
        numbers = set[int]()
        for place in parked.places:
            if place.entity.is_dead_letter:
                self._dead[place.entity].add(place.sequence_number)
                self._settled[place.entity, place.sequence_number] = parked
            else:
                numbers.add(place.sequence_number)
        return await settler.complete(numbers) if numbers else set()

    async def _settle_dead_letters(self, results: list[Result]) -> None:
        for entity, numbers in self._dead.items():
            left = await self._bus.complete_dead_letters(entity, numbers)
            held = {id(self._settled[entity, number]) for number in left}
            for place, result in enumerate(results):
                if id(result.parked) in held:
                    detail = f"{result.detail}; its parked copy is held by somebody else: run the command again"
                    results[place] = Result(result.parked, "left", detail, result.new_message_id, result.count)


def _left(group: Sequence[Parked]) -> list[Result]:
    return [Result(parked, "left", "waits for its predecessor in the session") for parked in group]


def _is_finished(role: Role, record: Mapping[str, object], key: str, payload_hash: str) -> bool:
    is_this = record.get("key") == key and record.get("payloadHash") == payload_hash
    return is_this and (role is Role.LEDGER_ENTRIES or record.get("status") == "completed")
