"""Sender over azure-servicebus (aio): one AMQP batch a call, bounded in time, no repetition inside the SDK.

A sender of the SDK is not safe for concurrent use, so each role has a few of them, each used by one call at a time. One
that failed is thrown away: what its link still had in flight must not be taken for the next call's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from shared.adapters.credentials import service_bus_credential
from shared.envelope import OutgoingMessage, PropertyValue, Role
from shared.errors import EVENT_CONFIGURATION, PermanentError, Reason, TransientError, UnknownCommitError
from shared.settings import ServiceBusConnection

CALL_SECONDS = 10
SENDERS_PER_ROLE = 2

_ENVELOPE_BYTES = 64  # the section's descriptor and list, the fields' headers, and those of the fields that are null

_NOT_SENT = (ServiceBusServerBusyError, ServiceBusQuotaExceededError, MessagingEntityDisabledError)
_CONFIGURATION = (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ClientAuthenticationError,
)


class ServiceBusQueues:
    """The queues of this app, as far as it sends."""

    def __init__(self, connection: ServiceBusConnection, queues: Mapping[Role, str]) -> None:
        self._connection = connection
        self._queues = queues
        self._client: ServiceBusClient | None = None
        self._idle: dict[Role, list[ServiceBusSender]] = {role: [] for role in Role}
        self._slots = {role: asyncio.Semaphore(SENDERS_PER_ROLE) for role in Role}
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, role: Role, messages: Sequence[OutgoingMessage]) -> int:
        """Send as many of the first messages, of one or more, as fit into one AMQP batch; says how many were accepted.

        Raises: PermanentError, ItemTooLarge, when the first one alone is too large; TransientError.
        """
        with translated_errors(f"send {role}"):
            async with asyncio.timeout(CALL_SECONDS):  # the wait for a sender included
                async with self._sender(role) as sender:
                    batch = await _batch(sender, messages)
                    if len(batch) == 0:  # the first message may fit without an envelope; if not, the broker says so
                        await sender.send_messages(_sdk_message(messages[0]))
                        return 1
                    await sender.send_messages(batch)
                    return len(batch)

    async def close(self) -> None:
        """Close all links and the connection."""
        for idle in self._idle.values():
            while idle:
                self._discard(idle.pop())
        if self._closing:
            await asyncio.wait(self._closing)
        if self._client is not None:
            await self._client.close()

    @asynccontextmanager
    async def _sender(self, role: Role) -> AsyncIterator[ServiceBusSender]:
        async with self._slots[role]:
            sender = self._idle[role].pop() if self._idle[role] else self._open(role)
            try:
                yield sender
            except MessageSizeExceededError:  # the message's fault: the link is as good as before
                self._idle[role].append(sender)
                raise
            except BaseException:
                self._discard(sender)
                raise
            self._idle[role].append(sender)

    def _open(self, role: Role) -> ServiceBusSender:
        if self._client is None:
            text = self._connection.connection_string
            try:
                self._client = (
                    ServiceBusClient.from_connection_string(text, retry_total=0)
                    if text is not None
                    else ServiceBusClient(
                        self._connection.namespace, service_bus_credential(self._connection), retry_total=0
                    )
                )
            except ValueError as exc:
                raise TransientError("the broker's client refuses its settings", event=EVENT_CONFIGURATION) from exc
        return self._client.get_queue_sender(self._queues[role])

    def _discard(self, sender: ServiceBusSender) -> None:
        """Close a sender beside the work: the SDK takes about a second for it."""
        task = asyncio.get_running_loop().create_task(_close(sender))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _batch(sender: ServiceBusSender, messages: Sequence[OutgoingMessage]) -> ServiceBusMessageBatch:
    """Make a batch of as many of the first messages as fit.

    A batch's envelope repeats the ids of its first message, and azure-servicebus 7.15.0 does not count them: what it
    calls full may be beyond the link's limit, and is refused as a whole.
    """
    first = messages[0]
    envelope = _ENVELOPE_BYTES + len(first.message_id.encode()) + len(first.session_id.encode())
    limit = (await sender.create_message_batch()).max_size_in_bytes  # a batch is all that tells the link's limit
    batch = await sender.create_message_batch(limit - envelope)
    for message in messages:
        try:
            batch.add_message(_sdk_message(message))
        except MessageSizeExceededError:
            break
    return batch


async def _close(sender: ServiceBusSender) -> None:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            await sender.close()
    except (AzureError, OSError):
        return  # the link is gone already, which is what closing it is for


@contextmanager
def translated_errors(doing: str) -> Iterator[None]:
    """Turn the SDK's errors into ours, keeping the cause."""
    try:
        yield
    except MessageSizeExceededError as exc:
        raise PermanentError(Reason.ITEM_TOO_LARGE, f"{doing}: the message exceeds the link's limit") from exc
    except _NOT_SENT as exc:
        raise TransientError(f"{doing}: {type(exc).__name__}") from exc
    except _CONFIGURATION as exc:
        raise TransientError(f"{doing}: {type(exc).__name__}", event=EVENT_CONFIGURATION) from exc
    except (AzureError, OSError) as exc:  # no answer, a lost link, a time-out
        raise UnknownCommitError(f"{doing}: no answer ({type(exc).__name__})") from exc
    except (ValueError, TypeError) as exc:  # the SDK refuses an argument before it sends
        raise PermanentError(Reason.INVALID_MESSAGE, f"{doing}: the broker's client refuses the message") from exc


def _sdk_message(message: OutgoingMessage) -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {name: _typed(value) for name, value in message.properties.items()}
    return ServiceBusMessage(
        message.body,
        message_id=message.message_id,
        session_id=message.session_id,
        subject=message.subject,
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        to=message.to,
        reply_to=message.reply_to,
        reply_to_session_id=message.reply_to_session_id,
        application_properties=properties,
    )


def _typed(value: PropertyValue) -> object:
    """The SDK writes each whole number as an AMQP int, and refuses what does not fit, unless its type is named."""
    if isinstance(value, bool) or not isinstance(value, int) or -(2**31) <= value < 2**31:
        return value
    if -(2**63) <= value < 2**63:
        return {"TYPE": "LONG", "VALUE": value}
    return {"TYPE": "ULONG", "VALUE": value} if 0 < value < 2**64 else str(value)
