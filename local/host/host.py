"""The Functions host: reads host.json, starts workers, and connects the app's triggers with broker, clock and HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from local.broker.model import BrokerError
from local.broker.service import BrokerService
from local.config import INFINITE_SECONDS, HostConfig, read_host_config
from local.config_errors import ConfigError
from local.host.bindings import (
    HostFunction,
    HttpFunction,
    ServiceBusFunction,
    Settings,
    TimerFunction,
    read_functions,
)
from local.host.errors import HostError
from local.host.events import HostEvent, LogLine
from local.host.http import BODY_LIMIT_BYTES, HttpFront, Keys
from local.host.pool import Instance, Launch, Result, gather_in_order, start_all
from local.host.sessions import Listener, Pump
from local.host.timers import Timer, TimerStatus

DRAIN_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class FunctionsHost:
    """Runs the function app of one project against a broker in the same process.

    `environment` holds the app settings; the workers get them on top of this process's own environment. Observers are
    told every invocation, every worker's start and end, and every log line.
    """

    def __init__(
        self,
        project: Path,
        service: BrokerService,
        *,
        environment: Mapping[str, str],
        http_port: int = 7071,
        instances: int = 1,
        clock: Callable[[], float] = time.time,
        debug_port: int | None = None,
    ) -> None:
        self.observers: list[Callable[[HostEvent], None]] = []
        self.http_port = http_port
        self.keys = Keys(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self.functions: Sequence[HostFunction] = ()
        self._project = project
        self._service = service
        self._settings = Settings(environment)
        self._clock = clock
        self._is_debugged = debug_port is not None
        self._instances = [
            Instance(number, Launch(project, environment, None if number else debug_port), self._emit, self._on_changed)
            for number in range(instances)
        ]
        self._turns = itertools.count()
        self._config = HostConfig()
        self._listeners: dict[str, list[Listener | Timer]] = {}
        self._timers: dict[str, TimerStatus] = {}
        self._disabled: set[str] = set()
        self._http = HttpFront(self.keys, self._invoke, self._emit, body_limit=_body_limit(self._settings))
        self._reloading = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------------------------------------------- life

    async def start(self) -> None:
        """Start workers, index the app and open its triggers.

        Raises:
            HostError: the app, a setting or a queue is wrong; the message names it. Nothing is left running.
            ConfigError: host.json is wrong.
            OSError: the HTTP port is taken.
        """
        await self._load()
        try:
            await self._http.start("127.0.0.1", self.http_port)
        except BaseException:
            await self.stop(drain_seconds=0)
            raise
        self.http_port = self._http.port

    async def stop(self, *, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Drain: take nothing new, wait for the work in hand so long, give the sessions back, end the workers."""
        async with self._reloading:
            await self._unload(drain_seconds)
            await self._http.stop()
        for task in self._tasks:
            task.cancel()

    async def reload(
        self, environment: Mapping[str, str] | None = None, *, drain_seconds: float = DRAIN_SECONDS
    ) -> None:
        """Load the app anew once the work in hand has ended, with other settings if they are given.

        Raises HostError or ConfigError when it can't be loaded any more; the next reload may repair that.
        """
        async with self._reloading:
            await self._unload(drain_seconds)
            if environment is not None:
                self._settings = Settings(environment)
                for instance in self._instances:
                    instance.launch = dataclasses.replace(instance.launch, environment=environment)
            try:
                await self._load()
            except BaseException:
                self._http.serve(None, self._config.route_prefix)
                raise

    def kill_worker(self, instance: int = 0) -> None:
        """kill -9 for a worker; its invocations fail, their messages come again, and it is started again."""
        self._instances[instance].kill()

    @property
    def worker_pids(self) -> list[int | None]:
        """The processes, by instance; None where one is just being started."""
        return [instance.pid for instance in self._instances]

    def set_disabled(self, function: str, disabled: bool) -> None:
        """Switch a function off or on at run time; switched off, it finishes what it has and takes no more."""
        if function not in {known.name for known in self.functions}:
            names = ", ".join(sorted(known.name for known in self.functions))
            raise HostError(f"there is no function {function}; the app has {names}")
        (self._disabled.add if disabled else self._disabled.discard)(function)
        self._http.set_disabled(function, disabled=disabled)
        for listener in self._listeners.get(function, ()):
            if disabled:
                listener.pause()
            else:
                listener.resume()

    @property
    def http_functions(self) -> list[HttpFunction]:
        """The functions with an HTTP trigger."""
        return [function for function in self.functions if isinstance(function, HttpFunction)]

    def path_of(self, function: HttpFunction) -> str:
        """Path of an HTTP function, its route's parameters as they are written."""
        prefix = f"/{self._config.route_prefix}" if self._config.route_prefix else ""
        return f"{prefix}/{function.route.template.strip('/')}"

    @property
    def disabled(self) -> frozenset[str]:
        """Names of the functions that are switched off."""
        return frozenset(self._disabled)

    # --------------------------------------------------------------------------------------------------- load, unload

    async def _load(self) -> None:
        self._config = read_host_config(self._project / "host.json")
        if self._is_debugged:  # a person at a breakpoint takes all the time they want
            self._config = dataclasses.replace(self._config, function_timeout_seconds=INFINITE_SECONDS)
        processes = self._settings.get("FUNCTIONS_WORKER_PROCESS_COUNT") or "1"
        if processes != "1":
            raise HostError(f"setting FUNCTIONS_WORKER_PROCESS_COUNT is {processes}: an instance here has one worker")
        await start_all(self._instances)
        try:
            functions = read_functions(self._instances[0].functions, self._settings)
            if self._config.functions is not None:
                functions = [function for function in functions if function.name in self._config.functions]
            self._check(functions)
        except BaseException:
            await gather_in_order([instance.stop for instance in self._instances])
            raise
        self.functions = functions
        self._disabled |= {function.name for function in functions if self._settings.is_disabled(function.name)}
        self._listeners = {function.name: self._listeners_of(function) for function in functions}
        for name, listeners in self._listeners.items():
            if name not in self._disabled:
                for listener in listeners:
                    listener.resume()
        for name in self._disabled:
            self._http.set_disabled(name, disabled=True)
        self._http.serve(self.http_functions, self._config.route_prefix)

    async def _unload(self, drain_seconds: float) -> None:
        self._http.hold()
        every = [listener for listeners in self._listeners.values() for listener in listeners]
        for listener in every:
            listener.pause()
        drains = [listener.drain(drain_seconds) for listener in every]
        await asyncio.gather(self._http.drain(drain_seconds), *drains)
        self._listeners = {}
        await gather_in_order([instance.stop for instance in self._instances])

    def _check(self, functions: Sequence[HostFunction]) -> None:
        """Hold the triggers against the broker's queues and each other."""
        for function in functions:
            if not isinstance(function, ServiceBusFunction):
                continue
            try:
                options = self._service.broker.queue(function.queue).options
            except BrokerError:
                raise HostError(f"function {function.name}: the broker has no queue {function.queue!r}") from None
            if options.requires_session != function.has_sessions:
                has, wants = ("has", "isn't") if options.requires_session else ("has no", "is")
                raise HostError(
                    f"function {function.name}: queue {function.queue!r} {has} sessions, "
                    f"but the trigger {wants} enabled for them (is_sessions_enabled)"
                )

    def _listeners_of(self, function: HostFunction) -> list[Listener | Timer]:
        if isinstance(function, ServiceBusFunction):
            config, timeout = self._config.service_bus, self._config.function_timeout_seconds
            return [
                Listener(Pump(function, instance, self._service, config, timeout, self._emit))
                for instance in self._instances
            ]
        if isinstance(function, TimerFunction):
            status = self._timers.setdefault(f"{function.name} {function.schedule.text}", TimerStatus())
            return [Timer(function, status, self._invoke, self._clock, self._emit)]
        return []

    # ----------------------------------------------------------------------------------------------------------- work

    async def _invoke(self, header: dict[str, object], body: bytes) -> Result:
        """Run an invocation that has no message on the next instance, one that is ready if there is one."""
        first = next(self._turns) % len(self._instances)
        order = self._instances[first:] + self._instances[:first]
        chosen = next((instance for instance in order if instance.is_ready), order[0])
        return await chosen.invoke(header, body, self._config.function_timeout_seconds)

    def _on_changed(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload_quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload_quietly(self) -> None:
        try:
            await self.reload()
        except (HostError, ConfigError) as exc:
            self._emit(LogLine(None, "ERROR", str(exc), logger="host"))

    def _emit(self, event: HostEvent) -> None:
        for observer in list(self.observers):
            try:
                observer(event)
            except Exception:  # an observer must not cost a message
                _log.exception("an observer of the host failed")


def _body_limit(settings: Settings) -> int:
    text = settings.get("FUNCTIONS_REQUEST_BODY_SIZE_LIMIT") or str(BODY_LIMIT_BYTES)
    if not text.isdecimal():
        raise HostError(f"setting FUNCTIONS_REQUEST_BODY_SIZE_LIMIT must be a number of bytes, not {text!r}")
    return int(text)
