"""COUNT, SUM, MIN, MAX and AVG over values; undefined ones do not count."""

from __future__ import annotations

from typing import Protocol

from local.cosmos.query.compare import compare
from local.cosmos.query.functions import finite
from local.cosmos.values import UNDEFINED, Value


class Accumulator(Protocol):
    def add(self, value: Value) -> None: ...

    def result(self) -> Value: ...


def accumulator(function: str) -> Accumulator:
    match function:
        case "COUNT":
            return _Count()
        case "MIN" | "MAX":
            return _Extreme(1 if function == "MAX" else -1)
    return _Total(is_average=function == "AVG")


class _Count:
    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Value) -> None:
        self._count += value is not UNDEFINED

    def result(self) -> Value:
        return self._count


class _Extreme:
    """The value that comes first or last in the order of ORDER BY."""

    def __init__(self, sign: int) -> None:
        self._sign = sign
        self._value: Value = UNDEFINED

    def add(self, value: Value) -> None:
        if value is not UNDEFINED and (self._value is UNDEFINED or compare(value, self._value) == self._sign):
            self._value = value

    def result(self) -> Value:
        return self._value


class _Total:
    """Undefined as soon as one value is no number, as in the service."""

    def __init__(self, *, is_average: bool) -> None:
        self._is_average = is_average
        self._total = 0.0
        self._count = 0
        self._is_defined = True

    def add(self, value: Value) -> None:
        if value is UNDEFINED:
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._is_defined = False
            return
        self._total += value
        self._count += 1

    def result(self) -> Value:
        if not self._is_defined or (self._is_average and not self._count):
            return UNDEFINED
        return finite(lambda: self._total / self._count if self._is_average else self._total)
