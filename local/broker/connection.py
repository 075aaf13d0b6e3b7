"""One client's connection: SASL, open and close, time-outs, and frames to the sessions they are for.

All of it runs inside the event loop's callbacks, so a connection has no task that could be left behind. Whatever a
client sends, the worst that happens is that its own connection is closed with an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from local.broker import codec
from local.broker.cbs import Claims, SasKey
from local.broker.codec import CodecError, Encoded, Symbol
from local.broker.frames import (
    AMQP_HEADER,
    DECODE_ERROR,
    EMPTY_FRAME,
    FRAMING_ERROR,
    MAX_FRAME_SIZE,
    SASL_HEADER,
    AmqpError,
    Begin,
    Close,
    Frame,
    FrameReader,
    Open,
    Performative,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    decode_performative,
    encode_error,
    encode_frame,
    encode_performative,
)
from local.broker.links import QueueReceiver
from local.broker.model import SessionLock
from local.broker.service import BrokerService
from local.broker.session import Session
from local.tcp import reset

_LOG = logging.getLogger(__name__)
_CHANNEL_MAX = 4999  # as the cloud announces
_LEAST_FRAME_SIZE = 512
_LEAST_HEARTBEAT_SECONDS = 0.05
_OPENING_SECONDS = 60.0
_CLOSING_SECONDS = 1.0
# .NET takes MSSBCBS and fails without it; it behaves as ANONYMOUS, which Python and JavaScript take.
_MECHANISMS = ("MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL")


@dataclass(frozen=True, slots=True)
class Front:
    """What all connections share."""

    service: BrokerService
    key: SasKey
    idle_seconds: float = 240.0  # as the cloud announces; the Python client needs 60 at least


class Connection(asyncio.Protocol):
    """The broker's end of a connection."""

    def __init__(self, front: Front, on_end: Callable[[Connection], None]) -> None:
        self.front = front
        self.claims = Claims()
        self.max_frame_size = _LEAST_FRAME_SIZE
        self.is_paused = False
        self.sessions: dict[int, Session] = {}
        self._on_end = on_end
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._is_authenticated = False
        self._is_open = False
        self._is_closing = False
        self._last_heard = 0.0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # ------------------------------------------------------------------------------------ called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP server makes no other
        self._transport = transport
        self._last_heard = asyncio.get_running_loop().time()
        self._set_timer("opening", _OPENING_SECONDS, self._give_up_opening)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        """The socket is gone: sessions are released, messages of plain queues stay locked until their time is up."""
        self._transport = None
        self._is_closing = True
        for timer in self._timers.values():
            timer.cancel()
        self._end_sessions()
        self._on_end(self)

    def pause_writing(self) -> None:
        """The client reads slower than it asks: hand out nothing more, and hear nothing more, until it catches up."""
        self.is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client caught up."""
        self.is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        self.guard(self._pump)

    def data_received(self, data: bytes) -> None:
        """Bytes came; any that make no sense end this connection and nothing else."""
        self._last_heard = asyncio.get_running_loop().time()
        self.guard(lambda: self._read(data))

    # ------------------------------------------------------------------------------------- for sessions and links

    def guard(self, action: Callable[[], None]) -> None:
        """Run something on this connection's behalf; what goes wrong ends this connection only."""
        try:
            action()
        except (AmqpError, CodecError) as exc:
            if self._is_closing:
                self._hang_up()
            elif isinstance(exc, AmqpError):
                self.close(exc.condition, exc.description)
            else:
                self.close(DECODE_ERROR, f"The frame cannot be decoded: {exc}.")
        except Exception:
            _LOG.exception("A connection failed inside the broker")
            self.close("amqp:internal-error", "The broker failed; its log has the details.")

    def send(self, channel: int, performative: Performative, payload: bytes = b"") -> None:
        """Write a frame, unless the connection is closing."""
        if not self._is_closing:
            self._write(encode_frame(channel, encode_performative(performative) + payload))

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Say good-bye, with an error if there is one, and hang up when the client has answered or been given time.

        Hanging up at once could lose the error on its way: what the client still sends would reset the socket.
        """
        if self._is_closing:
            return
        if self._is_authenticated and not self._is_open:  # a close must not come before an open
            self._open()
        error = None if condition is None else encode_error(condition, description)
        if self._is_open:
            self.send(0, Close(error=error))
        self._is_closing = True
        self._end_sessions()
        if self._is_open and self._transport is not None:
            self._transport.resume_reading()
            self._set_timer("closing", _CLOSING_SECONDS, self._hang_up)
        else:
            self._hang_up()

    def abort(self) -> None:
        """Drop the socket, whatever is still to be sent."""
        if self._transport is not None:
            self._transport.abort()

    def cut(self, resets: bool = True) -> None:
        """End the connection without a word: by reset, or closed in order."""
        self._is_closing = True
        if self._transport is None:
            return
        if resets:
            reset(self._transport)
        else:
            self._transport.close()

    def session_lock(self, link_name: str) -> SessionLock | None:
        """The session lock that the receiver link of this name holds."""
        for session in self.sessions.values():
            for link in session.links.values():
                if isinstance(link, QueueReceiver) and link.name == link_name:
                    return link.lock
        return None

    def forget_session(self, channel: int) -> None:
        """The session ended."""
        self.sessions.pop(channel, None)

    # ------------------------------------------------------------------------------------------------------ inside

    def _read(self, data: bytes) -> None:
        for item in self._reader.feed(data):
            if self._is_closing:
                if isinstance(item, Frame) and item.body and isinstance(decode_performative(item.body)[0], Close):
                    self._hang_up()
            elif isinstance(item, bytes):
                self._on_header(item)
            elif item.is_sasl:
                self._on_sasl(item)
            elif item.body:
                self._on_frame(item)

    def _on_header(self, header: bytes) -> None:
        if header == SASL_HEADER and not self._is_authenticated:
            self._write(SASL_HEADER)
            names = codec.array(Symbol, [Symbol(name) for name in _MECHANISMS])
            self._write_sasl(SaslMechanisms(mechanisms=names))
        elif header == AMQP_HEADER:
            self._is_authenticated = True
            self._write(AMQP_HEADER)
        else:
            # The protocol's answer to an unknown header is the one that would do, and the end.
            self._write(AMQP_HEADER if self._is_authenticated else SASL_HEADER)
            self.close()

    def _on_sasl(self, frame: Frame) -> None:
        if self._is_authenticated:
            raise AmqpError(FRAMING_ERROR, "A SASL frame after SASL is done.")
        performative, _ = decode_performative(frame.body)
        if not isinstance(performative, SaslInit):
            self.close()
            return
        is_plain = performative.mechanism == "PLAIN"
        is_good = performative.mechanism in _MECHANISMS
        if is_plain:
            is_good = self.front.key.check_plain(performative.initial_response or b"")
        self._write_sasl(SaslOutcome(sasl_code=0 if is_good else 1))
        if not is_good:
            self.close()
            return
        if is_plain:
            self.claims.add("")
        self._is_authenticated = True
        self._reader.expects_header = True

    def _on_frame(self, frame: Frame) -> None:
        if not self._is_authenticated:
            raise AmqpError(FRAMING_ERROR, "An AMQP frame before SASL is done.")
        performative, payload = decode_performative(frame.body)
        if isinstance(performative, Open):
            self._on_open(performative)
        elif isinstance(performative, Close):
            self.close()
            self._hang_up()
        elif not self._is_open:
            raise AmqpError(FRAMING_ERROR, "The first frame must be an open.")
        elif isinstance(performative, Begin):
            self._on_begin(frame.channel, performative)
        else:
            session = self.sessions.get(frame.channel)
            if session is not None:  # the Python client detaches links of sessions that it has ended already
                session.on_frame(performative, payload)

    def _on_open(self, peer: Open) -> None:
        if self._is_open:
            raise AmqpError(FRAMING_ERROR, "A second open.")
        self.max_frame_size = min(MAX_FRAME_SIZE, max(_LEAST_FRAME_SIZE, peer.max_frame_size or MAX_FRAME_SIZE))
        self._timers.pop("opening").cancel()
        self._open()
        if peer.idle_time_out:
            # A peer is owed a frame in half its time; 0.4 leaves room for a slow machine.
            self._beat(max(_LEAST_HEARTBEAT_SECONDS, peer.idle_time_out / 1000 * 0.4))
        self._set_timer("watch", self.front.idle_seconds, self._watch)

    def _open(self) -> None:
        self._is_open = True
        answer = Open(
            container_id="embedded-service-bus",
            max_frame_size=MAX_FRAME_SIZE,
            channel_max=_CHANNEL_MAX,
            idle_time_out=round(self.front.idle_seconds * 1000),
        )
        self.send(0, answer)

    def _on_begin(self, channel: int, peer: Begin) -> None:
        if channel > _CHANNEL_MAX or channel in self.sessions:
            raise AmqpError(FRAMING_ERROR, f"Channel {channel} is in use or above {_CHANNEL_MAX}.")
        self.sessions[channel] = Session(self, channel, peer)

    def _pump(self) -> None:
        for session in list(self.sessions.values()):
            session.pump()

    def _beat(self, seconds: float) -> None:
        if not self._is_closing:
            self._write(EMPTY_FRAME)
            self._set_timer("beat", seconds, lambda: self._beat(seconds))

    def _watch(self) -> None:
        """Close when nothing was heard for twice the announced time, as the protocol has it."""
        silence = asyncio.get_running_loop().time() - self._last_heard
        if silence >= 2 * self.front.idle_seconds:
            self.close("amqp:resource-limit-exceeded", f"Nothing was heard for {silence:.0f} seconds.")
        else:
            self._set_timer("watch", self.front.idle_seconds, self._watch)

    def _give_up_opening(self) -> None:
        self.close("amqp:connection:forced", f"The connection was not opened within {_OPENING_SECONDS:.0f} seconds.")

    def _set_timer(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, action)

    def _end_sessions(self) -> None:
        for session in list(self.sessions.values()):
            session.close()
        self.sessions.clear()

    def _hang_up(self) -> None:
        """Close the socket when all is written, or without that when the client does not read."""
        if self._transport is not None:
            self._transport.close()
            self._set_timer("abort", _CLOSING_SECONDS, self.abort)

    def _write_sasl(self, performative: Performative) -> None:
        self._write(encode_frame(0, encode_performative(performative), is_sasl=True))

    def _write(self, data: bytes | Encoded) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
