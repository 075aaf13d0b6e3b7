"""The indexing policy: which paths have an index. It decides charges, and whether ORDER BY can be served at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from local.cosmos.values import UNDEFINED, Document, Json, lookup

_SEGMENT = re.compile(r'/(?:"([^"]+)"|([^/"]+))')
_ALWAYS = (("id",), ("_ts",))  # system paths that no policy excludes, as contracts and the service have it
Path = tuple[str, ...]

_ROOT = "/*"
_ETAG = '/"_etag"/?'


class InvalidPolicyError(Exception):
    """The policy can't be used; the text says why."""


@dataclass(frozen=True, slots=True)
class IndexingPolicy:
    """Included and excluded paths; a path ends with ? (this value) or * (all below). The longer one wins."""

    is_on: bool
    included: tuple[Path, ...]
    excluded: tuple[Path, ...]
    composite: tuple[tuple[tuple[Path, bool], ...], ...]  # of (path, descending)

    @classmethod
    def read(cls, policy: Json) -> IndexingPolicy:
        if not isinstance(policy, dict):
            raise InvalidPolicyError("an object is expected")
        mode = policy.get("indexingMode", "consistent")
        if not isinstance(mode, str) or mode.lower() not in {"consistent", "none"}:
            raise InvalidPolicyError(f"indexingMode consistent or none is expected, not {mode!r}")
        included, excluded = (_paths(policy, key) for key in ("includedPaths", "excludedPaths"))
        if mode.lower() == "consistent" and ("*",) not in included + excluded:
            raise InvalidPolicyError("the root path /* must be included or excluded")
        if set(included) & set(excluded):
            raise InvalidPolicyError("a path is both included and excluded")
        return cls(mode.lower() == "consistent", included, excluded, _composite(policy))

    def has(self, path: Path) -> bool:
        """Whether values at this path are in the index."""
        if path in _ALWAYS:
            return self.is_on
        included = max((_match(pattern, path) for pattern in self.included), default=-1)
        excluded = max((_match(pattern, path) for pattern in self.excluded), default=-1)
        return self.is_on and included > excluded

    def terms(self, document: Document) -> int:
        """How many values of the document go to the index."""
        if not self.is_on:
            return 0
        if ("*",) in self.excluded and all(path[-1] == "?" and "[]" not in path for path in self.included):
            return len(_ALWAYS) + sum(lookup(document, path[:-1]) is not UNDEFINED for path in self.included)
        return sum(self.has(path) for path in _leaves(document, ()))

    def serves_order(self, order: tuple[tuple[Path, bool], ...]) -> bool:
        """Whether a composite index has this order, or its exact opposite."""
        opposite = tuple((path, not descending) for path, descending in order)
        return any(index in (order, opposite) for index in self.composite)


def completed(policy: Json) -> Document:
    """The policy as the service stores it, which is what clients read back.

    Whatever is not said is filled in: everything is indexed but the ETag. `/` is the older name of `/*`, and what older
    clients say about the kind of an index has no effect any more: it is dropped.
    """
    if not isinstance(policy, dict):
        raise InvalidPolicyError("an object is expected")
    for key in ("vectorIndexes", "fullTextIndexes"):
        if policy.get(key):
            raise InvalidPolicyError(f"{key} are not served")
    mode = policy.get("indexingMode", "consistent")
    mode = mode.lower() if isinstance(mode, str) else mode
    included, excluded = _plain_paths(policy, "includedPaths"), _plain_paths(policy, "excludedPaths")
    if mode != "none":
        if not included and _ROOT not in excluded:
            included.append(_ROOT)
        if not {_ROOT, _ETAG, "/_etag/?"}.intersection(map(str, excluded)):
            excluded.append(_ETAG)
    return {"automatic": True} | policy | {
        "indexingMode": mode,
        "includedPaths": [{"path": path} for path in included],
        "excludedPaths": [{"path": path} for path in excluded],
    }


def _plain_paths(policy: Document, key: str) -> list[Json]:
    entries = policy.get(key) or []
    if not isinstance(entries, list):
        raise InvalidPolicyError(f"{key}: a list is expected")
    paths = [entry.get("path") if isinstance(entry, dict) else None for entry in entries]
    return [_ROOT if path == "/" else path for path in paths]


def _paths(policy: Document, key: str) -> tuple[Path, ...]:
    entries = policy.get(key, [])
    if not isinstance(entries, list):
        raise InvalidPolicyError(f"{key}: a list is expected")
    read = []
    for entry in entries:
        path = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(path, str) or not re.fullmatch(r'(/("[^"]+"|[^/"]+))+', path) or path[-1] not in "*?":
            raise InvalidPolicyError(f"{key}: a path such as /status/? is expected, not {path!r}")
        read.append(_names(path))
    return tuple(read)


def _names(path: str) -> Path:
    return tuple(quoted or plain for quoted, plain in _SEGMENT.findall(path))


def _composite(policy: Document) -> tuple[tuple[tuple[Path, bool], ...], ...]:
    indexes = policy.get("compositeIndexes", [])
    if not isinstance(indexes, list):
        raise InvalidPolicyError("compositeIndexes: a list is expected")
    read = []
    for index in indexes:
        parts = []
        for part in index if isinstance(index, list) else []:
            path = part.get("path") if isinstance(part, dict) else None
            order = part.get("order", "ascending") if isinstance(part, dict) else None
            if not isinstance(path, str) or order not in ("ascending", "descending"):
                raise InvalidPolicyError("compositeIndexes: each part needs a path, and an order of the two")
            parts.append((_names(path), order == "descending"))
        if len(parts) < 2:
            raise InvalidPolicyError("compositeIndexes: each needs two paths or more")
        read.append(tuple(parts))
    return tuple(read)


def _match(pattern: Path, path: Path) -> int:
    """How precisely a pattern covers a path: its length, `?` before `*`; -1 = not at all."""
    stem = pattern[:-1]
    if path[: len(stem)] != stem or (pattern[-1] == "?" and len(path) != len(stem)):
        return -1
    return 2 * len(stem) + (pattern[-1] == "?")


def _leaves(value: Json, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, (*path, "[]"))
    else:
        yield path
