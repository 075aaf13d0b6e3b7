"""The broker's rules, apart from I/O, tasks and clocks: every call brings the time and first lets fall due what is due.

A message is in one of these places:

    scheduled ──due──► active ──receive──► locked ──complete──► gone
                         ▲                   │ abandon, lock lost: count + 1 (at the maximum: dead-letter queue)
                         ├───────────────────┤ release, session closed: count unchanged
                         │                   ├ defer ──► deferred ──receive by number──► locked
                         └ expired: dead-letter queue or gone      └ dead-letter ──► dead-letter queue

A message that comes back takes its old place, because each session (a plain queue is one nameless session) keeps its
available sequence numbers in a heap. Every operation costs O(log n) at most, looking at a page of messages aside.
"""

from __future__ import annotations

import dataclasses
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from local.broker import admission
from local.broker.codec import CodecError
from local.broker.deadlines import Deadlines
from local.broker.duplicates import DuplicateWindow
from local.broker.messages import MessageId, ReceivedMessage
from local.broker.model import (
    DEAD_LETTER_SUFFIX,
    BrokerError,
    Counts,
    Delivery,
    MessageReady,
    MessageState,
    QueueOptions,
    SessionLock,
    SessionLost,
    SessionReady,
    SessionView,
    Signal,
    StoredMessage,
)
from local.broker.sessions import Session, Sessions

__all__ = ["Broker", "BrokerError", "Counts", "Delivery", "Queue", "QueueOptions", "SessionLock", "StoredMessage"]

MAX_REASON_LENGTH = 4096

_NOT_ALLOWED = "amqp:not-allowed"
_ARGUMENT = "com.microsoft:argument-error"


class Broker:
    """Queues by name, case-insensitive, each with its dead-letter queue under `NAME/$DeadLetterQueue`.

    `listener` hears what receivers may be waiting for; `new_token` makes lock tokens.
    """

    def __init__(
        self,
        queues: Sequence[QueueOptions],
        *,
        listener: Callable[[Signal], None] = lambda _: None,
        new_token: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._deadlines = Deadlines()
        self._entities: dict[str, Queue] = {}
        self.queues: list[Queue] = []
        for options in queues:
            context = _Context(self._deadlines, listener, new_token)
            queue = Queue(options, context, Queue(_dead_letter_options(options), context, None))
            if queue.name.lower() in self._entities:
                raise ValueError(f"two queues are named {queue.name!r}")
            self.queues.append(queue)
            for entity in (queue, queue.dead_letter_queue):
                if entity is not None:
                    self._entities[entity.name.lower()] = entity

    def queue(self, name: str) -> Queue:
        """The queue or dead-letter queue of this name.

        Raises:
            BrokerError: amqp:not-found, naming it.
        """
        found = self._entities.get(name.lower())
        if found is None:
            raise BrokerError("amqp:not-found", f"The messaging entity '{name}' could not be found.")
        return found

    def advance(self, now: float) -> None:
        """Let everything fall due that is due: locks, time to live, scheduled messages."""
        self._deadlines.run(now)

    def next_deadline(self) -> float | None:
        """When `advance` has something to do next."""
        return self._deadlines.next()


@dataclasses.dataclass(frozen=True, slots=True)
class _Context:
    deadlines: Deadlines
    listener: Callable[[Signal], None]
    new_token: Callable[[], uuid.UUID]


class Queue:
    """One queue or dead-letter queue."""

    def __init__(self, options: QueueOptions, context: _Context, dead_letter_queue: Queue | None) -> None:
        self.name = options.name
        self.options = options
        self.dead_letter_queue = dead_letter_queue
        self._context = context
        self._deadlines = context.deadlines
        self._window = DuplicateWindow(options.duplicate_window_seconds)
        self._messages: dict[int, StoredMessage] = {}
        self._order: list[int] = []  # every sequence number, ascending; may hold numbers that are gone
        self._in_state = dict.fromkeys(MessageState, 0)
        self._locks: dict[uuid.UUID, StoredMessage] = {}
        self._sessions = Sessions(has_sessions=options.requires_session)
        self._last_number = 0

    # ------------------------------------------------------------------------------------------------------- sending

    def send(self, messages: Sequence[ReceivedMessage], now: float) -> list[int]:
        """Store all messages or none; gives their sequence numbers.

        A message due in the future is scheduled. A duplicate is accepted, gets a number, and vanishes.

        Raises:
            BrokerError: for the first message that breaks a rule; then none is stored.
        """
        self._deadlines.run(now)
        self.refuse_sender()
        checked = [admission.checked(message, self.options) for message in messages]
        return [self._admit(message, now) for message in checked]

    def cancel_scheduled(self, numbers: Sequence[int], now: float) -> None:
        """Take back scheduled messages, all or none."""
        self._deadlines.run(now)
        found = [self._found(number) for number in dict.fromkeys(numbers)]
        for stored in found:
            if stored.state is not MessageState.SCHEDULED:
                raise _not_found(stored.sequence_number)
        for stored in found:
            self._remove(stored)

    def _admit(self, message: ReceivedMessage, now: float) -> int:
        if message.message_id is None:
            # Receivers can't settle without one; made up here, it can't match any other, so the window skips it.
            message = message.with_message_id(self._context.new_token().hex)
        elif self.options.duplicate_detection and not self._is_new(message.message_id, now):
            return self._next_number()
        if message.scheduled_at is None or message.scheduled_at <= now:
            return self._append(message, now).sequence_number
        number = self._next_number()
        stored = StoredMessage(message, number, number, now, state=MessageState.SCHEDULED)
        self._add(stored)
        self._deadlines.set((self, "due", number), message.scheduled_at, lambda when: self._activate(stored, when))
        return number

    def _is_new(self, message_id: MessageId, now: float) -> bool:
        if message_id == "":  # an empty id identifies nothing
            return True
        if not self._window:
            self._forget_ids_after_a_window(now)
        return self._window.admits(message_id, now)

    def _forget_ids_after_a_window(self, now: float) -> None:
        """Look once a window whether ids can be forgotten, so that a queue that fell silent keeps none."""

        def forget(when: float) -> None:
            self._window.forget(when)
            if self._window:
                self._forget_ids_after_a_window(when)

        self._deadlines.set((self, "window"), now + self.options.duplicate_window_seconds, forget)

    def _activate(self, stored: StoredMessage, when: float) -> None:
        self._remove(stored)
        self._append(stored.message, when)

    def _append(self, message: ReceivedMessage, now: float) -> StoredMessage:
        number = self._next_number()
        ttl = admission.ttl_of(message, self.options)
        stored = StoredMessage(message, number, number, now, expires_at=None if ttl is None else now + ttl)
        self._add(stored)
        if stored.expires_at is not None:
            self._deadlines.set((self, "ttl", number), stored.expires_at, lambda when: self._on_ttl(stored, when))
        self._offer(stored)
        return stored

    # ----------------------------------------------------------------------------------------------------- receiving

    def receive(self, now: float) -> Delivery | None:
        """Lock the first available message of a plain queue.

        Raises:
            BrokerError: amqp:not-allowed when the queue requires sessions.
        """
        self._deadlines.run(now)
        self.refuse_plain_receiver()
        stored = self._sessions.plain.take()
        return None if stored is None else self._locked(stored, self._sessions.plain, now)

    def receive_from_session(self, lock: SessionLock, now: float) -> Delivery | None:
        """Lock the first available message of a session.

        Raises:
            BrokerError: com.microsoft:session-lock-lost.
        """
        session = self._held(lock, now)
        stored = session.take()
        return None if stored is None else self._locked(stored, session, now)

    def receive_deferred(
        self, numbers: Sequence[int], now: float, *, lock: SessionLock | None = None, delete: bool = False
    ) -> list[Delivery]:
        """Lock (or take for good) deferred messages by number, all or none. They stay deferred until settled.

        Raises:
            BrokerError: com.microsoft:message-not-found; com.microsoft:session-lock-lost.
        """
        session = self._scope(lock, now)
        found = [self._found(number) for number in dict.fromkeys(numbers)]
        for stored in found:
            elsewhere = self._sessions.of(stored) is not session
            if stored.state is not MessageState.DEFERRED or stored.lock_token is not None or elsewhere:
                raise _not_found(stored.sequence_number)
            if _is_expired(stored, now):
                self._expire(stored)  # the service looks at a deferred message's time to live only here
                raise _not_found(stored.sequence_number)
        deliveries = [self._locked(stored, session, now) for stored in found]
        if delete:
            for delivery in deliveries:
                self.complete(delivery.lock_token, now, lock=lock)
        return deliveries

    def peek(self, first: int, count: int, now: float, *, session_id: str | None = None) -> list[StoredMessage]:
        """Look at messages of any state, in sequence order, changing nothing."""
        self._deadlines.run(now)
        found: list[StoredMessage] = []
        for stored in self._from(first):
            if len(found) >= count:
                break
            if session_id is None or stored.message.session_id == session_id:
                found.append(stored)
        return found

    def delete_batch(self, count: int, before: float, now: float) -> int:
        """Delete up to `count` available messages enqueued before a time; gives how many."""
        self._deadlines.run(now)
        doomed: list[StoredMessage] = []
        for stored in self._from(0):
            if len(doomed) >= count or stored.enqueued_at >= before:
                break
            if stored.is_available:
                doomed.append(stored)
        for stored in doomed:
            self._sessions.withdraw(stored)
            self._remove(stored)
        return len(doomed)

    def refuse_sender(self) -> None:
        """Raise when this is a dead-letter queue: only the broker puts messages there."""
        if self.dead_letter_queue is None:
            raise BrokerError(_NOT_ALLOWED, f"Messages cannot be sent to the dead-letter queue '{self.name}'.")

    def refuse_plain_receiver(self) -> None:
        """Raise when the queue requires sessions."""
        if self.options.requires_session:
            raise BrokerError(
                _NOT_ALLOWED,
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
            )

    def refuse_session_receiver(self) -> None:
        """Raise when the queue has no sessions; a dead-letter queue never has."""
        if not self.options.requires_session:
            raise BrokerError(
                _NOT_ALLOWED,
                "A sessionful message receiver cannot be created on an entity that does not require sessions. "
                "Ensure RequiresSession is set to true when creating a Queue or Subscription to enable sessionful "
                "behavior.",
            )

    @property
    def has_available(self) -> bool:
        """Whether a plain queue has a message to receive."""
        return self._sessions.plain.waiting > 0

    # ------------------------------------------------------------------------------------------------------ settling

    def complete(self, token: uuid.UUID, now: float, *, lock: SessionLock | None = None) -> StoredMessage:
        """Remove the message for good.

        Raises:
            BrokerError: as every settlement: com.microsoft:session-lock-lost or com.microsoft:message-lock-lost.
        """
        stored = self._unlocked(token, now, lock)
        self._remove(stored)
        return stored

    def abandon(
        self,
        token: uuid.UUID,
        now: float,
        *,
        lock: SessionLock | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> StoredMessage:
        """Give the message back with its delivery count raised; at the maximum it goes to the dead-letter queue."""
        stored = self._unlocked(token, now, lock, properties)
        self._give_back(stored, now, counted=True)
        return stored

    def release(self, token: uuid.UUID, now: float, *, lock: SessionLock | None = None) -> StoredMessage:
        """Give the message back as if it had not been received."""
        stored = self._unlocked(token, now, lock)
        self._give_back(stored, now, counted=False)
        return stored

    def defer(
        self,
        token: uuid.UUID,
        now: float,
        *,
        lock: SessionLock | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> StoredMessage:
        """Set the message aside: from now on it is found by its sequence number only."""
        stored = self._unlocked(token, now, lock, properties)
        self._in_state[stored.state] -= 1
        stored.state = MessageState.DEFERRED
        self._in_state[stored.state] += 1
        return stored

    def dead_letter(
        self,
        token: uuid.UUID,
        now: float,
        *,
        reason: str | None,
        description: str | None,
        lock: SessionLock | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> StoredMessage:
        """Move the message to the dead-letter queue.

        Raises:
            BrokerError: also amqp:not-allowed in a dead-letter queue, com.microsoft:argument-out-of-range when a text
                is longer than the service takes; the message then stays locked.
        """
        if self.dead_letter_queue is None:
            raise BrokerError(_NOT_ALLOWED, f"A message in '{self.name}' cannot be dead-lettered again.")
        for what, text in (("DeadLetterReason", reason), ("DeadLetterErrorDescription", description)):
            if text is not None and len(text) > MAX_REASON_LENGTH:
                raise BrokerError(
                    "com.microsoft:argument-out-of-range",
                    f"The {what} has {len(text)} characters; the limit is {MAX_REASON_LENGTH}.",
                )
        stored = self._unlocked(token, now, lock, properties)
        self._bury(stored, reason, description)
        return stored

    def renew(self, token: uuid.UUID, now: float) -> float:
        """Extend the lock of a message of a plain queue; gives its new end.

        Raises:
            BrokerError: com.microsoft:message-lock-lost; amqp:not-allowed when the lock is the session's.
        """
        self._deadlines.run(now)
        if self.options.requires_session:
            raise BrokerError(_NOT_ALLOWED, "The lock of a session's message is renewed with the session's.")
        if token not in self._locks:
            raise _message_lock_lost()
        return self._set_lock_deadline(token, now)

    def expire(self, token: uuid.UUID, now: float) -> None:
        """Let the lock of a message of a plain queue run out before its time; one that is gone stays so."""
        if token in self._locks and not self.options.requires_session:
            self._on_lock_expired(token, now)

    def locked(self, token: uuid.UUID) -> StoredMessage | None:
        """The message under this lock."""
        return self._locks.get(token)

    # ------------------------------------------------------------------------------------------------------ sessions

    def accept_next(self, owner: str, now: float) -> SessionLock | None:
        """Lock the unlocked session that has waited longest with a message to receive."""
        self._deadlines.run(now)
        self.refuse_session_receiver()
        session = self._sessions.next_ready()
        return None if session is None else self._lock_session(session, owner, now)

    def accept(self, session_id: str, owner: str, now: float) -> SessionLock:
        """Lock a session by name, whether or not it has messages.

        Raises:
            BrokerError: com.microsoft:session-cannot-be-locked while another receiver holds it.
        """
        self._deadlines.run(now)
        self.refuse_session_receiver()
        admission.check_length("SessionId", session_id)
        session = self._sessions.named(admission.answered_id(session_id, self.options))
        if session.lock is not None:
            raise BrokerError(
                "com.microsoft:session-cannot-be-locked",
                f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver.",
            )
        return self._lock_session(session, owner, now)

    def renew_session(self, lock: SessionLock, now: float) -> float:
        """Extend the session's lock; gives its new end."""
        self._held(lock, now)
        self._set_session_deadline(lock, now)
        return lock.locked_until

    def release_session(self, lock: SessionLock, now: float) -> None:
        """Close the session: messages in hand go back as they were. A lock that is lost is let go without a word."""
        self._deadlines.run(now)
        session = self._sessions.held_by(lock)
        if session is not None:
            self._unlock_session(session, now, counted=False)

    def expire_session(self, lock: SessionLock, now: float) -> None:
        """Let a session's lock run out before its time; one that is lost stays so."""
        if self._sessions.held_by(lock) is not None:
            self._on_session_expired(lock, now)

    def session_state(self, lock: SessionLock, now: float) -> bytes | None:
        """The state stored with the session; none when never set or cleared."""
        return self._held(lock, now).state

    def set_session_state(self, lock: SessionLock, state: bytes | None, now: float) -> None:
        """Store a state with the session, or clear it.

        Raises:
            BrokerError: also amqp:link:message-size-exceeded.
        """
        session = self._held(lock, now)
        if state is not None and len(state) > self.options.max_message_bytes:
            raise admission.too_large(len(state), self.options)
        session.state, session.state_set_at = state, now

    def session_ids(self, now: float, *, state_set_after: float | None = None) -> list[str]:
        """Sessions that have active messages or a state; or those whose state was set after a time."""
        self._deadlines.run(now)
        self.refuse_session_receiver()
        if state_set_after is None:
            return [s.session_id for s in self._sessions if s.waiting or s.locked or s.state is not None]
        stateful = (s for s in self._sessions if s.state is not None)
        return [s.session_id for s in stateful if s.state_set_at > state_set_after]

    def sessions(self, now: float) -> list[SessionView]:
        """Every session that exists, for operators."""
        self._deadlines.run(now)
        return [
            SessionView(
                session_id=s.session_id,
                messages=s.messages,
                waiting=s.waiting,
                locked_by=s.lock.owner if s.lock else None,
                locked_until=s.lock.locked_until if s.lock else None,
            )
            for s in self._sessions
        ]

    def counts(self, now: float) -> Counts:
        """How many messages there are in each state."""
        self._deadlines.run(now)
        return Counts(
            active=self._in_state[MessageState.ACTIVE],
            dead_letter=0 if self.dead_letter_queue is None else self.dead_letter_queue.counts(now).active,
            scheduled=self._in_state[MessageState.SCHEDULED],
            deferred=self._in_state[MessageState.DEFERRED],
            locked=len(self._locks),
            sessions=len(self._sessions),
        )

    # ----------------------------------------------------------------------------------------- messages come and go

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _add(self, stored: StoredMessage) -> None:
        self._messages[stored.sequence_number] = stored
        self._order.append(stored.sequence_number)
        self._in_state[stored.state] += 1
        self._sessions.of(stored).messages += 1

    def _remove(self, stored: StoredMessage) -> None:
        del self._messages[stored.sequence_number]
        self._in_state[stored.state] -= 1
        if stored.state is MessageState.SCHEDULED:
            self._deadlines.clear((self, "due", stored.sequence_number))
        elif stored.expires_at is not None:
            self._deadlines.clear((self, "ttl", stored.sequence_number))
        if len(self._order) > 2 * len(self._messages) + 64:
            self._order = [number for number in self._order if number in self._messages]
        session = self._sessions.of(stored)
        session.messages -= 1
        self._sessions.drop_if_idle(session)

    def _found(self, number: int) -> StoredMessage:
        stored = self._messages.get(number)
        if stored is None:
            raise _not_found(number)
        return stored

    def _from(self, first: int) -> Iterator[StoredMessage]:
        for index in range(bisect_left(self._order, first), len(self._order)):
            stored = self._messages.get(self._order[index])
            if stored is not None:
                yield stored

    def _bury(self, stored: StoredMessage, reason: str | None, description: str | None) -> None:
        assert self.dead_letter_queue is not None  # noqa: S101 - callers have looked
        texts = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
        message = stored.message.with_properties({key: text for key, text in texts.items() if text is not None})
        self._remove(stored)
        self.dead_letter_queue._take_in(message, stored)

    def _take_in(self, message: ReceivedMessage, origin: StoredMessage) -> None:
        number = self._next_number()
        first = origin.enqueue_sequence_number
        buried = StoredMessage(message, number, first, origin.enqueued_at, delivery_count=origin.delivery_count)
        self._add(buried)
        self._offer(buried)

    def _on_ttl(self, stored: StoredMessage, _: float) -> None:
        if stored.is_available:  # what is locked expires when it comes back, what is deferred when it is fetched
            self._sessions.withdraw(stored)
            self._expire(stored)

    def _expire(self, stored: StoredMessage) -> None:
        if self.options.dead_letter_on_expiration:
            self._bury(stored, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            self._remove(stored)

    # -------------------------------------------------------------------------------------- available, locked, back

    def _offer(self, stored: StoredMessage) -> None:
        session = self._sessions.offer(stored)
        if self.options.requires_session and session.lock is None:
            self._context.listener(SessionReady(self.name))
        else:
            self._context.listener(MessageReady(self.name, session.lock))

    def _locked(self, stored: StoredMessage, session: Session, now: float) -> Delivery:
        token = self._context.new_token()
        stored.lock_token = token
        self._locks[token] = stored
        if session.lock is not None:
            session.locked[token] = stored
            locked_until = session.lock.locked_until
        else:
            locked_until = self._set_lock_deadline(token, now)
        return Delivery(
            queue=self.name,
            lock_token=token,
            locked_until=locked_until,
            delivery_count=stored.delivery_count,
            sequence_number=stored.sequence_number,
            enqueue_sequence_number=stored.enqueue_sequence_number,
            enqueued_at=stored.enqueued_at,
            expires_at=stored.expires_at,
            session_id=stored.message.session_id,
            state=stored.state,
            message=stored.message,
            session_lock=session.lock,
        )

    def _set_lock_deadline(self, token: uuid.UUID, now: float) -> float:
        until = now + self.options.lock_seconds
        self._deadlines.set((self, "lock", token), until, lambda when: self._on_lock_expired(token, when))
        return until

    def _on_lock_expired(self, token: uuid.UUID, when: float) -> None:
        self._give_back(self._forget_lock(token), when, counted=True)

    def _forget_lock(self, token: uuid.UUID) -> StoredMessage:
        stored = self._locks.pop(token)
        stored.lock_token = None
        if self.options.requires_session:
            self._sessions.of(stored).locked.pop(token, None)
        else:
            self._deadlines.clear((self, "lock", token))
        return stored

    def _unlocked(
        self,
        token: uuid.UUID,
        now: float,
        lock: SessionLock | None,
        properties: Mapping[str, object] | None = None,
    ) -> StoredMessage:
        """The message under this lock, which ends here, with its properties changed. Refuses before it changes any."""
        session = self._scope(lock, now)
        stored = self._locks.get(token)
        if stored is None or self._sessions.of(stored) is not session:
            raise _message_lock_lost()
        if properties:
            try:
                stored.message = stored.message.with_properties(properties)
            except CodecError as exc:
                raise BrokerError(_ARGUMENT, f"The properties to modify: {exc}.") from exc
        return self._forget_lock(token)

    def _give_back(self, stored: StoredMessage, now: float, *, counted: bool) -> None:
        stored.delivery_count += counted
        if counted and self.dead_letter_queue is not None and stored.delivery_count >= self.options.max_delivery_count:
            text = f"Message could not be consumed after {stored.delivery_count} delivery attempts."
            self._bury(stored, "MaxDeliveryCountExceeded", text)
        elif stored.state is MessageState.ACTIVE:
            if _is_expired(stored, now):
                self._expire(stored)
            else:
                self._offer(stored)

    # ----------------------------------------------------------------------------------------------- session keeping

    def _scope(self, lock: SessionLock | None, now: float) -> Session:
        """Where the caller may act: the session it holds, or the whole of a plain queue."""
        if lock is not None:
            return self._held(lock, now)
        self._deadlines.run(now)
        if self.options.requires_session:
            raise _session_lock_lost()
        return self._sessions.plain

    def _held(self, lock: SessionLock, now: float) -> Session:
        self._deadlines.run(now)
        session = self._sessions.held_by(lock)
        if session is None:
            raise _session_lock_lost()
        return session

    def _lock_session(self, session: Session, owner: str, now: float) -> SessionLock:
        lock = SessionLock(self.name, session.session_id, owner, now)
        self._sessions.lock(session, lock)
        self._set_session_deadline(lock, now)
        return lock

    def _set_session_deadline(self, lock: SessionLock, now: float) -> None:
        lock.locked_until = now + self.options.lock_seconds
        key = (self, "session", lock.session_id)
        self._deadlines.set(key, lock.locked_until, lambda when: self._on_session_expired(lock, when))

    def _on_session_expired(self, lock: SessionLock, when: float) -> None:
        self._unlock_session(self._sessions.named(lock.session_id), when, counted=True)
        self._context.listener(SessionLost(lock))

    def _unlock_session(self, session: Session, now: float, *, counted: bool) -> None:
        self._sessions.unlock(session)
        self._deadlines.clear((self, "session", session.session_id))
        held = sorted((stored.sequence_number, token) for token, stored in session.locked.items())
        for _, token in held:
            self._give_back(self._forget_lock(token), now, counted=counted)
        if session.waiting:
            self._context.listener(SessionReady(self.name))
        self._sessions.drop_if_idle(session)


def _dead_letter_options(options: QueueOptions) -> QueueOptions:
    return dataclasses.replace(
        options,
        name=f"{options.name}/{DEAD_LETTER_SUFFIX}",
        requires_session=False,
        dead_letter_on_expiration=False,
        duplicate_detection=False,
    )


def _is_expired(stored: StoredMessage, now: float) -> bool:
    return stored.expires_at is not None and stored.expires_at <= now


def _not_found(number: int) -> BrokerError:
    return BrokerError("com.microsoft:message-not-found", f"No message with the sequence number {number} is available.")


def _message_lock_lost() -> BrokerError:
    return BrokerError(
        "com.microsoft:message-lock-lost",
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed.",
    )


def _session_lock_lost() -> BrokerError:
    return BrokerError(
        "com.microsoft:session-lock-lost",
        "The session lock has expired on the session. Accept the session again to receive its messages.",
    )
