"""What a rule does to an operation. Each action says for which services it is, and refuses values that mean nothing.

    Delay           it happens late, or is answered late
    Stall           the same, until somebody releases it
    Answer          Cosmos DB: not done, answered with a status
    Refuse          broker: not done, refused with a condition
    LoseRequest     not done, and never answered
    LoseReply       done, and the answer is lost
    Cut             not done, and the connection is cut
    LoseSettlement  broker: not done, but told that it is
    DeliverTwice    broker: told that the message is completed, which comes once more
    ExpireLock      broker: the lock runs out
    Throttle        Cosmos DB: 429 beyond a rate of request units
    StaleRead       Cosmos DB: the item's version before the last write
    Outage          the whole service is gone for a while
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias


class FaultError(ValueError):
    """A rule that can't be: which key of it is wrong, and why."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class Service(enum.Enum):
    """Whose operations a rule is about."""

    COSMOS = "cosmos"
    BROKER = "broker"


class Stage(enum.Enum):
    """Whether an operation is held back before it is done, or when it is done and not answered."""

    BEFORE = "before"
    AFTER = "after"


class Loss(enum.Enum):
    """How an answer is lost."""

    RESET = "reset"  # the connection is cut: TCP RST
    CLOSE = "close"  # the connection is closed in order: TCP FIN
    TRUNCATE = "truncate"  # Cosmos DB: half of the answer's body, then FIN
    NEVER = "never"  # the connection lives, the answer never comes
    STATUS = "status"  # Cosmos DB: another answer, which tells nothing about what was done


class Starts(enum.Enum):
    """When an outage begins."""

    AT_ONCE = "at-once"
    ON_HIT = "on-hit"


_BOTH: Final = frozenset(Service)
_COSMOS: Final = frozenset({Service.COSMOS})
_BROKER: Final = frozenset({Service.BROKER})
_ON_COSMOS_ONLY: Final = frozenset({Loss.TRUNCATE, Loss.STATUS})


@dataclass(frozen=True, slots=True)
class Delay:
    """Let the operation take so long: before it is done, or between its being done and its answer."""

    kind: ClassVar[str] = "delay"
    services: ClassVar[frozenset[Service]] = _BOTH
    seconds: float
    stage: Stage = Stage.BEFORE

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)


@dataclass(frozen=True, slots=True)
class Stall:
    """Hold the operation until the rule's `release` lets it go on; disarming the rule drops it."""

    kind: ClassVar[str] = "stall"
    services: ClassVar[frozenset[Service]] = _BOTH
    stage: Stage = Stage.BEFORE


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer with a status instead of doing it."""

    kind: ClassVar[str] = "answer"
    services: ClassVar[frozenset[Service]] = _COSMOS
    status: int
    sub_status: int = 0
    retry_after_ms: int | None = None
    message: str = "A fault was asked for."

    def __post_init__(self) -> None:
        _check_status(self.status, self.sub_status, self.retry_after_ms)


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse with an AMQP condition instead of doing it."""

    kind: ClassVar[str] = "refuse"
    services: ClassVar[frozenset[Service]] = _BROKER
    condition: str = "com.microsoft:server-busy"
    description: str = "A fault was asked for."

    def __post_init__(self) -> None:
        if not self.condition.isascii() or ":" not in self.condition:
            raise FaultError("condition", f"{self.condition!r} is no AMQP condition such as com.microsoft:server-busy")


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """Do nothing and say nothing; the connection lives on."""

    kind: ClassVar[str] = "lose-request"
    services: ClassVar[frozenset[Service]] = _BOTH


@dataclass(frozen=True, slots=True)
class LoseReply:
    """Do it and lose the answer. `status`, `sub_status` are what is answered instead with `how` = STATUS."""

    kind: ClassVar[str] = "lose-reply"
    services: ClassVar[frozenset[Service]] = _BOTH
    how: Loss = Loss.RESET
    status: int = 503
    sub_status: int = 0

    def __post_init__(self) -> None:
        _check_status(self.status, self.sub_status, None)
        if self.how is not Loss.STATUS and (self.status, self.sub_status) != (503, 0):
            raise FaultError("status", "is answered with how = status only")


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut the connection before anything is done. `how` is RESET or CLOSE."""

    kind: ClassVar[str] = "cut"
    services: ClassVar[frozenset[Service]] = _BOTH
    how: Loss = Loss.RESET

    def __post_init__(self) -> None:
        if self.how not in (Loss.RESET, Loss.CLOSE):
            raise FaultError("how", f"a connection is cut by reset or close, not by {self.how.value}")


@dataclass(frozen=True, slots=True)
class LoseSettlement:
    """Tell the receiver that its settlement is done, and leave the message locked as it is."""

    kind: ClassVar[str] = "lose-settlement"
    services: ClassVar[frozenset[Service]] = _BROKER


@dataclass(frozen=True, slots=True)
class DeliverTwice:
    """Tell the receiver that the message is completed, and put it back in its place, its delivery count raised."""

    kind: ClassVar[str] = "deliver-twice"
    services: ClassVar[frozenset[Service]] = _BROKER


@dataclass(frozen=True, slots=True)
class ExpireLock:
    """Let the lock run out: the session's, or the message's in a plain queue.

    At a settlement, a renewal or an operation on the session it runs out just before; at `receive` and `accept` so
    many seconds after the receiver was given what it locks.
    """

    kind: ClassVar[str] = "expire-lock"
    services: ClassVar[frozenset[Service]] = _BROKER
    seconds: float = 0.0

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)


@dataclass(frozen=True, slots=True)
class Throttle:
    """Answer 429 with a retry-after once more request units a second were used than allowed."""

    kind: ClassVar[str] = "throttle"
    services: ClassVar[frozenset[Service]] = _COSMOS
    ru_per_second: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ru_per_second) and self.ru_per_second > 0):
            raise FaultError("ruPerSecond", f"must be above 0, not {self.ru_per_second}")


@dataclass(frozen=True, slots=True)
class StaleRead:
    """Answer a point read with the version before the last write, as a replica that lags would.

    Applies to an item that was written while the rule was armed, unless the request's session token has that write.
    """

    kind: ClassVar[str] = "stale-read"
    services: ClassVar[frozenset[Service]] = _COSMOS


@dataclass(frozen=True, slots=True)
class Outage:
    """Refuse connections and cut those that are open, for so many seconds or until the rule is disarmed.

    It begins when the rule is armed, or with the operation that the rule is about.
    """

    kind: ClassVar[str] = "outage"
    services: ClassVar[frozenset[Service]] = _BOTH
    seconds: float | None = None
    starts: Starts = Starts.AT_ONCE

    def __post_init__(self) -> None:
        if self.seconds is not None:
            _check_seconds(self.seconds)


Action: TypeAlias = (
    Delay
    | Stall
    | Answer
    | Refuse
    | LoseRequest
    | LoseReply
    | Cut
    | LoseSettlement
    | DeliverTwice
    | ExpireLock
    | Throttle
    | StaleRead
    | Outage
)
ACTIONS: Final[Mapping[str, type[Action]]] = {
    each.kind: each
    for each in (
        Delay,
        Stall,
        Answer,
        Refuse,
        LoseRequest,
        LoseReply,
        Cut,
        LoseSettlement,
        DeliverTwice,
        ExpireLock,
        Throttle,
        StaleRead,
        Outage,
    )
}


def check_for(action: Action, service: Service) -> None:
    """Refuse an action that the service can't do."""
    if service not in action.services:
        raise FaultError("action", f"{action.kind} is not for the service {service.value}")
    if isinstance(action, LoseReply) and service is Service.BROKER and action.how in _ON_COSMOS_ONLY:
        raise FaultError("action.how", f"{action.how.value} is for the service cosmos only")


def _check_seconds(seconds: float) -> None:
    if not (math.isfinite(seconds) and 0 <= seconds <= 86_400):
        raise FaultError("seconds", f"must be from 0 to 86400, not {seconds}")


def _check_status(status: int, sub_status: int, retry_after_ms: int | None) -> None:
    if not 400 <= status <= 599:
        raise FaultError("status", f"must be an HTTP status from 400 to 599, not {status}")
    if sub_status < 0:
        raise FaultError("subStatus", f"must not be negative, not {sub_status}")
    if retry_after_ms is not None and retry_after_ms < 0:
        raise FaultError("retryAfterMs", f"must not be negative, not {retry_after_ms}")
