"""The built-in functions of the subset: values in, a value out; wrong types give undefined, as in the service."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from local.cosmos.query.compare import is_number, partial_match, same
from local.cosmos.values import UNDEFINED, Json, Value, number

Body: TypeAlias = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Function:
    fewest: int
    most: int
    body: Body


def _checks(test: Callable[[Value], bool]) -> Function:
    return Function(1, 1, test)


def _texts(body: Body, count: int = 1) -> Function:
    """All arguments are text, else undefined."""

    def checked(*arguments: Value) -> Value:
        return body(*arguments) if all(isinstance(each, str) for each in arguments) else UNDEFINED

    return Function(count, count, checked)


def _search(test: Callable[[str, str], bool]) -> Function:
    """Two texts, and perhaps true for "ignore case"."""

    def checked(text: Value, part: Value, ignore_case: Value = False) -> Value:
        if not isinstance(text, str) or not isinstance(part, str) or not isinstance(ignore_case, bool):
            return UNDEFINED
        return test(text.lower(), part.lower()) if ignore_case else test(text, part)

    return Function(2, 3, checked)


def _numbers(body: Callable[..., float], count: int = 1) -> Function:
    def checked(*arguments: Value) -> Value:
        return finite(body, *arguments) if all(is_number(each) for each in arguments) else UNDEFINED

    return Function(count, count, checked)


def finite(body: Callable[..., float], *arguments: Value) -> Value:
    """The result as a number that JSON can hold, or undefined."""
    try:
        result = float(body(*arguments))
    except (ArithmeticError, ValueError):
        return UNDEFINED
    return number(result) if math.isfinite(result) else UNDEFINED


def _round(value: float) -> float:
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)  # halves go away from zero, unlike Python's


def _is_whole(value: Value) -> bool:
    return is_number(value) and isinstance(value, int | float) and float(value).is_integer()


def _concat(*parts: Value) -> Value:
    return "".join(str(part) for part in parts) if all(isinstance(part, str) for part in parts) else UNDEFINED


def _substring(text: Value, start: Value, length: Value) -> Value:
    if not isinstance(text, str) or not _is_whole(start) or not _is_whole(length):
        return UNDEFINED
    assert isinstance(start, int)  # noqa: S101 - whole numbers are int (values.number)
    assert isinstance(length, int)  # noqa: S101
    return text[start : start + max(0, length)] if start >= 0 else ""


def _left(text: Value, length: Value) -> Value:
    return _substring(text, 0, length)


def _right(text: Value, length: Value) -> Value:
    if not isinstance(text, str) or not isinstance(length, int) or not is_number(length):
        return UNDEFINED
    return text[max(0, len(text) - length) :] if length > 0 else ""


def _array_contains(array: Value, wanted: Value, partial: Value = False) -> Value:
    if not isinstance(array, list) or wanted is UNDEFINED or not isinstance(partial, bool):
        return UNDEFINED
    match: Callable[[Json, Json], bool] = partial_match if partial else same
    return any(match(element, wanted) for element in array)


def _array_length(array: Value) -> Value:
    return len(array) if isinstance(array, list) else UNDEFINED


def _array_concat(*arrays: Value) -> Value:
    joined: list[Json] = []
    for array in arrays:
        if not isinstance(array, list):
            return UNDEFINED
        joined += array
    return joined


def _is_primitive(value: Value) -> bool:
    return value is not UNDEFINED and not isinstance(value, list | dict)


FUNCTIONS: dict[str, Function] = {
    "IS_DEFINED": _checks(lambda value: value is not UNDEFINED),
    "IS_NULL": _checks(lambda value: value is None),
    "IS_BOOL": _checks(lambda value: isinstance(value, bool)),
    "IS_NUMBER": _checks(is_number),
    "IS_INTEGER": _checks(_is_whole),
    "IS_STRING": _checks(lambda value: isinstance(value, str)),
    "IS_ARRAY": _checks(lambda value: isinstance(value, list)),
    "IS_OBJECT": _checks(lambda value: isinstance(value, dict)),
    "IS_PRIMITIVE": _checks(_is_primitive),
    "STARTSWITH": _search(str.startswith),
    "ENDSWITH": _search(str.endswith),
    "CONTAINS": _search(lambda text, part: part in text),
    "STRINGEQUALS": _search(lambda text, part: text == part),
    "LOWER": _texts(str.lower),
    "UPPER": _texts(str.upper),
    "LENGTH": _texts(len),
    "TRIM": _texts(str.strip),
    "LTRIM": _texts(str.lstrip),
    "RTRIM": _texts(str.rstrip),
    "REVERSE": _texts(lambda text: text[::-1]),
    "INDEX_OF": _texts(str.find, 2),
    "REPLACE": _texts(str.replace, 3),
    "CONCAT": Function(2, 100, _concat),
    "SUBSTRING": Function(3, 3, _substring),
    "LEFT": Function(2, 2, _left),
    "RIGHT": Function(2, 2, _right),
    "ARRAY_CONTAINS": Function(2, 3, _array_contains),
    "ARRAY_LENGTH": Function(1, 1, _array_length),
    "ARRAY_CONCAT": Function(2, 100, _array_concat),
    "ABS": _numbers(abs),
    "CEILING": _numbers(math.ceil),
    "FLOOR": _numbers(math.floor),
    "ROUND": _numbers(_round),
    "TRUNC": _numbers(math.trunc),
    "SIGN": _numbers(lambda value: (value > 0) - (value < 0)),
    "SQRT": _numbers(math.sqrt),
    "SQUARE": _numbers(lambda value: value * value),
    "POWER": _numbers(lambda base, exponent: base**exponent, 2),
}
