"""Patch operations on a document, and what a patch may not do."""

from __future__ import annotations

import pytest

from local.cosmos.errors import CosmosError
from local.cosmos.patch import Patch
from local.cosmos.values import Document, Json

ITEM: Document = {"id": "a", "n": 1, "o": {"p": 1, "a/b": 2, "m~n": 3}, "l": [1, 2, 3]}


def patched(*operations: Json) -> Document:
    result = Patch.read({"operations": list(operations)}).apply(ITEM)
    return {name: value for name, value in result.items() if value != ITEM.get(name)}


@pytest.mark.parametrize(
    ("operation", "change"),
    [
        ({"op": "add", "path": "/new", "value": {"x": 1}}, {"new": {"x": 1}}),
        ({"op": "add", "path": "/n", "value": 5}, {"n": 5}),
        ({"op": "add", "path": "/l/1", "value": 9}, {"l": [1, 9, 2, 3]}),
        ({"op": "add", "path": "/l/3", "value": 9}, {"l": [1, 2, 3, 9]}),
        ({"op": "add", "path": "/l/-", "value": 9}, {"l": [1, 2, 3, 9]}),
        ({"op": "set", "path": "/o/q", "value": None}, {"o": {**ITEM["o"], "q": None}}),  # type: ignore[dict-item]
        ({"op": "set", "path": "/l/1", "value": 9}, {"l": [1, 9, 3]}),
        ({"op": "replace", "path": "/n", "value": "x"}, {"n": "x"}),
        ({"op": "replace", "path": "/l/0", "value": 9}, {"l": [9, 2, 3]}),
        ({"op": "remove", "path": "/l/0"}, {"l": [2, 3]}),
        ({"op": "incr", "path": "/n", "value": 2}, {"n": 3}),
        ({"op": "incr", "path": "/n", "value": -0.5}, {"n": 0.5}),
        ({"op": "incr", "path": "/new", "value": 2}, {"new": 2}),
        ({"op": "move", "from": "/n", "path": "/o/n"}, {"o": {**ITEM["o"], "n": 1}}),  # type: ignore[dict-item]
        ({"op": "move", "from": "/l/0", "path": "/l/2"}, {"l": [2, 3, 1]}),
        ({"op": "replace", "path": "/o/a~1b", "value": 0}, {"o": {"p": 1, "a/b": 0, "m~n": 3}}),
        ({"op": "replace", "path": "/o/m~0n", "value": 0}, {"o": {"p": 1, "a/b": 2, "m~n": 0}}),
    ],
)
def test_operation(operation: Json, change: Document) -> None:
    assert patched(operation) == change


def test_operations_see_the_ones_before_and_leave_the_original_alone() -> None:
    before = dict(ITEM)
    steps: list[Json] = [{"op": "add", "path": "/x", "value": [1]}, {"op": "add", "path": "/x/-", "value": 2}]
    assert patched(*steps) == {"x": [1, 2]}
    assert before == ITEM


def test_removed_property_is_gone() -> None:
    assert "n" not in Patch.read([{"op": "remove", "path": "/n"}]).apply(ITEM)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/new", "value": 1},
        {"op": "remove", "path": "/new"},
        {"op": "remove", "path": "/l/3"},
        {"op": "add", "path": "/l/4", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "add", "path": "/l/01", "value": 1},
        {"op": "set", "path": "/l/3", "value": 1},
        {"op": "set", "path": "/l/-", "value": 1},
        {"op": "add", "path": "/no/parent", "value": 1},
        {"op": "add", "path": "/n/below", "value": 1},
        {"op": "incr", "path": "/o", "value": 1},
        {"op": "incr", "path": "/n", "value": "1"},
        {"op": "incr", "path": "/n", "value": True},
        {"op": "incr", "path": "/l/3", "value": 1},
        {"op": "move", "from": "/new", "path": "/n"},
        {"op": "move", "from": "/o", "path": "/o/p"},
        {"op": "test", "path": "/n", "value": 1},
        {"op": "add", "path": "n", "value": 1},
        {"op": "add", "path": "", "value": 1},
        {"op": "add", "path": "/n"},
        {"op": "move", "path": "/n"},
        "add",
    ],
)
def test_operation_that_can_not_be_done_is_refused_with_400(operation: Json) -> None:
    with pytest.raises(CosmosError) as refused:
        patched(operation)
    assert refused.value.status == 400


@pytest.mark.parametrize("path", ["/id", "/_etag", "/_ts", "/_rid", "/_self", "/_attachments", "/_etag/x"])
def test_id_and_system_properties_can_not_be_patched(path: str) -> None:
    for operation in ({"op": "set", "path": path, "value": 1}, {"op": "move", "from": path, "path": "/x"}):
        with pytest.raises(CosmosError, match="can't be patched"):
            patched(operation)  # type: ignore[arg-type]


def test_r64_ten_operations_are_the_most() -> None:
    one: Json = {"op": "incr", "path": "/n", "value": 1}
    assert patched(*[one] * 10) == {"n": 11}
    with pytest.raises(CosmosError, match="11 operations, and the limit is 10"):
        patched(*[one] * 11)


@pytest.mark.parametrize("body", [{}, {"operations": []}, {"operations": "x"}, "x", None, []])
def test_patch_without_operations_is_refused(body: Json) -> None:
    with pytest.raises(CosmosError, match="no operations"):
        Patch.read(body)
