"""Equality and order of values, as the service has them: only equal types compare, and types have an order."""

from __future__ import annotations

from local.cosmos.values import UNDEFINED, Json, Value

_UNDEFINED, _NULL, _BOOL, _NUMBER, _STRING, _ARRAY, _OBJECT = range(7)


def type_rank(value: Value) -> int:
    """The place of a value's type in ORDER BY."""
    match value:
        case None:
            return _NULL
        case bool():
            return _BOOL
        case int() | float():
            return _NUMBER
        case str():
            return _STRING
        case list():
            return _ARRAY
        case dict():
            return _OBJECT
    return _UNDEFINED


def equal(left: Value, right: Value) -> Value:
    """Whether two values are the same; undefined where their types differ or one is undefined."""
    rank = type_rank(left)
    if rank == _UNDEFINED or rank != type_rank(right):
        return UNDEFINED
    if rank < _ARRAY:
        return left == right
    return same(left, right)


def same(left: Value, right: Value) -> bool:
    """Deep equality without Python's True == 1."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    return type_rank(left) == type_rank(right) and left == right


def less(left: Value, right: Value) -> Value:
    """left < right for booleans, numbers and strings of one type; undefined otherwise."""
    rank = type_rank(left)
    if rank != type_rank(right) or not _BOOL <= rank <= _STRING:
        return False if rank == type_rank(right) == _NULL else UNDEFINED
    return left < right  # type: ignore[operator]  # equal ranks: two of one comparable type


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1 for ORDER BY, MIN and MAX: first by type, then by value; arrays and objects are alike."""
    ranks = type_rank(left), type_rank(right)
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if not _BOOL <= ranks[0] <= _STRING or left == right:
        return 0
    return -1 if left < right else 1  # type: ignore[operator]  # as above


def is_number(value: Value) -> bool:
    return type_rank(value) == _NUMBER


def partial_match(value: Json, part: Json) -> bool:
    """Whether an object holds all properties of `part`, or equals it where that is no object."""
    if isinstance(value, dict) and isinstance(part, dict):
        return all(name in value and partial_match(value[name], inner) for name, inner in part.items())
    return same(value, part)
