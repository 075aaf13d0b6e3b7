"""An AMQP session: windows, delivery ids, and frames to the links they are for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from local.broker import attaching
from local.broker.codec import Encoded
from local.broker.frames import (
    AmqpError,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    Transfer,
    encode_performative,
    serial_add,
    serial_difference,
)
from local.broker.links import Link

if TYPE_CHECKING:
    from local.broker.connection import Connection

_WINDOW = 2**31 - 1
_HANDLE_MAX = 255  # as the cloud announces

# Settles as a disposition asks, and gives the state to answer with, now or later.
OnDisposition: TypeAlias = Callable[[Disposition, Callable[[Encoded | None], None]], None]


class Session:
    """The broker's end of a session. Each link answers under the handle that the client chose."""

    def __init__(self, connection: Connection, channel: int, peer: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.links: dict[int, Link] = {}
        self._next_incoming_id = peer.next_outgoing_id
        self._next_outgoing_id = 0
        self._next_delivery_id = 0
        self._peer_window = peer.incoming_window
        self._unsent: deque[tuple[Transfer, bytes]] = deque()  # frames that wait for the peer's window
        self._unsettled: dict[int, tuple[Link, OnDisposition]] = {}
        answer = Begin(
            remote_channel=channel,
            next_outgoing_id=0,
            incoming_window=_WINDOW,
            outgoing_window=_WINDOW,
            handle_max=_HANDLE_MAX,
        )
        self.send(answer)

    @property
    def can_deliver(self) -> bool:
        """Whether a message handed out now would go on the wire now."""
        return self._peer_window > 0 and not self._unsent and not self.connection.is_paused

    def send(self, performative: Performative) -> None:
        """Write a frame of this session."""
        self.connection.send(self.channel, performative)

    def flow(
        self, handle: int | None = None, *, delivery_count: int = 0, credit: int = 0, drain: bool = False
    ) -> None:
        """Tell the session's state, and a link's if a handle is given."""
        flow = Flow(
            next_incoming_id=self._next_incoming_id,
            incoming_window=_WINDOW,
            next_outgoing_id=self._next_outgoing_id,
            outgoing_window=_WINDOW,
        )
        if handle is not None:
            flow.handle, flow.delivery_count, flow.link_credit, flow.drain = handle, delivery_count, credit, drain
        self.send(flow)

    def deliver(
        self,
        link: Link,
        tag: bytes,
        payload: bytes,
        *,
        on_disposition: OnDisposition | None = None,
    ) -> None:
        """Transfer a message in as many frames as it takes; settled unless somebody waits for its disposition."""
        delivery_id = self._next_delivery_id
        self._next_delivery_id = serial_add(delivery_id, 1)
        first = Transfer(link.handle, delivery_id, tag, 0, settled=on_disposition is None)
        if on_disposition is not None:
            self._unsettled[delivery_id] = (link, on_disposition)
        room = self.connection.max_frame_size - 8 - len(encode_performative(first)) - 8
        for at in range(0, max(len(payload), 1), room):
            frame = first if at == 0 else Transfer(link.handle)
            frame.more = True if at + room < len(payload) else None
            self._unsent.append((frame, payload[at : at + room]))
        self._send_within_window()

    def on_frame(self, performative: Performative, payload: bytes) -> None:
        """Handle a frame that the client sent in this session."""
        if isinstance(performative, Transfer):
            self._next_incoming_id = serial_add(self._next_incoming_id, 1)
            link = self.links.get(performative.handle)
            if link is not None:
                link.on_transfer(performative, payload)
        elif isinstance(performative, Flow):
            self._on_flow(performative)
        elif isinstance(performative, Disposition):
            self._on_disposition(performative)
        elif isinstance(performative, Attach):
            if performative.handle in self.links or performative.handle > _HANDLE_MAX:
                raise AmqpError(
                    "amqp:session:handle-in-use", f"Handle {performative.handle} is in use or above {_HANDLE_MAX}."
                )
            attaching.attach(self, performative)
        elif isinstance(performative, Detach):
            link = self.links.get(performative.handle)
            if link is not None:
                link.on_detach(performative)
        elif isinstance(performative, End):
            self.close()
            self.send(End())
            self.connection.forget_session(self.channel)
        else:
            raise AmqpError("amqp:not-allowed", f"{type(performative).__name__} is nothing that a client sends.")

    def pump(self) -> None:
        """Send what may be sent now that something has given way."""
        self._send_within_window()
        for link in list(self.links.values()):
            link.pump()

    def forget_link(self, link: Link) -> None:
        """The link is gone, and with it its delivery ids: a late disposition must not settle what it held."""
        self.links.pop(link.handle, None)
        self._unsettled = {key: held for key, held in self._unsettled.items() if held[0] is not link}
        self._unsent = deque(item for item in self._unsent if item[0].handle != link.handle)

    def close(self) -> None:
        """Let go of all that the links hold."""
        links_here, self.links = list(self.links.values()), {}
        for link in links_here:
            link.close()
        self._unsettled.clear()
        self._unsent.clear()

    def _send_within_window(self) -> None:
        while self._unsent and self._peer_window > 0:
            frame, payload = self._unsent.popleft()
            self._peer_window -= 1
            self._next_outgoing_id = serial_add(self._next_outgoing_id, 1)
            self.connection.send(self.channel, frame, payload)

    def _on_flow(self, flow: Flow) -> None:
        received = flow.next_incoming_id if flow.next_incoming_id is not None else 0
        in_flight = serial_difference(self._next_outgoing_id, received)
        self._peer_window = max(0, flow.incoming_window - max(0, in_flight))
        link = self.links.get(flow.handle) if flow.handle is not None else None
        if link is not None:
            link.on_flow(flow)
        self.pump()
        if flow.echo and link is None:
            self.flow()

    def _on_disposition(self, disposition: Disposition) -> None:
        """Settle what the client asks for; answer each delivery id that it has not settled itself."""
        if not disposition.role:
            return  # about transfers that the client sent: they were settled by the answer that each got
        last = disposition.last if disposition.last is not None else disposition.first
        count = serial_difference(last, disposition.first) + 1
        if count > len(self._unsettled):  # a wide range: look at what there is, not at every number in it
            ids = [i for i in self._unsettled if 0 <= serial_difference(i, disposition.first) < count]
        else:
            ids = [serial_add(disposition.first, step) for step in range(count)]
        for delivery_id in ids:
            found = self._unsettled.pop(delivery_id, None)
            if found is None:
                continue
            link, settle = found
            settle(disposition, partial(self._answer_disposition, link, delivery_id, disposition.settled))

    def _answer_disposition(
        self, link: Link, delivery_id: int, is_settled: bool | None, state: Encoded | None
    ) -> None:
        if not is_settled and self.links.get(link.handle) is link:
            self.send(Disposition(role=False, first=delivery_id, last=delivery_id, settled=True, state=state))
