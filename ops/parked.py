"""`ops parked`: list, show, replay, discard."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ops.audit import Audit, Identity, Operation, operation_id
from ops.bus import Bus, Entity
from ops.database import Database
from ops.errors import DONE, LEFT_OVER, UsageError
from ops.gaps import skip_hint
from ops.locate import locate
from ops.output import Output
from ops.parking import Filter, Parked, groups, moment, plain_of, read_parked
from ops.replay import Options, Replays, Result, Watch
from ops.replaying import body_of
from shared.adapters.system import SystemClock
from shared.ports import Container
from shared.settings import Settings


class ParkedCommands:
    """What can be done with parked messages."""

    def __init__(self, bus: Bus, database: Database, settings: Settings, out: Output) -> None:
        self._bus = bus
        self._database = database
        self._settings = settings
        self._out = out

    async def overview(self, chosen: Filter) -> int:
        """List them, and count them by role and reason."""
        found = await read_parked(self._bus, chosen.takes)
        counts = Counter((one.role.value, one.reason) for one in found)
        self._out.table(
            "Parked messages",
            ("id", "role", "session", "number", "reason", "message id", "replays", "parked"),
            [
                (
                    one.id,
                    one.role.value,
                    one.session_id,
                    one.original_sequence_number,
                    one.reason + (" (broker)" if one.is_native else ""),
                    one.message_id,
                    f"{one.replay_count}, {one.replay_failures} failed" if one.replay_count else "",
                    moment(one.parked_at),
                )
                for one in found
            ],
        )
        if found:
            self._out.table(
                f"{len(found)} in all", ("role", "reason", "messages"), [(*key, n) for key, n in sorted(counts.items())]
            )
        by_reason: Mapping[str, int] = Counter(one.reason for one in found)
        self._out.result({"count": len(found), "reasons": by_reason, "messages": [_summary(one) for one in found]})
        return DONE

    async def show(self, chosen: Filter) -> int:
        """Show them whole, with what is known under their keys."""
        found = await self._found(chosen)
        shown = [await self._whole(one) for one in found]
        for one in shown:
            for name, value in one.items():
                self._out.line(f"{name:<22} {value}")
            self._out.line("")
        self._out.result({"messages": shown})
        return DONE

    async def replay(self, chosen: Filter, options: Options, *, really: bool) -> int:
        """Send them again, or say what that would do."""
        watch = Watch(self._bus)
        every = await read_parked(self._bus, watch.note)
        found = [one for one in every if chosen.takes(one)]
        if options.corrected is not None and len(found) != 1:
            raise UsageError(f"--body corrects one message, and {len(found)} are chosen: name it by --id")
        replays = Replays(self._bus, self._database, self._settings, SystemClock(), watch, options)
        if not really:
            plan = await replays.plan(groups(found))
            self._report("Plan; nothing is sent without --yes", plan)
            return DONE if all(result.is_fine for result in plan) else LEFT_OVER
        open_ones = await replays.finish({one.id: one for one in every})
        for operation in open_ones:
            self._out.note(f"replay of {operation.key}: its copy is gone, and what became of it is not known yet")
        results = await replays.run(groups(found), lambda result: self._out.note(_line(result)))
        self._report("Replayed", results)
        return DONE if all(result.is_fine for result in results) else LEFT_OVER

    async def discard(self, chosen: Filter, *, actor: str, because: str, really: bool) -> int:
        """Take them out for good, with an audit, or say which these would be."""
        every = await read_parked(self._bus)
        found = [one for one in every if chosen.takes(one)]
        if not really:
            plan = [Result(one, "planned", "discard") for one in found]
            self._report("Plan; nothing is discarded without --yes", plan)
            return DONE
        audit = Audit(self._database.documents)
        await self._finish_discards(audit, every)
        results: list[Result] = []
        for group in groups(found):
            results += await self._discard_session(audit, group, actor, because)
        self._report("Discarded", results)
        for result in results:
            hint = await skip_hint(self._database, body_of(result.parked)) if result.is_fine else None
            if hint is not None:
                self._out.note(f"{result.parked.message_id}: {hint}")
        return DONE if all(result.is_fine for result in results) else LEFT_OVER

    async def _discard_session(self, audit: Audit, group: Sequence[Parked], actor: str, because: str) -> list[Result]:
        """The audit first, then the copies, then the audit's end: a crash leaves a copy, or an audit to close."""
        seen = {one.id: await audit.begin(_discarding(one, actor, because)) for one in group}
        by_entity: dict[Entity, set[int]] = defaultdict(set)
        for one in group:
            for place in one.places:
                by_entity[place.entity].add(place.sequence_number)
        left = set[tuple[Entity, int]]()
        for entity, numbers in by_entity.items():
            if entity.is_dead_letter:
                remaining = await self._bus.complete_dead_letters(entity, numbers)
            else:
                settler = self._bus.session_settler(entity, group[0].session_id)
                try:
                    remaining = await settler.complete(numbers)
                finally:
                    self._bus.close_beside(settler)
            left |= {(entity, number) for number in remaining}
        results = []
        for one in group:
            if any((place.entity, place.sequence_number) in left for place in one.places):
                results.append(Result(one, "left", "its copy is held by somebody else: run the command again"))
            else:
                await audit.advance(seen[one.id], "completed")
                results.append(Result(one, "discarded", ""))
        return results

    async def _finish_discards(self, audit: Audit, every: Sequence[Parked]) -> None:
        """Close the books on discards that were killed behind the completion of the copy."""
        there = {operation_id("discard", one.id) for one in every}
        query = 'SELECT * FROM c WHERE c.type = "discard" AND c.status = "planned"'
        async for item in self._database.everywhere(Container.OPERATIONS, query):
            operation = Operation.model_validate(item)
            seen = await audit.find(operation.session_id, operation.id)
            if operation.old is not None and operation.id not in there and seen is not None:
                await audit.advance(seen, "completed")

    async def _found(self, chosen: Filter) -> list[Parked]:
        found = await read_parked(self._bus, chosen.takes)
        if chosen.ids and not found:
            raise UsageError(f"--id: nothing parked has the id {', '.join(chosen.ids)}")
        return found

    async def _whole(self, parked: Parked) -> dict[str, object]:
        key = parked.notes.get("dedup-key") or parked.original
        location = locate(parked.role, key) if key else None
        known = (
            await self._database.documents.read(location.container, location.partition, location.document_id)
            if location is not None
            else None
        )
        message = parked.message
        return {
            **_summary(parked),
            "description": parked.description,
            "notes": dict(parked.notes),
            "subject": message.subject,
            "contentType": message.content_type,
            "correlationId": message.correlation_id,
            "properties": plain_of(parked.properties),
            "body": _text(parked.body),
            "stored": None if known is None else {n: v for n, v in known.document.items() if not n.startswith("_")},
        }

    def _report(self, title: str, results: Sequence[Result]) -> None:
        counts = Counter(each.state for each in results)
        self._out.table(
            title,
            ("id", "role", "session", "number", "reason", "as", "result", "detail"),
            [
                (
                    each.parked.id,
                    each.parked.role.value,
                    each.parked.session_id,
                    each.parked.original_sequence_number,
                    each.parked.reason,
                    each.new_message_id,
                    each.state,
                    each.detail,
                )
                for each in results
            ],
        )
        self._out.line(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
        self._out.result(
            {
                "counts": counts,
                "messages": [
                    {
                        **_summary(each.parked),
                        "newMessageId": each.new_message_id,
                        "count": each.count,
                        "result": each.state,
                        "detail": each.detail,
                    }
                    for each in results
                ],
            }
        )


def _discarding(parked: Parked, actor: str, because: str) -> Operation:
    return Operation(
        id=operation_id("discard", parked.id),
        type="discard",
        session_id=parked.session_id,
        role=parked.role.value,
        key=parked.notes.get("dedup-key") or parked.original,
        original_sequence_number=str(parked.original_sequence_number),
        count=parked.replay_count,
        old=Identity(
            message_id=parked.message_id,
            dedup_id=parked.original,
            session_id=parked.session_id,
            payload_hash=parked.notes.get("payload-hash"),
        ),
        new=None,
        actor=actor,
        reason=because,
        status="planned",
    )


def _summary(parked: Parked) -> dict[str, object]:
    return {
        "id": parked.id,
        "role": parked.role.value,
        "sessionId": parked.session_id,
        "reason": parked.reason,
        "native": parked.is_native,
        "messageId": parked.message_id,
        "dedupId": parked.original,
        "originalSequenceNumber": parked.original_sequence_number,
        "originalEnqueuedAt": moment(parked.original_enqueued_at),
        "parkedAt": moment(parked.parked_at),
        "replayCount": parked.replay_count,
        "replayFailures": parked.replay_failures,
        "copies": len(parked.places),
    }


def _line(result: Result) -> str:
    return f"{result.parked.session_id} {result.parked.message_id}: {result.state} ({result.detail})"


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(body).decode()
