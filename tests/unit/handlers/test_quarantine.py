"""The parked copy (docs/contracts.md, section 8)."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime

import pytest

from shared.envelope import Envelope, OutgoingMessage, PropertyValue, Role
from shared.errors import PermanentError, Reason
from shared.handlers.intake import Facts
from shared.handlers.quarantine import copies, cut

ENQUEUED = datetime(2026, 11, 30, 12, 0, 0, 123456, UTC)


def envelope(properties: dict[str, PropertyValue] | None = None, **members: object) -> Envelope:
    fields: dict[str, object] = {
        "role": Role.ORDERS,
        "body": b"{}",
        "message_id": "O:op",
        "session_id": "O",
        "sequence_number": 47,
        "enqueued_at": ENQUEUED,
        "delivery_count": 2,
        "properties": properties or {},
    }
    return Envelope(**{**fields, **members})  # type: ignore[arg-type]


def copy(source: Envelope, facts: Facts | None = None, reason: Reason = Reason.PAYLOAD_MISMATCH) -> OutgoingMessage:
    return next(copies(source, facts or Facts(), "process_order", PermanentError(reason, "body: other")))


def test_a_copy_tells_where_it_comes_from_and_keeps_the_rest() -> None:  # D14 R29
    facts = Facts(dedup_key="O:op", payload_hash="sha256:jcs:v1:a", stored_hash="sha256:jcs:v1:b")
    parked = copy(envelope({"tenant": "t1", "retries": 3, "flag": True}, correlation_id="c", subject="s"), facts)
    assert parked.properties == {
        "tenant": "t1",
        "retries": 3,
        "flag": True,
        "original-sequence-number": "47",
        "original-enqueued-at": "2026-11-30T12:00:00.123Z",
        "quarantine-reason": "PayloadMismatch",
        "quarantine-description": "body: other",
        "quarantine-role": "orders",
        "quarantine-consumer": "process_order",
        "quarantine-message-id": "O:op",
        "quarantine-dedup-key": "O:op",
        "quarantine-sequence-number": "47",
        "quarantine-enqueued-at": "2026-11-30T12:00:00.123Z",
        "quarantine-delivery-count": "2",
        "quarantine-payload-hash": "sha256:jcs:v1:a",
        "quarantine-stored-hash": "sha256:jcs:v1:b",
        "quarantine-app-version": parked.properties["quarantine-app-version"],
    }
    assert (parked.session_id, parked.correlation_id, parked.subject, parked.body) == ("O", "c", "s", b"{}")


def test_each_redelivery_gives_the_same_copy_id_and_a_replay_another() -> None:  # D26
    first, again = copy(envelope()), copy(envelope(delivery_count=9))
    assert first.message_id == again.message_id
    assert first.message_id.startswith("q~")
    assert copy(envelope(sequence_number=48)).message_id != first.message_id


def test_the_first_parking_is_kept_and_garbage_counts_as_absent() -> None:
    kept = {"original-sequence-number": "3", "original-enqueued-at": "2026-01-02T03:04:05.006Z"}
    assert kept.items() <= copy(envelope(dict(kept))).properties.items()
    garbage = {"original-sequence-number": "-", "original-enqueued-at": "2026-13-41T00:00:00Z"}
    mended = copy(envelope(dict(garbage))).properties
    assert mended["original-sequence-number"] == "47"
    assert mended["original-enqueued-at"] == "2026-11-30T12:00:00.123Z"


@pytest.mark.parametrize(
    ("replays", "before", "reason", "after"),
    [
        (0, None, Reason.ORDER_UNKNOWN, None),
        (1, None, Reason.ORDER_UNKNOWN, "1"),
        (3, "2", Reason.ORDER_UNKNOWN, "3"),
        (3, "two", Reason.ORDER_UNKNOWN, "1"),
        (2, "1", Reason.SEQUENCE_GAP, "1"),
    ],
)
def test_failed_replays_are_counted_but_for_gaps(  # R36
    replays: int, before: str | None, reason: Reason, after: str | None
) -> None:
    properties: dict[str, PropertyValue] = {} if before is None else {"replay-failures": before}
    assert copy(envelope(properties), Facts(replay_count=replays), reason).properties.get("replay-failures") == after


def test_a_copy_is_trimmed_before_it_is_given_up() -> None:  # R30
    source = envelope({"tenant": "t1"}, body=b"x" * 1000)
    error = PermanentError(Reason.POISON_MESSAGE, "d")
    full, undescribed, short, zipped = copies(source, Facts(), "process_order", error)
    assert "quarantine-description" in full.properties
    assert "quarantine-description" not in undescribed.properties
    assert {name for name in short.properties if name.startswith("quarantine-")} == {
        "quarantine-reason",
        "quarantine-role",
        "quarantine-message-id",
    }
    assert short.properties["tenant"] == "t1"
    assert zipped.properties["quarantine-body"] == "gzip"
    assert gzip.decompress(zipped.body) == source.body


def test_what_an_earlier_parking_said_is_not_passed_on() -> None:
    earlier: dict[str, PropertyValue] = {"quarantine-body": "gzip", "quarantine-stored-hash": "old", "tenant": "t1"}
    for parked in copies(envelope(earlier), Facts(), "process_order", PermanentError(Reason.ORDER_UNKNOWN, "d")):
        assert parked.properties["tenant"] == "t1"
        assert "quarantine-stored-hash" not in parked.properties
        assert ("quarantine-body" in parked.properties) == (parked.body != b"{}")


def test_a_description_is_cut_on_a_character_border() -> None:  # R30
    assert cut("é" * 600, 1024) == "é" * 512
    assert cut("€" * 400, 1024) == "€" * 341
