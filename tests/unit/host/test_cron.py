"""NCRONTAB schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.host.cron import parse_schedule
from local.host.timers import is_monitored


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "after", "following"),
    [
        ("*/15 * * * * *", "2024-01-01T00:00:00", "2024-01-01T00:00:15"),
        ("*/15 * * * * *", "2024-01-01T23:59:45", "2024-01-02T00:00:00"),
        ("*/15 * * * * *", "2024-01-01T00:00:14.999", "2024-01-01T00:00:15"),
        ("0 * * * * *", "2024-01-01T00:00:00", "2024-01-01T00:01:00"),
        ("0 */5 * * * *", "2024-01-01T00:57:00", "2024-01-01T01:00:00"),
        ("*/5 * * * *", "2024-01-01T00:57:00", "2024-01-01T01:00:00"),
        ("30 30 9 * * *", "2024-01-01T09:30:30", "2024-01-02T09:30:30"),
        ("0 0 9-17 * * 1-5", "2024-01-05T17:00:00", "2024-01-08T09:00:00"),
        ("0 0 9 * * Mon-Fri", "2024-01-06T00:00:00", "2024-01-08T09:00:00"),
        ("0 0 0 1 jan,JUL *", "2024-01-01T00:00:00", "2024-07-01T00:00:00"),
        ("0 0 0 29 2 *", "2024-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 0 31 * *", "2024-04-01T00:00:00", "2024-05-31T00:00:00"),
        ("0 0 0 13 * fri", "2024-01-01T00:00:00", "2024-09-13T00:00:00"),  # both must fit
        ("0 0 0 * * Sunday", "2024-01-01T00:00:00", "2024-01-07T00:00:00"),
        ("5/20 * * * * *", "2024-01-01T00:00:05", "2024-01-01T00:00:25"),
        ("10-20/5 * * * * *", "2024-01-01T00:00:15", "2024-01-01T00:00:20"),
        ("1,2,59 0 0 * * *", "2024-01-01T00:00:02", "2024-01-01T00:00:59"),
    ],
)
def test_the_next_occurrence(schedule: str, after: str, following: str) -> None:
    assert parse_schedule(schedule).next_after(at(after)) == at(following)


def test_a_day_that_never_comes_has_no_occurrence() -> None:
    assert parse_schedule("0 0 0 30 2 *").next_after(at("2024-01-01T00:00:00")) is None


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("* * * *", "has 4 fields"),
        ("", "has 0 fields"),
        ("00:00:05", "time spans"),
        ("60 * * * * *", "second"),
        ("* 60 * * * *", "minute"),
        ("* * 24 * * *", "hour"),
        ("* * * 0 * *", "day"),
        ("* * * * 13 *", "month"),
        ("* * * * * 7", "day-of-week"),
        ("* * * * * xyz", "day-of-week"),
        ("*/0 * * * * *", "step"),
        ("*/x * * * * *", "step"),
        ("5-1 * * * * *", "backwards"),
        ("-1 * * * * *", "second"),
        ("1,, * * * * *", "second"),
        ("² * * * * *", "second"),
    ],
)
def test_a_wrong_field_is_named(schedule: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_schedule(schedule)


@given(st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2099, 1, 1)), st.integers(1, 59))  # noqa: DTZ001
def test_an_occurrence_is_later_and_fits(moment: datetime, step: int) -> None:
    moment = moment.replace(tzinfo=UTC)
    following = parse_schedule(f"*/{step} * * * * *").next_after(moment)
    assert following is not None
    assert timedelta() < following - moment <= timedelta(seconds=60)
    assert following.second % step == 0
    assert following.microsecond == 0


def test_only_schedules_of_a_minute_or_more_are_monitored() -> None:
    """The platform keeps no status of more frequent ones, so they are never past due."""
    now = at("2024-01-01T00:00:00")
    assert not is_monitored(parse_schedule("*/15 * * * * *"), now)
    assert is_monitored(parse_schedule("0 * * * * *"), now)
