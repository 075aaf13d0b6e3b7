"""Parked messages: what they are, found in the quarantine and in the queues' own dead-letter queues."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ops.bus import Bus, Entity, Peeked
from ops.wire import Typed
from shared.domain import reserved
from shared.domain.identity import rfc3339
from shared.envelope import PropertyValue, Role
from shared.errors import Reason

WORKING: Final = (Role.ORDERS, Role.LEDGER, Role.LEDGER_ENTRIES)
BROKER_PROPERTIES: Final = ("DeadLetterReason", "DeadLetterErrorDescription")
PARKED_PREFIX: Final = "quarantine-"
NO_REASON: Final = "no reason"
IDENTITY_FAULTS: Final = frozenset(
    {Reason.SESSION_KEY_MISMATCH, Reason.MESSAGE_KEY_MISMATCH, Reason.MESSAGE_ID_MISSING}
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one copy lies."""

    entity: Entity
    sequence_number: int


@dataclass(frozen=True, slots=True)
class Parked:
    """One parked message; `places` are its copies. `properties` are the source's own and the reserved ones."""

    id: str
    role: Role
    session_id: str
    reason: str
    description: str | None
    message_id: str | None
    original_sequence_number: int
    original_enqueued_at: datetime
    parked_at: datetime
    replay_count: int
    replay_failures: int
    is_native: bool
    body: bytes
    message: Peeked
    properties: Mapping[str, Typed]
    notes: Mapping[str, str]
    places: tuple[Place, ...]

    @property
    def original(self) -> str | None:
        """The MessageId of its first delivery."""
        kept = text_of(self.properties.get(reserved.DEDUP_ID))
        return (kept if kept and self.replay_count else self.message_id) or None

    @property
    def has_identity_fault(self) -> bool:
        """Whether session and MessageId are to be made anew from the body."""
        return self.reason in IDENTITY_FAULTS or self.original is None

    @property
    def group(self) -> tuple[str, str]:
        """Messages of a group are replayed in order."""
        return self.role.value, self.session_id


@dataclass(frozen=True, slots=True)
class Filter:
    """Which parked messages are meant; what is not given counts for all."""

    ids: tuple[str, ...] = ()
    role: Role | None = None
    session: str | None = None
    reason: str | None = None
    properties: tuple[tuple[str, str], ...] = ()

    def takes(self, parked: Parked) -> bool:
        """Whether it is one of them. An id may be cut."""
        return (
            (not self.ids or any(parked.id.startswith(each) for each in self.ids))
            and self.role in (None, parked.role)
            and self.session in (None, parked.session_id)
            and self.reason in (None, parked.reason)
            and all(text_of(parked.properties.get(name)) == value for name, value in self.properties)
        )


async def read_parked(bus: Bus, wanted: Callable[[Parked], bool] = lambda _: True) -> list[Parked]:
    """All parked messages that are wanted, each once, in the order of replay."""
    quarantine = bus.queue(Role.QUARANTINE)
    dead = [bus.dead_letters(role) for role in (*WORKING, Role.QUARANTINE)]
    pages = await asyncio.gather(*(_all_of(bus, entity) for entity in (quarantine, *dead)))
    found = [parked for page in pages for parked in page]
    # The broker promises to show a session's messages to the session's receiver only: ask for what did not come along.
    for session_id in set(await bus.sessions(quarantine)) - {parked.session_id for parked in pages[0]}:
        found += [parked_of(message) for message in await bus.peek_session(quarantine, session_id)]
    return in_order(parked for parked in merged(found) if wanted(parked))


async def _all_of(bus: Bus, entity: Entity) -> list[Parked]:
    return [parked_of(message) async for message in bus.peek(entity)]


def merged(found: Iterable[Parked]) -> list[Parked]:
    """Copies with one MessageId are one parked message: an answer that was lost, or a crash, left two."""
    by_id: dict[str, Parked] = {}
    for parked in found:
        first = by_id.get(parked.id)
        by_id[parked.id] = parked if first is None else _joined(first, parked)
    return list(by_id.values())


def in_order(parked: Iterable[Parked]) -> list[Parked]:
    """By role and session, and in the order of the first parking."""
    return sorted(parked, key=lambda one: (*one.group, one.original_sequence_number, one.parked_at, one.id))


def groups(parked: Iterable[Parked]) -> list[Sequence[Parked]]:
    """Role by role and session by session, each in order. Numbers of different queues are never compared."""
    found: dict[tuple[str, str], list[Parked]] = {}
    for one in in_order(parked):
        found.setdefault(one.group, []).append(one)
    return list(found.values())


def parked_of(message: Peeked) -> Parked:
    """Read a parked copy, or what the broker dead-lettered itself."""
    notes = {
        name.removeprefix(PARKED_PREFIX): text_of(value) or ""
        for name, value in message.properties.items()
        if name.startswith(PARKED_PREFIX)
    }
    own = {
        name: value
        for name, value in message.properties.items()
        if not name.startswith(PARKED_PREFIX) and name not in BROKER_PROPERTIES
    }
    is_copy = "role" in notes and message.entity.role is Role.QUARANTINE
    plain = plain_of(own)
    number = reserved.original_sequence_number(plain)
    replay_count, failures = reserved.replay_count(plain), reserved.replay_failures(plain)
    if not is_copy and replay_count > 0:
        failures += 1  # parked by the broker, which keeps no such count
    broker_reason = text_of(message.properties.get("DeadLetterReason"))
    reason = notes.get("reason") if is_copy else broker_reason
    return Parked(
        id=message.message_id if is_copy and message.message_id else _place_id(message),
        role=_role(notes.get("role"), message.entity.role) if is_copy else message.entity.role,
        session_id=message.session_id or "",
        reason=reason or NO_REASON,
        description=notes.get("description")
        if is_copy
        else text_of(message.properties.get("DeadLetterErrorDescription")),
        message_id=(notes.get("message-id") if is_copy else message.message_id) or None,
        original_sequence_number=int(number) if number else message.first_sequence_number,
        original_enqueued_at=reserved.original_enqueued_at(plain) or message.enqueued_at,
        parked_at=message.enqueued_at,
        replay_count=replay_count,
        replay_failures=failures,
        is_native=not is_copy,
        body=_unpacked(message.body) if notes.get("body") == "gzip" else message.body,
        message=message,
        properties=own,
        notes=notes,
        places=(Place(message.entity, message.sequence_number),),
    )


def text_of(value: Typed | None) -> str | None:
    """A property as text; None where there is none."""
    return None if value is None or value.value is None else str(value.value)


def plain_of(properties: Mapping[str, Typed]) -> dict[str, PropertyValue]:
    """The properties as the app gets them: what JSON has no kind for comes as text."""
    return {
        name: value.value if isinstance(value.value, str | bool | int | float) else str(value.value)
        for name, value in properties.items()
        if value.value is not None
    }


def moment(at: datetime) -> str:
    """A moment as documents and properties have it."""
    return rfc3339(at)


def _place_id(message: Peeked) -> str:
    """The id of what has no id of its own as a parked message: where it lies, and when that came there."""
    where = f"{message.entity.address}:{message.sequence_number}:{rfc3339(message.enqueued_at)}"
    return f"dlq~{message.entity.role.value}~{message.sequence_number}~{hashlib.sha256(where.encode()).hexdigest()[:8]}"


def _joined(first: Parked, second: Parked) -> Parked:
    """One message of its copies. What lies in the quarantine tells more than what has expired from there."""
    keep, other = sorted((first, second), key=lambda one: (one.message.entity.is_dead_letter, one.parked_at))
    values = {name: getattr(keep, name) for name in Parked.__slots__}
    return Parked(**{**values, "places": (*keep.places, *other.places)})


def _role(text: str | None, otherwise: Role) -> Role:
    try:
        return Role(text or "")
    except ValueError:
        return otherwise


def _unpacked(body: bytes) -> bytes:
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return body
