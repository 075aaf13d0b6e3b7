"""An operation on its way between a client and the rules, for whoever may come between the two.

Both fronts, AMQP and the host in this process, bring what a client asks as an exchange. As a rule it is done and
answered at once; `BrokerService.intercept` may do so later, or only one of the two, or cut the connection instead.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from local.broker.messages import MessageId, ReceivedMessage
from local.broker.model import BrokerError, Outcome, SessionLock

T_co = TypeVar("T_co", covariant=True)
SETTLEMENTS: Final = {
    Outcome.COMPLETED: "complete",
    Outcome.ABANDONED: "abandon",
    Outcome.DEFERRED: "defer",
    Outcome.DEAD_LETTERED: "dead-letter",
    Outcome.RELEASED: "release",
}
MessageKey: TypeAlias = tuple[str | None, MessageId | None]  # session id, message id


class Operation(NamedTuple):  # one is made for every message: a frozen dataclass takes thrice the time
    """What is asked. `tokens` and `session_lock` are the locks that it rests on; `can_wait`: its answer may be late."""

    name: str
    queue: str
    keys: Sequence[MessageKey] = ()
    tokens: Sequence[uuid.UUID] = ()
    session_lock: SessionLock | None = None
    can_wait: bool = True


class Exchange(Generic[T_co]):
    """One operation and what becomes of it: `answer`, `refuse`, `pretend` and `cut` end it, and only one of them."""

    __slots__ = ("_answer", "_cut", "_execute", "_outcome", "_pretend", "_refuse", "operation")

    def __init__(
        self,
        operation: Operation,
        execute: Callable[[], T_co],
        *,
        answer: Callable[[T_co], None],
        refuse: Callable[[BrokerError], None],
        cut: Callable[[bool], None],
        pretend: Callable[[], None] | None = None,
    ) -> None:
        self.operation = operation
        self._execute = execute
        self._answer = answer
        self._refuse = refuse
        self._cut = cut
        self._pretend = pretend
        self._outcome: Callable[[], None] | None = None

    def execute(self) -> BrokerError | None:
        """Do it, and keep what came of it for `answer`; gives the refusal if it is one."""
        try:
            result = self._execute()
        except BrokerError as exc:
            self._outcome = partial(self._refuse, exc)
            return exc
        self._outcome = partial(self._answer, result)
        return None

    def answer(self) -> None:
        """Tell the client what came of it."""
        if self._outcome is not None:
            self._outcome()

    def refuse(self, error: BrokerError) -> None:
        """Tell the client that it was refused."""
        self._refuse(error)

    def pretend(self) -> None:
        """Tell the client that it was done."""
        if self._pretend is None:
            raise TypeError(f"{self.operation.name} has an answer that nobody can make up")
        self._pretend()

    def cut(self, *, resets: bool = True) -> None:
        """Cut the client's connection, or close it in order."""
        self._cut(resets)


Intercept: TypeAlias = Callable[[Exchange[object]], None]


def keys_of(messages: Sequence[ReceivedMessage]) -> list[MessageKey]:
    """What the messages are known by."""
    return [(message.session_id, message.message_id) for message in messages]
