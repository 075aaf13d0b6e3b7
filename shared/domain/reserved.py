"""The reserved application properties (docs/contracts.md, section 3): what does not parse counts as absent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from shared.envelope import PropertyValue

DEDUP_ID = "dedup-id"
REPLAY_COUNT = "replay-count"
REPLAY_FAILURES = "replay-failures"
ORIGINAL_SEQUENCE_NUMBER = "original-sequence-number"
ORIGINAL_ENQUEUED_AT = "original-enqueued-at"

_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_NUMBER = re.compile(r"[0-9]{1,19}")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)

Properties = Mapping[str, PropertyValue]


def replay_count(properties: Properties) -> int:
    """How often the message was replayed."""
    return _count(properties.get(REPLAY_COUNT))


def replay_failures(properties: Properties) -> int:
    """How many of its replays were parked again."""
    return _count(properties.get(REPLAY_FAILURES))


def original_sequence_number(properties: Properties) -> str | None:
    """The broker's number at the first parking, as text."""
    value = properties.get(ORIGINAL_SEQUENCE_NUMBER)
    return value if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def original_enqueued_at(properties: Properties) -> datetime | None:
    """The broker's time at the first parking."""
    text = properties.get(ORIGINAL_ENQUEUED_AT)
    found = _MOMENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    except ValueError:  # a thirteenth month and the like
        return None
    return moment.replace(microsecond=int((found[2] or "").ljust(6, "0")[:6]))


def _count(value: PropertyValue | None) -> int:
    return int(value) if isinstance(value, str) and _COUNT.fullmatch(value) else 0
