"""A message as the broker keeps it: the sender's sections byte for byte, and the fields that the rules need decoded.

Only three things ever change a bare section: a missing message id is filled in, settlement adds application properties,
and a session id may be folded to lower case. Each replaces one value among the sender's other bytes.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from local.broker import codec
from local.broker.codec import CodecError, Encoded, Symbol, Timestamp

MessageId: TypeAlias = str | uuid.UUID | int | bytes

BATCH_FORMAT = 0x80013700
"""The message format of a transfer whose data sections are whole messages; nothing else tells the two apart."""

_HEADER, _DELIVERY_ANNOTATIONS, _MESSAGE_ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES = range(0x70, 0x75)
_DATA, _SEQUENCE, _VALUE, _FOOTER = range(0x75, 0x79)

_MESSAGE_ID, _TO, _SUBJECT, _REPLY_TO, _CORRELATION_ID, _CONTENT_TYPE = 0, 2, 3, 4, 5, 6
_GROUP_ID, _REPLY_TO_GROUP_ID = 10, 12

_SERVICE_OWNED = frozenset(
    f"x-opt-{name}"
    for name in (
        "sequence-number",
        "enqueued-time",
        "locked-until",
        "enqueue-sequence-number",
        "message-state",
        "deadletter-source",
        "lock-token",
    )
)


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as its sender wrote it, with views of the parts that functions and rules ask for."""

    durable: Encoded
    priority: Encoded
    ttl_seconds: float | None
    annotations: Mapping[object, Encoded]
    # The sections' content without descriptors, b"" for what the sender left out. Nothing of it belongs into a log.
    properties: bytes = field(repr=False)
    application_properties_map: bytes = field(repr=False)
    body_sections: bytes = field(repr=False)  # whole sections, one or more
    footer: bytes = field(repr=False)
    message_id: MessageId | None = None
    correlation_id: MessageId | None = None
    session_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    scheduled_at: float | None = None
    delivery_annotations: Mapping[object, Encoded] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes that count against the entity's limit."""
        annotations = sum(
            len(value) + 24 for each in (self.annotations, self.delivery_annotations) for value in each.values()
        )
        bare = len(self.properties) + len(self.application_properties_map) + len(self.body_sections) + len(self.footer)
        return annotations + bare

    @property
    def application_properties(self) -> dict[str, object]:
        """The sender's properties as Python values, plus what settlement added."""
        if not self.application_properties_map:
            return {}
        decoded = codec.decode_one(self.application_properties_map)
        return {str(key): value for key, value in decoded.items()} if isinstance(decoded, dict) else {}

    @property
    def body(self) -> bytes:
        """The data sections joined; of an amqp-value body its text or bytes, of any other body nothing.

        A function that binds bytes gets just that: the service's libraries hand out data bodies only.
        """
        parts = []
        for code, value, _ in _sections(self.body_sections):
            content = codec.decode_one(value)
            if code == _DATA and isinstance(content, bytes):
                parts.append(content)
            elif code == _VALUE and isinstance(content, str | bytes):
                parts.append(content.encode() if isinstance(content, str) else content)
        return b"".join(parts)

    @property
    def has_text(self) -> bool:
        """Whether `body` is all of the body: it isn't of a sequence, nor of a value that is neither text nor bytes."""
        return all(
            code == _DATA or (code == _VALUE and isinstance(codec.decode_one(value), str | bytes))
            for code, value, _ in _sections(self.body_sections)
        )

    @property
    def value(self) -> Encoded | None:
        """The content of an amqp-value body; None when the body is another one."""
        for code, value, _ in _sections(self.body_sections):
            if code == _VALUE:
                return Encoded(value)
        return None

    @property
    def encoded_message_id(self) -> Encoded:
        """The message id in the type that the sender gave it."""
        return _at(codec.raw_items(self.properties or b"\x45"), _MESSAGE_ID)

    def with_message_id(self, message_id: str) -> ReceivedMessage:
        """The same message under an id, for a sender that set none."""
        properties = _with_field(self.properties, _MESSAGE_ID, message_id)
        return dataclasses.replace(self, message_id=message_id, properties=properties)

    def with_session_id(self, session_id: str) -> ReceivedMessage:
        """The same message in another session."""
        properties = _with_field(self.properties, _GROUP_ID, session_id)
        return dataclasses.replace(self, session_id=session_id, properties=properties)

    def with_properties(self, changes: Mapping[str, object]) -> ReceivedMessage:
        """The same message with application properties set; those that are not named keep their bytes."""
        if not changes:
            return self
        items: dict[object, object] = dict(codec.raw_map(self.application_properties_map or b"\xc1\x01\x00"))
        items.update((str(key), value) for key, value in changes.items())
        return dataclasses.replace(self, application_properties_map=codec.encode_map(items))


def parse_message(data: bytes) -> ReceivedMessage:
    """Read a complete encoded message.

    Raises:
        CodecError: when it isn't one; the text says where.
    """
    found: dict[int, bytes] = {}
    body = []
    for code, value, whole in _sections(data):
        _check(code, codec.decode_one(value))
        if code in (_DATA, _SEQUENCE, _VALUE):
            body.append(whole)
        elif code in found:
            raise CodecError(f"a second section of code 0x{code:02x}")
        else:
            found[code] = value
    header = codec.raw_items(found.get(_HEADER, b"\x45"))
    annotations = _senders_own(found.get(_MESSAGE_ANNOTATIONS))
    fields = [codec.decode_one(item) for item in codec.raw_items(found.get(_PROPERTIES, b"\x45"))]
    return ReceivedMessage(
        durable=_at(header, 0),
        priority=_at(header, 1),
        ttl_seconds=_ttl(_at(header, 2)),
        annotations=annotations,
        properties=found.get(_PROPERTIES, b""),
        application_properties_map=found.get(_APPLICATION_PROPERTIES, b""),
        body_sections=b"".join(body),
        footer=found.get(_FOOTER, b""),
        message_id=_id(fields, _MESSAGE_ID),
        correlation_id=_id(fields, _CORRELATION_ID),
        session_id=_text(fields, _GROUP_ID),
        subject=_text(fields, _SUBJECT),
        content_type=_text(fields, _CONTENT_TYPE),
        to=_text(fields, _TO),
        reply_to=_text(fields, _REPLY_TO),
        reply_to_session_id=_text(fields, _REPLY_TO_GROUP_ID),
        partition_key=_partition_key(annotations),
        scheduled_at=_scheduled(annotations),
        delivery_annotations=_senders_own(found.get(_DELIVERY_ANNOTATIONS)),
    )


def parse_batch(data: bytes) -> list[ReceivedMessage]:
    """Read the messages of a batch transfer; what surrounds them copies the first one and counts for nothing."""
    messages = []
    for code, value, _ in _sections(data):
        if code == _DATA:
            content = codec.decode_one(value)
            _check(code, content)
            messages.append(parse_message(content if isinstance(content, bytes) else b""))
    if not messages:
        raise CodecError("a batch without a message")
    return messages


def build_message(
    body: bytes,
    *,
    message_id: MessageId | None = None,
    session_id: str | None = None,
    correlation_id: str | None = None,
    subject: str | None = None,
    content_type: str | None = None,
    application_properties: Mapping[str, object] | None = None,
    ttl_seconds: float | None = None,
    scheduled_at: float | None = None,
) -> ReceivedMessage:
    """Make a message in process, through the same encoding that a client would use."""
    fields: list[object] = [message_id, None, None, subject, None, correlation_id]
    fields += [Symbol(content_type) if content_type is not None else None, None, None, None, session_id]
    if isinstance(message_id, int):
        fields[0] = codec.ulong(message_id)
    sections = []
    if ttl_seconds is not None:
        header = [codec.NULL, codec.NULL, codec.uint(round(ttl_seconds * 1000))]
        sections.append(codec.described(_HEADER, codec.encode_list(header)))
    if scheduled_at is not None:
        when = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(round(scheduled_at * 1000))}
        sections.append(codec.described(_MESSAGE_ANNOTATIONS, codec.encode_map(when)))
    sections.append(codec.described(_PROPERTIES, codec.encode_list(codec.encode(field) for field in fields)))
    if application_properties:
        sections.append(codec.described(_APPLICATION_PROPERTIES, codec.encode_map(dict(application_properties))))
    sections.append(codec.described(_DATA, codec.encode(body)))
    return parse_message(b"".join(sections))


def encode_message(
    message: ReceivedMessage,
    *,
    delivery_count: int,
    ttl_seconds: float | None,
    annotations: Mapping[str, object],
    lock_token: uuid.UUID | None = None,
) -> bytes:
    """Write a message as a receiver gets it: the broker's header and annotations before the sender's own sections."""
    ttl = codec.NULL if ttl_seconds is None else codec.uint(min(round(ttl_seconds * 1000), 2**32 - 1))
    header = [message.durable, message.priority, ttl, codec.NULL, codec.uint(delivery_count)]
    sections: list[bytes] = [codec.described(_HEADER, codec.encode_list(header))]
    # AMQP means these for one hop; the service passes the sender's on, and the tests of its Python client count on it.
    delivery_annotations: dict[object, object] = dict(message.delivery_annotations)
    if lock_token is not None:
        delivery_annotations[Symbol("x-opt-lock-token")] = lock_token
    if delivery_annotations:
        sections.append(codec.described(_DELIVERY_ANNOTATIONS, codec.encode_map(delivery_annotations)))
    all_annotations: dict[object, object] = {Symbol(key): value for key, value in annotations.items()}
    all_annotations.update(message.annotations)
    sections.append(codec.described(_MESSAGE_ANNOTATIONS, codec.encode_map(all_annotations)))
    if message.properties:
        sections.append(codec.described(_PROPERTIES, message.properties))
    if message.application_properties_map:
        sections.append(codec.described(_APPLICATION_PROPERTIES, message.application_properties_map))
    sections.append(message.body_sections)
    if message.footer:
        sections.append(codec.described(_FOOTER, message.footer))
    return b"".join(sections)


def encode_reply(correlation_id: Encoded, properties: Mapping[str, object], value: object) -> bytes:
    """Write the answer of a request node: application properties and an amqp-value body."""
    fields = [codec.NULL] * _CORRELATION_ID + [correlation_id]
    sections = (
        codec.described(_PROPERTIES, codec.encode_list(fields)),
        codec.described(_APPLICATION_PROPERTIES, codec.encode_map(properties)),
        codec.described(_VALUE, codec.encode(value)),
    )
    return b"".join(sections)


def _sections(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each section's code, its value's bytes and its whole bytes."""
    at = 0
    while at < len(data):
        if data[at] != 0x00:
            raise CodecError(f"no section starts at offset {at}")
        code, value_at = codec.decode(data, at + 1)
        if not isinstance(code, int) or not _HEADER <= code <= _FOOTER:
            raise CodecError(f"{code!r} describes no section of a message")
        end = codec.skip(data, value_at)
        yield code, data[value_at:end], data[at:end]
        at = end


def _check(code: int, value: object) -> None:
    wanted = _SECTION_TYPES.get(code)
    if wanted is not None and not isinstance(value, wanted[1]):
        raise CodecError(f"the {wanted[0]} section is no {wanted[1].__name__}")


_SECTION_TYPES: dict[int, tuple[str, type]] = {
    _HEADER: ("header", list),
    _DELIVERY_ANNOTATIONS: ("delivery annotations", dict),
    _MESSAGE_ANNOTATIONS: ("message annotations", dict),
    _PROPERTIES: ("properties", list),
    _APPLICATION_PROPERTIES: ("application properties", dict),
    _DATA: ("data", bytes),
    _SEQUENCE: ("sequence", list),
    _FOOTER: ("footer", dict),
}


def _at(items: list[Encoded], index: int) -> Encoded:
    return items[index] if index < len(items) else codec.NULL


def _ttl(raw: Encoded) -> float | None:
    value = codec.decode_one(raw)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CodecError("the header's ttl is no uint")
    return value / 1000


def _id(fields: list[object], index: int) -> MessageId | None:
    value = fields[index] if index < len(fields) else None
    if value is None or (isinstance(value, str | uuid.UUID | int | bytes) and not isinstance(value, bool)):
        return value
    raise CodecError(f"property {index} is no message id")


def _text(fields: list[object], index: int) -> str | None:
    value = fields[index] if index < len(fields) else None
    if value is None or isinstance(value, str):
        return value if value is None else str(value)
    raise CodecError(f"property {index} is no text")


def _senders_own(annotations: bytes | None) -> dict[object, Encoded]:
    """An annotations section without what only the broker may say."""
    items = {} if annotations is None else codec.raw_map(annotations)
    return {key: value for key, value in items.items() if key not in _SERVICE_OWNED}


def _partition_key(annotations: Mapping[object, Encoded]) -> str | None:
    """The key's text. The Python client reads a string as bytes and, when it sends the message on, writes bytes."""
    raw = annotations.get("x-opt-partition-key")
    value = None if raw is None else codec.decode_one(raw)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as exc:
            raise CodecError("the annotation x-opt-partition-key is not UTF-8") from exc
    if value is None or isinstance(value, str):
        return value
    raise CodecError("the annotation x-opt-partition-key is no str")


def _scheduled(annotations: Mapping[object, Encoded]) -> float | None:
    raw = annotations.get("x-opt-scheduled-enqueue-time")
    value = None if raw is None else codec.decode_one(raw)
    if value is None or isinstance(value, Timestamp):
        return None if value is None else value / 1000
    raise CodecError("the annotation x-opt-scheduled-enqueue-time is no timestamp")


def _with_field(properties: bytes, index: int, value: str) -> bytes:
    items: list[bytes] = list(codec.raw_items(properties or b"\x45"))
    items += [codec.NULL] * (index + 1 - len(items))
    items[index] = codec.encode(value)
    return codec.encode_list(items)
