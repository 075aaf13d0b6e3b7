"""Request charges: near what the service bills, and always the same for the same request.

In request units (RU), with kb = size of the document in KiB, rounded up, and terms = values that the indexing policy
puts in the index:
  read      1 x kb, twice that with Strong or BoundedStaleness consistency (two replicas are read)
  create    5 x kb + 0.2 x terms; delete the same; replace, upsert over an item and patch twice that
  query     2.3 + 0.03 x documents looked at + 0.1 per KiB given out, doubled like a read
  a conflict, a failed precondition, a missing item and an unchanged one (304) cost 1
  a batch costs the sum of its operations
"""

from __future__ import annotations

FLAT = 1.0
_STRONG = {"Strong", "BoundedStaleness"}


def read(size: int, consistency: str) -> float:
    return _kib(size) * _replicas(consistency)


def write(size: int, terms: int, *, overwrites: bool = False) -> float:
    return round((5.0 * _kib(size) + 0.2 * terms) * (2 if overwrites else 1), 2)


def query(looked_at: int, size: int, consistency: str) -> float:
    return round((2.3 + 0.03 * looked_at + 0.1 * (size / 1024)) * _replicas(consistency), 2)


def _kib(size: int) -> float:
    return float(max(1, -(-size // 1024)))


def _replicas(consistency: str) -> int:
    return 2 if consistency in _STRONG else 1
