"""A span around each send."""

from __future__ import annotations

from collections.abc import Sequence

from shared import telemetry
from shared.envelope import OutgoingMessage, Role
from shared.ports import Sender


class TracedSender:
    """A Sender whose sends are spans of their own."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def send(self, role: Role, messages: Sequence[OutgoingMessage]) -> int:
        """As the port says."""
        with telemetry.span(f"send {role.value}", producer=True):
            return await self._sender.send(role, messages)
