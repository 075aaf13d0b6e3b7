"""The broker's two listeners: AMQP, and HTTP for health and administration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from local.broker.admin import AdminServer
from local.broker.cbs import SasKey
from local.broker.connection import Connection, Front
from local.broker.service import BrokerEvent, BrokerService
from local.tcp import Listener

_STOP_SECONDS = 3.0


class BrokerServer:
    """A broker that clients reach with the official emulator's connection string.

    `idle_seconds` is the idle time-out that the broker announces.
    """

    def __init__(
        self,
        service: BrokerService,
        *,
        key_name: str = "RootManageSharedAccessKey",
        key: str = "SAS_KEY_VALUE",
        idle_seconds: float = 240.0,
    ) -> None:
        self.service = service
        self.amqp_port = 0
        self.admin_port = 0
        sas = SasKey(key_name, key)
        self._front = Front(service, sas, idle_seconds)
        self._admin = AdminServer(service, sas)
        self._connections: set[Connection] = set()
        self._listener = Listener(self._connect)
        self._all_gone = asyncio.Event()

    @property
    def observers(self) -> list[Callable[[BrokerEvent], None]]:
        """Who hears of every send and settlement, whoever did it."""
        return self.service.observers

    async def start(self, *, host: str = "127.0.0.1", amqp_port: int = 0, admin_port: int = 0) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: a port is in use; nothing listens then.
        """
        self.amqp_port = await self._listener.start(host, amqp_port)
        try:
            self.admin_port = await self._admin.start(host, admin_port)
        except OSError:
            await self.stop()
            raise
        self.service.settle_down()

    def suspend(self) -> None:
        """Be gone: connections are cut and refused. The queues stay, and time goes on for them."""
        self._listener.suspend()
        self._admin.suspend()
        for connection in list(self._connections):
            connection.cut()
        self.service.suspend()

    def resume(self) -> None:
        """Be back, on the same ports."""
        self.service.resume()
        self._listener.resume()
        self._admin.resume()

    async def stop(self) -> None:
        """Close every connection in order, and the listeners; leaves no task and no timer behind."""
        self._listener.close()
        await self._admin.stop()
        self._all_gone.clear()
        for connection in list(self._connections):
            connection.close("amqp:connection:forced", "The broker stops.")
        if self._connections:
            try:
                await asyncio.wait_for(self._all_gone.wait(), _STOP_SECONDS)
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
        await self._listener.stop()
        self.service.close()

    def _connect(self) -> Connection:
        connection = Connection(self._front, self._on_end)
        self._connections.add(connection)
        return connection

    def _on_end(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_gone.set()
