"""Reads what is left when the queues are quiet, with the real azure-cosmos and azure-servicebus clients.

Parked messages are only peeked at: looking changes nothing.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from azure.cosmos.aio import CosmosClient, DatabaseProxy
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from local.demo.lines import ROLES
from local.demo.verify import Copy, EndState

AT_ONCE = 12  # sessions opened side by side; each has a connection of its own
PAGE = 200
UNFINISHED = 'SELECT c.id FROM c WHERE c.record.status IN ("effect", "accepted")'


@dataclass(frozen=True, slots=True)
class Names:
    """What the roles are called in this environment."""

    queues: Mapping[str, str]
    database: str
    containers: Mapping[str, str]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Names:
        """Read the names from the app's settings, as contracts 11 names them."""
        roles = (*ROLES, "quarantine")
        containers = ("orders", "ledgers", "ledger-entries")
        return cls(
            queues={role: environment.get(f"{_setting(role)}_QUEUE") or role for role in roles},
            database=environment.get("COSMOS_DATABASE") or "convoy",
            containers={name: environment.get(f"{_setting(name)}_CONTAINER") or name for name in containers},
        )


def _setting(name: str) -> str:
    return name.replace("-", "_").upper()


async def unfinished(cosmos: CosmosClient, names: Names) -> int:
    """Count the records whose outbox is not sent yet."""
    database = cosmos.get_database_client(names.database)
    count = 0
    for container in ("orders", "ledgers"):
        async for _ in database.get_container_client(names.containers[container]).query_items(UNFINISHED):
            count += 1
    return count


async def gather(cosmos: CosmosClient, bus: ServiceBusClient, names: Names) -> EndState:
    """Read all documents and all parked messages."""
    database = cosmos.get_database_client(names.database)
    orders, ledgers, entries = [
        await _documents(database, names.containers[name]) for name in ("orders", "ledgers", "ledger-entries")
    ]
    quarantine, *dead = await asyncio.gather(
        _quarantine(bus, names.queues["quarantine"]),
        *(_dead_letters(bus, role, names.queues[role]) for role in (*ROLES, "quarantine")),
    )
    return EndState(
        orders=orders,
        ledgers=ledgers,
        entries=entries,
        quarantine=quarantine,
        dead_letters=[copy for copies in dead for copy in copies],
    )


async def _dead_letters(bus: ServiceBusClient, role: str, queue: str) -> list[Copy]:
    """Peek into a queue's own dead-letter queue, which never has sessions."""
    async with bus.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        return [_copy(message, role) for message in await _peek(receiver)]


async def _documents(database: DatabaseProxy, container: str) -> list[dict[str, object]]:
    pages = database.get_container_client(container).query_items("SELECT * FROM c")
    return [dict(item) async for item in pages]


async def _quarantine(bus: ServiceBusClient, queue: str) -> list[Copy]:
    """Peek into every session that holds a message."""
    sessions = list(dict.fromkeys([session async for session in bus.list_queue_sessions(queue)]))
    gate = asyncio.Semaphore(AT_ONCE)

    async def look(session: str) -> list[Copy]:
        async with gate, bus.get_queue_receiver(queue, session_id=session) as receiver:
            return [_copy(message, "quarantine") for message in await _peek(receiver)]

    found = await asyncio.gather(*(look(session) for session in sessions))
    return [copy for copies in found for copy in copies]


async def _peek(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Page on until an empty page; a short one is no end."""
    found: list[ServiceBusReceivedMessage] = []
    while page := await receiver.peek_messages(
        max_message_count=PAGE, sequence_number=1 + (found[-1].sequence_number or 0) if found else 1
    ):
        found += page
    return found


def _copy(message: ServiceBusReceivedMessage, role: str) -> Copy:
    """Tell what a parked message is a copy of; the client returns property names and texts as bytes."""
    properties = {_text(name): _text(value) for name, value in (message.application_properties or {}).items()}
    body = b"".join(message.body)
    if properties.get("quarantine-body") == "gzip":
        body = gzip.decompress(body)
    is_copy = role == "quarantine"
    reason = properties.get("quarantine-reason") if is_copy else message.dead_letter_reason
    return Copy(
        copy_id=str(message.message_id) if is_copy else f"{role} {message.sequence_number}",
        role=properties.get("quarantine-role", role) if is_copy else role,
        session=message.session_id or "",
        message_id=(properties.get("quarantine-message-id") if is_copy else message.message_id) or None,
        body=hashlib.sha256(body).hexdigest(),
        reason=reason or "no reason",
    )


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
