"""Links: what a client attaches, and the queue or request node behind it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from local.broker import admission, codec
from local.broker.codec import CodecError, Encoded, Symbol
from local.broker.exchange import SETTLEMENTS, Exchange, Operation, keys_of
from local.broker.frames import (
    ACCEPTED,
    DECODE_ERROR,
    MODIFIED,
    REJECTED,
    RELEASED,
    AmqpError,
    Attach,
    DeliveryState,
    Detach,
    Disposition,
    Flow,
    Transfer,
    decode_composite,
    decode_state,
    encode_error,
    encode_state,
    serial_add,
    serial_difference,
)
from local.broker.machine import Queue
from local.broker.messages import BATCH_FORMAT, ReceivedMessage, parse_batch, parse_message
from local.broker.model import BrokerError, Delivery, Outcome, SessionLock
from local.broker.service import Waiter
from local.broker.wire import encode_delivery, ticks

if TYPE_CHECKING:
    from local.broker.session import OnDisposition, Session

_LOG = logging.getLogger(__name__)
_CREDIT = 1000  # as the cloud grants; a Python sender starts with credit of its own and heeds none
_MAX_REQUEST_BYTES = 1024 * 1024
_MAX_UNSENT_REPLIES = 1000
_DEFAULT_ACCEPT_SECONDS = 65.0  # the cloud's wait for a next session when the client names none

SOURCE, TARGET = 0x28, 0x29
ADDRESS, FILTER = 0, 7  # fields of a source; a target's address comes first too
_SETTLED = 1
SESSION_FILTER = Symbol("com.microsoft:session-filter")
_TIMEOUT = "com.microsoft:timeout"
_SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
_DEAD_LETTER_TEXTS = ("DeadLetterReason", "DeadLetterErrorDescription")
_BATCH_LIMIT = Symbol("com.microsoft:max-message-batch-size")  # the Python client packs 256 KiB where it is not told


class Link:
    """One end of a link at the broker."""

    def __init__(self, session: Session, attach: Attach) -> None:
        self.session = session
        self.name = attach.name
        self.handle = attach.handle
        self.service = session.connection.front.service
        session.links[attach.handle] = self

    def on_transfer(self, frame: Transfer, payload: bytes) -> None:
        """A frame of a message came from the client."""

    def on_flow(self, flow: Flow) -> None:
        """The client tells its state."""

    def pump(self) -> None:
        """Do what credit, window and socket allow now."""

    def close(self) -> None:
        """Let go of whatever the link holds; called once, however it ends."""

    @property
    def is_attached(self) -> bool:
        """Whether the link is still there."""
        return self.session.links.get(self.handle) is self

    def on_detach(self, frame: Detach) -> None:
        """The client detaches."""
        self.close()
        self.session.forget_link(self)
        self.session.send(Detach(self.handle, closed=frame.closed))

    def detach(self, condition: str, description: str) -> None:
        """End the link from this side."""
        self.close()
        self.session.forget_link(self)
        self.session.send(Detach(self.handle, closed=True, error=encode_error(condition, description)))


class IncomingLink(Link):
    """A link on which the client sends."""

    def __init__(self, session: Session, attach: Attach, max_message_bytes: int) -> None:
        super().__init__(session, attach)
        self._max_message_bytes = max_message_bytes
        self._delivery_count = attach.initial_delivery_count or 0
        self._credit = 0
        self._first: Transfer | None = None
        self._parts: list[bytes] = []
        self._size = 0
        answer = Attach(
            attach.name,
            attach.handle,
            role=True,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=attach.rcv_settle_mode,
            source=attach.source or codec.described(SOURCE, codec.encode_list([])),
            target=attach.target,
            max_message_size=max_message_bytes,
            properties={_BATCH_LIMIT: codec.ulong(max_message_bytes)},
        )
        session.send(answer)
        self._grant()

    def accept(self, payload: bytes, message_format: int, settle: Callable[[Encoded], None]) -> None:
        """Take a whole transfer, and settle it with its outcome, now or later."""
        raise NotImplementedError

    def refuse_size(self, size: int) -> BrokerError:
        """The refusal of a transfer that is too large."""
        limit = self._max_message_bytes
        return BrokerError("amqp:link:message-size-exceeded", f"A message of {size} bytes; the limit is {limit}.")

    def on_transfer(self, frame: Transfer, payload: bytes) -> None:
        """Gather the frames of a message, no more of it than the limit allows, and answer the last one."""
        if self._first is None:
            if frame.delivery_id is None:
                raise AmqpError("amqp:invalid-field", "The first frame of a transfer without delivery-id.")
            self._first = frame
        self._size += len(payload)
        if self._size <= self._max_message_bytes:
            self._parts.append(payload)
        if frame.more and not frame.aborted:
            return
        first, data, size = self._first, b"".join(self._parts), self._size
        self._first, self._parts, self._size = None, [], 0
        if not frame.aborted:
            is_settled = bool(first.settled or frame.settled)
            self._take(data, size, first.message_format or 0, partial(self._settle, first.delivery_id or 0, is_settled))
        self._delivery_count = serial_add(self._delivery_count, 1)
        self._credit -= 1
        if self._credit <= _CREDIT // 2:
            self._grant()

    def _take(self, data: bytes, size: int, message_format: int, settle: Callable[[Encoded], None]) -> None:
        try:
            if size > self._max_message_bytes:
                raise self.refuse_size(size)
            self.accept(data, message_format, settle)
        except BrokerError as exc:
            settle(_rejected(exc))
        except CodecError as exc:
            settle(encode_state(REJECTED, encode_error(DECODE_ERROR, f"The message cannot be decoded: {exc}.")))

    def _settle(self, number: int, is_settled: bool, state: Encoded) -> None:
        # Each transfer gets its own answer: two threads of a Python client may use one delivery id twice.
        if not is_settled and self.is_attached:
            self.session.send(Disposition(role=True, first=number, last=number, settled=True, state=state))

    def _grant(self) -> None:
        self._credit = _CREDIT
        self.session.flow(self.handle, delivery_count=self._delivery_count, credit=_CREDIT)


class QueueSender(IncomingLink):
    """A client sends to a queue."""

    def __init__(self, session: Session, attach: Attach, queue: Queue) -> None:
        self._queue = queue
        super().__init__(session, attach, queue.options.max_message_bytes)

    def accept(self, payload: bytes, message_format: int, settle: Callable[[Encoded], None]) -> None:
        """Store the message, or all messages of a batch."""
        messages = parse_batch(payload) if message_format == BATCH_FORMAT else [parse_message(payload)]
        exchange = Exchange(
            Operation("send", self._queue.name, keys_of(messages)),
            lambda: self.service.store(self._queue.name, messages),
            answer=lambda _: settle(encode_state(ACCEPTED)),
            refuse=lambda error: settle(_rejected(error)),
            cut=self.session.connection.cut,
        )
        self.service.pass_through(exchange)

    def refuse_size(self, size: int) -> BrokerError:
        """The entity's own words."""
        return admission.too_large(size, self._queue.options)


# Answers a request, now or later.
Respond: TypeAlias = Callable[[ReceivedMessage, Callable[[bytes], None]], None]


class RequestLink(IncomingLink):
    """A client sends requests to a node; answers go to a reply link of the node."""

    def __init__(self, session: Session, attach: Attach, node: str, respond: Respond) -> None:
        self._node = node
        self._respond = respond
        super().__init__(session, attach, _MAX_REQUEST_BYTES)

    def accept(self, payload: bytes, message_format: int, settle: Callable[[Encoded], None]) -> None:  # noqa: ARG002
        """Answer the request, which is one message whatever its format says."""
        request = parse_message(payload)
        guard = self.session.connection.guard
        self._respond(request, lambda answer: guard(lambda: self._reply(request.reply_to, answer)))
        settle(encode_state(ACCEPTED))

    def _reply(self, reply_to: str | None, answer: bytes) -> None:
        link = self._reply_link(reply_to)
        if link is None:
            _LOG.warning("A request to %s has nowhere to be answered: reply-to %r", self._node, reply_to)
        else:
            link.reply(answer)

    def _reply_link(self, reply_to: str | None) -> ReplyLink | None:
        """Reply addresses are only unique within a connection, and Python's and Java's hardly within that."""
        sessions = [self.session, *(s for s in self.session.connection.sessions.values() if s is not self.session)]
        links = [link for session in sessions for link in session.links.values() if isinstance(link, ReplyLink)]
        here = [link for link in links if link.node == self._node]
        return next((link for link in here if link.address == reply_to), next(iter(here), None))


class OutgoingLink(Link):
    """A link on which the client receives."""

    def __init__(self, session: Session, attach: Attach) -> None:
        super().__init__(session, attach)
        self.credit = 0
        self._delivery_count = 0

    def on_flow(self, flow: Flow) -> None:
        """Take the credit as the client states it: absolute, and often stated again."""
        if flow.link_credit is not None:
            behind = serial_difference(self._delivery_count, flow.delivery_count or 0)
            self.credit = max(0, flow.link_credit - behind)
        if flow.drain:
            self.drain()
            self._delivery_count = serial_add(self._delivery_count, self.credit)
            self.credit = 0
            self.session.flow(self.handle, delivery_count=self._delivery_count, credit=0, drain=True)
        elif flow.echo:
            self.session.flow(self.handle, delivery_count=self._delivery_count, credit=self.credit)
        self.pump()

    def drain(self) -> None:
        """Use up credit with what is there right now."""

    def transmit(self, tag: bytes, payload: bytes, on_disposition: OnDisposition | None = None) -> None:
        """Send one message for one credit."""
        self.credit -= 1
        self._delivery_count = serial_add(self._delivery_count, 1)
        self.session.deliver(self, tag, payload, on_disposition=on_disposition)


class ReplyLink(OutgoingLink):
    """Answers of a request node."""

    def __init__(self, session: Session, attach: Attach, node: str, address: str | None) -> None:
        super().__init__(session, attach)
        self.node = node
        self.address = address
        self._unsent: deque[bytes] = deque()
        self._sent = 0
        session.send(_receiver_answer(attach, attach.source))

    def reply(self, payload: bytes) -> None:
        """Send an answer, now or when there is credit."""
        if len(self._unsent) >= _MAX_UNSENT_REPLIES:
            raise AmqpError("amqp:resource-limit-exceeded", f"{_MAX_UNSENT_REPLIES} answers wait for credit.")
        self._unsent.append(payload)
        self.pump()

    def pump(self) -> None:
        """Send what credit allows."""
        while self._unsent and self.credit > 0 and self.session.can_deliver:
            self._sent += 1
            self.transmit(self._sent.to_bytes(4, "big"), self._unsent.popleft())

    drain = pump


class QueueReceiver(OutgoingLink):
    """A client receives from a queue, or from the session that it holds."""

    def __init__(self, session: Session, attach: Attach, queue: Queue, lock: SessionLock | None) -> None:
        super().__init__(session, attach)
        self.lock = lock
        self._queue = queue
        self._deletes = attach.snd_settle_mode == _SETTLED
        self._waiter: Waiter[Delivery] | None = None
        self._held: Delivery | None = None  # taken, and held back on its way: nothing may overtake it
        self._is_late = False
        if lock is None:
            session.send(_receiver_answer(attach, attach.source))
        else:
            self.service.session_losses[lock] = lambda: session.connection.guard(self._on_lock_lost)
            properties: dict[object, object] = {
                Symbol("com.microsoft:locked-until-utc"): codec.long(ticks(lock.locked_until))
            }
            session.send(_receiver_answer(attach, _with_session(attach.source, lock.session_id), properties))

    def pump(self) -> None:
        """Stand in line for a message while there is credit, and leave it when there is none."""
        if self.credit <= 0:
            self._leave_line()
        elif self._waiter is None and self._held is None and self.session.can_deliver:
            self._waiter = Waiter(self._on_given, self.name, self._deletes)
            if self.lock is None:
                self.service.wait_in_queue(self._queue.name, self._waiter)
            else:
                self.service.wait_in_session(self.lock, self._waiter)

    def drain(self) -> None:
        """Take what is there."""
        while self.credit > 0 and self._held is None and self.session.can_deliver:
            delivery = self.service.next_delivery(self._queue.name, self.lock, deletes=self._deletes)
            if delivery is None:
                break
            self._hand_over(delivery)

    def close(self) -> None:
        """A session is free again at once; messages of a plain queue stay locked until their time is up."""
        self.credit = 0
        self._leave_line()
        if self.lock is not None:
            self.service.release_session(self.lock)

    def _leave_line(self) -> None:
        if self._waiter is not None:
            self._waiter.leave()
            self._waiter = None

    def _on_given(self, delivery: Delivery | None) -> None:
        self._waiter = None
        if delivery is not None:
            self.session.connection.guard(lambda: self._hand_over(delivery))
            self.session.connection.guard(self.pump)

    def _hand_over(self, delivery: Delivery) -> None:
        """Deliver what was taken, unless somebody comes between."""
        self._held, self._is_late = delivery, False
        guard = self.session.connection.guard
        exchange = Exchange(
            self._operation("receive", delivery),
            lambda: delivery,
            answer=lambda _: guard(lambda: self._on_free(delivery)),
            refuse=lambda error: guard(lambda: self._on_refused(delivery, error)),
            cut=self.session.connection.cut,
        )
        self.service.pass_through(exchange)
        self._is_late = self._held is not None

    def _on_free(self, delivery: Delivery) -> None:
        self._held = None
        if not self.is_attached:
            return
        if self.credit > 0:
            self._deliver(delivery)
        else:
            self._give_back(delivery)  # the client has taken its credit back meanwhile
        if self._is_late:
            self.pump()

    def _on_refused(self, delivery: Delivery, error: BrokerError) -> None:
        self._held = None
        if self.is_attached:
            self._give_back(delivery)
            self.detach(error.condition, error.description)

    def _give_back(self, delivery: Delivery) -> None:
        with contextlib.suppress(BrokerError):  # the lock is lost: it went back by itself
            self.service.settle(Outcome.RELEASED, self._queue.name, delivery.lock_token, self.lock)

    def _operation(self, name: str, delivery: Delivery) -> Operation:
        keys = keys_of([delivery.message])
        return Operation(name, self._queue.name, keys, (delivery.lock_token,), self.lock)

    def _on_lock_lost(self) -> None:
        if self.session.links.get(self.handle) is not self:
            return  # the client detached this very moment
        self.detach(
            _SESSION_LOCK_LOST,
            "The session lock has expired on the session. Accept the session again to receive its messages.",
        )

    def _deliver(self, delivery: Delivery) -> None:
        payload = encode_delivery(self._queue, delivery, is_locked=not self._deletes)
        settle = None if self._deletes else partial(self._on_disposition, delivery)
        self.transmit(delivery.lock_token.bytes_le, payload, settle)

    def _on_disposition(
        self, delivery: Delivery, disposition: Disposition, reply: Callable[[Encoded | None], None]
    ) -> None:
        """Settle as the client asks, and answer with a state that names the outcome that was asked for."""
        if disposition.state is None or disposition.state == codec.NULL:
            reply(None)  # settled without an outcome: the lock runs out
            return
        state = decode_state(disposition.state)
        outcome, texts, properties = _settlement(state)
        exchange = Exchange(
            self._operation(SETTLEMENTS[outcome], delivery),
            lambda: self.service.settle(
                outcome, self._queue.name, delivery.lock_token, self.lock, properties=properties, texts=texts
            ),
            answer=lambda _: reply(encode_state(state.code)),
            refuse=lambda error: reply(_rejected(error)),
            cut=self.session.connection.cut,
            pretend=lambda: reply(encode_state(state.code)),
        )
        self.service.pass_through(exchange)


class UnansweredLink(Link):
    """A link whose attach is not answered yet."""

    def __init__(self, session: Session, attach: Attach) -> None:
        super().__init__(session, attach)
        self._attach = attach
        self._flow: Flow | None = None  # said before the answer; counts once there is one

    def on_flow(self, flow: Flow) -> None:
        """Keep it for the link to be."""
        self._flow = flow

    def on_detach(self, frame: Detach) -> None:
        """The client no longer waits."""
        self.session.send(refusal(self._attach))
        super().on_detach(frame)

    def refuse(self, error: BrokerError) -> None:
        """Answer with an attach that makes no link, and the reason."""
        if self.is_attached:
            self.session.send(refusal(self._attach))
            self.detach(error.condition, error.description)

    def pass_flow_on(self) -> None:
        """Tell the link that has taken this one's place what the client said meanwhile."""
        link = self.session.links.get(self.handle)
        if link is not None and self._flow is not None:
            link.on_flow(self._flow)


class HeldLink(UnansweredLink):
    """A link that somebody keeps from being made; `make` makes it in this one's place."""

    def __init__(self, session: Session, attach: Attach, make: Callable[[Session, Attach], None]) -> None:
        super().__init__(session, attach)
        self._make = make

    def make(self) -> None:
        """Make it, unless the client has given up."""
        if self.is_attached:
            self.session.links.pop(self.handle)
            self._make(self.session, self._attach)
            self.pass_flow_on()


class PendingReceiver(UnansweredLink):
    """A client waits for a session: its attach is answered when there is one, or when its time is up."""

    def __init__(self, session: Session, attach: Attach, queue: Queue, session_id: str | None) -> None:
        super().__init__(session, attach)
        self._queue = queue
        self._granted: SessionLock | None = None
        self._waiter: Waiter[SessionLock] = Waiter(self._on_given, attach.name)
        self._timer: asyncio.TimerHandle | None = None
        if session_id is not None:
            self._on_granted(self.service.accept_named(queue.name, session_id, owner=attach.name))
            return
        timeout = (attach.properties or {}).get(_TIMEOUT)
        seconds = timeout / 1000 if isinstance(timeout, int) else _DEFAULT_ACCEPT_SECONDS
        guard = session.connection.guard
        self._timer = asyncio.get_running_loop().call_later(seconds, lambda: guard(self._on_timeout))
        self.service.wait_for_session(queue.name, self._waiter)

    def close(self) -> None:
        """Stop waiting."""
        self._waiter.leave()
        if self._timer is not None:
            self._timer.cancel()
        if self._granted is not None:
            self.service.release_session(self._granted)

    def _on_given(self, lock: SessionLock | None) -> None:
        if lock is not None:
            self.session.connection.guard(lambda: self._on_granted(lock))

    def _on_granted(self, lock: SessionLock) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._granted = lock
        guard = self.session.connection.guard
        exchange = Exchange(
            Operation("accept", self._queue.name, [(lock.session_id, None)], session_lock=lock),
            lambda: lock,
            answer=lambda _: guard(lambda: self._become_receiver(lock)),
            refuse=lambda error: guard(lambda: self.refuse(error)),
            cut=self.session.connection.cut,
        )
        self.service.pass_through(exchange)

    def _become_receiver(self, lock: SessionLock) -> None:
        if not self.is_attached:
            return
        if lock.is_lost:
            self.refuse(BrokerError(_SESSION_LOCK_LOST, "The session lock has expired before it was handed over."))
            return
        self._granted = None
        QueueReceiver(self.session, self._attach, self._queue, lock)
        self.pass_flow_on()

    def _on_timeout(self) -> None:
        text = "No session with messages became available within the time allowed."
        self.refuse(BrokerError("com.microsoft:timeout", text))


def _with_session(source: Encoded | None, session_id: str) -> Encoded:
    """The client's source with the session that it was given; all else, the address above all, as Python sent it."""
    _, fields = decode_composite(source or b"")
    fields += [codec.NULL] * (FILTER + 1 - len(fields))
    fields[FILTER] = codec.encode_map({SESSION_FILTER: session_id})
    return codec.described(SOURCE, codec.encode_list(fields))


def _receiver_answer(
    attach: Attach, source: Encoded | None, properties: dict[object, object] | None = None
) -> Attach:
    return Attach(
        attach.name,
        attach.handle,
        role=False,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        source=source,
        target=attach.target or codec.described(TARGET, codec.encode_list([])),
        initial_delivery_count=0,
        properties=properties,
    )


def refusal(attach: Attach) -> Attach:
    """The answer to an attach that makes no link; a detach with the reason follows."""
    return Attach(attach.name, attach.handle, role=not attach.role, initial_delivery_count=0)


def _rejected(error: BrokerError) -> Encoded:
    return encode_state(REJECTED, encode_error(error.condition, error.description))


def _settlement(state: DeliveryState) -> tuple[Outcome, tuple[str | None, str | None], dict[str, object]]:
    """What an outcome on the wire asks for: the settlement, the dead-letter texts, the properties to set."""
    properties = dict(state.properties)
    if state.code == REJECTED:
        reason, description = (_dead_letter_text(properties.pop(key, None)) for key in _DEAD_LETTER_TEXTS)
        return Outcome.DEAD_LETTERED, (reason, description), properties
    if state.code == MODIFIED:
        return Outcome.DEFERRED if state.is_undeliverable_here else Outcome.ABANDONED, (None, None), properties
    return Outcome.RELEASED if state.code == RELEASED else Outcome.COMPLETED, (None, None), {}


def _dead_letter_text(raw: object) -> str | None:
    value = codec.decode_one(raw) if isinstance(raw, Encoded) else None
    return value if isinstance(value, str) else None


def text_of(fields: list[Encoded], index: int) -> str | None:
    """A field that is a string, or null."""
    value = codec.decode_one(fields[index]) if index < len(fields) else None
    if value is not None and not isinstance(value, str):
        raise CodecError("the address is no string")
    return value
