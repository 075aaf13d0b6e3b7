"""Seeded schedules of two workers over the pure state machines: crashes, lost answers, lost locks, duplicates, sweeps.

`python -m tests.simulation --seeds N` runs more of them; a failing seed runs the same again and prints its history.
"""

from __future__ import annotations

import pytest

from tests.simulation.engine import ROUGH
from tests.simulation.run import run_seed

SEEDS_PER_BLOCK = 100


@pytest.mark.parametrize("block", range(10))
def test_every_schedule_ends_as_its_messages_demand(block: int) -> None:  # C01 C02 C03 C14 C16 C38 C46 C55 D01 D38
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        report = run_seed(seed)
        assert not report.violations, str(report)


def test_rough_schedules_end_as_their_messages_demand() -> None:  # R11 R19 R38 R39 D02 D03 D32
    for seed in range(5000, 5150):
        report = run_seed(seed, ROUGH)
        assert not report.violations, str(report)


def test_a_seed_runs_the_same_again() -> None:
    assert run_seed(17).history == run_seed(17).history


def test_the_schedules_hold_what_they_are_about() -> None:
    reports = [run_seed(seed, ROUGH) for seed in range(60)]
    text = "\n".join(line for report in reports for line in report.history)
    for event in (
        "crash before",
        "crash behind",
        "answer lost",
        "repeated",
        "lock is lost",
        "its message is gone",
        "settlement refused",
        "sweep: replace",
        "with its host",
        "Conflict",
        "Rejected",
        "Stale",
        "pay ",
    ):
        assert event in text, f"no schedule has {event!r}"
