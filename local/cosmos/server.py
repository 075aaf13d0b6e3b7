"""The embedded Cosmos DB server: a store, a gateway and a socket, with one clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from local.cosmos.catalogue import Container
from local.cosmos.definition import DatabaseSpec
from local.cosmos.gateway import Gateway, RequestRecord
from local.cosmos.http import Exchange, HttpServer, Response
from local.cosmos.lag import Lag
from local.cosmos.store import Store

# The official emulator's well-known key: it opens nothing but servers on this machine.
EMULATOR_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

Intercept: TypeAlias = Callable[[Exchange, Callable[[], Response]], None]


class CosmosServer:
    """Serves databases from a file, or from memory, until it is stopped; a stopped server is not started again.

    `clock` is the time of the data: `_ts`, TTL and the Date header. Requests are signed with the machine's time, so
    that is what their dates are checked against. `observers` get a record of every request that was executed, whether
    or not the client got the answer.

    `intercept` takes over between socket and execution: it gets the exchange and the function that executes the
    request (once) and gives the response. It may answer without executing, execute without answering, cut the
    connection, or do either later. `faults` is a second place for one, asked where nobody has taken the first.

    Raises:
        StoreError: The file can't be used, such as when another process has it open.
    """

    def __init__(
        self,
        *,
        path: Path | None = None,
        key: str = EMULATOR_KEY,
        clock: Callable[[], float] = time.time,
        consistency: str = "Strong",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = Store(path, clock)
        try:
            self._gateway = Gateway(self._store, key=key, consistency=consistency, clock=clock, wall_clock=wall_clock)
        except ValueError:  # a bad consistency or key: the file must not stay locked
            self._store.close()
            raise
        self._http = HttpServer(self._handle)
        self.port = 0
        self.intercept: Intercept | None = None
        self.faults: Intercept | None = None

    @property
    def consistency(self) -> str:
        """The account's consistency level."""
        return self._gateway.consistency

    @property
    def lag(self) -> Lag | None:
        """What a replica that lags would know, where one is kept: from the time at which it is set."""
        return self._store.lag

    @lag.setter
    def lag(self, lag: Lag | None) -> None:
        self._store.lag = lag

    @property
    def observers(self) -> list[Callable[[RequestRecord], None]]:
        return self._gateway.observers

    def ensure(self, specs: Sequence[DatabaseSpec]) -> None:
        """Create databases and containers that are missing; what is there stays as it is."""
        self._gateway.resources.ensure(specs)

    def container(self, database: str, name: str) -> Container:
        """The container of these names. Raises CosmosError when there is none."""
        return self._gateway.resources.container(database, name)

    async def start(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises OSError when the port is in use."""
        self.port = await self._http.start(host, port)

    def suspend(self) -> None:
        """Be gone: connections are cut and refused, the data stays."""
        self._http.suspend()

    def resume(self) -> None:
        """Be back, on the same port."""
        self._http.resume()

    async def stop(self) -> None:
        await self._http.stop()
        self._store.close()

    def _handle(self, exchange: Exchange) -> None:
        intercept = self.intercept or self.faults
        if intercept is None:
            exchange.answer(self._gateway.answer(exchange.request))
        else:
            intercept(exchange, lambda: self._gateway.answer(exchange.request))
