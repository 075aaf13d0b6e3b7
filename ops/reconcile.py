"""`ops reconcile`: checks every invariant of docs/contracts.md, section 7, over database, quarantine and queues.

It reads one order, or one ledger, at a time, so its memory grows with the largest of them and with the number of ids.
The app goes on meanwhile: what looks wrong is read again until it holds, or the wait is over, so that a message on its
way is not taken for a lost one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from ops.bus import Bus
from ops.database import Database
from ops.errors import DONE, LEFT_OVER
from ops.invariants import Elsewhere, Finding, Kind, check_ledger, check_order, digest, digest_of_entry
from ops.output import Output
from ops.parking import Parked, parked_of, read_parked
from ops.replaying import body_of
from shared.domain import payload
from shared.domain.identity import message_id_of
from shared.domain.ledger import stream_of
from shared.envelope import Role
from shared.errors import PermanentError
from shared.ports import Clock, Container

RETRY_SECONDS: Final = 0.5
MOST_FINDINGS: Final = 1000


@dataclass(slots=True)
class Tally:
    """What was looked at, and what was found."""

    orders: int = 0
    ledgers: int = 0
    entries: int = 0
    findings: dict[tuple[str, str], list[Finding]] = field(default_factory=dict)
    parked: Counter[str] = field(default_factory=Counter)

    def of(self, kind: Kind) -> list[Finding]:
        """Findings of a kind."""
        return [one for found in self.findings.values() for one in found if one.kind is kind]


class Reconciliation:
    """One pass over everything."""

    def __init__(self, bus: Bus, database: Database, clock: Clock) -> None:
        self._bus = bus
        self._database = database
        self._clock = clock
        self._elsewhere = Elsewhere()

    async def run(self, *, wait_seconds: float) -> Tally:
        """Check everything; what is wrong is checked again for a while."""
        tally = Tally()
        tally.parked = await self._look_elsewhere()
        async for owner in self._owners(Container.ORDERS, "orderId", {}):
            await self._check(tally, "order", owner)
        async for owner in self._owners(Container.LEDGERS, "ledgerId", {}):
            await self._check(tally, "ledger", owner)
        ends = self._clock.monotonic() + wait_seconds
        while any(_is_doubtful(found) for found in tally.findings.values()) and self._clock.monotonic() < ends:
            await asyncio.sleep(RETRY_SECONDS)
            tally.parked = await self._look_elsewhere()
            for (what, owner), found in list(tally.findings.items()):
                if _is_doubtful(found):
                    await self._check(tally, what, owner, again=True)
        return tally

    async def _owners(self, container: Container, member: str, seen: dict[str, None]) -> AsyncIterator[str]:
        """Each order or ledger once, also one whose own document is gone."""
        containers = [container, Container.LEDGER_ENTRIES] if container is Container.ORDERS else [container]
        for each in containers:
            async for item in self._database.everywhere(each, f"SELECT c.{member} FROM c"):  # noqa: S608 - our own names
                owner = str(item.get(member))
                if owner not in seen:
                    seen[owner] = None
                    yield owner

    async def _check(self, tally: Tally, what: str, owner: str, *, again: bool = False) -> None:
        if what == "order":
            documents = [item async for item in self._database.partition(Container.ORDERS, owner)]
            entries = [item async for item in self._database.partition(Container.LEDGER_ENTRIES, owner)]
            found = check_order(owner, documents, entries, self._elsewhere)
            if not again:
                tally.orders += 1
                tally.entries += sum(item.get("type") == "ledgerEntry" for item in entries)
        else:
            batches = [item async for item in self._database.partition(Container.LEDGERS, owner)]
            query = "SELECT c.record FROM c WHERE c.stream = @stream AND c.type = 'ledgerEntry'"
            stored = {
                digest_of_entry(item)
                async for item in self._database.everywhere(
                    Container.LEDGER_ENTRIES, query, {"@stream": stream_of(owner)}
                )
            }
            found = check_ledger(owner, batches, stored, self._elsewhere)
            if not again:
                tally.ledgers += 1
        if found:
            tally.findings[what, owner] = found
        else:
            tally.findings.pop((what, owner), None)

    async def _look_elsewhere(self) -> Counter[str]:
        """Where entries may be that are not stored: parked, or still in their queue. Counts what is parked."""
        reasons: Counter[str] = Counter()
        queue = self._bus.queue(Role.LEDGER_ENTRIES)
        waiting = {_digest(parked_of(message)) async for message in self._bus.peek(queue)}
        parked = set[bytes | None]()
        for one in await read_parked(self._bus):
            reasons[one.reason] += 1
            if one.role is Role.LEDGER_ENTRIES:
                parked.add(_digest(one))
        self._elsewhere = Elsewhere(frozenset(filter(None, parked)), frozenset(filter(None, waiting)))
        return reasons


async def reconcile(bus: Bus, database: Database, clock: Clock, out: Output, *, wait_seconds: float) -> int:
    """Check all invariants; violations and left-overs are listed and counted."""
    tally = await Reconciliation(bus, database, clock).run(wait_seconds=wait_seconds)
    findings = [one for kind in Kind for one in tally.of(kind)]
    out.table(
        "Findings",
        ("kind", "rule", "of", "detail"),
        [(one.kind.value, one.rule, one.owner, one.detail) for one in findings[:MOST_FINDINGS]],
    )
    if len(findings) > MOST_FINDINGS:
        out.line(f"{len(findings) - MOST_FINDINGS} more")
    counts = {kind.value: len(tally.of(kind)) for kind in Kind}
    out.line(f"{tally.orders} orders, {tally.ledgers} ledgers, {tally.entries} entries; {tally.parked.total()} parked")
    out.line(", ".join(f"{kind}: {count}" for kind, count in counts.items()))
    if tally.parked:
        out.line(f"left over besides: {tally.parked.total()} parked messages; `parked list` shows them")
    is_clean = not counts[Kind.VIOLATION] and not counts[Kind.LEFT_OVER] and not tally.parked
    out.result(
        {
            "orders": tally.orders,
            "ledgers": tally.ledgers,
            "entries": tally.entries,
            "parked": tally.parked,
            "counts": counts,
            "findings": [
                {"kind": one.kind.value, "rule": one.rule, "owner": one.owner, "detail": one.detail}
                for one in findings[:MOST_FINDINGS]
            ],
            "proven": is_clean,
        }
    )
    return DONE if is_clean else LEFT_OVER


def _is_doubtful(found: list[Finding]) -> bool:
    """Whether another look may tell more: a message on its way makes a violation, or waits."""
    return any(one.kind is Kind.VIOLATION or one.rule in ("waiting", "unfinished") for one in found)


def _digest(message: Parked) -> bytes | None:
    """The digest of an entry's message that is not stored; None for what can't be one."""
    body = body_of(message)
    if body is None:
        return None
    encoding = message.properties.get("content-encoding")
    try:
        value = payload.read(message.body, str(encoding.value) if encoding else None).value
    except PermanentError:
        return None
    return digest(message_id_of(body), payload.payload_hash(value))
