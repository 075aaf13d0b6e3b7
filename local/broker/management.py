"""`ENTITY/$management`: request and reply about messages by number, locks by token, sessions by id."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from local.broker import codec
from local.broker.codec import CodecError, Encoded, Symbol, Timestamp
from local.broker.exchange import SETTLEMENTS, Exchange, Operation, keys_of
from local.broker.machine import Queue
from local.broker.messages import ReceivedMessage, encode_reply, parse_message
from local.broker.model import BrokerError, Outcome, SessionLock
from local.broker.service import BrokerService
from local.broker.wire import encode_delivery, encode_peeked, milliseconds

_PREFIX = "com.microsoft:"
_ARGUMENT = "com.microsoft:argument-error"
_ANY_SESSION_FROM = 253402300799999  # the clients' "year 10000": sessions with messages or a state
_SESSIONS_A_PAGE = 100
_PAGE_MESSAGES = 1000
_PAGE_BYTES = 1024 * 1024
_STATUS = {
    "com.microsoft:message-lock-lost": 410,
    "com.microsoft:session-lock-lost": 410,
    "com.microsoft:message-not-found": 404,
    "amqp:not-found": 404,
    "amqp:not-implemented": 501,
    "amqp:link:message-size-exceeded": 413,
}
_OUTCOMES = {
    "completed": Outcome.COMPLETED,
    "abandoned": Outcome.ABANDONED,
    "defered": Outcome.DEFERRED,  # the protocol's spelling
    "suspended": Outcome.DEAD_LETTERED,
}


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: dict[str, object]


class _Arguments:
    """A request's map, read by name and type."""

    def __init__(self, value: Encoded | None) -> None:
        raw = {} if value is None or value == codec.NULL else codec.raw_map(value)
        self._raw = {str(key): item for key, item in raw.items()}

    def raw(self, name: str) -> Encoded | None:
        """The value in the sender's bytes; None when it is absent or null."""
        raw = self._raw.get(name)
        return None if raw == codec.NULL else raw

    def value(self, name: str) -> object:
        """The value; None when it is absent or null."""
        raw = self.raw(name)
        return None if raw is None else codec.decode_one(raw)

    def number(self, name: str) -> int:
        """A number; refuses what is none."""
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(name, "a number")
        return value

    def text(self, name: str) -> str | None:
        """A string or nothing; refuses what is neither."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise _wrong(name, "a string")
        return value

    def numbers(self, name: str) -> list[int]:
        """An array of numbers."""
        value = self.value(name)
        found = [n for n in value if isinstance(n, int)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(found) != len(value):
            raise _wrong(name, "an array of numbers")
        return found

    def messages(self) -> list[ReceivedMessage]:
        """The messages of a request to schedule them; refuses what is none."""
        raw = self.raw("messages")
        items = [_Arguments(item).value("message") for item in codec.raw_items(raw)] if raw is not None else []
        found = [parse_message(item) for item in items if isinstance(item, bytes)]
        if len(found) != len(items):
            raise _wrong("messages", "a list of maps with a message each")
        return found

    def uuids(self, name: str) -> list[uuid.UUID]:
        """An array of uuids."""
        value = self.value(name)
        found = [token for token in value if isinstance(token, uuid.UUID)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(found) != len(value):
            raise _wrong(name, "an array of uuids")
        return found


_Perform: TypeAlias = Callable[[_Arguments, SessionLock | None], _Answer]


class Management:
    """Answers the requests that come in over one link.

    `session_lock` finds the lock held by the receiver link of a name: clients prove their hold on a session by naming
    that link.
    """

    def __init__(
        self,
        service: BrokerService,
        queue: Queue,
        session_lock: Callable[[str], SessionLock | None],
        cut: Callable[[bool], None],
    ) -> None:
        self._service = service
        self._cut = cut
        self._queue = queue
        self._session_lock = session_lock
        self._operations: dict[str, _Perform] = {
            "renew-lock": self._renew_lock,
            "renew-session-lock": self._renew_session_lock,
            "get-session-state": self._get_session_state,
            "set-session-state": self._set_session_state,
            "peek-message": self._peek,
            "receive-by-sequence-number": self._receive_by_number,
            "update-disposition": self._update_disposition,
            "schedule-message": self._schedule,
            "cancel-scheduled-message": self._cancel_scheduled,
            "get-message-sessions": self._list_sessions,
            "batch-delete-messages": self._delete_batch,
        }

    def respond(self, request: ReceivedMessage, reply: Callable[[bytes], None]) -> None:
        """Reply to a request, whatever the request is."""
        properties = request.application_properties
        name = str(properties.get("operation"))
        link_name = properties.get("associated-link-name")
        lock = self._session_lock(link_name) if isinstance(link_name, str) else None
        try:
            perform = self._operations.get(name.removeprefix(_PREFIX))
            if perform is None:
                raise BrokerError("amqp:not-implemented", f"The operation '{name}' is not available in this broker.")
            arguments = _Arguments(request.value)
            operation = self._operation(name.removeprefix(_PREFIX), arguments, lock)
        except (BrokerError, CodecError) as exc:
            reply(_failure(request, _refusal(exc)))
            return
        exchange = Exchange(
            operation,
            lambda: self._perform(perform, arguments, lock),
            answer=lambda answer: reply(_success(request, answer)),
            refuse=lambda error: reply(_failure(request, error)),
            cut=self._cut,
            pretend=lambda: reply(_success(request, _Answer(200, {}))),
        )
        self._service.pass_through(exchange)

    def _perform(self, perform: _Perform, arguments: _Arguments, lock: SessionLock | None) -> _Answer:
        try:
            return perform(arguments, lock)
        except CodecError as exc:
            raise _refusal(exc) from exc
        finally:
            self._service.settle_down()

    def _operation(self, name: str, arguments: _Arguments, lock: SessionLock | None) -> Operation:
        """What is asked, as those see it who may come between."""
        queue = self._queue.name
        if self._service.intercept is None:
            return Operation(name, queue)
        outcome = _OUTCOMES.get(arguments.text("disposition-status") or "")
        if outcome is not None:
            name = SETTLEMENTS[outcome]
        tokens = arguments.uuids("lock-tokens") if arguments.raw("lock-tokens") is not None else []
        held = [stored.message for token in tokens if (stored := self._queue.locked(token)) is not None]
        session_id = arguments.text("session-id")
        keys = keys_of(held or arguments.messages()) or [(session_id, None)]
        return Operation(name, queue, keys, tokens, lock)

    # ------------------------------------------------------------------------------------------- locks and settling

    def _renew_lock(self, arguments: _Arguments, _: SessionLock | None) -> _Answer:
        tokens = arguments.uuids("lock-tokens")
        if not tokens:
            raise _wrong("lock-tokens", "an array with a lock token")
        until = [milliseconds(self._queue.renew(token, self._service.clock())) for token in tokens]
        return _Answer(200, {"expirations": codec.array(Timestamp, until)})

    def _update_disposition(self, arguments: _Arguments, lock: SessionLock | None) -> _Answer:
        status = arguments.text("disposition-status")
        outcome = _OUTCOMES.get(status or "")
        if outcome is None:
            raise _wrong("disposition-status", f"one of {', '.join(_OUTCOMES)}")
        raw = arguments.raw("properties-to-modify")
        properties = {} if raw is None else {str(key): value for key, value in codec.raw_map(raw).items()}
        texts = (arguments.text("deadletter-reason"), arguments.text("deadletter-description"))
        for token in arguments.uuids("lock-tokens"):
            self._service.settle(outcome, self._queue.name, token, lock, properties=properties, texts=texts)
        return _Answer(200, {})

    # ------------------------------------------------------------------------------------------------------ sessions

    def _held(self, arguments: _Arguments, lock: SessionLock | None) -> SessionLock:
        """The lock that the request rests on."""
        session_id = arguments.text("session-id")
        if lock is None or lock.session_id != session_id or lock.queue != self._queue.name:
            raise BrokerError("com.microsoft:session-lock-lost", f"The session lock on '{session_id}' is not held.")
        return lock

    def _renew_session_lock(self, arguments: _Arguments, lock: SessionLock | None) -> _Answer:
        until = self._queue.renew_session(self._held(arguments, lock), self._service.clock())
        return _Answer(200, {"expiration": milliseconds(until)})

    def _get_session_state(self, arguments: _Arguments, lock: SessionLock | None) -> _Answer:
        state = self._queue.session_state(self._held(arguments, lock), self._service.clock())
        return _Answer(200, {"session-state": state})

    def _set_session_state(self, arguments: _Arguments, lock: SessionLock | None) -> _Answer:
        state = arguments.value("session-state")
        if state is not None and not isinstance(state, bytes):
            raise _wrong("session-state", "binary or null")
        self._queue.set_session_state(self._held(arguments, lock), state, self._service.clock())
        return _Answer(200, {})

    def _list_sessions(self, arguments: _Arguments, _: SessionLock | None) -> _Answer:
        since, skip, top = (arguments.number(name) for name in ("last-updated-time", "skip", "top"))
        after = None if since >= _ANY_SESSION_FROM else since / 1000
        ids = self._queue.session_ids(self._service.clock(), state_set_after=after)
        page = ids[max(0, skip) :][: max(0, min(top, _SESSIONS_A_PAGE))]
        if not page:
            return _Answer(204, {})
        return _Answer(200, {"skip": skip + len(page), "sessions-ids": codec.array(str, page)})

    # ------------------------------------------------------------------------------------------------------ messages

    def _peek(self, arguments: _Arguments, _: SessionLock | None) -> _Answer:
        first, count = arguments.number("from-sequence-number"), arguments.number("message-count")
        session_id = arguments.text("session-id")
        found = self._queue.peek(first, min(count, _PAGE_MESSAGES), self._service.clock(), session_id=session_id)
        messages: list[dict[str, bytes]] = []
        size = 0
        for stored in found:
            message = encode_peeked(self._queue, stored)
            size += len(message)
            if messages and size > _PAGE_BYTES:  # fewer than asked for: a client that wants more peeks on
                break
            messages.append({"message": message})
        return _Answer(200, {"messages": messages}) if messages else _Answer(204, {})

    def _receive_by_number(self, arguments: _Arguments, lock: SessionLock | None) -> _Answer:
        deletes = arguments.number("receiver-settle-mode") == 0
        held = self._held(arguments, lock) if self._queue.options.requires_session else None
        deliveries = self._queue.receive_deferred(
            arguments.numbers("sequence-numbers"), self._service.clock(), lock=held, delete=deletes
        )
        messages = [
            {"lock-token": d.lock_token, "message": encode_delivery(self._queue, d, is_locked=not deletes)}
            for d in deliveries
        ]
        return _Answer(200, {"messages": messages})

    def _schedule(self, arguments: _Arguments, _: SessionLock | None) -> _Answer:
        messages = arguments.messages()
        if not messages:
            raise _wrong("messages", "a list of maps with a message each")
        if any(message.scheduled_at is None for message in messages):
            raise BrokerError(_ARGUMENT, "A message to schedule has no x-opt-scheduled-enqueue-time.")
        numbers = self._service.send(self._queue.name, messages)
        return _Answer(200, {"sequence-numbers": codec.array(int, numbers)})

    def _cancel_scheduled(self, arguments: _Arguments, _: SessionLock | None) -> _Answer:
        self._queue.cancel_scheduled(arguments.numbers("sequence-numbers"), self._service.clock())
        return _Answer(200, {})

    def _delete_batch(self, arguments: _Arguments, _: SessionLock | None) -> _Answer:
        count, before = arguments.number("message-count"), arguments.number("enqueued-time-utc") / 1000
        deleted = self._queue.delete_batch(count, before, self._service.clock())
        return _Answer(200, {"message-count": deleted}) if deleted else _Answer(204, {})


def _success(request: ReceivedMessage, answer: _Answer) -> bytes:
    description = "OK" if answer.status == 200 else "No Content"
    facts: dict[str, object] = {"statusCode": answer.status, "statusDescription": description}
    if answer.status == 204:
        facts["errorCondition"] = Symbol("com.microsoft:message-not-found")
    return encode_reply(request.encoded_message_id, facts, answer.body)


def _refusal(error: BrokerError | CodecError) -> BrokerError:
    return error if isinstance(error, BrokerError) else BrokerError(_ARGUMENT, f"The request: {error}.")


def _failure(request: ReceivedMessage, error: BrokerError) -> bytes:
    facts: dict[str, object] = {
        "statusCode": _STATUS.get(error.condition, 400),
        "statusDescription": error.description,
        "errorCondition": Symbol(error.condition),
    }
    return encode_reply(request.encoded_message_id, facts, {})


def _wrong(name: str, wanted: str) -> BrokerError:
    return BrokerError(_ARGUMENT, f"The request's '{name}' must be {wanted}.")
