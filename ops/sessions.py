"""`ops sessions`: which sessions hold messages, and how many wait in each (C70); parked ones beside them (C71)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from ops.bus import Bus
from ops.errors import DONE
from ops.output import Output
from ops.parking import WORKING, moment, read_parked
from shared.envelope import Role


@dataclass(slots=True)
class Session:
    """One session of a role's queue."""

    active: int = 0
    scheduled: int = 0
    deferred: int = 0
    oldest: datetime | None = None


async def list_sessions(bus: Bus, out: Output, *, role: Role | None, session: str | None, limit: int) -> int:
    """Peek through the working queues; what the app has in hand counts as waiting until it is settled."""
    roles = [each for each in WORKING if role in (None, each)]
    stopped, queues = await asyncio.gather(
        read_parked(bus), asyncio.gather(*(_sessions_of(bus, each) for each in roles))
    )
    parked = Counter(one.group for one in stopped)
    rows: list[tuple[str, str, Session, int]] = []
    for each, found in zip(roles, queues, strict=True):
        names = found.keys() | {name for group, name in parked if group == each.value}
        rows += [
            (each.value, name, found.get(name, Session()), parked[each.value, name])
            for name in names
            if session in (None, name)
        ]
    rows.sort(key=lambda row: (-row[2].active, -row[3], row[0], row[1]))
    out.table(
        "Sessions",
        ("role", "session", "waiting", "scheduled", "deferred", "oldest", "parked"),
        [
            (kind, name, one.active, one.scheduled or "", one.deferred or "", _moment(one.oldest), count or "")
            for kind, name, one, count in rows[:limit]
        ],
    )
    if len(rows) > limit:
        out.line(f"{len(rows) - limit} more; --limit shows them")
    totals = {
        each.value: {
            "sessions": sum(kind == each.value and one.active > 0 for kind, _, one, _ in rows),
            "waiting": sum(one.active for kind, _, one, _ in rows if kind == each.value),
            "sessionsWithParked": sum(kind == each.value and count > 0 for kind, _, _, count in rows),
        }
        for each in roles
    }
    for name, total in totals.items():
        out.line(
            f"{name}: {total['sessions']} active sessions, {total['waiting']} messages waiting,"
            f" {total['sessionsWithParked']} sessions with parked messages"
        )
    out.result(
        {
            "totals": totals,
            "sessions": [
                {
                    "role": kind,
                    "sessionId": name,
                    "waiting": one.active,
                    "scheduled": one.scheduled,
                    "deferred": one.deferred,
                    "oldest": _moment(one.oldest),
                    "parked": count,
                }
                for kind, name, one, count in rows[:limit]
            ],
        }
    )
    return DONE


async def _sessions_of(bus: Bus, role: Role) -> dict[str, Session]:
    found: dict[str, Session] = {}
    async for message in bus.peek(bus.queue(role)):
        seen = found.setdefault(message.session_id or "", Session())
        match message.state:
            case "scheduled":
                seen.scheduled += 1
            case "deferred":
                seen.deferred += 1
            case _:
                seen.active += 1
        seen.oldest = min(seen.oldest or message.enqueued_at, message.enqueued_at)
    return found


def _moment(at: datetime | None) -> str | None:
    return None if at is None else moment(at)
