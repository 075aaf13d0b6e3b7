"""All that falls due in the broker, in one heap: ten thousand idle sessions need no timer of their own."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable


class Deadlines:
    """Deadlines by key, each with the action to run when it is due.

    A cleared or moved deadline stays in the heap as a husk until it surfaces, or until husks outnumber the living:
    then the heap is rebuilt, so its size stays within a factor of what is really pending.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hashable]] = []
        self._live: dict[Hashable, tuple[int, Callable[[float], None]]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._live)

    def set(self, key: Hashable, when: float, action: Callable[[float], None]) -> None:
        """Run `action` with the due time at `when`; replaces the key's earlier deadline."""
        self._serial += 1
        self._live[key] = (self._serial, action)
        heapq.heappush(self._heap, (when, self._serial, key))
        self._compact()

    def clear(self, key: Hashable) -> None:
        """Forget the key's deadline, if it has one."""
        if self._live.pop(key, None) is not None:
            self._compact()

    def next(self) -> float | None:
        """When the next action is due."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> None:
        """Run everything that is due, in the order of the due times, however late the call comes."""
        while (when := self.next()) is not None and when <= now:
            _, _, key = heapq.heappop(self._heap)
            _, action = self._live.pop(key)
            action(when)

    def _is_live(self, entry: tuple[float, int, Hashable]) -> bool:
        live = self._live.get(entry[2])
        return live is not None and live[0] == entry[1]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)
