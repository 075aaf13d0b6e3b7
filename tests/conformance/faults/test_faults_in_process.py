"""The host in the stack takes messages from the broker in process: it meets the same faults (R23, R55)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from faulty_stack import FaultyStack

from local.broker.messages import build_message
from local.broker.model import BrokerError, Delivery, SessionLock
from local.faults import (
    Armed,
    Cut,
    Delay,
    DeliverTwice,
    ExpireLock,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Rule,
    Service,
    Stall,
)
from local.host.events import HostEvent, InvocationEnded
from local.host.host import FunctionsHost

HOST_JSON = {
    "version": "2.0",
    "extensions": {"serviceBus": {"maxConcurrentSessions": 2, "sessionIdleTimeout": "00:00:00.2"}},
}
FUNCTION_APP = '''
import azure.functions as func

app = func.FunctionApp()


@app.service_bus_queue_trigger(arg_name="message", queue_name="short", connection="Bus", is_sessions_enabled=True)
def work(message: func.ServiceBusMessage) -> None:
    pass
'''
CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true;"


def arm(stack: FaultyStack, action: Any, operation: str | None = None, **given: Any) -> Armed:
    return stack.faults.add(Rule(name="r", service=Service.BROKER, operation=operation, action=action, **given))


def put(stack: FaultyStack, *ids: str, queue: str = "orders") -> None:
    messages = [build_message(b"x", message_id=each, session_id=None if queue == "plain" else "s") for each in ids]
    stack.service.store(queue, messages)


async def accept(stack: FaultyStack) -> SessionLock:
    lock = await stack.service.accept_session("orders", None, owner="host", wait_seconds=5)
    assert lock is not None
    return lock


async def receive(stack: FaultyStack, lock: SessionLock) -> Delivery:
    delivery = await stack.service.receive_from_session(lock, wait_seconds=5)
    assert delivery is not None
    return delivery


@pytest.mark.parametrize("action", [Refuse("com.microsoft:server-busy"), Cut(), LoseReply()])
async def test_what_can_not_be_handed_over_goes_back(stack: FaultyStack, action: Any) -> None:
    put(stack, "m1")
    with arm(stack, action, "accept", group="s"), pytest.raises(BrokerError):
        await accept(stack)
    lock = await accept(stack)
    with arm(stack, action, "receive", id="m1"), pytest.raises(BrokerError):
        await receive(stack, lock)
    delivery = await receive(stack, lock)
    assert delivery.delivery_count == 0
    stack.service.complete(delivery)


async def test_receiver_waits_while_its_message_is_held(stack: FaultyStack) -> None:
    put(stack, "m1", "m2")
    lock = await accept(stack)
    with arm(stack, Stall(), "receive", id="m1") as armed:
        receiving = asyncio.create_task(receive(stack, lock))
        await armed.until_hit()
        assert not receiving.done()
        armed.release()
        assert (await receiving).message.message_id == "m1"
    with arm(stack, Delay(60), "receive") as armed:
        receiving = asyncio.create_task(receive(stack, lock))
        await armed.until_hit()
        receiving.cancel()
        await asyncio.wait([receiving])
        assert stack.service.counts("orders").locked == 1  # m2 went back, m1 is in hand
    with arm(stack, Stall(), "receive") as armed:
        receiving = asyncio.create_task(receive(stack, lock))
        await armed.until_hit()
    with pytest.raises(BrokerError):  # dropped with the rule
        await receiving
    assert (await receive(stack, lock)).message.message_id == "m2"


@pytest.mark.parametrize(
    ("action", "error", "is_gone"),
    [
        (Refuse("com.microsoft:message-lock-lost"), "com.microsoft:message-lock-lost", False),
        (Cut(), "amqp:connection:forced", False),
        (LoseReply(), "amqp:connection:forced", True),
        (LoseReply(Loss.NEVER), "com.microsoft:timeout", True),
        (LoseRequest(), "com.microsoft:timeout", False),
        (ExpireLock(), "com.microsoft:session-lock-lost", False),
        (LoseSettlement(), None, False),
        (DeliverTwice(), None, False),
        (Delay(60), None, True),  # the host can't wait for a settlement: not for it
    ],
)
async def test_settlement_is_done_or_not_and_told_or_not(
    stack: FaultyStack, action: Any, error: str | None, is_gone: bool
) -> None:
    put(stack, "m1")
    delivery = await receive(stack, await accept(stack))
    told = None
    with arm(stack, action, "complete"):
        try:
            stack.service.complete(delivery)
        except BrokerError as exc:
            told = exc.condition
    assert told == error
    assert stack.service.counts("orders").active == (0 if is_gone else 1)


async def test_lock_of_a_received_message_runs_out(stack: FaultyStack) -> None:
    put(stack, "m1", queue="plain")
    with arm(stack, ExpireLock(), "receive", count=1):
        first = await stack.service.receive("plain", owner="host", wait_seconds=5)
        second = await stack.service.receive("plain", owner="host", wait_seconds=5)
    assert first is not None
    assert second is not None
    assert (first.delivery_count, second.delivery_count) == (0, 1)
    with pytest.raises(BrokerError, match="message-lock-lost"):
        stack.service.complete(first)
    with arm(stack, ExpireLock(), "renew-lock"), pytest.raises(BrokerError, match="message-lock-lost"):
        stack.service.renew(second)


async def test_outage_hands_out_nothing_refuses_all_and_keeps_locks_running(stack: FaultyStack) -> None:
    put(stack, "m1")
    lock = await accept(stack)
    delivery = await receive(stack, lock)
    with arm(stack, Outage()):
        assert await stack.service.receive_from_session(lock, wait_seconds=0.01) is None
        waiting = asyncio.create_task(stack.service.accept_session("orders", None, owner="b", wait_seconds=5))
        for refused in (
            lambda: stack.service.complete(delivery),
            lambda: stack.service.renew_session(lock),
            lambda: stack.service.send("plain", []),
        ):
            with pytest.raises(BrokerError, match="connection"):
                refused()
        stack.service.release_session(lock)  # what a cut connection does
        await asyncio.sleep(0.02)
        assert not waiting.done()
    assert await waiting is not None


class Host:
    """A function app on the stack's broker, and what its host told."""

    def __init__(self, project: Path, stack: FaultyStack) -> None:
        self.events: list[HostEvent] = []
        self._news = asyncio.Event()
        self.host = FunctionsHost(project, stack.service, environment={"Bus": CONNECTION}, http_port=0)
        self.host.observers.append(self._note)

    def _note(self, event: HostEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def ends(self, count: int) -> list[tuple[str | None, int, str]]:
        """The first so many invocations: message, delivery, outcome."""
        async with asyncio.timeout(20):
            while len(found := [e for e in self.events if isinstance(e, InvocationEnded)]) < count:
                self._news.clear()
                await self._news.wait()
        return [(e.message_id, e.delivery_count, e.outcome.value) for e in found]


@pytest.fixture
async def host(stack: FaultyStack, tmp_path: Path) -> AsyncIterator[Host]:
    (tmp_path / "function_app.py").write_text(FUNCTION_APP)
    (tmp_path / "host.json").write_text(json.dumps(HOST_JSON))
    made = Host(tmp_path, stack)
    await made.host.start()
    yield made
    await made.host.stop(drain_seconds=0)


async def test_app_meets_lost_settlements_second_deliveries_lost_locks_and_outages(
    stack: FaultyStack, host: Host
) -> None:
    """One host for all: it costs a worker process."""

    async def meets(action: Any, expected: list[tuple[int, str]], **given: Any) -> None:
        host.events.clear()
        with arm(stack, action, count=1, **given):
            put(stack, "m", queue="short")
            assert await host.ends(len(expected)) == [("m", *each) for each in expected]

    await meets(DeliverTwice(), [(1, "completed"), (2, "completed")])
    await meets(LoseSettlement(), [(1, "completed"), (1, "completed")], operation="complete")
    await meets(ExpireLock(), [(1, "lock-lost"), (2, "completed")], operation="receive")
    await meets(LoseReply(), [(1, "lock-lost")], operation="complete")
    host.events.clear()
    with arm(stack, Outage()):
        put(stack, "m", queue="short")
        await asyncio.sleep(0.3)
        assert await host.ends(0) == []
    assert await host.ends(1) == [("m", 1, "completed")]
    assert stack.service.counts("short").active == 0
