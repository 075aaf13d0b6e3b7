"""The plan of a chaos run: repeatable, complete, and within what the queues allow."""

from __future__ import annotations

import itertools

import pytest

from local.faults import Service
from tests.chaos.plan import (
    BROKER_FAULTS,
    COSMOS_FAULTS,
    DEATHS_IN_AN_OUTAGE,
    INSTANCES,
    KILL,
    POINTS,
    TERMINATE,
    Away,
    Break,
    End,
    Plan,
    Reload,
    make_plan,
    rule_of_outage,
    rule_of_point,
)

FIVE_MINUTES = 300.0


def outages_of(plan: Plan) -> list[Away]:
    found = [act for act in (*plan.cosmos, *plan.broker) if isinstance(act, Away)]
    return sorted(found, key=lambda act: act.at)


def length_of(act: object) -> float:
    return act.seconds if isinstance(act, Break | Away) else 0.0


def test_the_same_seed_makes_the_same_plan_and_another_one_another() -> None:
    assert make_plan(7, FIVE_MINUTES) == make_plan(7, FIVE_MINUTES)
    assert make_plan(7, FIVE_MINUTES) != make_plan(8, FIVE_MINUTES)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("seconds", [15.0, 30.0, FIVE_MINUTES, 7200.0])
def test_acts_of_a_track_come_one_after_the_other_and_within_the_time(seed: int, seconds: float) -> None:
    for track in make_plan(seed, seconds).tracks:
        assert all(act.at >= 0 and act.at + length_of(act) <= seconds for act in track)
        assert all(one.at + length_of(one) <= two.at for one, two in itertools.pairwise(track))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("seconds", [15.0, FIVE_MINUTES, 7200.0])
def test_each_service_goes_away_for_less_than_the_queues_allow_and_never_both(seed: int, seconds: float) -> None:
    outages = outages_of(make_plan(seed, seconds))
    assert {act.service for act in outages} == set(Service)
    assert all(one.at + one.seconds < two.at for one, two in itertools.pairwise(outages))
    assert all(act.seconds < 8 * 60 for act in outages)
    if seconds >= FIVE_MINUTES:
        assert all(act.seconds >= 20 for act in outages)


@pytest.mark.parametrize("seed", range(6))
def test_few_workers_are_ended_while_a_service_is_away(seed: int) -> None:
    plan = make_plan(seed, 1800)
    for outage in outages_of(plan):
        deaths = [act for act in plan.processes if outage.at <= act.at <= outage.at + outage.seconds]
        assert len(deaths) <= DEATHS_IN_AN_OUTAGE
        assert all(isinstance(act, End) for act in deaths)  # a drain would only wait for the service


@pytest.mark.parametrize("seed", range(6))
def test_five_minutes_hold_every_way_to_end_a_worker_and_every_fault(seed: int) -> None:
    plan = make_plan(seed, FIVE_MINUTES)
    ends = {(act.signal, act.point is None) for act in plan.processes if isinstance(act, End)}
    assert ends == set(itertools.product((KILL, TERMINATE), (True, False)))
    drains = {(act.drain_seconds > 1, act.point is None) for act in plan.processes if isinstance(act, Reload)}
    assert drains == {(True, True), (True, False), (False, True)}
    for track, faults in ((plan.cosmos, COSMOS_FAULTS), (plan.broker, BROKER_FAULTS)):
        assert {act.title for act in track if isinstance(act, Break)} == {title for title, _, _ in faults}


def test_the_rules_of_points_and_outages_can_be_armed() -> None:
    assert len({rule_of_point(point) for point in POINTS}) == len(POINTS)
    assert rule_of_outage(Away(3.5, 20, Service.BROKER)).service is Service.BROKER
    assert INSTANCES == 2
