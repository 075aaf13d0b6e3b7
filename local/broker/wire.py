"""Queue messages in the form that receivers get them in, and the service's ways to write a time."""

from __future__ import annotations

from local.broker import codec
from local.broker.admission import ttl_of
from local.broker.codec import Timestamp
from local.broker.machine import Queue
from local.broker.messages import encode_message
from local.broker.model import Delivery, MessageState, StoredMessage

_TICKS_AT_UNIX_EPOCH = 621_355_968_000_000_000  # .NET counts 100 ns from year 1


def milliseconds(seconds: float) -> Timestamp:
    """A Unix time as an AMQP timestamp."""
    return Timestamp(round(seconds * 1000))


def ticks(seconds: float) -> int:
    """A Unix time as .NET has it."""
    return round(seconds * 1000) * 10_000 + _TICKS_AT_UNIX_EPOCH


def encode_delivery(queue: Queue, delivery: Delivery, *, is_locked: bool) -> bytes:
    """A message that its receiver holds, or has for good."""
    annotations = _annotations(delivery, delivery.state)
    if is_locked:
        annotations["x-opt-locked-until"] = milliseconds(delivery.locked_until)
    return encode_message(
        delivery.message,
        delivery_count=delivery.delivery_count,
        ttl_seconds=ttl_of(delivery.message, queue.options),
        annotations=annotations,
        lock_token=delivery.lock_token if is_locked else None,
    )


def encode_peeked(queue: Queue, stored: StoredMessage) -> bytes:
    """A message as it is shown to somebody who only looks."""
    return encode_message(
        stored.message,
        delivery_count=stored.delivery_count,
        ttl_seconds=ttl_of(stored.message, queue.options),
        annotations=_annotations(stored, stored.state),
    )


def _annotations(message: Delivery | StoredMessage, state: MessageState) -> dict[str, object]:
    return {
        "x-opt-sequence-number": codec.long(message.sequence_number),
        "x-opt-enqueued-time": milliseconds(message.enqueued_at),
        "x-opt-enqueue-sequence-number": codec.long(message.enqueue_sequence_number),
        "x-opt-message-state": int(state),
    }
