"""What the checks compare: one value of one file, with the place that it stands at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ROLES: Final = ("orders", "ledger", "ledger-entries", "quarantine")
WORKING_ROLES: Final = ROLES[:3]
CONTAINERS: Final = ("orders", "ledgers", "ledger-entries", "operations")

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?)?"
)
_TIME_SPAN: Final = re.compile(r"(?:(?P<days>\d+)\.)?(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)")
_UNITS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_HOURS_OF_A_DAY: Final = 24


class FactError(Exception):
    """A value that the checks need is missing or unreadable; the message names file and key."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One value and its place, such as `host.json: functionTimeout`."""

    value: object
    place: str


@dataclass(frozen=True, slots=True)
class Profile:
    """All values of one environment, by a key such as `queue.orders.maxDeliveryCount`."""

    name: str
    facts: Mapping[str, Fact]

    def fact(self, key: str) -> Fact:
        """The value with its place.

        Raises: FactError, when no file says it.
        """
        if key not in self.facts:
            raise FactError(f"{self.name}: no file gives {key}")
        return self.facts[key]

    def number(self, key: str) -> int:
        """A whole number; settings hold theirs as text."""
        fact = self.fact(key)
        text = str(fact.value)
        if isinstance(fact.value, bool) or not re.fullmatch(r"-?\d+", text):
            raise FactError(f"{fact.place}: {fact.value!r} is not a whole number")
        return int(text)

    def seconds(self, key: str) -> int:
        """A duration: ISO 8601 (P14D), .NET's (1.00:00:00), or a number of seconds."""
        fact = self.fact(key)
        try:
            return seconds_of(fact.value)
        except ValueError as error:
            raise FactError(f"{fact.place}: {error}") from error

    def changed(self, key: str, value: object) -> Profile:
        """The same with another value at one place."""
        return Profile(self.name, {**self.facts, key: Fact(value, self.fact(key).place)})


def seconds_of(value: object) -> int:
    """Seconds of a duration.

    Raises: ValueError. `24:00:00` is refused: .NET reads it as 24 days.
    """
    text = str(value)
    match = _DURATION.fullmatch(text) or _TIME_SPAN.fullmatch(text)
    if match is None or not any(match.groups()):
        if re.fullmatch(r"\d+", text):
            return int(text)
        raise ValueError(f"{text!r} is not a duration")
    if ":" in text and int(match["hours"]) >= _HOURS_OF_A_DAY:
        raise ValueError(f"{text!r} is read by .NET as days; write d.hh:mm:ss")
    return sum(int(match[unit] or 0) * seconds for unit, seconds in _UNITS.items())
