"""What a page of a query cost to make, for clients that ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar


class _HasBody(Protocol):
    @property
    def body(self) -> bytes: ...


_Document = TypeVar("_Document", bound=_HasBody)


class Metrics:
    """Counts the documents that one page read."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._count = 0
        self._bytes = 0

    def watched(
        self, candidates: Callable[[int], Iterable[_Document]]
    ) -> Callable[[int], Iterator[_Document]]:
        def read(start: int) -> Iterator[_Document]:
            for candidate in candidates(start):
                self._count += 1
                self._bytes += len(candidate.body)
                yield candidate

        return read

    def header(self, rows: Sequence[bytes]) -> str:
        """The part of the header x-ms-documentdb-query-metrics that means something here."""
        used = min(1.0, len(rows) / self._count) if self._count else 1.0
        values = {
            "totalExecutionTimeInMs": f"{(time.perf_counter() - self._started) * 1000:.2f}",
            "retrievedDocumentCount": self._count,
            "retrievedDocumentSize": self._bytes,
            "outputDocumentCount": len(rows),
            "outputDocumentSize": sum(map(len, rows)),
            "indexUtilizationRatio": f"{used:.2f}",
        }
        return ";".join(f"{name}={value}" for name, value in values.items())
