"""What do sessions cost with which nothing happens? Processor time of the stack over half a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from bench.process import queue_config, running_stack

QUEUE = "bench"
SESSIONS = 10_000
SECONDS = 30.0
SETTLE_SECONDS = 3.0
BATCH = 1_000


async def measure(
    sessions: int = SESSIONS, seconds: float = SECONDS, settle: float = SETTLE_SECONDS
) -> Mapping[str, float]:
    """Share of one processor, with a message waiting in each session."""
    async with running_stack(queue_config(QUEUE, RequiresSession=True, LockDuration="PT5M")) as served:
        async with (
            ServiceBusClient.from_connection_string(served.address["serviceBusConnection"]) as bus,
            bus.get_queue_sender(QUEUE) as sender,
        ):
            for first in range(0, sessions, BATCH):
                batch = await sender.create_message_batch()
                for number in range(first, min(first + BATCH, sessions)):
                    batch.add_message(ServiceBusMessage(b"x", session_id=f"s{number}"))
                await sender.send_messages(batch)
        await asyncio.sleep(settle)
        before = served.cpu_seconds()
        await asyncio.sleep(seconds)
        used = served.cpu_seconds() - before
        return {"sessions": sessions, "processor share": used / seconds, "MiB": served.resident_mib()}
