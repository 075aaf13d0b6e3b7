"""Clock and randomness of the process."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime


class SystemClock:
    """The worker's clock."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class SystemTokens:
    """Randomness from the operating system."""

    def token(self) -> str:
        """32 hex digits."""
        return secrets.token_hex(16)

    def fraction(self) -> float:
        """A number from 0 to 1."""
        return secrets.randbelow(1_000_000) / 1_000_000
