"""What stands in log lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from shared import telemetry


@pytest.fixture
def _fingerprints() -> Iterator[None]:
    telemetry.use_fingerprints(True)
    yield
    telemetry.use_fingerprints(False)


def test_keys_are_plain_by_default() -> None:
    assert telemetry.keyed(dedup_key="ORD-1", session_id=None) == {"dedup_key": "ORD-1", "session_id": None}


@pytest.mark.usefixtures("_fingerprints")
def test_keys_can_be_kept_out_of_logs() -> None:  # D56
    """The same key has the same fingerprint, so that lines can be put together."""
    digest = hashlib.sha256(b"ORD-1").hexdigest()[:16]
    assert telemetry.keyed(dedup_key="ORD-1", session_id="ORD-1", message_id=None) == {
        "dedup_key": digest,
        "session_id": digest,
        "message_id": None,
    }
