"""A replica that lags one write behind: what each item was before it was written last."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from local.cosmos.store import Row


class Place(NamedTuple):
    """Where an item is: its container's number, its partition key, its id."""

    container: int
    pk: str
    id: str


class _Former(NamedTuple):
    row: Row | None  # None: there was no such item
    until: int  # lsn of the write that ended it


class Lag:
    """Keeps the former version of every item that is written from now on."""

    def __init__(self) -> None:
        self.is_read = False  # set while a read is answered from here
        self._former: dict[Place, _Former] = {}

    def note(self, place: Place, row: Row | None, lsn: int) -> None:
        """A write with this lsn ended a version."""
        self._former[place] = _Former(row, lsn)

    def lsn(self, place: Place) -> int | None:
        """Where the replica stands that shows the former version: just before the write that ended it."""
        former = self._former.get(place)
        return None if former is None else former.until - 1

    def read(self, place: Place, now: Row | None) -> Row | None:
        """The former version where there is one."""
        former = self._former.get(place)
        return now if former is None else former.row
