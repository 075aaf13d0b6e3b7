"""ISO 8601 durations, as Config.json and the administration API write them."""

from __future__ import annotations

import re

_PATTERN = re.compile(
    r"P(?=\d|T\d)(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def parse_duration(text: str) -> float | None:
    """Seconds; None when the text is no duration. Years and months have no fixed length and are none here."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        return None
    return sum(float(found[unit] or 0) * factor for unit, factor in _UNITS.items())


def format_duration(seconds: float) -> str:
    """A duration's text."""
    whole, rest = divmod(seconds, 60)
    minutes, rest = int(whole), round(rest, 7)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{number:g}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if number]
    date = f"P{days}D" if days else "P"
    return date + ("T" + "".join(parts) if parts else "" if days else "T0S")
