"""The `~state` documents that this worker wrote last, so that a warm stream costs no read.

A stale one costs a refused write and a read, never correctness: everything that rests on a kept state is checked by
its ETag, and every permanent verdict is taken on a state that was read in the attempt.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from shared.contracts.documents import STATE_ID, LedgerSequence, LedgerState
from shared.handlers.attempt import Attempt
from shared.handlers.claim import read_as
from shared.ports import Container, Documents

T = TypeVar("T", LedgerState, LedgerSequence)

KEPT_STATES = 1000


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A state (None: there is none yet), its ETag, and whether it was read in this attempt."""

    state: T | None
    etag: str
    fresh: bool


class States(Generic[T]):
    """The states of one container; the least recently used one goes first."""

    def __init__(self, documents: Documents, container: Container, model: type[T], limit: int = KEPT_STATES) -> None:
        self._documents = documents
        self._container = container
        self._model: type[T] = model
        self._limit = limit
        self._kept: OrderedDict[str, tuple[T, str]] = OrderedDict()

    async def get(self, attempt: Attempt, partition: str) -> Kept[T]:
        """The state as this worker last wrote it, else as it is stored."""
        if partition in self._kept:
            self._kept.move_to_end(partition)
            state, etag = self._kept[partition]
            return Kept(state, etag, fresh=False)
        return await self.read(attempt, partition)

    async def read(self, attempt: Attempt, partition: str) -> Kept[T]:
        """The state as it is stored."""
        self.forget(partition)
        seen = await attempt.io(partial(read_as, self._documents, self._model, self._container, partition, STATE_ID))
        return Kept(None, "", fresh=True) if seen is None else Kept(seen.document, seen.etag, fresh=True)

    def keep(self, partition: str, state: T, etag: str) -> None:
        """Remember a state that was just written."""
        self._kept[partition] = (state, etag)
        self._kept.move_to_end(partition)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def forget(self, partition: str) -> None:
        """Drop a state that turned out to be stale, or whose last write has no answer."""
        self._kept.pop(partition, None)
