"""The broker, as an operator needs it: looking without locking, sending, and completing single messages.

Looking goes over a queue's management node alone, with no receiver: a receiver of a session would take the session away
from the app. The client offers that for listing sessions only, so `_Browser` uses the client's own handler for it; the
client's version is pinned, and tests/ops hold it to what is used here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from ops.errors import EnvironmentProblemError, OpsError
from ops.wire import Typed, properties_of
from shared.adapters.credentials import service_bus_credential
from shared.envelope import Role
from shared.settings import ServiceBusConnection

CALL_SECONDS: Final = 10
PAGE: Final = 250
SESSIONS_PAGE: Final = 100
ANY_SESSION: Final = 253_402_300_800_000
"""Milliseconds: the year 10000, which asks for every session instead of those whose state was set since."""
AT_ONCE: Final = 100
EMPTIES_BEFORE_END: Final = 3
"""A receiver may come back with nothing while messages are there; one empty answer is no end."""
EMPTY_SECONDS: Final = 1.0
RENEW_BEFORE: Final = timedelta(seconds=30)

_LOST = (MessageLockLostError, SessionLockLostError, MessageAlreadySettled)


class Entity(NamedTuple):
    """A queue, or its dead-letter queue."""

    role: Role
    queue: str
    is_dead_letter: bool = False

    @property
    def address(self) -> str:
        """The name of the entity in the broker."""
        return f"{self.queue}/$DeadLetterQueue" if self.is_dead_letter else self.queue


@dataclass(frozen=True, slots=True)
class Peeked:
    """A message as it lies in a queue. `properties` have the types of the wire.

    `has_text`: its body is bytes or text. Of any other AMQP value `body` is no more than an impression.
    """

    entity: Entity
    sequence_number: int
    first_sequence_number: int
    enqueued_at: datetime
    delivery_count: int
    state: str
    message_id: str | None
    session_id: str | None
    body: bytes
    has_text: bool
    subject: str | None
    content_type: str | None
    content_encoding: str | None
    correlation_id: object
    to: str | None
    reply_to: str | None
    reply_to_session_id: str | None
    properties: Mapping[str, Typed]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send, its property values typed."""

    message_id: str
    session_id: str
    body: bytes
    subject: str | None
    content_type: str | None
    content_encoding: str | None
    correlation_id: object
    to: str | None
    reply_to: str | None
    reply_to_session_id: str | None
    properties: Mapping[str, Typed]


class TooLargeError(OpsError):
    """The broker doesn't take a message of this size."""


@contextlib.contextmanager
def translated(doing: str) -> Any:
    """Say in a line what the broker or the way to it has.

    Raises: EnvironmentProblemError; TooLargeError.
    """
    try:
        yield
    except MessageSizeExceededError as exc:
        raise TooLargeError(f"{doing}: the message exceeds the link's limit") from exc
    except (ServiceBusError, ClientAuthenticationError, OSError) as exc:
        first = str(exc).strip().splitlines()
        raise EnvironmentProblemError(f"{doing}: {type(exc).__name__}: {first[0] if first else 'no answer'}") from exc


class Bus:
    """One client for a command's life; links stay open until it ends."""

    def __init__(self, connection: ServiceBusConnection, queues: Mapping[Role, str]) -> None:
        self.queues = queues
        self._client = (
            ServiceBusClient.from_connection_string(connection.connection_string, retry_total=0)
            if connection.connection_string is not None
            else ServiceBusClient(connection.namespace, service_bus_credential(connection), retry_total=0)
        )
        self._browsers: dict[str, _Browser] = {}
        self._senders: dict[Role, ServiceBusSender] = {}
        self._sending = asyncio.Lock()  # a sender of the client is for one call at a time
        self._closing: set[asyncio.Task[None]] = set()

    def queue(self, role: Role) -> Entity:
        """A role's queue."""
        return Entity(role, self.queues[role])

    def dead_letters(self, role: Role) -> Entity:
        """A role's dead-letter queue."""
        return Entity(role, self.queues[role], is_dead_letter=True)

    async def peek(self, entity: Entity, first: int = 1) -> AsyncIterator[Peeked]:
        """All messages from a sequence number on, in their order, whoever holds them. Locks and changes nothing."""
        browser = self._browser(entity)
        is_sure = False
        while True:
            with translated(f"peek {entity.address}"):
                page = await browser.page(first)
            if page:
                for message in page:
                    yield message
                first, is_sure = page[-1].sequence_number + 1, False
            elif is_sure:
                return
            else:
                is_sure = True

    async def sessions(self, entity: Entity) -> list[str]:
        """The sessions that hold something, as the broker lists them."""
        browser, found = self._browser(entity), list[str]()
        with translated(f"list the sessions of {entity.address}"):
            while page := await browser.sessions(len(found)):
                found += page
        return list(dict.fromkeys(found))

    async def peek_session(self, entity: Entity, session_id: str) -> list[Peeked]:
        """A session's messages, by way of its lock."""
        found: list[Peeked] = []
        with translated(f"peek {entity.address}"):
            async with self._client.get_queue_receiver(entity.queue, session_id=session_id) as receiver:
                while page := await receiver.peek_messages(
                    PAGE, sequence_number=found[-1].sequence_number + 1 if found else 1, timeout=CALL_SECONDS
                ):
                    found += [_read(entity, message, None) for message in page]
        return found

    def _browser(self, entity: Entity) -> _Browser:
        if entity.address not in self._browsers:
            self._browsers[entity.address] = _Browser(self._client, entity)
        return self._browsers[entity.address]

    async def send(self, role: Role, message: Outgoing) -> None:
        """Send one message. When it returns, the broker has it.

        Raises: TooLargeError; EnvironmentProblemError, after which the broker may have it or not.
        """
        async with self._sending:
            await self._send(role, message)

    async def _send(self, role: Role, message: Outgoing) -> None:
        with translated(f"send to {self.queues[role]}"):
            if role not in self._senders:
                self._senders[role] = self._client.get_queue_sender(self.queues[role])
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._senders[role].send_messages(_sdk_message(message))
            except BaseException:
                # What its link has in flight must not pass for the next send's answer.
                self._close_beside(self._senders.pop(role).close())
                raise

    def session_settler(self, entity: Entity, session_id: str) -> SessionSettler:
        """What completes messages of a session."""
        return SessionSettler(self._client, entity, session_id)

    def close_beside(self, settler: SessionSettler) -> None:
        """Close a settler beside the work: the client takes about a second for it."""
        self._close_beside(settler.close())

    def _close_beside(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def complete_dead_letters(self, entity: Entity, wanted: Iterable[int]) -> set[int]:
        """Complete these messages of a dead-letter queue, which has no sessions; says which are left.

        It gives a receiver its messages in order, so others come along; they are released as they were.
        """
        left, seen, empties = set(wanted), set[int](), 0
        others: list[ServiceBusReceivedMessage] = []
        if not left:
            return left
        with translated(f"settle in {entity.address}"):
            receiver = self._client.get_queue_receiver(entity.queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
            async with receiver:
                try:
                    while left and empties < EMPTIES_BEFORE_END:
                        page = await receiver.receive_messages(AT_ONCE, max_wait_time=EMPTY_SECONDS)
                        fresh = [message for message in page if (message.sequence_number or 0) not in seen]
                        empties = 0 if fresh else empties + 1
                        for message in fresh:
                            number = message.sequence_number or 0
                            seen.add(number)
                            if number not in left:
                                others.append(message)
                                continue
                            with contextlib.suppress(*_LOST):
                                await receiver.complete_message(message)
                                left.discard(number)
                finally:
                    for message in others:
                        await _release(receiver, message)
        return left

    async def close(self) -> None:
        """Close all links; the client takes about a second for each."""
        browsers = [browser.close() for browser in self._browsers.values()]
        senders = [sender.close() for sender in self._senders.values()]
        await asyncio.gather(*browsers, *senders, *self._closing, return_exceptions=True)
        with contextlib.suppress(ServiceBusError, OSError):
            await self._client.close()


class SessionSettler:
    """Completes messages of a session. Opened on the first call; what is in hand goes back, uncounted, on closing."""

    def __init__(self, client: ServiceBusClient, entity: Entity, session_id: str) -> None:
        self._client = client
        self._entity = entity
        self._session_id = session_id
        self._receiver: ServiceBusReceiver | None = None
        self._in_hand: dict[int, ServiceBusReceivedMessage] = {}

    async def complete(self, wanted: Iterable[int]) -> set[int]:
        """Complete messages by sequence number; says which are left: held by somebody, or gone."""
        left = set(wanted)
        with translated(f"settle in {self._entity.address}"):
            for _ in range(2):
                try:
                    await self._complete(left)
                except SessionCannotBeLockedError:
                    break
                except _LOST:  # the lock ran out: once more, with a new one
                    await self.close()
                else:
                    break
        return left

    async def keep(self) -> None:
        """Renew the session's lock when it is about to end; for waits between two messages."""
        session = self._receiver.session if self._receiver is not None else None
        if session is None or session.locked_until_utc is None:
            return
        if session.locked_until_utc - datetime.now(UTC) < RENEW_BEFORE:
            try:
                await session.renew_lock(timeout=CALL_SECONDS)
            except (ServiceBusError, OSError):
                await self.close()

    async def close(self) -> None:
        """Give the session back."""
        receiver, self._receiver = self._receiver, None
        self._in_hand.clear()
        if receiver is not None:
            with contextlib.suppress(ServiceBusError, OSError):
                await receiver.close()

    async def _complete(self, left: set[int]) -> None:
        receiver = await self._open()
        empties = 0
        while True:
            for number in [each for each in left if each in self._in_hand]:
                await receiver.complete_message(self._in_hand.pop(number))
                left.discard(number)
            if not left or empties == EMPTIES_BEFORE_END:
                return
            page = await receiver.receive_messages(AT_ONCE, max_wait_time=EMPTY_SECONDS)
            empties = 0 if page else empties + 1
            self._in_hand.update({message.sequence_number or 0: message for message in page})

    async def _open(self) -> ServiceBusReceiver:
        if self._receiver is None:
            receiver = self._client.get_queue_receiver(self._entity.queue, session_id=self._session_id)
            await receiver.__aenter__()
            self._receiver = receiver
        return self._receiver


class _Browser:
    """Peeks at one entity over its management node."""

    def __init__(self, client: ServiceBusClient, entity: Entity) -> None:
        self._entity = entity
        self._handler: Any = client._create_session_browser(entity.address)  # type: ignore[no-untyped-call]
        self._types: Any = self._handler._amqp_transport
        self._asking = asyncio.Lock()

    async def page(self, first: int) -> list[Peeked]:
        """Some messages from a sequence number on."""
        request = {
            "from-sequence-number": self._types.AMQP_LONG_VALUE(first),
            "message-count": self._types.AMQP_INT_VALUE(PAGE),
        }
        encoded = await self._ask(b"com.microsoft:peek-message", request, _encoded_messages)
        return [_read(self._entity, ServiceBusReceivedMessage.from_bytes(each), each) for each in encoded]

    async def sessions(self, skip: int) -> list[str]:
        """Some of the sessions with messages or with a state."""
        request = {
            "last-updated-time": self._types.AMQP_TIMESTAMP_VALUE(ANY_SESSION),
            "skip": self._types.AMQP_INT_VALUE(skip),
            "top": self._types.AMQP_INT_VALUE(SESSIONS_PAGE),
        }
        found = await self._ask(b"com.microsoft:get-message-sessions", request, _session_ids)
        return [_text(each) for each in found]

    async def close(self) -> None:
        await self._handler.close()

    async def _ask(self, operation: bytes, request: dict[str, Any], read: Callable[..., list[bytes]]) -> list[bytes]:
        async with self._asking:
            answer: list[bytes] = await self._handler._mgmt_request_response_with_retry(
                operation, request, read, keep_alive_associated_link=False, timeout=CALL_SECONDS
            )
        return answer


def _session_ids(status: int, answer: Any, description: object, **_: Any) -> list[bytes]:
    if status == 200:
        return list(answer.value[b"sessions-ids"])
    return _nothing(status, answer, description)


def _encoded_messages(status: int, answer: Any, description: object, **_: Any) -> list[bytes]:
    if status == 200:
        return [bytes(each[b"message"]) for each in answer.value[b"messages"]]
    return _nothing(status, answer, description)


def _nothing(status: int, answer: Any, description: object) -> list[bytes]:
    """An empty answer; anything else is an error."""
    condition = (answer.application_properties or {}).get(b"errorCondition")
    if status in (202, 204) or condition == b"com.microsoft:message-not-found":
        return []
    raise ServiceBusError(f"{status} {_text(description)} {_text(condition)}")


async def _release(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    """Unlock a message as it was: `abandon` would count a delivery, an expired lock too."""
    handler: Any = receiver._handler
    with contextlib.suppress(ServiceBusError, OSError, ValueError):
        await handler.settle_messages_async(message._delivery_id, message._delivery_tag, "released")


def _read(entity: Entity, message: ServiceBusReceivedMessage, encoded: bytes | None) -> Peeked:
    raw = message.raw_amqp_message.properties
    number = message.sequence_number or 0
    enqueued = message.enqueued_time_utc or datetime.fromtimestamp(0, UTC)
    return Peeked(
        entity=entity,
        sequence_number=number,
        first_sequence_number=message.enqueued_sequence_number or number,
        enqueued_at=enqueued if enqueued.tzinfo else enqueued.replace(tzinfo=UTC),
        delivery_count=message.delivery_count or 0,
        state=message.state.name.lower(),
        message_id=_optional(message.message_id),
        session_id=_optional(message.session_id),
        body=_body_of(message),
        has_text=message.body_type is AmqpMessageBodyType.DATA or isinstance(message.body, bytes | str),
        subject=_optional(message.subject),
        content_type=_optional(message.content_type),
        content_encoding=_optional(raw.content_encoding if raw else None),
        correlation_id=_plain(message.correlation_id),
        to=_optional(message.to),
        reply_to=_optional(message.reply_to),
        reply_to_session_id=_optional(message.reply_to_session_id),
        properties=properties_of(encoded) if encoded is not None else _untyped(message),
    )


def _untyped(message: ServiceBusReceivedMessage) -> dict[str, Typed]:
    """The properties as the client decodes them: keys and texts are bytes."""
    kinds = {bool: "BOOL", int: "LONG", float: "DOUBLE"}
    return {
        _text(name): Typed(kinds[type(value)], value) if type(value) in kinds else Typed("STRING", _text(value))
        for name, value in (message.application_properties or {}).items()
    }


def _body_of(message: ServiceBusReceivedMessage) -> bytes:
    body = message.body
    if isinstance(body, bytes | str):
        return body if isinstance(body, bytes) else body.encode()
    return b"".join(part if isinstance(part, bytes) else str(part).encode() for part in body or ())


def _plain(value: object) -> object:
    return _text(value) if isinstance(value, bytes) else value


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _sdk_message(message: Outgoing) -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {name: typed.for_client for name, typed in message.properties.items()}
    made = ServiceBusMessage(
        message.body,
        message_id=message.message_id,
        session_id=message.session_id,
        subject=message.subject,
        content_type=message.content_type,
        to=message.to,
        reply_to=message.reply_to,
        reply_to_session_id=message.reply_to_session_id,
        application_properties=properties or None,
    )
    raw = made.raw_amqp_message.properties
    if raw is not None:
        raw.correlation_id = message.correlation_id  # type: ignore[assignment]  # AMQP allows other types than text
        raw.content_encoding = message.content_encoding
    return made
