"""`ops gaps`: numbers that are missing, and what waits for them: in streams of entries, commands of an order, batches
of a ledger.

A skip is one transactional batch: the skip's document, the releases, and the state with its new number. So a crash
leaves all of it or nothing; the audit around it is closed by repeating the command, which finds the skip's document.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ops.audit import Audit, Operation, operation_id
from ops.bus import Bus
from ops.database import Database
from ops.errors import DONE, LEFT_OVER, OpsError, UsageError
from ops.output import Output
from ops.parking import Parked, read_parked
from ops.replaying import Body, body_of
from shared.contracts.documents import (
    STATE_ID,
    LedgerEntryDocument,
    LedgerSequence,
    LedgerState,
    Order,
    Skip,
)
from shared.contracts.ledger import LedgerBatch, LedgerEntry
from shared.contracts.orders import OrderCommand
from shared.domain import ledger, orders, streams
from shared.domain.identity import document_id, skip_id
from shared.envelope import Role
from shared.errors import Reason
from shared.handlers.claim import Seen, dump, read_as
from shared.ports import Committed, Container, Create, PatchSet, Replace, Written
from shared.ports import Operation as Step

Kind = Literal["entries", "commands", "batches"]

RACES: Final = 5
COMMAND, BATCH = "command", "batch"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A run of numbers: of a stream of an order, of an order's commands, or of a ledger's batches."""

    kind: Kind
    owner: str
    stream: str | None
    first: int
    last: int

    @property
    def what(self) -> str:
        """What the skip's document calls it."""
        return self.stream or (COMMAND if self.kind == "commands" else BATCH)

    @property
    def container(self) -> Container:
        """Where the skip's document and the state are."""
        containers: dict[Kind, Container] = {
            "entries": Container.LEDGER_ENTRIES,
            "commands": Container.ORDERS,
            "batches": Container.LEDGERS,
        }
        return containers[self.kind]

    @property
    def role(self) -> Role:
        """The queue that the numbered messages come by."""
        roles: dict[Kind, Role] = {"entries": Role.LEDGER_ENTRIES, "commands": Role.ORDERS, "batches": Role.LEDGER}
        return roles[self.kind]


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that waits: since when (Unix seconds), for which number, and whether that one is parked."""

    kind: Kind
    owner: str
    stream: str | None
    expected: int | None
    waiting: int
    lowest: int | None
    since: int | None
    predecessor: str


class Gaps:
    """What can be done about missing numbers."""

    def __init__(self, bus: Bus, database: Database, out: Output) -> None:
        self._bus = bus
        self._database = database
        self._documents = database.documents
        self._out = out

    async def overview(self) -> int:
        """List what waits, and the entries that a close refused."""
        parked = await read_parked(self._bus)
        found = [*await self._held(parked), *await self._parked_behind(parked)]
        refused = [
            item
            async for item in self._database.everywhere(
                Container.LEDGER_ENTRIES,
                'SELECT c.id, c.orderId, c.stream, c.sequence FROM c WHERE c.status = "refused"',
            )
        ]
        self._out.table(
            "Gaps",
            ("kind", "of", "stream", "expected", "waiting", "from", "expected one"),
            [(g.kind, g.owner, g.stream, g.expected, g.waiting, g.lowest, g.predecessor) for g in found],
        )
        self._out.table(
            "Refused entries (they lay behind a close)",
            ("order", "stream", "number", "entry"),
            [(item["orderId"], item["stream"], item.get("sequence"), item["id"]) for item in refused],
        )
        self._out.result(
            {
                "gaps": [
                    {
                        "kind": g.kind,
                        "owner": g.owner,
                        "stream": g.stream,
                        "expected": g.expected,
                        "waiting": g.waiting,
                        "lowest": g.lowest,
                        "since": g.since,
                        "predecessor": g.predecessor,
                    }
                    for g in found
                ],
                "refused": refused,
            }
        )
        return LEFT_OVER if found or refused else DONE

    async def show(self, owner: str) -> int:
        """Show an order's or a ledger's numbers: expected, held, skipped."""
        state = await read_as(self._documents, LedgerState, Container.LEDGER_ENTRIES, owner, STATE_ID)
        order = await read_as(self._documents, Order, Container.ORDERS, owner, document_id(owner))
        sequence = await read_as(self._documents, LedgerSequence, Container.LEDGERS, owner, STATE_ID)
        rows: list[dict[str, object]] = []
        for name, stream in state.document.streams.items() if state else ():
            rows.append(
                {
                    "kind": "entries",
                    "stream": name,
                    "expected": stream.next,
                    "applied": stream.applied,
                    "held": [held.sequence for held in stream.held],
                    "closed": None if stream.closed is None else "complete" if stream.closed.complete else "incomplete",
                }
            )
        if order is not None:
            rows.append({"kind": "commands", "stream": None, "expected": order.document.next_command})
        if sequence is not None:
            told = {"expected": sequence.document.next_batch, "unfinished": sequence.document.unfinished}
            rows.append({"kind": "batches", "stream": None, **told})
        skips = [
            {name: item.get(name) for name in ("what", "from", "to", "actor", "reason")}
            for container in (Container.LEDGER_ENTRIES, Container.ORDERS, Container.LEDGERS)
            async for item in self._database.partition(container, owner, 'SELECT * FROM c WHERE c.type = "skip"')
        ]
        if not rows and not skips:
            raise UsageError(f"nothing is numbered under {owner!r}: no such order or ledger")
        columns = ("kind", "stream", "expected", "applied", "held", "closed", "unfinished")
        self._out.table(f"Numbers of {owner}", columns, [[row.get(name) for name in columns] for row in rows])
        self._out.table("Skipped", ("what", "from", "to", "actor", "reason"), [list(skip.values()) for skip in skips])
        self._out.result({"owner": owner, "numbers": rows, "skips": skips})
        return DONE

    async def skip(self, numbers: Numbers, *, actor: str, because: str, really: bool) -> int:
        """Pass over numbers that will never come, and release what waits for them; or say what that would do."""
        if not really:
            steps = await self._steps(numbers, actor, because)
            released = sum(isinstance(step, PatchSet) for step in steps)
            self._out.line(f"would skip {_told(numbers)} and release {released} entries; not without --yes")
            self._out.result({"skipped": False, "released": released, **_named(numbers)})
            return DONE
        audit = Audit(self._documents)
        wanted = Operation(
            id=operation_id("skip", numbers.what, numbers.owner, numbers.first, numbers.last),
            type="skip",
            session_id=numbers.owner,
            role=numbers.role.value,
            key=f"{numbers.what}.{numbers.first}",
            original_sequence_number=None,
            count=numbers.last - numbers.first + 1,
            old=None,
            new=None,
            actor=actor,
            reason=because,
            status="planned",
        )
        if await self._is_skipped(numbers):
            seen = await audit.find(wanted.session_id, wanted.id)
            if seen is not None and seen.operation.status == "planned":
                await audit.advance(seen, "completed")
            self._out.line(f"{_told(numbers)}: skipped already")
            self._out.result({"skipped": True, "released": 0, **_named(numbers)})
            return DONE
        await self._steps(numbers, actor, because)  # refused before anything is written
        seen = await audit.begin(wanted)
        released = await self._commit(numbers, actor, because)
        await audit.advance(seen, "completed")
        self._out.line(f"skipped {_told(numbers)}; {released} held entries released")
        self._out.result({"skipped": True, "released": released, **_named(numbers)})
        return DONE

    async def discard(self, order_id: str, entry: str, *, actor: str, because: str, really: bool) -> int:
        """Give up an entry that a close refused."""
        container = Container.LEDGER_ENTRIES
        found = await read_as(self._documents, LedgerEntryDocument, container, order_id, document_id(entry))
        found = found or await read_as(self._documents, LedgerEntryDocument, container, order_id, entry)
        if found is None:
            raise UsageError(f"order {order_id!r} has no entry {entry!r}")
        document = found.document
        if document.status not in ("refused", "discarded"):
            raise UsageError(f"entry {entry!r} is {document.status}; only refused entries are discarded")
        if really:
            audit = Audit(self._documents)
            seen = await audit.begin(
                Operation(
                    id=operation_id("discard", "entry", order_id, document.id),
                    type="discard",
                    session_id=order_id,
                    role=Role.LEDGER_ENTRIES.value,
                    key=document.record.key,
                    original_sequence_number=None,
                    count=0,
                    old=None,
                    new=None,
                    actor=actor,
                    reason=because,
                    status="planned",
                )
            )
            if document.status == "refused":
                changed = dump(document.model_copy(update={"status": "discarded"}))
                if not isinstance(await self._documents.replace(container, changed, found.etag), Written):
                    raise OpsError(f"entry {entry!r} was changed meanwhile; run the command again")
            await audit.advance(seen, "completed")
        told = "discarded" if really else "would be discarded; nothing is written without --yes"
        self._out.line(f"entry {document.id} of {order_id}: {told}")
        self._out.result({"orderId": order_id, "entry": document.id, "discarded": really})
        return DONE

    # -- skip

    async def _commit(self, numbers: Numbers, actor: str, because: str) -> int:
        for _ in range(RACES):
            steps = await self._steps(numbers, actor, because)
            answer = await self._documents.batch(numbers.container, numbers.owner, steps)
            if isinstance(answer, Committed):
                return sum(isinstance(step, PatchSet) for step in steps)
            if await self._is_skipped(numbers):  # an own commit whose answer was lost, or another operator's
                return 0
            await asyncio.sleep(0.1)
        raise OpsError(f"{_told(numbers)}: others kept writing first; run the command again")

    async def _is_skipped(self, numbers: Numbers) -> bool:
        seen = await read_as(
            self._documents, Skip, numbers.container, numbers.owner, skip_id(numbers.what, numbers.first)
        )
        if seen is None:
            return False
        if seen.document.to != numbers.last:
            raise UsageError(f"{numbers.what} {numbers.first} was skipped already, up to {seen.document.to}")
        return True

    async def _steps(self, numbers: Numbers, actor: str, because: str) -> list[Step]:
        """The batch; UsageError when the numbers can't be skipped."""
        is_ledger = numbers.kind == "batches"
        marker = Skip(
            id=skip_id(numbers.what, numbers.first),
            what=numbers.what,
            from_=numbers.first,
            to=numbers.last,
            actor=actor,
            reason=because,
            order_id=None if is_ledger else numbers.owner,
            ledger_id=numbers.owner if is_ledger else None,
        )
        document = {name: value for name, value in dump(marker).items() if value is not None}
        return [Create(document), *await self._changes(numbers)]

    async def _changes(self, numbers: Numbers) -> list[Step]:
        first, last = numbers.first, numbers.last
        if numbers.kind == "entries":
            state = await read_as(self._documents, LedgerState, numbers.container, numbers.owner, STATE_ID)
            skipped = streams.skip(
                state.document if state else None,
                order_id=numbers.owner,
                stream=numbers.stream or "",
                first=first,
                last=last,
            )
            if isinstance(skipped, streams.SkipRefused):
                raise UsageError(skipped.description)
            patches = [PatchSet(one.id, {"status": one.status, "position": one.position}) for one in skipped.releases]
            return [*patches, _stored(dump(skipped.state), state)]
        if numbers.kind == "commands":
            order = await read_as(self._documents, Order, numbers.container, numbers.owner, document_id(numbers.owner))
            if order is None:
                raise UsageError(f"there is no order {numbers.owner!r}")
            changed = orders.skip_commands(order.document, first=first, last=last)
            if isinstance(changed, streams.SkipRefused):
                raise UsageError(changed.description)
            return [Replace(dump(changed), order.etag)]
        sequence = await read_as(self._documents, LedgerSequence, numbers.container, numbers.owner, STATE_ID)
        after = ledger.skip_batches(
            sequence.document if sequence else None, ledger_id=numbers.owner, first=first, last=last
        )
        if isinstance(after, streams.SkipRefused):
            raise UsageError(after.description)
        return [_stored(dump(after), sequence)]

    # -- list

    async def _held(self, parked: Sequence[Parked]) -> list[Gap]:
        """Streams with held entries."""
        query = 'SELECT c.orderId, c.stream, c.sequence, c._ts FROM c WHERE c.status = "held"'
        held: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        async for item in self._database.everywhere(Container.LEDGER_ENTRIES, query):
            held[item["orderId"], item["stream"]].append((int(item["sequence"]), int(item["_ts"])))
        found = []
        for (order_id, name), numbers in sorted(held.items()):
            seen = await read_as(self._documents, LedgerState, Container.LEDGER_ENTRIES, order_id, STATE_ID)
            stream = seen.document.streams.get(name) if seen else None
            expected = stream.next if stream else None
            lowest, since = min(each[0] for each in numbers), min(each[1] for each in numbers)
            if expected is not None and expected >= lowest:
                continue  # released since the query
            where = next((one for one in parked if _number_of(one) == (name, order_id, expected)), None)
            found.append(Gap("entries", order_id, name, expected, len(numbers), lowest, since, _where(where)))
        return found

    async def _parked_behind(self, parked: Sequence[Parked]) -> list[Gap]:
        """Commands and batches that were parked because their predecessor is missing."""
        waiting: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for one in parked:
            number = _number_of(one)
            if one.reason == Reason.SEQUENCE_GAP and number is not None:
                waiting[number[0], number[1]].append((number[2], int(one.parked_at.timestamp())))
        found = []
        for (what, owner), numbers in sorted(waiting.items()):
            expected = await _expected(self._database, what, owner)
            lowest, since = min(each[0] for each in numbers), min(each[1] for each in numbers)
            where = next((one for one in parked if _number_of(one) == (what, owner, expected)), None)
            kind: Kind = "commands" if what == COMMAND else "batches"
            found.append(Gap(kind, owner, None, expected, len(numbers), lowest, since, _where(where)))
        return found


async def skip_hint(database: Database, body: Body | None) -> str | None:
    """What to do about the number of a discarded message, if its successors wait for it."""
    number = _number(body)
    if number is None:
        return None
    what, owner, sequence = number
    expected = await _expected(database, what, owner)
    if expected is None or sequence < expected:
        return None
    kind = {COMMAND: f"commands {owner}", BATCH: f"batches {owner}"}.get(what, f"entries {owner} --stream {what}")
    when = "" if sequence == expected else f" (once {sequence} is expected; now it is {expected})"
    command = f"ops gaps skip {kind} --from {sequence}"
    return f"number {sequence} is still to come, and its successors wait; to skip it: {command}{when}"


async def _expected(database: Database, what: str, owner: str) -> int | None:
    documents = database.documents
    if what == COMMAND:
        order = await read_as(documents, Order, Container.ORDERS, owner, document_id(owner))
        return order.document.next_command if order else None
    if what == BATCH:
        sequence = await read_as(documents, LedgerSequence, Container.LEDGERS, owner, STATE_ID)
        return sequence.document.next_batch if sequence else 1
    state = await read_as(documents, LedgerState, Container.LEDGER_ENTRIES, owner, STATE_ID)
    stream = state.document.streams.get(what) if state else None
    return stream.next if stream else 1


def _number_of(parked: Parked) -> tuple[str, str, int] | None:
    return _number(body_of(parked))


def _number(body: Body | None) -> tuple[str, str, int] | None:
    """What a message's number counts, whose it is, and the number."""
    if isinstance(body, OrderCommand):
        return None if body.sequence is None else (COMMAND, body.order_id, body.sequence)
    match body:
        case LedgerBatch(batch_sequence=int(number)):
            return BATCH, body.ledger_id, number
        case LedgerEntry(sequence=int(number)):
            return body.stream, body.order_id, number
        case _:
            return None


def _stored(document: dict[str, object], seen: Seen[LedgerState] | Seen[LedgerSequence] | None) -> Step:
    return Create(document) if seen is None else Replace(document, seen.etag)


def _where(parked: Parked | None) -> str:
    return "not here" if parked is None else f"parked: {parked.reason}, {parked.id}"


def _told(numbers: Numbers) -> str:
    upto = "" if numbers.first == numbers.last else f" to {numbers.last}"
    return f"{numbers.what} {numbers.first}{upto} of {numbers.owner}"


def _named(numbers: Numbers) -> dict[str, object]:
    return {
        "kind": numbers.kind,
        "owner": numbers.owner,
        "stream": numbers.stream,
        "from": numbers.first,
        "to": numbers.last,
    }
