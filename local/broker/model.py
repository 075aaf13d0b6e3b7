"""The values that cross the border of the state machine, and its one error."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from typing import TypeAlias

from local.broker.messages import ReceivedMessage

DEAD_LETTER_SUFFIX = "$DeadLetterQueue"


class BrokerError(Exception):
    """The broker refuses: an AMQP error condition and a text for people."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What a queue is set to. The defaults are the cloud's, but for the duplicate window: there the emulator's."""

    name: str
    requires_session: bool = False
    lock_seconds: float = 60.0
    max_delivery_count: int = 10
    default_ttl_seconds: float | None = None
    dead_letter_on_expiration: bool = False
    duplicate_detection: bool = False
    duplicate_window_seconds: float = 20.0
    max_message_bytes: int = 262144
    folds_session_case: bool = False  # answer with lower-case session ids, as the service was once reported to


class MessageState(enum.IntEnum):
    """The numbers are those of the x-opt-message-state annotation."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class Outcome(enum.Enum):
    """How a delivery ended."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    DEFERRED = "deferred"
    DEAD_LETTERED = "dead-lettered"
    RELEASED = "released"


@dataclass(eq=False, slots=True)
class SessionLock:
    """One receiver's hold on one session. The object is the proof of the hold: a later hold is another object."""

    queue: str
    session_id: str
    owner: str
    locked_until: float
    is_lost: bool = False


@dataclass(eq=False, slots=True)
class StoredMessage:
    """A message in a queue. Only the machine changes it; others look."""

    message: ReceivedMessage
    sequence_number: int
    enqueue_sequence_number: int
    enqueued_at: float
    expires_at: float | None = None
    delivery_count: int = 0
    state: MessageState = MessageState.ACTIVE
    lock_token: uuid.UUID | None = None
    is_available: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in a receiver's hands, under a lock that has an end."""

    queue: str
    lock_token: uuid.UUID
    locked_until: float
    delivery_count: int
    sequence_number: int
    enqueue_sequence_number: int
    enqueued_at: float
    expires_at: float | None
    session_id: str | None
    state: MessageState
    message: ReceivedMessage
    session_lock: SessionLock | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages a queue holds. Locked ones are active or deferred too."""

    active: int
    dead_letter: int
    scheduled: int
    deferred: int
    locked: int
    sessions: int


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as an operator sees it."""

    session_id: str
    messages: int
    waiting: int
    locked_by: str | None
    locked_until: float | None


@dataclass(frozen=True, slots=True)
class MessageReady:
    """A receiver of this queue, or of this locked session, can have a message now."""

    queue: str
    session: SessionLock | None


@dataclass(frozen=True, slots=True)
class SessionReady:
    """An unlocked session of this queue has a message now."""

    queue: str


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The lock ran out."""

    lock: SessionLock


Signal: TypeAlias = MessageReady | SessionReady | SessionLost
