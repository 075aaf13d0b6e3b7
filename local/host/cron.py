"""NCRONTAB: the six-field schedules of timer triggers. Pure; times are UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_HORIZON_DAYS: Final = 366 * 9  # 29 February returns after at most eight years


@dataclass(frozen=True, slots=True)
class Schedule:
    """The values that each field allows."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def next_after(self, moment: datetime) -> datetime | None:
        """The first occurrence later than a moment; None if there is none, as for 30 February."""
        start = moment.replace(microsecond=0) + timedelta(seconds=1)
        for offset in range(_HORIZON_DAYS):
            day = start.replace(hour=0, minute=0, second=0) + timedelta(days=offset)
            if self._has_day(day) and (found := self._in_day(day, start)) is not None:
                return found
        return None

    def _has_day(self, day: datetime) -> bool:
        """Day of month and day of week must both fit: NCrontab, unlike cron, doesn't take one of them."""
        return day.month in self.months and day.day in self.days and day.isoweekday() % 7 in self.weekdays

    def _in_day(self, day: datetime, start: datetime) -> datetime | None:
        first = (start.hour, start.minute, start.second) if day.date() == start.date() else (0, 0, 0)
        for hour in self.hours:
            for minute in self.minutes:
                if (hour, minute) < first[:2]:
                    continue
                for second in self.seconds:
                    if (hour, minute, second) >= first:
                        return day.replace(hour=hour, minute=minute, second=second)
        return None


def parse_schedule(text: str) -> Schedule:
    """Parse `{second} {minute} {hour} {day} {month} {day-of-week}`; five fields run at second 0.

    Lists, ranges, steps and English names are known. Raises ValueError naming the field.
    """
    fields = text.split()
    if len(fields) == 1 and ":" in text:
        raise ValueError("time spans work on App Service plans only; write an NCRONTAB expression")
    if len(fields) == 5:
        fields.insert(0, "0")
    if len(fields) != 6:
        raise ValueError(f"has {len(fields)} fields instead of 6 (second minute hour day month day-of-week)")
    return Schedule(
        text,
        seconds=tuple(sorted(_field("second", fields[0], 0, 59))),
        minutes=tuple(sorted(_field("minute", fields[1], 0, 59))),
        hours=tuple(sorted(_field("hour", fields[2], 0, 23))),
        days=_field("day", fields[3], 1, 31),
        months=_field("month", fields[4], 1, 12, _MONTHS),
        weekdays=_field("day-of-week", fields[5], 0, 6, _DAYS),
    )


def _field(name: str, text: str, least: int, most: int, names: Sequence[str] = ()) -> frozenset[int]:
    def number(part: str) -> int:
        if part.isdecimal():
            value = int(part)
        else:
            # NCrontab takes every text that begins with a name's three letters: Mon, Monday.
            known = part[:3].lower()
            if known not in names:
                raise ValueError(f"{name}: {part!r} is not a value")
            value = names.index(known) + least
        if not least <= value <= most:
            raise ValueError(f"{name}: {part} is not between {least} and {most}")
        return value

    allowed: set[int] = set()
    for item in text.split(","):
        span, slash, step_text = item.partition("/")
        step = int(step_text) if step_text.isdecimal() else 0
        if slash and step < 1:
            raise ValueError(f"{name}: the step of {item!r} must be a number above 0")
        if span == "*":
            first, last = least, most
        elif "-" in span:
            first, last = map(number, span.split("-", 1))
            if first > last:
                raise ValueError(f"{name}: the range {span!r} runs backwards")
        else:
            first = number(span)
            last = most if slash else first
        allowed.update(range(first, last + 1, step or 1))
    return frozenset(allowed)
