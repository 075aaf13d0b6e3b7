"""Partial document update: the operations of a patch, in order, on a copy of the document."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from local.cosmos.errors import CosmosError
from local.cosmos.values import UNDEFINED, Document, Json, Value, number

MAX_OPERATIONS = 10
PROTECTED = {"id", "_rid", "_self", "_etag", "_attachments", "_ts"}
_INDEX = re.compile(r"0|[1-9][0-9]*")
_KINDS = ("add", "set", "replace", "remove", "incr", "move")
_Place: TypeAlias = tuple["dict[str, Json] | list[Json]", str]


@dataclass(frozen=True, slots=True)
class Patch:
    operations: tuple[Document, ...]
    condition: str | None

    @classmethod
    def read(cls, body: Json) -> Patch:
        """Check the form. Refuses more than 10 operations, and any that touches id or a system property."""
        if isinstance(body, list):  # the form without a condition
            body = {"operations": body}
        operations = body.get("operations") if isinstance(body, dict) else None
        if not isinstance(body, dict) or not isinstance(operations, list) or not operations:
            raise _bad("it has no operations")
        if len(operations) > MAX_OPERATIONS:
            raise _bad(f"it has {len(operations)} operations, and the limit is {MAX_OPERATIONS}")
        condition = body.get("condition")
        if condition is not None and not isinstance(condition, str):
            raise _bad("the condition is no text")
        return cls(tuple(_checked(operation) for operation in operations), condition)

    def apply(self, document: Document) -> Document:
        """The patched copy; an operation that can't be done refuses the whole patch."""
        patched = copy.deepcopy(document)
        for operation in self.operations:
            _apply(patched, operation)
        return patched


def _bad(reason: str) -> CosmosError:
    return CosmosError(400, f"The patch is invalid: {reason}.")


def _checked(operation: Json) -> Document:
    if not isinstance(operation, dict) or operation.get("op") not in _KINDS:
        raise _bad(f"an operation is one of {', '.join(_KINDS)}")
    for key in ("path", "from") if operation["op"] == "move" else ("path",):
        if _segments(operation.get(key))[0] in PROTECTED:
            raise _bad(f"{operation.get(key)} can't be patched")
    if operation["op"] not in {"remove", "move"} and "value" not in operation:
        raise _bad(f"{operation['op']} needs a value")
    return operation


def _segments(path: Json) -> list[str]:
    if not isinstance(path, str) or len(path) < 2 or not path.startswith("/"):
        raise _bad(f"a path such as /status is expected, not {path!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _apply(document: Document, operation: Document) -> None:
    kind, path, value = operation["op"], operation.get("path"), copy.deepcopy(operation.get("value"))
    if kind == "move":
        source = operation.get("from")
        if f"{path}/".startswith(f"{source}/"):
            raise _bad(f"{source} can't be moved into itself")
        place = _place(document, source, kind)
        moved = _at(place)
        if moved is UNDEFINED:
            raise _bad(f"move: there is no {source}")
        _remove(place)
        _write(_place(document, path, kind), moved, insert=True)
        return
    place = _place(document, path, kind)
    current = _at(place)
    if kind in {"replace", "remove"} and current is UNDEFINED:
        raise _bad(f"{kind}: there is no {path}")
    if kind == "remove":
        _remove(place)
    elif kind == "incr":
        _write(place, _sum(current, value, path), insert=False)
    else:
        _write(place, value, insert=kind == "add")


def _place(document: Document, path: Json, kind: Json) -> _Place:
    """The parent, which must exist, and the last name in it."""
    *parents, last = _segments(path)
    parent: Value = document
    for name in parents:
        parent = _child(parent, name)
    if not isinstance(parent, dict | list):
        raise _bad(f"{kind}: there is no parent for {path}")
    if isinstance(parent, list) and last != "-" and not _INDEX.fullmatch(last):
        raise _bad(f"{kind}: {last!r} in {path} is no array index")
    return parent, last


def _child(parent: Value, name: str) -> Value:
    if isinstance(parent, dict):
        return parent.get(name, UNDEFINED)
    if isinstance(parent, list) and _INDEX.fullmatch(name) and int(name) < len(parent):
        return parent[int(name)]
    return UNDEFINED


def _at(place: _Place) -> Value:
    return _child(*place)


def _write(place: _Place, value: Json, *, insert: bool) -> None:
    parent, name = place
    if isinstance(parent, dict):
        parent[name] = value
        return
    at = len(parent) if name == "-" and insert else int(name) if name != "-" else -1
    if insert and at <= len(parent):
        parent.insert(at, value)
    elif not insert and 0 <= at < len(parent):
        parent[at] = value
    else:
        raise _bad(f"the array has no place {name}")


def _remove(place: _Place) -> None:
    parent, name = place
    if isinstance(parent, dict):
        del parent[name]
    else:
        del parent[int(name)]


def _sum(current: Value, value: Json, path: Json) -> Json:
    start = 0 if current is UNDEFINED else current
    if not _is_number(start) or not _is_number(value):
        raise _bad(f"incr: {path} and the value have to be numbers")
    return number(float(start + value))


def _is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
