"""Duplicate detection: the message ids of the last seconds."""

from __future__ import annotations

from collections import deque

from local.broker.messages import MessageId


class DuplicateWindow:
    """Remembers each id for the window's length, counted from the first message that had it.

    Ids compare with their type: the text of a uuid is not that uuid.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: set[tuple[type, MessageId]] = set()
        self._order: deque[tuple[float, tuple[type, MessageId]]] = deque()

    def admits(self, message_id: MessageId, now: float) -> bool:
        """Record the id; false when it was there already."""
        self.forget(now)
        key = (type(message_id), message_id)
        if key in self._seen:
            return False
        self._seen.add(key)
        self._order.append((now + self._seconds, key))
        return True

    def forget(self, now: float) -> None:
        """Drop the ids whose time is over."""
        while self._order and self._order[0][0] <= now:
            self._seen.discard(self._order.popleft()[1])

    def __len__(self) -> int:
        return len(self._order)
