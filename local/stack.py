"""Broker, database and Functions host in this process, with one clock, on the usual ports or on free ones.

From Python, in three lines:

    async with Stack(ports="free") as stack:
        client = ServiceBusClient.from_connection_string(stack.service_bus_connection)
        ...

As a pytest fixture:

    @pytest.fixture
    async def stack() -> AsyncIterator[Stack]:
        async with Stack(ports="free", config=Path("tests/Config.json")) as stack:
            yield stack
"""

from __future__ import annotations

import contextlib
import errno
import http
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import aiohttp

from local.broker.entities import read_entities
from local.broker.server import BrokerServer
from local.broker.service import BrokerService
from local.config import read_local_settings
from local.cosmos.containers import read_containers
from local.cosmos.server import EMULATOR_KEY, CosmosServer
from local.faults.broker import BrokerPlug
from local.faults.cosmos import CosmosPlug
from local.faults.engine import Faults
from local.faults.reading import Plan, read_faults
from local.host.errors import HostError
from local.host.events import HostEvent
from local.host.host import DRAIN_SECONDS, FunctionsHost
from local.pointing import FILE, bus, database, pointed

HERE: Final = Path(__file__).resolve().parent
KEY_NAME: Final = "RootManageSharedAccessKey"
KEY: Final = "SAS_KEY_VALUE"
DEBUG_PORT: Final = 9091
HEALTH_SECONDS: Final = 30.0  # to answer: a first request imports and connects


class PortError(Exception):
    """A port is taken or not allowed; the message says which, and what wants it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the stack listens, on loopback only. 0 takes a free port."""

    amqp: int = 5672
    admin: int = 5300
    cosmos: int = 8081
    http: int = 7071
    control: int = 7073

    @classmethod
    def free(cls) -> Ports:
        """A free port for each."""
        return cls(0, 0, 0, 0, 0)


_WANTS: Final = {
    "amqp": "the broker (AMQP)",
    "admin": "the broker's administration and health",
    "cosmos": "Cosmos DB",
    "http": "the Functions host (HTTP)",
    "control": "the control endpoint",
}


class Stack:
    """An async context manager that runs the stack; with `app`, the function app of the project too.

    The app's settings are those of local.settings.json, overridden by the environment; connection strings of emulators
    in them become the stack's own, whatever ports it has. `observers` are told what the app's host does. `faults` is a
    file of rules to start with; `self.faults` arms others. `health` is a path of the app that is asked once, so that a
    wrong setting is named before a message meets it; an app without such a path is not judged.
    """

    def __init__(
        self,
        project: Path | None = None,
        *,
        app: bool = False,
        ports: Ports | Literal["usual", "free"] = "usual",
        config: Path | None = None,
        containers: Path | None = None,
        data: Path | None = None,
        faults: Path | None = None,
        consistency: str = "Strong",
        settings: Mapping[str, str] | None = None,
        instances: int = 1,
        debug: bool = False,
        health: str | None = None,
        observers: Sequence[Callable[[HostEvent], None]] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.project = project or HERE.parent
        self.ports = {"usual": Ports(), "free": Ports.free()}[ports] if isinstance(ports, str) else ports
        self.service: BrokerService
        self.broker: BrokerServer
        self.cosmos: CosmosServer
        self.faults: Faults
        self.host: FunctionsHost | None = None
        self._app = app
        self._config = config or HERE / "Config.json"
        self._containers = containers or HERE / "containers.json"
        self._data = data
        self._faults = faults
        self._consistency = consistency
        self._settings = dict(settings or {})
        self._instances = instances
        self._debug = debug
        self._health = health
        self._has_started = False
        self._observers = list(observers)
        self._clock = clock
        self._closing = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start everything, or nothing.

        Raises:
            PortError: a port is taken or not allowed.
            ConfigError: a file is wrong.
            HostError: the function app, or what it needs, is wrong, or it says that it is not well.
        """
        unused = () if self._app else ("http",)
        check_ports(self.ports, without=("control", *unused))
        queues, databases = read_entities(self._config), read_containers(self._containers)
        plan = None if self._faults is None else read_faults(self._faults)
        try:
            self.service = BrokerService(queues, clock=self._clock)
            self._closing.callback(self.service.close)
            self.broker = BrokerServer(self.service, key_name=KEY_NAME, key=KEY)
            await self.broker.start(amqp_port=self.ports.amqp, admin_port=self.ports.admin)
            self._closing.push_async_callback(self.broker.stop)
            self.cosmos = CosmosServer(path=self._data, clock=self._clock, consistency=self._consistency)
            self._closing.push_async_callback(self.cosmos.stop)
            self.cosmos.ensure(databases)
            await self.cosmos.start(port=self.ports.cosmos)
            self._plug_faults_in(plan)
            if self._app:
                await self._start_host()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closing.aclose()

    def _plug_faults_in(self, plan: Plan | None) -> None:
        self.faults = Faults(seed=0 if plan is None else plan.seed, clock=self._clock)
        BrokerPlug(self.faults, self.broker)
        CosmosPlug(self.faults, self.cosmos)
        self._closing.callback(self.faults.clear)
        if plan is not None:
            plan.arm(self.faults)

    async def _start_host(self) -> None:
        self.host = FunctionsHost(
            self.project,
            self.service,
            environment=self.environment(),
            http_port=self.ports.http,
            instances=self._instances,
            clock=self._clock,
            debug_port=DEBUG_PORT if self._debug else None,
        )
        self.host.observers.extend(self._observers)
        await self.host.start()
        self._closing.push_async_callback(self._stop_host, self.host)
        await self.check_health()
        self._has_started = True

    async def _stop_host(self, host: FunctionsHost) -> None:
        """Let it finish what is in hand; but for a start that failed, where that is the question for its health."""
        await host.stop(drain_seconds=DRAIN_SECONDS if self._has_started else 0)

    async def reload_app(self) -> None:
        """Load the app anew, with settings and host.json as they are now; raises what entering raises."""
        if self.host is not None:
            await self.host.reload(self.environment())

    @property
    def service_bus_connection(self) -> str:
        """Connection string of the broker, in the official emulator's form."""
        return (
            f"Endpoint=sb://127.0.0.1:{self.broker.amqp_port};SharedAccessKeyName={KEY_NAME};"
            f"SharedAccessKey={KEY};UseDevelopmentEmulator=true;"
        )

    @property
    def admin_url(self) -> str:
        """Service Bus administration and /health."""
        return f"http://127.0.0.1:{self.broker.admin_port}"

    @property
    def cosmos_endpoint(self) -> str:
        """Endpoint of the database account."""
        return f"http://127.0.0.1:{self.cosmos.port}/"

    @property
    def cosmos_key(self) -> str:
        """The official emulator's well-known key."""
        return EMULATOR_KEY

    @property
    def cosmos_connection(self) -> str:
        """Connection string of the database account."""
        return f"AccountEndpoint={self.cosmos_endpoint};AccountKey={EMULATOR_KEY};"

    @property
    def http_url(self) -> str | None:
        """Where the app's HTTP functions are, without the route prefix; None without the app."""
        return None if self.host is None else f"http://127.0.0.1:{self.host.http_port}"

    async def check_health(self) -> None:
        """Ask the app whether it is well, if a path for that was given.

        Raises: HostError, with what it answers.
        """
        path = self._health
        if path is None:
            return
        timeout = aiohttp.ClientTimeout(total=HEALTH_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{self.http_url}{path}") as answer,
            ):
                status, text = answer.status, await answer.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise HostError(f"the app is not well: GET {path}: {exc!r}") from exc
        if status not in (http.HTTPStatus.OK, http.HTTPStatus.NOT_FOUND):
            raise HostError(f"the app is not well: GET {path}: {status} {text[:500]}")

    def environment(self) -> dict[str, str]:
        """The app's settings, pointed at this stack (`local/pointing.py`).

        Raises: ConfigError, where one of them ends elsewhere.
        """
        values = read_local_settings(self.project / FILE)
        ours = (bus(self.service_bus_connection), database(self.cosmos_connection))
        return pointed(values, os.environ, self._settings, ours)


def check_ports(ports: Ports, *, without: Sequence[str] = ()) -> None:
    """Refuse a port that somebody else has, naming the port and what wants it."""
    for each in fields(ports):
        port = getattr(ports, each.name)
        if port == 0 or each.name in without:
            continue
        with socket.socket() as probe:
            if os.name == "posix":  # a port in TIME_WAIT is free; on Windows the option would share a taken one
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                probe.listen(1)
            except OSError as exc:
                reason = "is taken" if exc.errno == errno.EADDRINUSE else f"can't be used ({exc.strerror})"
                raise PortError(f"port {port} {reason}; {_WANTS[each.name]} wants it (0 takes a free one)") from None
