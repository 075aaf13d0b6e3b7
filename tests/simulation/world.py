"""The outside of the handlers without I/O: the ports, on a document store and on the broker's state machine.

Every call of a port is one `Io` that the scheduler lets happen, or not, or happen without an answer. Nothing here
knows of faults or of order; nothing here waits.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from local.broker import codec
from local.broker.machine import Broker, QueueOptions
from local.broker.messages import ReceivedMessage
from local.broker.model import Delivery
from shared.envelope import Envelope, OutgoingMessage, PropertyValue, Role
from shared.ports import Approved
from tests.unit.handlers.ports_in_memory import Io

AMQP_BATCH_BYTES = 700
"""Small, so that an outbox of a few entries takes several AMQP batches."""
DATA_SECTION = 0x75
ROLES = (Role.ORDERS, Role.LEDGER, Role.LEDGER_ENTRIES, Role.QUARANTINE)


class SimulatedSender:
    """Sender on the broker's state machine."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._clock = clock

    async def send(self, role: Role, messages: Sequence[OutgoingMessage]) -> int:
        size, count = 0, 0
        for message in messages:
            size += len(message.body)
            if count and size > AMQP_BATCH_BYTES:
                break
            count += 1
        first = list(messages[:count])

        def perform() -> int:
            self._broker.queue(role.value).send([received(message) for message in first], self._clock())
            return len(first)

        return await Io(f"send {role} {' '.join(message.message_id for message in first)}", perform, write=True)


class SimulatedPayments:
    """A payment provider that approves; it counts the calls of each key."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    async def authorize(self, key: str, order_id: str, amount: str, currency: str) -> Approved:
        def perform() -> Approved:
            self.calls[key] = self.calls.get(key, 0) + 1
            return Approved(f"A-{key}")

        return await Io(f"pay {key}", perform, write=True)


def new_broker(source: random.Random, *, duplicate_detection: bool) -> Broker:
    """The four queues, with the cloud's delivery count and the local duplicate window."""
    return Broker(
        [
            QueueOptions(
                role.value,
                requires_session=True,
                lock_seconds=60,
                max_delivery_count=1000,
                duplicate_detection=duplicate_detection,
                duplicate_window_seconds=5,
            )
            for role in ROLES
        ],
        new_token=lambda: uuid.UUID(int=source.getrandbits(128)),
    )


def received(message: OutgoingMessage) -> ReceivedMessage:
    """A message as the broker takes it in."""
    properties: dict[object, object] = dict(message.properties)
    return ReceivedMessage(
        durable=codec.NULL,
        priority=codec.NULL,
        ttl_seconds=None,
        annotations={},
        properties=b"",
        application_properties_map=codec.encode_map(properties) if properties else b"",
        body_sections=codec.described(DATA_SECTION, codec.encode(message.body)),
        footer=b"",
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        session_id=message.session_id,
        subject=message.subject,
        content_type=message.content_type,
        to=message.to,
        reply_to=message.reply_to,
        reply_to_session_id=message.reply_to_session_id,
    )


def envelope_of(role: Role, delivery: Delivery) -> Envelope:
    """A delivery as the trigger hands it over."""
    message = delivery.message
    properties: dict[str, PropertyValue] = {
        name: value
        for name, value in message.application_properties.items()
        if isinstance(value, str | bool | int | float)
    }
    return Envelope(
        role=role,
        body=message.body,
        message_id=str(message.message_id) if message.message_id else None,
        session_id=message.session_id,
        sequence_number=delivery.sequence_number,
        enqueued_at=datetime.fromtimestamp(delivery.enqueued_at, UTC),
        delivery_count=delivery.delivery_count + 1,
        content_type=message.content_type,
        correlation_id=str(message.correlation_id) if message.correlation_id else None,
        subject=message.subject,
        properties=properties,
    )
