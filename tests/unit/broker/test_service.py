"""Waiting receivers, one timer, and nothing lost to a receiver that gave up."""

from __future__ import annotations

import asyncio
import time

import pytest

from local.broker.machine import BrokerError
from local.broker.messages import build_message
from local.broker.service import BrokerService, Outcome, QueueOptions, Sent, Settled


def service_of(**options: object) -> BrokerService:
    plain, sessions = QueueOptions("plain", **options), QueueOptions("orders", requires_session=True, **options)  # type: ignore[arg-type]
    return BrokerService([plain, sessions])


async def test_a_waiting_receiver_gets_what_is_sent_in_the_order_of_waiting() -> None:
    service = service_of()
    waiting = [asyncio.create_task(service.receive("plain", owner=f"{n}", wait_seconds=5)) for n in range(3)]
    await asyncio.sleep(0)
    service.send("plain", [build_message(b"%d" % n) for n in range(3)])
    deliveries = await asyncio.gather(*waiting)
    assert [delivery and delivery.message.body for delivery in deliveries] == [b"0", b"1", b"2"]
    service.close()


async def test_a_wait_that_ends_gives_nothing_and_leaves_nothing() -> None:
    service = service_of()
    assert await service.receive("plain", owner="me", wait_seconds=0) is None
    assert await service.receive("plain", owner="me", wait_seconds=0.01) is None
    assert await service.accept_session("orders", None, owner="me", wait_seconds=0.01) is None
    assert service.waiting_for_sessions("orders") == 0
    service.send("plain", [build_message(b"x")])
    await asyncio.sleep(0)
    assert service.counts("plain").locked == 0
    service.close()


async def test_what_is_handed_to_a_receiver_as_it_gives_up_goes_back_uncounted() -> None:
    service = service_of()
    receiving = asyncio.create_task(service.receive("plain", owner="me", wait_seconds=5))
    accepting = asyncio.create_task(service.accept_session("orders", None, owner="me", wait_seconds=5))
    await asyncio.sleep(0)
    service.send("plain", [build_message(b"x")])
    service.send("orders", [build_message(b"x", session_id="s")])
    service._serve()  # hands both out; the tasks have not run since
    assert service.counts("plain").locked == 1
    receiving.cancel()
    accepting.cancel()
    ends = await asyncio.gather(receiving, accepting, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 2
    again = await service.receive("plain", owner="me", wait_seconds=0)
    assert again is not None
    assert again.delivery_count == 0
    assert await service.accept_session("orders", None, owner="me", wait_seconds=1) is not None
    service.close()


async def test_a_session_receiver_learns_at_once_that_its_lock_is_gone() -> None:
    service = service_of(lock_seconds=0.05)
    lock = await service.accept_session("orders", "s", owner="me", wait_seconds=0)
    assert lock is not None
    started = time.monotonic()
    with pytest.raises(BrokerError, match="session-lock-lost"):
        await service.receive_from_session(lock, wait_seconds=30)
    assert time.monotonic() - started < 5
    with pytest.raises(BrokerError, match="session-lock-lost"):
        service.renew_session(lock)
    service.release_session(lock)
    service.close()


async def test_a_named_session_that_is_locked_is_refused_without_waiting() -> None:
    service = service_of()
    await service.accept_session("orders", "s", owner="me", wait_seconds=0)
    with pytest.raises(BrokerError, match="session-cannot-be-locked"):
        await service.accept_session("orders", "s", owner="you", wait_seconds=5)
    for queue, session in (("plain", None), ("plain", "s"), ("nowhere", None)):
        with pytest.raises(BrokerError):
            await service.accept_session(queue, session, owner="me", wait_seconds=0)
    with pytest.raises(BrokerError, match="not-allowed"):
        await service.receive("orders", owner="me", wait_seconds=0)
    service.close()


async def test_locks_and_scheduled_messages_fall_due_by_themselves() -> None:
    service = service_of(lock_seconds=0.03)
    service.send("plain", [build_message(b"late", scheduled_at=service.clock() + 0.03)])
    first = await service.receive("plain", owner="me", wait_seconds=5)
    second = await service.receive("plain", owner="me", wait_seconds=5)
    assert first is not None
    assert second is not None
    assert (first.delivery_count, second.delivery_count) == (0, 1)
    service.complete(second)
    with pytest.raises(BrokerError, match="message-lock-lost"):
        service.complete(first)
    assert service._timer is None
    service.close()


async def test_a_clock_that_a_test_moves_is_followed_by_tick() -> None:
    now = 1000.0
    service = BrokerService([QueueOptions("orders", requires_session=True)], clock=lambda: now)
    service.send("orders", [build_message(b"x", session_id="s")])
    lock = await service.accept_session("orders", None, owner="me", wait_seconds=1)
    assert lock is not None
    assert lock.locked_until == 1060
    lost: list[str] = []
    service.session_losses[lock] = lambda: lost.append("s")
    now = 1061.0
    service.tick()
    await asyncio.sleep(0)
    assert (lost, lock.is_lost) == (["s"], True)
    service.close()


async def test_observers_hear_of_sends_and_settlements() -> None:
    service = service_of()
    heard: list[object] = []
    service.observers.append(heard.append)
    service.send("ORDERS", [build_message(b"x", session_id="s", message_id=f"{n}") for n in range(5)])
    lock = await service.accept_session("orders", None, owner="me", wait_seconds=1)
    assert lock is not None

    async def next_one() -> object:
        delivery = await service.receive_from_session(lock, wait_seconds=1)
        assert delivery is not None
        return delivery

    for settle in (service.complete, service.abandon, service.defer, service.release):
        settle(await next_one())  # type: ignore[arg-type]
    service.dead_letter(await next_one(), "r", "d")  # type: ignore[arg-type]
    assert heard[0] == Sent("orders", 5)
    outcomes = [Outcome.COMPLETED, Outcome.ABANDONED, Outcome.DEFERRED, Outcome.RELEASED, Outcome.DEAD_LETTERED]
    ids = ["0", "1", "1", "2", "2"]
    numbers = [1, 2, 2, 3, 3]
    assert heard[1:] == [Settled("orders", *each) for each in zip(outcomes, ["s"] * 5, ids, numbers, strict=True)]
    service.close()


async def test_a_busy_receiver_does_not_starve_another() -> None:
    service = service_of()
    taken: dict[str, int] = {"a": 0, "b": 0}

    async def work(owner: str) -> None:
        while (delivery := await service.receive("plain", owner=owner, wait_seconds=0.05)) is not None:
            taken[owner] += 1
            service.complete(delivery)

    workers = [asyncio.create_task(work(owner)) for owner in taken]
    for _ in range(40):
        service.send("plain", [build_message(b"x")])
        await asyncio.sleep(0)
    await asyncio.gather(*workers)
    assert sum(taken.values()) == 40
    assert min(taken.values()) > 5
    service.close()
