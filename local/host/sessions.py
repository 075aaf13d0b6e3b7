"""The loops that carry messages from the broker to the worker, by the rules of the extension's processors.

Sessions: as many slots as maxConcurrentSessions; each takes the next session that has a message, and handles its
messages one by one until none comes for sessionIdleTimeout. A failed message is abandoned and, being the oldest, comes
again at once; the session is kept. Its lock is renewed until maxAutoLockRenewalDuration after it was accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from local.broker.model import BrokerError, Delivery, SessionLock
from local.broker.service import BrokerService
from local.config import ServiceBusConfig
from local.host.bindings import ServiceBusFunction
from local.host.events import InvocationEnded, LogLine
from local.host.metadata import message_id_text, trigger_input
from local.host.pool import Emit, Instance, Result, elapsed_since
from local.host.settlement import Ending, settle

_ACCEPT_SECONDS: Final = 3600.0
_LEAST_RENEWAL_SECONDS: Final = 0.02
_MOST_MARGIN_SECONDS: Final = 10.0  # Azure.Messaging.ServiceBus renews that long before the end, or at half time
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pump:
    """What the loops of one function on one instance need."""

    function: ServiceBusFunction
    instance: Instance
    service: BrokerService
    config: ServiceBusConfig
    timeout_seconds: float
    emit: Emit


class Listener:
    """Runs a function's loops; pausing lets them finish what they have."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._slots: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()  # those that hold no message and may be cut off
        self._open = False

    def resume(self) -> None:
        """Take messages."""
        if self._open:
            return
        self._open = True
        has_sessions, config = self._pump.function.has_sessions, self._pump.config
        loop = self._sessions if has_sessions else self._messages
        slots = config.max_concurrent_sessions if has_sessions else config.max_concurrent_calls
        for number in range(slots - len(self._slots)):  # those that still work from before a pause go on
            owner = f"{self._pump.function.name}-{self._pump.instance.number}-{number}"
            task = asyncio.create_task(self._slot(loop, owner))
            self._slots.add(task)
            task.add_done_callback(self._slots.discard)

    def pause(self) -> None:
        """Take nothing new; who waits leaves at once, who works leaves when its message is settled."""
        self._open = False
        for task in self._waiting:
            task.cancel()
            self._slots.discard(task)

    async def drain(self, seconds: float) -> None:
        """Wait for the work in hand; what isn't done in time is cut off, and its messages go back."""
        self.pause()
        tasks = set(self._slots)
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _slot(self, loop: Callable[[str], Awaitable[None]], owner: str) -> None:
        while self._open:
            try:
                await self._idle(self._pump.instance.ready())
                await loop(owner)
            except asyncio.CancelledError:
                return
            except BrokerError as exc:
                name = self._pump.function.name
                self._pump.emit(LogLine(name, "ERROR", f"the broker refused: {exc}", logger="host"))
                with contextlib.suppress(asyncio.CancelledError):
                    await self._idle(asyncio.sleep(1.0))

    async def _sessions(self, owner: str) -> None:
        pump = self._pump
        lock = await self._idle(
            pump.service.accept_session(pump.function.queue, None, owner=owner, wait_seconds=_ACCEPT_SECONDS)
        )
        if lock is None:
            return
        renewal = asyncio.create_task(_renew_session(pump, lock))
        try:
            await self._session(lock)
        finally:
            renewal.cancel()
            with contextlib.suppress(BrokerError):
                pump.service.release_session(lock)

    async def _session(self, lock: SessionLock) -> None:
        pump, prefetched = self._pump, deque[Delivery]()
        while self._open:
            await self._idle(pump.instance.ready())  # a message that is in hand couldn't be cut off any more
            try:
                if not prefetched:
                    idle = pump.config.session_idle_seconds
                    first = await self._idle(pump.service.receive_from_session(lock, wait_seconds=idle))
                    if first is None:
                        return
                    prefetched.append(first)
                # As the real client's, prefetched messages run before one that was abandoned (R54).
                while len(prefetched) <= pump.config.prefetch_count and (
                    more := await pump.service.receive_from_session(lock, wait_seconds=0)
                ):
                    prefetched.append(more)
            except BrokerError:
                return  # the lock is lost: the next holder has the messages
            if not await self._handle(prefetched.popleft(), lock):
                return

    async def _messages(self, owner: str) -> None:
        pump = self._pump
        delivery = await self._idle(
            pump.service.receive(pump.function.queue, owner=owner, wait_seconds=_ACCEPT_SECONDS)
        )
        if delivery is None:
            return
        renewal = asyncio.create_task(_renew_message(pump, delivery))
        try:
            await self._handle(delivery, None)
        except asyncio.CancelledError:
            with contextlib.suppress(BrokerError):
                pump.service.release(delivery)
            raise
        finally:
            renewal.cancel()

    async def _handle(self, delivery: Delivery, lock: SessionLock | None) -> bool:
        """Run the function on one message and settle it; False when the session's lock is gone."""
        pump, function, start = self._pump, self._pump.function, time.monotonic()
        given = trigger_input(
            delivery,
            is_binary=function.is_binary,
            namespace=function.namespace,
            session_locked_until=None if lock is None else lock.locked_until,
        )
        header = {"function": function.name, "kind": given.kind, "metadata": given.metadata, "trace": given.trace}
        if delivery.message.has_text:
            result = await pump.instance.invoke(header, given.body, pump.timeout_seconds)
        else:  # the client's `Body` raises for it, so the binding fails; with nothing in its place it would be lost
            result = Result(Ending.FAILED, "the body is neither data nor text: the trigger can't be bound")
        completes = pump.config.auto_complete_messages if function.auto_complete is None else function.auto_complete
        outcome = settle(pump.service, delivery, result.ending, auto_complete=completes)
        pump.emit(
            InvocationEnded(
                function=function.name,
                queue=function.queue,
                session_id=delivery.session_id,
                message_id=message_id_text(delivery.message.message_id),
                sequence_number=delivery.sequence_number,
                delivery_count=delivery.delivery_count + 1,
                outcome=outcome,
                seconds=elapsed_since(start),
                instance=pump.instance.number,
                error=result.error,
            )
        )
        return lock is None or not lock.is_lost

    async def _idle(self, waiting: Awaitable[_T]) -> _T:
        """Await something that may be cut off, since no message is in hand meanwhile."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # loops run as tasks
        self._waiting.add(task)
        try:
            return await waiting
        finally:
            self._waiting.discard(task)


async def _renew_session(pump: Pump, lock: SessionLock) -> None:
    end = time.monotonic() + pump.config.max_auto_lock_renewal_seconds
    until = lock.locked_until
    with contextlib.suppress(BrokerError):  # lost: the loop finds out by itself
        while await _until_renewal(pump, until, end):
            until = pump.service.renew_session(lock)


async def _renew_message(pump: Pump, delivery: Delivery) -> None:
    end = time.monotonic() + pump.config.max_auto_lock_renewal_seconds
    until = delivery.locked_until
    with contextlib.suppress(BrokerError):
        while await _until_renewal(pump, until, end):
            until = pump.service.renew(delivery)


async def _until_renewal(pump: Pump, locked_until: float, end: float) -> bool:
    remaining = locked_until - pump.service.clock()
    delay = max(remaining - min(remaining / 2, _MOST_MARGIN_SECONDS), _LEAST_RENEWAL_SECONDS)
    if time.monotonic() + delay >= end:
        return False
    await asyncio.sleep(delay)
    return True
