"""Does the broker keep anything of messages that are gone? Its memory after ten times as many."""

from __future__ import annotations

from collections.abc import Mapping

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from bench.process import queue_config, running_stack

QUEUE = "bench"
MESSAGES = 1_000_000
BATCH = 2_000


async def measure(messages: int = MESSAGES) -> Mapping[str, float]:
    """Memory after a tenth of the messages went in and out, and after all of them."""
    async with (
        running_stack(queue_config(QUEUE, RequiresSession=False)) as served,
        ServiceBusClient.from_connection_string(served.address["serviceBusConnection"]) as bus,
        bus.get_queue_sender(QUEUE) as sender,
        bus.get_queue_receiver(
            QUEUE, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, prefetch_count=BATCH
        ) as receiver,
    ):
        await _through(sender, receiver, messages // 10)
        tenth = served.resident_mib()
        await _through(sender, receiver, messages - messages // 10)
        all_of_them = served.resident_mib()
        return {"messages": messages, "MiB at a tenth": tenth, "MiB": all_of_them, "ratio": all_of_them / tenth}


async def _through(sender: ServiceBusSender, receiver: ServiceBusReceiver, count: int) -> None:
    while count:
        batch = await sender.create_message_batch()
        share = min(BATCH, count)
        for _ in range(share):
            batch.add_message(ServiceBusMessage(b"x" * 32))
        await sender.send_messages(batch)
        taken = 0
        while taken < share:
            taken += len(await receiver.receive_messages(share - taken, max_wait_time=10))
        count -= share
