"""What a client may attach to, and the link that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from local.broker import codec
from local.broker.addresses import CBS, entity_path, managed_path
from local.broker.cbs import Claims, SasKey, put_token
from local.broker.codec import CodecError, Described, Encoded
from local.broker.exchange import Exchange, Operation
from local.broker.frames import COORDINATOR, DECODE_ERROR, Attach, Detach, decode_composite, encode_error
from local.broker.links import (
    ADDRESS,
    FILTER,
    SESSION_FILTER,
    SOURCE,
    TARGET,
    HeldLink,
    PendingReceiver,
    QueueReceiver,
    QueueSender,
    ReplyLink,
    RequestLink,
    Respond,
    refusal,
    text_of,
)
from local.broker.machine import Queue
from local.broker.management import Management
from local.broker.messages import ReceivedMessage
from local.broker.model import BrokerError

if TYPE_CHECKING:
    from local.broker.session import Session


def attach(session: Session, frame: Attach) -> None:
    """Make the link that a client attaches, or refuse it: an attach without source and target, then a detach."""
    service, connection = session.connection.front.service, session.connection
    operation = None if service.intercept is None else _attach_operation(frame)
    if operation is None:
        _make_or_refuse(session, frame)
        return
    held = HeldLink(session, frame, _make_or_refuse)
    exchange = Exchange(
        operation,
        lambda: None,
        answer=lambda _: connection.guard(held.make),
        refuse=lambda error: connection.guard(lambda: held.refuse(error)),
        cut=connection.cut,
    )
    service.pass_through(exchange)


def _attach_operation(frame: Attach) -> Operation | None:
    """What the client attaches to; None where that is no entity, or nothing that can be read."""
    try:
        _, fields = decode_composite((frame.source if frame.role else frame.target) or b"")
        path = entity_path(text_of(fields, ADDRESS) or CBS)
        session_id = _session_filter(fields)[1] if frame.role else None
    except (BrokerError, CodecError):
        return None
    if path.lower() == CBS:
        return None
    managed = managed_path(path)
    if managed is not None:
        return Operation("attach-management", managed)
    return Operation("attach-receiver" if frame.role else "attach-sender", path, [(session_id, None)])


def _make_or_refuse(session: Session, frame: Attach) -> None:
    try:
        _make(session, frame)
    except (BrokerError, CodecError) as exc:
        error = exc if isinstance(exc, BrokerError) else BrokerError(DECODE_ERROR, f"The link's terminus: {exc}.")
        session.links.pop(frame.handle, None)
        session.send(refusal(frame))
        session.send(Detach(frame.handle, closed=True, error=encode_error(error.condition, error.description)))


def _make(session: Session, frame: Attach) -> None:
    connection = session.connection
    code, fields = decode_composite((frame.source if frame.role else frame.target) or b"")
    if code == COORDINATOR:
        raise BrokerError("amqp:not-implemented", "Transactions are not available in this broker.")
    if code != (SOURCE if frame.role else TARGET):
        raise BrokerError("amqp:invalid-field", f"0x{code:02x} describes no terminus.")
    address = text_of(fields, ADDRESS)
    if address is None:
        raise BrokerError("amqp:invalid-field", f"The link '{frame.name}' has no address.")
    path = entity_path(address)
    if path.lower() == CBS:
        _make_request_link(session, frame, CBS, partial(_put_token, key=connection.front.key, claims=connection.claims))
        return
    managed = managed_path(path)
    if not connection.claims.cover(path):
        raise BrokerError("amqp:unauthorized-access", f"Unauthorized access. No token was put for '{path}'.")
    queue = connection.front.service.broker.queue(managed or path)
    if managed is not None:
        management = Management(connection.front.service, queue, connection.session_lock, connection.cut)
        _make_request_link(session, frame, path.lower(), management.respond)
    elif not frame.role:
        queue.refuse_sender()
        QueueSender(session, frame, queue)
    else:
        _make_receiver(session, frame, queue, fields)


def _put_token(request: ReceivedMessage, reply: Callable[[bytes], None], key: SasKey, claims: Claims) -> None:
    reply(put_token(request, key, claims))


def _make_request_link(session: Session, frame: Attach, node: str, respond: Respond) -> None:
    if frame.role:
        target = decode_composite(frame.target)[1] if frame.target else []
        ReplyLink(session, frame, node, text_of(target, ADDRESS))
    else:
        RequestLink(session, frame, node, respond)


def _make_receiver(session: Session, frame: Attach, queue: Queue, source: list[Encoded]) -> None:
    has_filter, session_id = _session_filter(source)
    if not has_filter:
        queue.refuse_plain_receiver()
        QueueReceiver(session, frame, queue, None)
    else:
        queue.refuse_session_receiver()
        PendingReceiver(session, frame, queue, session_id)


def _session_filter(source: list[Encoded]) -> tuple[bool, str | None]:
    """Whether the source has a session filter, and for which session. A null value stands for the next one."""
    raw = source[FILTER] if len(source) > FILTER else codec.NULL
    filters = {} if raw == codec.NULL else codec.raw_map(raw)
    if SESSION_FILTER not in filters:
        return False, None
    value = codec.decode_one(filters[SESSION_FILTER])
    if isinstance(value, Described):  # some libraries describe the value, as other filters are
        value = value.value
    if value is not None and not isinstance(value, str):
        raise BrokerError("com.microsoft:argument-error", "The session filter's value is no string.")
    return True, value
