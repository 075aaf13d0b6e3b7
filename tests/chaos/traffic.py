"""The stream of work: rounds of orders, ledgers and entries under ids of their own, and copies of what went before.

Everything that is sent, or may have been sent, is noted in the order in which it was tried: that is the input of which
the end is worked out. A send whose fate is unknown is made again until the broker confirms it, before anything else
goes to that queue, so the order of a session is that of the notes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError

from local.demo.gather import Names
from local.demo.generate import Maker, Members
from local.demo.lines import ROLES, Line, parse_lines, plan
from local.demo.sending import message_of

ORDERS_A_ROUND = 16
TOGETHER = 12
MOST_WAITING = 160  # so that what a fault delays is seconds of work, and the run ends soon after its faults
SEND_SECONDS = 10.0
PAUSE_SECONDS = 0.2
REMEMBERED = 4000


class Traffic:
    """Feeds the queues until it is told to stop."""

    def __init__(
        self,
        bus: Callable[[], ServiceBusClient],
        names: Names,
        seed: int,
        *,
        waiting: Callable[[], int],
        is_away: Callable[[], bool],
    ) -> None:
        self.tried: list[Line] = []
        self.sent = 0
        self.unconfirmed = 0  # sends that failed, committed or not
        self.copies = 0
        self.rounds = 0
        self._bus = bus
        self._names = names
        self._seed = seed
        self._waiting = waiting
        self._is_away = is_away
        self._queues = {role: asyncio.Lock() for role in ROLES}
        self._clients: dict[str, tuple[ServiceBusClient, ServiceBusSender]] = {}
        self._random = random.Random(f"copies/{seed}")

    async def run(self, until: Callable[[], bool]) -> None:
        """Send round after round, as fast as the app takes them."""
        while not until():
            if self._waiting() > MOST_WAITING:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self.rounds += 1
            lines = await asyncio.to_thread(make_round, self._seed, self.rounds)
            await self.send(lines)

    async def storm(self, copies: int) -> None:
        """Send messages again, most of them once, one many times."""
        known = self.tried[-REMEMBERED:]
        if not known:
            return
        chosen = self._random.choices(known, k=copies // 2) + [self._random.choice(known)] * (copies // 2)
        self.copies += len(chosen)
        await self.send(chosen)

    async def send(self, lines: Sequence[Line]) -> None:
        """Send lines, those of each queue in their order, until the broker has confirmed all."""
        by_role = {role: [line for line in lines if line.role == role] for role in ROLES}
        await asyncio.gather(*(self._send_to(role, some) for role, some in by_role.items() if some))

    async def close(self) -> None:
        """Close the connections."""
        for role in list(self._clients):
            await self._drop(role)

    async def _send_to(self, role: str, lines: Sequence[Line]) -> None:
        for at in range(0, len(lines), TOGETHER):
            async with self._queues[role]:
                await self._surely_send(role, lines[at : at + TOGETHER])

    async def _surely_send(self, role: str, lines: Sequence[Line]) -> None:
        while True:
            while self._is_away():  # noqa: ASYNC110 - the engine has no event; what can't arrive need not be noted
                await asyncio.sleep(PAUSE_SECONDS)
            self.tried += [
                replace(line, number=len(self.tried) + place, repeat=1) for place, line in enumerate(lines, start=1)
            ]
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._sender(role).send_messages([message_of(line) for line in lines])
            except (ServiceBusError, TimeoutError, OSError):
                self.unconfirmed += 1
                await self._drop(role)
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.sent += len(lines)
                return

    def _sender(self, role: str) -> ServiceBusSender:
        """A connection for each queue, so that one that is cut is replaced as a whole."""
        if role not in self._clients:
            client = self._bus()
            self._clients[role] = client, client.get_queue_sender(self._names.queues[role])
        return self._clients[role][1]

    async def _drop(self, role: str) -> None:
        client, sender = self._clients.pop(role)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await sender.close()
                await client.close()
        except (ServiceBusError, TimeoutError, OSError):
            return  # it is gone already


def make_round(seed: int, number: int) -> list[Line]:
    """Make the messages of one round: seeded, and under ids that no other round has."""
    random_ = random.Random(f"round/{seed}/{number}")
    prefix = f"R{number}-"
    maker = Maker(random_, prefix=prefix, with_gaps=False)
    maker.sessions += [
        maker.order(f"{prefix}ORD-{order:04}", is_plain=order % 4 != 0) for order in range(1, ORDERS_A_ROUND + 1)
    ]
    if number % 2 == 1:
        maker.sessions.append(maker.ledger(f"{prefix}L-1"))
    if number % 3 == 0:
        maker.sessions += maker.entries()
    if number % 4 == 0:
        maker.sessions += maker.second_bodies()
    maker.sessions += [[line] for line in wrong(maker)]
    text = "\n".join(maker.mixed())
    return [sending.line for sending in plan(parse_lines(text.encode(), f"round {number}"))]


def wrong(maker: Maker) -> list[Members]:
    """Messages that must be parked, whenever and however often they are handled."""
    order = f"{maker.prefix}BAD"
    good: Members = {
        "type": "order.placed", "orderId": order, "currency": "EUR", "lines": [maker.line("1", "EUR")],
    }  # fmt: skip
    choices = [
        maker.message("orders", order, order, {**good, "colour": "red"}),
        maker.message("orders", f"{order}-other", order, good),
        maker.message("orders", order, f"{order}-session", good),
        maker.message("orders", f"{order}:op-1", order, {"type": "order.cancelled", "orderId": order,
                                                         "operationId": "op-1"}),
        {"queue": "orders", "messageId": order, "sessionId": order, "bodyBase64": "bm90IEpTT04="},
        maker.message("ledger", f"{order}:1", order, {"ledgerId": order, "batchId": "1", "currency": "EUR"}),
        maker.message("ledger-entries", f"{order}:books:1", order, {"orderId": order, "stream": "books"}),
    ]  # fmt: skip
    return [maker.random.choice(choices)]
