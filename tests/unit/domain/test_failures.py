"""shared/domain/failures.py: outcomes of errors, back-off, and the poison rule (contracts 10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import errors
from shared.contracts.documents import AttemptNote
from shared.domain import failures
from shared.domain.failures import (
    Ending,
    Poison,
    Settlement,
    backoff_seconds,
    ended,
    is_poison_claim,
    outcome_of,
    started,
)
from shared.domain.verdicts import Outcome
from shared.errors import Reason


@pytest.mark.parametrize("reason", Reason)
def test_a_permanent_error_parks(reason: Reason) -> None:
    expected = Outcome.CONFLICT if reason is Reason.PAYLOAD_MISMATCH else Outcome.QUARANTINED

    assert outcome_of(errors.PermanentError(reason, "x")) is expected


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.TransientError("x"), Outcome.TRANSIENT),
        (errors.LostRaceError("x"), Outcome.TRANSIENT),
        (errors.UnknownCommitError("x"), Outcome.TRANSIENT),
        (errors.InFlightError("x"), Outcome.IN_FLIGHT),
        (errors.ConfigurationError("x"), Outcome.FAILED),
        (ValueError("x"), Outcome.FAILED),
        (TimeoutError("x"), Outcome.FAILED),
    ],
)
def test_other_errors_abandon(error: Exception, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome
    assert failures.SETTLEMENTS[outcome] is Settlement.ABANDON


def test_every_outcome_has_a_settlement_and_three_abandon() -> None:
    abandoned = {outcome for outcome, settlement in failures.SETTLEMENTS.items() if settlement is Settlement.ABANDON}

    assert set(failures.SETTLEMENTS) == set(Outcome)
    assert abandoned == {Outcome.IN_FLIGHT, Outcome.TRANSIENT, Outcome.FAILED}


def test_the_back_off_doubles_from_a_fifth_of_a_second_to_its_longest() -> None:
    middle = [backoff_seconds(step, 0.5) for step in range(9)]

    assert middle == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0, 8.0, 8.0])


@given(st.integers(-5, 10_000), st.floats(0, 1))
def test_a_wait_is_bounded_and_jittered(step: int, fraction: float) -> None:
    """D31, R23."""
    wait = backoff_seconds(step, fraction)

    assert 0.15 <= wait <= 10.0
    assert backoff_seconds(step, 0.0) < backoff_seconds(step, 0.9)
    assert backoff_seconds(step + 1, fraction) >= wait


@pytest.mark.parametrize(
    ("attempts", "deliveries", "is_poison"),
    [(1, 1, False), (11, 1, False), (12, 1, True), (40, 30, False), (41, 30, True)],
)
def test_a_claim_is_poison_when_deliveries_went_uncounted(attempts: int, deliveries: int, is_poison: bool) -> None:
    """An outage with orderly abandons raises both alike."""
    assert is_poison_claim(attempts, deliveries) is is_poison


def start(found: AttemptNote | None, worker: str = "me") -> AttemptNote | Poison:
    return started(found, note_id="q~1", session_id="ORD-1", worker=worker)


def note(worker: str | None, crashes: int = 0, exceptions: int = 0) -> AttemptNote:
    return AttemptNote(id="q~1", session_id="ORD-1", worker=worker, crashes=crashes, exceptions=exceptions)


def test_the_first_noted_attempt_makes_the_note() -> None:
    assert start(None) == note("me")


@pytest.mark.parametrize(
    ("found", "after"),
    [
        (note(None, 0, 1), note("me", 0, 1)),
        (note("me", 1, 1), note("me", 1, 1)),
        (note("other", 0, 2), note("me", 1, 2)),
        (note("other", 1, 0), note("me", 2, 0)),
    ],
    ids=["free", "own, left behind by an outage: no crash", "another's: it died", "died again"],
)
def test_a_note_that_names_another_worker_tells_of_its_death(found: AttemptNote, after: AttemptNote) -> None:
    assert start(found) == after


def test_the_third_death_in_a_row_is_poison() -> None:
    """C67."""
    poison = start(note("other", 2, 0))

    assert isinstance(poison, Poison)
    assert "worker died" in poison.description
    assert poison.note == note("me", 3, 0)


@pytest.mark.parametrize("ending", [Ending.ABANDONED, Ending.EXCEPTION])
def test_any_orderly_end_breaks_the_row_of_deaths(ending: Ending) -> None:
    after = ended(note("me", 2, 0), ending, "ValueError")

    assert after == note(None, 0, 1 if ending is Ending.EXCEPTION else 0)


def test_a_settled_message_leaves_no_note() -> None:
    assert ended(note("me", 2, 2), Ending.SETTLED) is None


def test_the_third_unexpected_exception_is_poison_and_names_its_type() -> None:
    poison = ended(note("me", 0, 2), Ending.EXCEPTION, "ZeroDivisionError")

    assert isinstance(poison, Poison)
    assert "ZeroDivisionError" in poison.description
    assert poison.note == note(None, 0, 3)


def test_an_outage_is_never_poison() -> None:
    """D31: however often it is abandoned in order, by however many workers."""
    current: AttemptNote | None = None
    for attempt in range(1000):
        begun = start(current, worker=f"worker-{attempt % 7}")
        assert isinstance(begun, AttemptNote)
        after = ended(begun, Ending.ABANDONED)
        assert isinstance(after, AttemptNote)
        current = after

    assert current == note(None)


@given(st.lists(st.sampled_from(["die", "abandon", "exception"]), max_size=20))
def test_poison_is_three_deaths_in_a_row_or_three_exceptions(history: list[str]) -> None:
    """The rule over whole histories; each attempt runs on a new worker process."""
    current: AttemptNote | None = None
    deaths = exceptions = 0
    for attempt, what in enumerate(history):
        begun = start(current, worker=f"w{attempt}")
        assert isinstance(begun, Poison) == (deaths == 3)
        if isinstance(begun, Poison):
            return
        if what == "die":
            current, deaths = begun, deaths + 1
            continue
        after = ended(begun, Ending.EXCEPTION if what == "exception" else Ending.ABANDONED, "E")
        deaths, exceptions = 0, exceptions + (what == "exception")
        assert isinstance(after, Poison) == (what == "exception" and exceptions == 3)
        if isinstance(after, Poison):
            return
        assert after is not None
        current = after
