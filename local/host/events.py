"""What the host tells its observers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a delivery ended for the broker, or an invocation without a message for its caller."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    FAILED = "failed"  # of a timer or an HTTP function, which has no message to abandon
    UNSETTLED = "unsettled"  # success, but autoCompleteMessages is off
    WORKER_DIED = "worker-died"  # abandoned
    TIMED_OUT = "timed-out"  # abandoned, and the worker restarted
    LOCK_LOST = "lock-lost"  # the broker refused the settlement


@dataclass(frozen=True, slots=True)
class InvocationEnded:
    """One per invocation; the message's fields are None for timers and HTTP."""

    function: str
    queue: str | None
    session_id: str | None
    message_id: str | None
    sequence_number: int | None
    delivery_count: int | None
    outcome: Outcome
    seconds: float
    instance: int = 0
    error: str | None = None
    status: int | None = None
    """Of the answer to an HTTP request."""


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker has indexed the app and takes invocations."""

    instance: int
    pid: int
    functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker's process ended, whoever ended it; `expected` tells a stop, restart or reload from a crash."""

    instance: int
    pid: int
    exit_code: int | None
    expected: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log record of the worker with its `extra` fields, a line it printed, or a word of the host itself."""

    function: str | None
    level: str
    message: str
    fields: Mapping[str, object] = field(default_factory=dict)
    logger: str = ""
    exception: str | None = None
    instance: int | None = None


HostEvent = InvocationEnded | WorkerStarted | WorkerDied | LogLine
