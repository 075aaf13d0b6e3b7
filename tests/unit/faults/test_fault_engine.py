"""The engine by itself: which rule hits, what is held, what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from local.faults import Answer, Armed, Delay, FaultError, Faults, Outage, Rule, Service, Stall, Starts, Throttle
from local.faults.engine import Allowance, Entry
from local.faults.rules import Key, Operation


class Plug:
    """A service that notes what the engine does to it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.is_back = asyncio.Event()

    def check(self, rule: Rule) -> None:
        if rule.entity == "none":
            raise FaultError("entity", "there is no such thing")

    def armed(self, rules: Sequence[Rule]) -> None:
        self.told.append(f"armed {len(rules)}")

    def suspend(self) -> None:
        self.told.append("suspend")

    def resume(self) -> None:
        self.told.append("resume")
        self.is_back.set()


@pytest.fixture
def faults() -> Faults:
    made = Faults(clock=lambda: 5.0, history_entries=100)
    made.plug_in(Service.COSMOS, Plug())
    return made


def rule(name: str = "r", action: Any = None, **given: Any) -> Rule:
    return Rule(name=name, service=Service.COSMOS, action=action or Answer(503), **given)


def meet(faults: Faults, name: str = "Create", *keys: Key, can: bool = True) -> Armed | None:
    operation = Operation(Service.COSMOS, name, "orders", keys or (Key("o", "a"),))
    return faults.meet(operation, lambda _: can)[1]


def hits(faults: Faults, times: int) -> list[str | None]:
    met = [meet(faults) for _ in range(times)]
    return [None if armed is None else armed.rule.name for armed in met]


def test_rule_skips_and_counts(faults: Faults) -> None:
    armed = faults.add(rule(skip=2, count=3))
    assert hits(faults, 7) == [None, None, "r", "r", "r", None, None]
    assert (armed.seen, armed.hits) == (7, 3)


def test_first_rule_that_hits_takes_the_operation(faults: Faults) -> None:
    faults.add(rule("a", count=2))
    second = faults.add(rule("b", skip=1, count=1))
    assert hits(faults, 5) == ["a", "a", None, "b", None]
    assert second.seen == 3


def test_rule_whose_action_is_not_possible_now_does_not_count(faults: Faults) -> None:
    armed = faults.add(rule(count=1))
    assert meet(faults, can=False) is None
    assert armed.seen == 0
    assert meet(faults) is armed


def test_lots_depend_on_the_seeds_and_the_name_alone() -> None:
    def draw(seed: int, name: str = "r", own: int = 0) -> list[bool]:
        faults = Faults(seed=seed)
        faults.plug_in(Service.COSMOS, Plug())
        faults.add(rule(name, probability=0.5, seed=own))
        return [each is not None for each in hits(faults, 64)]

    assert draw(1) == draw(1)
    assert len({tuple(draw(1)), tuple(draw(2)), tuple(draw(1, "s")), tuple(draw(1, own=1))}) == 4
    assert 16 < sum(draw(1)) < 48


def test_name_stands_for_one_armed_rule(faults: Faults) -> None:
    armed = faults.add(rule())
    with pytest.raises(FaultError, match="armed already"):
        faults.add(rule())
    armed.disarm()
    armed.disarm()
    again = faults.add(rule())
    armed.disarm()  # the old one's end is not the new one's
    assert faults.named("r") is again


def test_service_refuses_what_it_can_not_do_and_nothing_is_armed(faults: Faults) -> None:
    with pytest.raises(FaultError):
        faults.add(rule(entity="none"))
    with pytest.raises(FaultError, match="there is no broker"):
        faults.add(Rule(name="r", service=Service.BROKER, action=Stall()))
    assert list(faults.armed) == []


def test_block_ends_the_rule(faults: Faults) -> None:
    with faults.add(rule()):
        assert meet(faults) is not None
    assert meet(faults) is None


async def test_held_operations_go_on_or_are_dropped_once(faults: Faults) -> None:
    done: list[str] = []
    armed = faults.add(rule(action=Stall()))
    for name in ("a", "b"):
        armed.hold(lambda name=name: done.append(f"{name} goes on"), lambda name=name: done.append(f"{name} dropped"))  # type: ignore[misc]
    armed.hold(None, lambda: done.append("lost"))
    assert armed.release() == 2
    assert done == ["a goes on", "b goes on"]
    assert armed.release() == 0
    armed.disarm()
    assert done == ["a goes on", "b goes on", "lost"]
    assert not armed.held


async def test_delay_ends_in_time_and_not_after_the_rule(faults: Faults) -> None:
    done = asyncio.Event()
    armed = faults.add(rule(action=Delay(0.01)))
    armed.hold(done.set, lambda: None, seconds=0.01)
    armed.hold(lambda: pytest.fail("it was dropped"), lambda: None, seconds=0.02)
    assert armed.release() == 0  # it goes on by itself
    await asyncio.wait_for(done.wait(), 5)
    armed.disarm()
    await asyncio.sleep(0.03)
    assert not armed.held


async def test_hits_can_be_waited_for(faults: Faults) -> None:
    armed = faults.add(rule())
    waiting = asyncio.create_task(armed.until_hit(2))
    await asyncio.sleep(0)
    meet(faults)
    await asyncio.sleep(0)
    assert not waiting.done()
    meet(faults)
    await asyncio.wait_for(waiting, 5)
    await armed.until_hit(1)


async def test_outages_overlap_and_the_last_one_ends_it() -> None:
    faults, plug = Faults(), Plug()
    faults.plug_in(Service.COSMOS, plug)
    first = faults.add(rule("a", Outage()))
    second = faults.add(rule("b", Outage(0.01)))
    assert (first.hits, second.hits) == (1, 1)
    first.disarm()
    assert faults.is_out(Service.COSMOS)
    await asyncio.wait_for(plug.is_back.wait(), 5)
    assert [each for each in plug.told if not each.startswith("armed")] == ["suspend", "resume"]
    second.disarm()
    assert plug.told.count("resume") == 1


async def test_outage_on_hit_begins_anew_with_each_hit() -> None:
    faults, plug = Faults(), Plug()
    faults.plug_in(Service.COSMOS, plug)
    armed = faults.add(rule("a", Outage(60, Starts.ON_HIT), operation="Create"))
    assert not faults.is_out(Service.COSMOS)
    assert meet(faults) is armed
    faults.begin_outage(armed)
    faults.begin_outage(armed)
    assert plug.told.count("suspend") == 1
    faults.clear()
    assert plug.told[-1] == "resume"


def test_allowance_is_that_of_one_second_and_overdrawn_by_one_request() -> None:
    now = 100.0
    allowance = Allowance(10, lambda: now)
    allowance.spend(9)
    assert not allowance.is_spent()
    allowance.spend(9)
    assert allowance.is_spent()
    assert allowance.wait_ms() == 801
    now += 0.8
    assert allowance.is_spent()
    now += 0.01
    assert not allowance.is_spent()
    now += 60
    allowance.spend(10)
    assert allowance.is_spent()


def test_throttle_hits_what_comes_when_its_units_are_used(faults: Faults) -> None:
    armed = faults.add(rule(action=Throttle(10)))
    assert meet(faults) is None
    assert armed.allowance is not None
    armed.allowance.spend(1000)
    assert meet(faults) is armed


def test_history_is_bounded_and_found_by_what_rules_are_for(faults: Faults) -> None:
    armed = faults.add(rule(operation="Create", group="o", id="b"))
    meet(faults, "Create", Key("o", "b"))
    meet(faults, "Read", Key("o", "a"))
    meet(faults, "Batch", *(Key("p", str(number)) for number in range(25)))
    first, second, third = faults.history()
    assert (first.number, first.time, first.rule, first.result) == (1, 5.0, "r", None)
    assert (len(third.keys), third.more_keys) == (10, 15)
    for found, expected in (
        (faults.history(after=1), [second, third]),
        (faults.history(operation="Crea*"), [first]),
        (faults.history(group="o", id="a"), [second]),
        (faults.history(rule="*"), [first]),
        (faults.history(entity="ORDERS"), []),
        (faults.history(service=Service.BROKER), []),
    ):
        assert found == expected
    armed.disarm()
    for _ in range(150):
        meet(faults)
    kept: list[Entry] = faults.history()
    assert (len(kept), kept[0].number, kept[-1].number) == (100, 54, 153)
    faults.forget()
    assert faults.history() == []
