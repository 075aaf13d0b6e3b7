"""Rules: which operations a fault is for, and how many of them it hits. No I/O, no clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from local.faults.actions import (
    Action,
    DeliverTwice,
    ExpireLock,
    FaultError,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Service,
    StaleRead,
    Starts,
    Throttle,
    check_for,
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

ITEM_OPERATIONS: Final = (
    *("Create", "Read", "Replace", "Upsert", "Patch", "Delete", "Batch", "Query", "ReadFeed", "ChangeFeed"),
    "DeletePartition",
)
SETTLEMENTS: Final = ("complete", "abandon", "defer", "dead-letter", "release")
RENEWALS: Final = ("renew-lock", "renew-session-lock")
_SESSION_STATES: Final = ("get-session-state", "set-session-state")
ATTACHES: Final = ("attach-sender", "attach-receiver", "attach-management")
HANDED_OVER: Final = ("accept", "receive")
OPERATIONS: Final = {
    Service.COSMOS: (
        *ITEM_OPERATIONS,
        "Account.Read",
        *(f"Database.{each}" for each in ("Create", "Read", "Delete", "Query", "ReadFeed")),
        *(f"Container.{each}" for each in ("Create", "Read", "Replace", "Delete", "Query", "ReadFeed")),
        "PartitionKeyRanges.ReadFeed",
        *(f"Offer.{each}" for each in ("Read", "Replace", "Query", "ReadFeed")),
        "Other",
    ),
    Service.BROKER: (
        *ATTACHES,
        "send",
        *HANDED_OVER,
        *SETTLEMENTS,
        *RENEWALS,
        *_SESSION_STATES,
        *("peek-message", "receive-by-sequence-number", "schedule-message", "cancel-scheduled-message"),
        *("get-message-sessions", "batch-delete-messages"),
    ),
}


class Key(NamedTuple):
    """What an operation is about: a session or partition key, and a message or item in it. None where there is none."""

    group: str | None = None
    id: str | None = None


class Operation(NamedTuple):  # one is made for every message: a frozen dataclass takes thrice the time
    """Something that a client asks of a service. A batch has several keys."""

    service: Service
    name: str
    entity: str = ""
    keys: Sequence[Key] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An action, and the operations that it is done to.

    `operation` is a name or several, `entity` a queue or container, `group` a session id or partition key, `id` a
    message id or item id. In all of them `*` stands for any text, `?` for any character, and `\\` takes the special
    meaning from the next one; what is not given counts for all. Without `operation` a rule is for every operation of
    the broker that its action can be done to, and for the operations on items in Cosmos DB: not for what the client
    does on its own, such as reading the account.

    Of the operations that a rule is for, it leaves `skip` alone, and hits the next `count` (None: all), each with
    the `probability`. Those that an earlier rule has hit it does not see.
    """

    name: str
    service: Service
    action: Action
    operation: str | tuple[str, ...] | None = None
    entity: str | None = None
    group: str | None = None
    id: str | None = None
    skip: int = 0
    count: int | None = None
    probability: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise FaultError("name", f"{self.name!r} must be 1 to 64 letters, digits, '.', '_' or '-'")
        check_for(self.action, self.service)
        if isinstance(self.action, Outage) and self.action.starts is Starts.AT_ONCE:
            self._check_no_choice()
        self._check_operation()
        if self.skip < 0:
            raise FaultError("skip", f"must not be negative, not {self.skip}")
        if self.count is not None and self.count < 1:
            raise FaultError("count", f"must be at least 1, not {self.count}")
        if not 0 < self.probability <= 1:
            raise FaultError("probability", f"must be above 0 and at most 1, not {self.probability}")

    def matches(self, operation: Operation) -> bool:
        """Whether the rule is for this operation, its numbers aside."""
        if operation.service is not self.service or not self._names(operation.name):
            return False
        if not self.is_for_entity(operation.entity):
            return False
        if self.group is None and self.id is None:
            return True
        return any(fits(self.group, key.group) and fits(self.id, key.id) for key in operation.keys)

    def is_for_entity(self, entity: str) -> bool:
        """Whether the rule is for this queue, whose case does not count, or for this container."""
        return fits(self.entity, entity, folds=self.service is Service.BROKER)

    @property
    def operations(self) -> tuple[str, ...]:
        """The patterns of operation names."""
        if self.operation is None:
            return ITEM_OPERATIONS if self.service is Service.COSMOS else ("*",)
        return (self.operation,) if isinstance(self.operation, str) else self.operation

    def _names(self, name: str) -> bool:
        return suits(self.action, name) and any(fits(pattern, name) for pattern in self.operations)

    def _check_operation(self) -> None:
        known = OPERATIONS[self.service]
        for pattern in self.operations:
            found = [name for name in known if fits(pattern, name)]
            if not found:
                close = [name for name in known if name.lower() == pattern.lower()]
                hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
                raise FaultError("operation", f"{pattern!r} is no operation of the service {self.service.value}{hint}")
            if self.operation is not None and not any(suits(self.action, name) for name in found):
                raise FaultError("operation", f"{self.action.kind} can't be done to {pattern}")
        if not self.operations:
            raise FaultError("operation", "names no operation")

    def _check_no_choice(self) -> None:
        chosen = {"operation": self.operation, "entity": self.entity, "group": self.group, "id": self.id}
        for key, value in chosen.items():
            if value is not None:
                raise FaultError(key, "an outage that starts at once is of no operation; let it start on-hit")
        for key, is_set in (("skip", self.skip > 0), ("probability", self.probability < 1)):
            if is_set:
                raise FaultError(key, "an outage that starts at once waits for no operation; let it start on-hit")


def suits(action: Action, name: str) -> bool:
    """Whether the action can be done to operations of this name at all."""
    match action:
        case Outage(starts=Starts.AT_ONCE):
            return False
        case LoseSettlement():
            return name in SETTLEMENTS
        case DeliverTwice():
            return name == "complete"
        case ExpireLock():
            return name in {*SETTLEMENTS, *RENEWALS, *_SESSION_STATES, *HANDED_OVER}
        case StaleRead():
            return name == "Read"
        case LoseRequest():  # a message is not handed over until it is there: nothing to lose yet
            return name not in HANDED_OVER
        case LoseReply(how=Loss.NEVER):  # AMQP loses no transfer of a connection that lives
            return name not in {*HANDED_OVER, *ATTACHES}
        case LoseReply():
            return name not in ATTACHES
        case Throttle():
            return name in ITEM_OPERATIONS
        case Refuse():
            return name != "release"  # needs no answer, so that there is none to refuse with
        case _:
            return True


def fits(pattern: str | None, text: str | None, *, folds: bool = False) -> bool:
    """Whether a text fits a pattern; without a pattern everything does, and nothing else fits what is absent."""
    return pattern is None or (text is not None and _compiled(pattern, folds).fullmatch(text) is not None)


@lru_cache(maxsize=1024)
def _compiled(pattern: str, folds: bool) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    special = {"*": ".*", "?": "."}
    text = "".join(special.get(part) or re.escape(part[-1]) for part in parts)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if folds else 0))
