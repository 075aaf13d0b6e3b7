"""Sends the input through the real azure-servicebus client, of each queue in the input's order.

The client makes up a MessageId where none is given, so a message without one has it taken away again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import cast

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from local.demo.lines import Line, Property, Sending

MOST_TOGETHER = 25  # so that the app works while the demo still sends
NOT_THE_MESSAGE = (
    ServiceBusAuthenticationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

Told = Callable[[int], None]
Primitive = int | float | bytes | bool | str | uuid.UUID  # as the client's own signature has it


class QueueSender:
    """Sends to one queue; remembers the lines that it does not take."""

    def __init__(self, client: ServiceBusClient, queue: str, on_sent: Told) -> None:
        self._sender: ServiceBusSender = client.get_queue_sender(queue)
        self._on_sent = on_sent
        self.refused: dict[int, str] = {}

    async def send(self, sendings: Sequence[Sending]) -> None:
        """Send messages in their order, several at a time where they fit."""
        waiting: list[tuple[Line, ServiceBusMessage]] = []
        for sending in sendings:
            line = sending.line
            if line.number in self.refused:
                continue
            try:
                message = message_of(line)
            except ValueError as exc:  # the client refuses ids beyond the broker's limit itself
                self.refused[line.number] = str(exc)
                continue
            waiting.append((line, message))
            if len(waiting) == MOST_TOGETHER:
                await self._send_together(waiting)
                waiting = []
        await self._send_together(waiting)

    async def close(self) -> None:
        """Close the connection."""
        await self._sender.close()

    async def _send_together(self, messages: Sequence[tuple[Line, ServiceBusMessage]]) -> None:
        if not messages:
            return
        try:
            batch = await self._sender.create_message_batch()
            for _, message in messages:
                batch.add_message(message)
            await self._sender.send_messages(batch)
        except NOT_THE_MESSAGE:
            raise
        except ServiceBusError:  # too large together, or one that the broker refuses: it has taken none of them
            for line, message in messages:
                await self._send_alone(line, message)
        else:
            self._on_sent(len(messages))

    async def _send_alone(self, line: Line, message: ServiceBusMessage) -> None:
        if line.number in self.refused:
            return
        try:
            await self._sender.send_messages(message)
        except NOT_THE_MESSAGE:
            raise
        except MessageSizeExceededError:
            self.refused[line.number] = "too large"
        except ServiceBusError as exc:
            self.refused[line.number] = str(exc).splitlines()[0]
        else:
            self._on_sent(1)


def message_of(line: Line) -> ServiceBusMessage:
    """Build a line's message, with just the fields that the line has.

    Raises: ValueError, when an id is longer than a broker takes.
    """
    properties: dict[str | bytes, Primitive] = {}
    properties.update({name: _wide(value) for name, value in line.properties.items()})
    message = ServiceBusMessage(
        line.body,
        session_id=line.session_id,
        message_id=line.message_id,
        application_properties=properties or None,
        subject=line.subject,
        content_type=line.content_type,
        correlation_id=line.correlation_id,
    )
    if not line.message_id and message.raw_amqp_message.properties is not None:
        message.raw_amqp_message.properties.message_id = line.message_id
    return message


def _wide(value: Property) -> Primitive:
    """Mark an integer beyond 32 bits as an AMQP long; the client takes each one for an int and fails."""
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**31) <= value < 2**31:
        return cast("Primitive", {"TYPE": "LONG", "VALUE": value})
    return value
