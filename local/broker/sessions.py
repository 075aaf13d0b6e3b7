"""Which messages of a queue can be received, by session, and which sessions wait for a receiver.

A plain queue is a single nameless session here, so that both kinds of queue go by the same code.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from local.broker.model import SessionLock, StoredMessage


@dataclass(eq=False, slots=True)
class Session:
    """One session: what it holds, who holds it, and its state."""

    session_id: str
    available: list[tuple[int, StoredMessage]] = field(default_factory=list)  # heap by number; may hold husks
    waiting: int = 0  # how many of them are available in fact
    messages: int = 0  # of any state
    locked: dict[uuid.UUID, StoredMessage] = field(default_factory=dict)
    lock: SessionLock | None = None
    state: bytes | None = None
    state_set_at: float = 0.0

    def take(self) -> StoredMessage | None:
        """The available message with the least sequence number, which then is available no more."""
        while self.available:
            _, stored = heapq.heappop(self.available)
            if stored.is_available:
                stored.is_available = False
                self.waiting -= 1
                return stored
        return None


class Sessions:
    """The sessions that exist: those with messages, a lock or a state. An idle one costs its entry and no timer."""

    def __init__(self, *, has_sessions: bool) -> None:
        self.plain = Session("")
        self._has_sessions = has_sessions
        self._by_id: dict[str, Session] = {}
        self._ready: dict[str, None] = {}  # unlocked, with something to receive; the longest waiting first

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, stored: StoredMessage) -> Session:
        """Where a message belongs."""
        return self.named(stored.message.session_id or "") if self._has_sessions else self.plain

    def named(self, session_id: str) -> Session:
        """The session of this id, which need not have existed."""
        session = self._by_id.get(session_id)
        if session is None:
            session = self._by_id[session_id] = Session(session_id)
        return session

    def held_by(self, lock: SessionLock) -> Session | None:
        """The session under this very lock; none when the lock is lost."""
        session = self._by_id.get(lock.session_id)
        return session if session is not None and session.lock is lock else None

    def next_ready(self) -> Session | None:
        """The unlocked session that has waited longest with something to receive."""
        session_id = next(iter(self._ready), None)
        return None if session_id is None else self._by_id[session_id]

    def offer(self, stored: StoredMessage) -> Session:
        """Make a message available, at its place by number."""
        session = self.of(stored)
        heapq.heappush(session.available, (stored.sequence_number, stored))
        stored.is_available = True
        session.waiting += 1
        self._note_ready(session)
        return session

    def withdraw(self, stored: StoredMessage) -> None:
        """Make a message unavailable without receiving it: its entry stays as a husk until husks prevail."""
        session = self.of(stored)
        stored.is_available = False
        session.waiting -= 1
        if session.waiting == 0:
            self._ready.pop(session.session_id, None)
        if len(session.available) > 2 * session.waiting + 64:
            session.available = [entry for entry in session.available if entry[1].is_available]
            heapq.heapify(session.available)

    def lock(self, session: Session, lock: SessionLock) -> None:
        """Give the session to a receiver."""
        session.lock = lock
        self._ready.pop(session.session_id, None)

    def unlock(self, session: Session) -> None:
        """Take the session from its receiver."""
        if session.lock is not None:
            session.lock.is_lost = True
            session.lock = None
        self._note_ready(session)

    def drop_if_idle(self, session: Session) -> None:
        """Forget a session that has nothing to remember."""
        if session.messages == 0 and session.lock is None and session.state is None:
            self._by_id.pop(session.session_id, None)

    def _note_ready(self, session: Session) -> None:
        if session is not self.plain and session.lock is None and session.waiting:
            self._ready.setdefault(session.session_id)
