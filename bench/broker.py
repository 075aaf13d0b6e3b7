"""Is the broker the bottleneck? Its processor time beside the client's, for messages of 1 KB in sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from bench.process import own_cpu_seconds, queue_config, running_stack

QUEUE = "bench"
MESSAGES = 10_000
SESSIONS = 100
PAYLOAD = b"x" * 1024
RECEIVERS = 20
"""Sessions received from at a time."""


async def measure(messages: int = MESSAGES, sessions: int = SESSIONS) -> Mapping[str, float]:
    """Send in batches, receive and complete session by session with the async SDK; seconds of processor time."""
    async with running_stack(queue_config(QUEUE, RequiresSession=True, MaxDeliveryCount=10)) as served:
        connection = served.address["serviceBusConnection"]
        server, client = served.cpu_seconds(), own_cpu_seconds()
        async with ServiceBusClient.from_connection_string(connection) as bus:
            per_session = messages // sessions
            async with bus.get_queue_sender(QUEUE) as sender:
                for session in range(sessions):
                    batch = await sender.create_message_batch()
                    for _ in range(per_session):
                        batch.add_message(ServiceBusMessage(PAYLOAD, session_id=f"s{session}"))
                    await sender.send_messages(batch)
            slots = asyncio.Semaphore(RECEIVERS)
            taken = await asyncio.gather(*(_take(bus, f"s{n}", per_session, slots) for n in range(sessions)))
        server, client = served.cpu_seconds() - server, own_cpu_seconds() - client
        return {
            "messages": sum(taken),
            "broker seconds": server,
            "client seconds": client,
            "broker / client": server / client,
        }


async def _take(bus: ServiceBusClient, session: str, count: int, slots: asyncio.Semaphore) -> int:
    taken = 0
    async with slots, bus.get_queue_receiver(QUEUE, session_id=session) as receiver:
        while taken < count:
            for message in await receiver.receive_messages(count - taken, max_wait_time=10):
                await receiver.complete_message(message)
                taken += 1
    return taken
