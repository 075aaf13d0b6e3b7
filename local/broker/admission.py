"""What a queue takes, and as what: the service's rules for a message that comes in, by the queue's options alone."""

from __future__ import annotations

from local.broker.messages import ReceivedMessage
from local.broker.model import BrokerError, QueueOptions

MAX_ID_LENGTH = 128

_NOT_ALLOWED = "amqp:not-allowed"


def checked(message: ReceivedMessage, options: QueueOptions) -> ReceivedMessage:
    """The message as the queue stores it.

    Raises: BrokerError, for the first rule that it breaks.
    """
    if options.requires_session and message.session_id is None:
        raise BrokerError(
            _NOT_ALLOWED,
            "The SessionId was not set on a message, and it cannot be sent to the entity. "
            "Entities that have session support enabled can only receive messages that have the SessionId set.",
        )
    for what, value in (("MessageId", message.message_id), ("SessionId", message.session_id)):
        if isinstance(value, str | bytes):
            check_length(what, value)
    if None not in (message.partition_key, message.session_id) and message.partition_key != message.session_id:
        raise BrokerError(
            _NOT_ALLOWED,
            f"The PartitionKey '{message.partition_key}' must equal the SessionId '{message.session_id}'.",
        )
    if message.size > options.max_message_bytes:
        raise too_large(message.size, options)
    if message.session_id is None or message.session_id == answered_id(message.session_id, options):
        return message
    return message.with_session_id(answered_id(message.session_id, options))


def answered_id(session_id: str, options: QueueOptions) -> str:
    """A session's id as the queue answers it: as it was sent, or with its ASCII letters lower-cased."""
    if not options.folds_session_case:
        return session_id
    return "".join(c.lower() if c.isascii() else c for c in session_id)


def check_length(what: str, value: str | bytes) -> None:
    """Refuse an id that is too long, counted as the service counts a text: in UTF-16 code units."""
    length = len(value.encode("utf-16-le", "surrogatepass")) // 2 if isinstance(value, str) else len(value)
    if length > MAX_ID_LENGTH:
        raise BrokerError(
            "com.microsoft:argument-error", f"The {what} has {length} characters; the limit is {MAX_ID_LENGTH}."
        )


def too_large(size: int, options: QueueOptions) -> BrokerError:
    """The refusal of a message, a transfer or a state of this size, in bytes."""
    return BrokerError(
        "amqp:link:message-size-exceeded",
        f"The received message (size {size} bytes) exceeds the limit of {options.max_message_bytes} bytes "
        f"of the entity '{options.name}'.",
    )


def ttl_of(message: ReceivedMessage, options: QueueOptions) -> float | None:
    """The time to live, in seconds: the lesser of the message's and the entity's; None: for ever."""
    given = [ttl for ttl in (message.ttl_seconds, options.default_ttl_seconds) if ttl is not None]
    return min(given) if given else None
