"""The state machine on an event loop: the clock, one timer, and receivers that wait.

The AMQP front and the Functions host share it, so both see the same queues under the same rules. Every call runs to its
end without awaiting; only waiting is asynchronous, and what is handed to a waiter that gave up goes back at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from local.broker.exchange import SETTLEMENTS, Exchange, Intercept, Operation, keys_of
from local.broker.machine import Broker, Queue
from local.broker.messages import MessageId, ReceivedMessage
from local.broker.model import (
    BrokerError,
    Counts,
    Delivery,
    MessageReady,
    Outcome,
    QueueOptions,
    SessionLock,
    SessionLost,
    Signal,
    StoredMessage,
)

__all__ = [
    "BrokerError",
    "BrokerEvent",
    "BrokerService",
    "Counts",
    "Delivery",
    "Outcome",
    "QueueOptions",
    "ReceivedMessage",
    "Sent",
    "SessionLock",
    "Settled",
    "Waiter",
]

_LEAST_TIMER_SECONDS = 0.001  # the event loop's clock and ours may differ by less than that


@dataclass(frozen=True, slots=True)
class Sent:
    """One send call was accepted: over AMQP, one transfer."""

    queue: str
    messages: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A delivery was settled."""

    queue: str
    outcome: Outcome
    session_id: str | None
    message_id: MessageId | None
    sequence_number: int


BrokerEvent: TypeAlias = Sent | Settled

_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class Waiter(Generic[_T]):
    """A place in a line. `give` is called at most once: with what was waited for, or None when the line has closed."""

    give: Callable[[_T | None], None]
    owner: str = ""
    deletes: bool = False  # receive and delete
    line: dict[Waiter[_T], None] | None = field(default=None, init=False, repr=False)

    def stand_in(self, line: dict[Waiter[_T], None]) -> None:
        """Take the last place."""
        self.line = line
        line[self] = None

    def leave(self) -> None:
        """Give the place up, if it is still held."""
        if self.line is not None:
            self.line.pop(self, None)
            self.line = None


class BrokerService:
    """A broker that lives on the running event loop.

    `intercept`, where it is set, gets every operation as an exchange, and ends it.
    """

    def __init__(self, queues: Sequence[QueueOptions], *, clock: Callable[[], float] = time.time) -> None:
        self.broker = Broker(queues, listener=self._on_signal)
        self.clock = clock
        self.observers: list[Callable[[BrokerEvent], None]] = []
        self.intercept: Intercept | None = None
        self.session_losses: dict[SessionLock, Callable[[], None]] = {}  # whom to tell that a lock ran out
        self._for_messages: dict[str | SessionLock, dict[Waiter[Delivery], None]] = {}  # by queue, or by session
        self._for_sessions: dict[str, dict[Waiter[SessionLock], None]] = {}
        self._stirred: dict[MessageReady | str, None] = {}  # lines that may have something to hand out
        self._serving: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: float | None = None
        self._is_suspended = False

    # ------------------------------------------------------------------------------------------- for the host, tests

    def send(self, queue: str, messages: Sequence[ReceivedMessage]) -> list[int]:
        """Store all messages or none; gives their sequence numbers."""
        operation = Operation("send", self.broker.queue(queue).name, keys_of(messages), can_wait=False)
        return self._in_process(operation, lambda: self.store(queue, messages))

    async def accept_session(
        self, queue: str, session_id: str | None, *, owner: str, wait_seconds: float
    ) -> SessionLock | None:
        """Lock the named session at once, or wait for the next one that has a message. None when none came in time.

        Raises:
            BrokerError: a named session is locked; the queue is unknown or has no sessions.
        """
        if session_id is not None:
            self._refuse_while_suspended()
            return await self._accepted(self.accept_named(queue, session_id, owner=owner))
        given: asyncio.Future[SessionLock | None] = asyncio.get_running_loop().create_future()
        waiter: Waiter[SessionLock] = Waiter(given.set_result, owner)
        self.wait_for_session(queue, waiter)
        lock = await _wait(given, waiter, wait_seconds, self.release_session)
        return None if lock is None else await self._accepted(lock)

    async def _accepted(self, lock: SessionLock) -> SessionLock:
        operation = Operation("accept", lock.queue, [(lock.session_id, None)], session_lock=lock)
        return await self._hand_over(operation, lock, self.release_session)

    async def receive_from_session(self, lock: SessionLock, *, wait_seconds: float) -> Delivery | None:
        """The session's next message in sequence order, or None when none came in time.

        Raises:
            BrokerError: com.microsoft:session-lock-lost.
        """
        delivery = None
        if not self._is_suspended:
            delivery = self.broker.queue(lock.queue).receive_from_session(lock, self.clock())
            self.settle_down()
        if delivery is None and wait_seconds > 0:
            delivery = await self._wait_for_delivery(lambda waiter: self.wait_in_session(lock, waiter), wait_seconds)
        if delivery is not None:
            return await self._received(delivery)
        if wait_seconds > 0:  # the wait may have outlived the lock: say so rather than "nothing"
            self.broker.queue(lock.queue).session_state(lock, self.clock())
        return None

    async def receive(self, queue: str, *, owner: str, wait_seconds: float) -> Delivery | None:
        """The next message of a plain queue or dead-letter queue, or None when none came in time."""
        delivery = None
        if not self._is_suspended:
            delivery = self.broker.queue(queue).receive(self.clock())
            self.settle_down()
        if delivery is None and wait_seconds > 0:
            delivery = await self._wait_for_delivery(
                lambda waiter: self.wait_in_queue(queue, waiter), wait_seconds, owner
            )
        return None if delivery is None else await self._received(delivery)

    async def _received(self, delivery: Delivery) -> Delivery:
        return await self._hand_over(_operation("receive", delivery), delivery, self._give_back)

    async def _wait_for_delivery(
        self, stand_in_line: Callable[[Waiter[Delivery]], None], wait_seconds: float, owner: str = ""
    ) -> Delivery | None:
        given: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        waiter: Waiter[Delivery] = Waiter(given.set_result, owner)
        stand_in_line(waiter)
        return await _wait(given, waiter, wait_seconds, self._give_back)

    def renew(self, delivery: Delivery) -> float:
        """Extend the lock of a message of a plain queue; gives its new end."""
        entity = self.broker.queue(delivery.queue)
        operation = _operation("renew-lock", delivery, can_wait=False)
        return self._in_process(operation, lambda: self._settled_down(entity.renew(delivery.lock_token, self.clock())))

    def renew_session(self, lock: SessionLock) -> float:
        """Extend the session's lock; gives its new end."""
        entity = self.broker.queue(lock.queue)
        keys = [(lock.session_id, None)]
        operation = Operation("renew-session-lock", lock.queue, keys, session_lock=lock, can_wait=False)
        return self._in_process(operation, lambda: self._settled_down(entity.renew_session(lock, self.clock())))

    def release_session(self, lock: SessionLock) -> None:
        """Close the session: messages in hand go back with their delivery count unchanged."""
        self.session_losses.pop(lock, None)
        self.broker.queue(lock.queue).release_session(lock, self.clock())
        self._close_line(lock)
        self.settle_down()

    def complete(self, delivery: Delivery) -> None:
        """Remove the message for good."""
        self._settle_in_process(Outcome.COMPLETED, delivery)

    def abandon(self, delivery: Delivery, properties: Mapping[str, object] | None = None) -> None:
        """Give the message back, its delivery count raised."""
        self._settle_in_process(Outcome.ABANDONED, delivery, properties=properties)

    def release(self, delivery: Delivery) -> None:
        """Give the message back as if it had not been received."""
        self._settle_in_process(Outcome.RELEASED, delivery)

    def defer(self, delivery: Delivery, properties: Mapping[str, object] | None = None) -> None:
        """Set the message aside for whoever knows its sequence number."""
        self._settle_in_process(Outcome.DEFERRED, delivery, properties=properties)

    def dead_letter(
        self,
        delivery: Delivery,
        reason: str | None,
        description: str | None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Move the message to the dead-letter queue."""
        texts = (reason, description)
        self._settle_in_process(Outcome.DEAD_LETTERED, delivery, properties=properties, texts=texts)

    def _settle_in_process(
        self,
        outcome: Outcome,
        delivery: Delivery,
        *,
        properties: Mapping[str, object] | None = None,
        texts: tuple[str | None, str | None] = (None, None),
    ) -> None:
        token, lock = delivery.lock_token, delivery.session_lock
        self._in_process(
            _operation(SETTLEMENTS[outcome], delivery, can_wait=False),
            lambda: self.settle(outcome, delivery.queue, token, lock, properties=properties, texts=texts),
            lambda: None,
        )

    def _in_process(
        self, operation: Operation, execute: Callable[[], _T], made_up: Callable[[], _T] | None = None
    ) -> _T:
        """Do something for a caller in this process, who can't wait; `made_up` gives what a success would."""
        self._refuse_while_suspended()
        if self.intercept is None:
            return execute()
        results: list[_T] = []
        errors: list[BrokerError] = []
        exchange = Exchange(
            operation,
            execute,
            answer=results.append,
            refuse=errors.append,
            cut=lambda _: errors.append(_cut()),
            pretend=None if made_up is None else lambda: results.append(made_up()),
        )
        self.intercept(exchange)
        if errors:
            raise errors[0]
        if not results:  # a client would learn it from the clock
            raise BrokerError("com.microsoft:timeout", f"The broker gave no answer to {operation.name}.")
        return results[0]

    async def _hand_over(self, operation: Operation, held: _T, take_back: Callable[[_T], None]) -> _T:
        """Give a caller in this process what was locked for it; what it can't have goes back."""
        if self.intercept is None:
            return held
        given: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        def refuse(error: BrokerError) -> None:
            if not given.done():
                given.set_exception(error)

        exchange = Exchange(
            operation,
            lambda: held,
            answer=lambda result: None if given.done() else given.set_result(result),
            refuse=refuse,
            cut=lambda _: refuse(_cut()),
        )
        self.intercept(exchange)
        try:
            return await given
        except (BrokerError, asyncio.CancelledError):
            with contextlib.suppress(BrokerError):
                take_back(held)
            raise

    def _give_back(self, delivery: Delivery) -> None:
        self.settle(Outcome.RELEASED, delivery.queue, delivery.lock_token, delivery.session_lock)

    def _settled_down(self, result: _T) -> _T:
        self.settle_down()
        return result

    def _refuse_while_suspended(self) -> None:
        if self._is_suspended:
            raise _cut()

    def counts(self, queue: str) -> Counts:
        """How many messages the queue holds."""
        counts = self.broker.queue(queue).counts(self.clock())
        self.settle_down()
        return counts

    # ------------------------------------------------------------------------------------------- for the AMQP front

    def pass_through(self, exchange: Exchange[object]) -> None:
        """Do what a client asks and answer it, unless somebody comes between."""
        if self.intercept is None:
            exchange.execute()
            exchange.answer()
        else:
            self.intercept(exchange)

    def store(self, queue: str, messages: Sequence[ReceivedMessage]) -> list[int]:
        """Store all messages or none; gives their sequence numbers."""
        entity = self.broker.queue(queue)
        numbers = entity.send(messages, self.clock())
        self.settle_down()
        self._tell(Sent(entity.name, len(messages)))
        return numbers

    def accept_named(self, queue: str, session_id: str, *, owner: str) -> SessionLock:
        """Lock a session by name."""
        lock = self.broker.queue(queue).accept(session_id, owner, self.clock())
        self.settle_down()
        return lock

    def wait_for_session(self, queue: str, waiter: Waiter[SessionLock]) -> None:
        """Stand in line for the next session that has a message."""
        entity = self.broker.queue(queue)
        entity.refuse_session_receiver()
        waiter.stand_in(self._for_sessions.setdefault(entity.name, {}))
        self._stir(entity.name)

    def waiting_for_sessions(self, queue: str) -> int:
        """How many receivers stand in line for a session of the queue."""
        return len(self._for_sessions.get(self.broker.queue(queue).name, ()))

    def wait_in_session(self, lock: SessionLock, waiter: Waiter[Delivery]) -> None:
        """Stand in line for a message of a locked session."""
        waiter.stand_in(self._for_messages.setdefault(lock, {}))
        self._stir(MessageReady(lock.queue, lock))

    def wait_in_queue(self, queue: str, waiter: Waiter[Delivery]) -> None:
        """Stand in line for a message of a plain queue."""
        entity = self.broker.queue(queue)
        entity.refuse_plain_receiver()
        waiter.stand_in(self._for_messages.setdefault(entity.name, {}))
        self._stir(MessageReady(entity.name, None))

    def next_delivery(self, queue: str, lock: SessionLock | None, *, deletes: bool) -> Delivery | None:
        """What is there for a receiver right now."""
        entity, now = self.broker.queue(queue), self.clock()
        try:
            delivery = entity.receive(now) if lock is None else entity.receive_from_session(lock, now)
        except BrokerError:  # the session's lock ran out this very moment: its signal tells the receiver
            delivery = None
        self.settle_down()
        if delivery is not None and deletes:
            self.settle(Outcome.COMPLETED, entity.name, delivery.lock_token, lock)
        return delivery

    def settle(
        self,
        outcome: Outcome,
        queue: str,
        token: uuid.UUID,
        lock: SessionLock | None,
        *,
        properties: Mapping[str, object] | None = None,
        texts: tuple[str | None, str | None] = (None, None),
    ) -> None:
        """End a delivery.

        Raises:
            BrokerError: message-lock-lost, session-lock-lost, or why the outcome is not possible.
        """
        entity, now = self.broker.queue(queue), self.clock()
        try:
            stored = _settle(entity, outcome, token, now, lock=lock, properties=properties, texts=texts)
        finally:
            self.settle_down()
        message = stored.message
        self._tell(Settled(entity.name, outcome, message.session_id, message.message_id, stored.sequence_number))

    # -------------------------------------------------------------------------------------- for those who break things

    def expire(self, queue: str, tokens: Sequence[uuid.UUID], lock: SessionLock | None) -> None:
        """Let the session's lock, or else the messages' own, run out now."""
        entity, now = self.broker.queue(queue), self.clock()
        if lock is not None:
            entity.expire_session(lock, now)
        else:
            for token in tokens:
                entity.expire(token, now)
        self.settle_down()

    def complete_for_show(self, queue: str, token: uuid.UUID, lock: SessionLock | None) -> None:
        """Let a message look completed to all, and come again in its place, its delivery count raised."""
        entity = self.broker.queue(queue)
        stored = entity.abandon(token, self.clock(), lock=lock)
        self.settle_down()
        message = stored.message
        event = Settled(entity.name, Outcome.COMPLETED, message.session_id, message.message_id, stored.sequence_number)
        self._tell(event)

    def suspend(self) -> None:
        """Be gone for callers in this process: they get nothing, and what they ask is refused. Time goes on."""
        self._is_suspended = True

    def resume(self) -> None:
        """Be back."""
        self._is_suspended = False
        for queue in self._for_sessions:
            self._stir(queue)
        for line in self._for_messages:
            self._stir(MessageReady(line, None) if isinstance(line, str) else MessageReady(line.queue, line))

    # ------------------------------------------------------------------------------------------------------- its time

    def settle_down(self) -> None:
        """Set the timer after the machine has moved. Whoever calls the machine directly calls this afterwards."""
        due = self.broker.next_deadline()
        if due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due is not None:
            delay = max(due - self.clock(), _LEAST_TIMER_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(delay, self.tick)

    def tick(self) -> None:
        """Let fall due what is due. The timer does so by itself; a test that moves its clock calls it."""
        self._timer_due = None
        self.broker.advance(self.clock())
        self.settle_down()

    def close(self) -> None:
        """Stop the timer; the next call to the service starts it again."""
        for handle in (self._timer, self._serving):
            if handle is not None:
                handle.cancel()
        self._timer = self._serving = self._timer_due = None

    # ---------------------------------------------------------------------------------------------------- the lines

    def _on_signal(self, signal: Signal) -> None:
        if isinstance(signal, SessionLost):
            lost = self.session_losses.pop(signal.lock, None)
            self._close_line(signal.lock)
            if lost is not None:
                asyncio.get_running_loop().call_soon(lost)
        elif isinstance(signal, MessageReady):
            if (signal.session or signal.queue) in self._for_messages:
                self._stir(signal)
        elif signal.queue in self._for_sessions:
            self._stir(signal.queue)

    def _close_line(self, lock: SessionLock) -> None:
        for waiter in list(self._for_messages.pop(lock, ())):
            waiter.leave()
            waiter.give(None)

    def _stir(self, line: MessageReady | str) -> None:
        self._stirred[line] = None
        if self._serving is None:
            self._serving = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._serving = None
        stirred, self._stirred = self._stirred, {}
        if self._is_suspended:  # every line is stirred when that is over
            return
        for line in stirred:
            if isinstance(line, str):
                self._hand_out_sessions(self.broker.queue(line))
            else:
                self._hand_out_messages(self.broker.queue(line.queue), line.session)
        self.settle_down()

    def _hand_out_sessions(self, entity: Queue) -> None:
        line = self._for_sessions.get(entity.name, {})
        while line:
            waiter = next(iter(line))
            lock = entity.accept_next(waiter.owner, self.clock())
            if lock is None:
                return
            waiter.leave()
            waiter.give(lock)

    def _hand_out_messages(self, entity: Queue, lock: SessionLock | None) -> None:
        line = self._for_messages.get(lock or entity.name, {})
        while line:
            waiter = next(iter(line))
            delivery = self.next_delivery(entity.name, lock, deletes=waiter.deletes)
            if delivery is None:
                return
            waiter.leave()
            waiter.give(delivery)

    def _tell(self, event: BrokerEvent) -> None:
        for observer in self.observers:
            observer(event)


def _operation(name: str, delivery: Delivery, *, can_wait: bool = True) -> Operation:
    """An operation on what a receiver has, or is about to have, in its hands."""
    key = (delivery.session_id, delivery.message.message_id)
    return Operation(name, delivery.queue, [key], (delivery.lock_token,), delivery.session_lock, can_wait)


def _cut() -> BrokerError:
    return BrokerError("amqp:connection:forced", "The connection to the broker was cut.")


async def _wait(
    given: asyncio.Future[_T | None], waiter: Waiter[_T], seconds: float, take_back: Callable[[_T], None]
) -> _T | None:
    """What the waiter was given in time; whatever a cancelled caller can no longer take goes back at once."""
    try:
        await asyncio.wait({given}, timeout=max(seconds, 0))
    except asyncio.CancelledError:
        result = given.result() if given.done() else None
        if result is not None:
            with contextlib.suppress(BrokerError):
                take_back(result)
        raise
    finally:
        waiter.leave()
    return given.result() if given.done() else None


def _settle(
    entity: Queue,
    outcome: Outcome,
    token: uuid.UUID,
    now: float,
    *,
    lock: SessionLock | None,
    properties: Mapping[str, object] | None,
    texts: tuple[str | None, str | None],
) -> StoredMessage:
    match outcome:
        case Outcome.COMPLETED:
            return entity.complete(token, now, lock=lock)
        case Outcome.ABANDONED:
            return entity.abandon(token, now, lock=lock, properties=properties)
        case Outcome.RELEASED:
            return entity.release(token, now, lock=lock)
        case Outcome.DEFERRED:
            return entity.defer(token, now, lock=lock, properties=properties)
        case Outcome.DEAD_LETTERED:
            reason, description = texts
            return entity.dead_letter(
                token, now, lock=lock, reason=reason, description=description, properties=properties
            )
