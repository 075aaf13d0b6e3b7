"""A bare AMQP client for what no SDK can be made to send: each frame is the test's own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
from typing import Self, TypeVar
from urllib.parse import quote

from running_broker import KEY, RunningBroker

from local.broker import codec
from local.broker.codec import Encoded, Symbol
from local.broker.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Frame,
    FrameReader,
    Open,
    Performative,
    SaslInit,
    Transfer,
    decode_composite,
    decode_performative,
    encode_frame,
    encode_performative,
)
from local.broker.messages import ReceivedMessage, parse_message

_P = TypeVar("_P", bound=Performative)
_SECONDS = 5.0


def source(address: str, filters: dict[object, object] | None = None) -> Encoded:
    fields = [codec.encode(address), *[codec.NULL] * 6, codec.NULL if filters is None else codec.encode_map(filters)]
    return codec.described(0x28, codec.encode_list(fields))


def target(address: str) -> Encoded:
    return codec.described(0x29, codec.encode_list([codec.encode(address)]))


def request(operation: str, body: object, message_id: object = "1", **properties: object) -> bytes:
    """A request message for a node, its answer wanted at `reply`."""
    fields = [codec.encode(message_id), *[codec.NULL] * 3, codec.encode("reply")]
    sections = [
        codec.described(0x73, codec.encode_list(fields)),
        codec.described(0x74, codec.encode_map({"operation": operation, **properties})),
        codec.described(0x77, codec.encode(body)),
    ]
    return b"".join(sections)


def error_of(raw: Encoded | None) -> tuple[str, str]:
    """An error's condition and description; it must have its third field, and that must be a map."""
    assert raw is not None
    code, fields = decode_composite(raw)
    assert code == 0x1D
    condition, description, info = (codec.decode_one(field) for field in fields)
    assert isinstance(condition, Symbol)
    assert isinstance(description, str)
    assert isinstance(info, dict)
    assert info
    return condition, description


class RawClient:
    """One connection with one session on channel 0."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameReader()
        self._arrived: list[bytes | Frame] = []
        self.payload = b""

    @classmethod
    async def connect(cls, broker: RunningBroker) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", broker.server.amqp_port))

    @classmethod
    async def begun(cls, broker: RunningBroker, *, incoming_window: int = 1000, **opening: int) -> Self:
        """Connect, authenticate, open, begin."""
        client = await cls.connect(broker)
        await client.authenticate("ANONYMOUS")
        client.send(Open(container_id="raw", **opening))  # type: ignore[arg-type]  # numbers all
        client.send(Begin(next_outgoing_id=0, incoming_window=incoming_window, outgoing_window=1000, handle_max=255))
        await client.expect(Open)
        await client.expect(Begin)
        return client

    @classmethod
    async def authorised(cls, broker: RunningBroker, path: str = "", **options: int) -> Self:
        """The same with a token for a path."""
        client = await cls.begun(broker, **options)
        assert await client.put_token(f"sb://127.0.0.1/{path}") == 202
        return client

    async def authenticate(self, mechanism: str, response: bytes | None = None) -> int:
        self.writer.write(SASL_HEADER)
        assert await self.raw() == SASL_HEADER
        await self.raw()
        init = SaslInit(mechanism=mechanism, initial_response=response)
        self.writer.write(encode_frame(0, encode_performative(init), is_sasl=True))
        outcome = await self.raw()
        assert isinstance(outcome, Frame)
        number = codec.decode_one(decode_composite(outcome.body)[1][0])
        assert isinstance(number, int)
        if number == 0:
            self._frames.expects_header = True
            self.writer.write(AMQP_HEADER)
            assert await self.raw() == AMQP_HEADER
        return number

    async def put_token(self, name: str, *, key: str = KEY, expires: int = 2**33, signed: str | None = None) -> int:
        """Put a token and give the status of the answer."""
        resource = quote(signed or name, safe="")
        digest = hmac.new(key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
        signature = quote(base64.b64encode(digest), safe="")
        token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn=RootManageSharedAccessKey"
        await self.attach_node("$cbs", 100)
        answer = await self.ask(100, request("put-token", token, name=name, type="servicebus.windows.net:sastoken"))
        for handle in (100, 101):
            self.send(Detach(handle, closed=True))
            await self.expect(Detach)
        status = answer.application_properties["status-code"]
        assert isinstance(status, int)
        return status

    async def attach_node(self, node: str, handle: int) -> None:
        """Attach the pair of links of a request node, on a handle and the next one."""
        self.send(Attach(f"out{handle}", handle, role=False, source=source("me"), target=target(node)))
        self.send(Attach(f"in{handle}", handle + 1, role=True, source=source(node), target=target("reply")))
        self.flow(handle + 1, credit=100)
        for _ in range(2):
            assert (await self.expect(Attach)).source is not None

    async def ask(self, handle: int, message: bytes) -> ReceivedMessage:
        """Send a request to an attached node and give its answer."""
        self.send(Transfer(handle, 0, b"", 0, settled=True), message)
        answer = await self.expect(Transfer)
        assert answer.settled
        return parse_message(self.payload)

    def flow(self, handle: int, credit: int, *, window: int = 1000, seen: int = 0, drain: bool = False) -> None:
        self.send(
            Flow(
                next_incoming_id=seen,
                incoming_window=window,
                next_outgoing_id=0,
                outgoing_window=1000,
                handle=handle,
                delivery_count=0,
                link_credit=credit,
                drain=drain,
            )
        )

    async def attach_sender(self, address: str, handle: int = 0) -> None:
        self.send(Attach("sender", handle, role=False, source=source("me"), target=target(address)))
        answer = await self.expect(Attach)
        assert answer.target is not None
        await self.expect(Flow)

    async def attach_receiver(
        self, address: str, handle: int = 1, *, mode: int = 0, filters: dict[object, object] | None = None
    ) -> Attach:
        wanted = source(address, filters)
        self.send(Attach("receiver", handle, role=True, snd_settle_mode=mode, source=wanted, target=target("me")))
        return await self.expect(Attach)

    async def refused(self, attach: Attach) -> tuple[str, str]:
        """Attach, and be refused by the book: nulls, then a detach with an error."""
        self.send(attach)
        answer = await self.expect(Attach)
        assert (answer.source, answer.target) == (None, None)
        detach = await self.expect(Detach)
        assert (detach.handle, detach.closed) == (attach.handle, True)
        return error_of(detach.error)

    async def send_message(self, message: bytes, handle: int = 0, *, number: int = 0, kind: int = 0) -> Disposition:
        """Transfer a message and give the broker's word on it."""
        self.send(Transfer(handle, number, b"t", kind), message)
        return await self.expect(Disposition)

    def send(self, performative: Performative, payload: bytes = b"", *, channel: int = 0) -> None:
        self.writer.write(encode_frame(channel, encode_performative(performative) + payload))

    async def expect(self, kind: type[_P]) -> _P:
        """The next frame, which must be of this kind; flows without a handle and empty frames are passed over."""
        while True:
            item = await self.raw()
            assert isinstance(item, Frame), item
            if not item.body:
                continue
            performative, self.payload = decode_performative(item.body)
            if isinstance(performative, Flow) and kind is not Flow:
                continue
            assert isinstance(performative, kind), performative
            return performative

    async def expect_any(self) -> Performative:
        """The next frame, whatever it is."""
        while True:
            item = await self.raw()
            if isinstance(item, Frame) and item.body:
                return decode_performative(item.body)[0]

    async def expect_past(self, passed: type[Performative], kind: type[_P]) -> _P:
        """The next frame of a kind, past frames of another."""
        while isinstance(found := await self.expect_any(), passed):
            pass
        assert isinstance(found, kind)
        return found

    async def ended(self) -> bool:
        """Whether the broker hangs up; a reset means that it left something unread."""
        with contextlib.suppress(ConnectionError):
            while await asyncio.wait_for(self.reader.read(65536), _SECONDS):
                pass
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def raw(self) -> bytes | Frame:
        """The next frame or protocol header."""
        while not self._arrived:
            data = await asyncio.wait_for(self.reader.read(65536), _SECONDS)
            assert data, "the broker hung up"
            self._arrived.extend(self._frames.feed(data))
        return self._arrived.pop(0)
