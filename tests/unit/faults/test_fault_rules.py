"""Which operations a rule is for, and which rules can't be."""

from __future__ import annotations

from typing import Any

import pytest

from local.faults import (
    Answer,
    Cut,
    Delay,
    DeliverTwice,
    ExpireLock,
    FaultError,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Rule,
    Service,
    StaleRead,
    Stall,
    Starts,
    Throttle,
)
from local.faults.rules import OPERATIONS, Key, Operation, fits, suits


def rule(service: Service = Service.COSMOS, action: Any = None, **given: Any) -> Rule:
    return Rule(name="r", service=service, action=action or Stall(), **given)


def matches(made: Rule, name: str = "Create", entity: str = "orders", *keys: Key) -> bool:
    return made.matches(Operation(made.service, name, entity, keys or (Key("o-1", "o-1"),)))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (None, None, True),
        (None, "x", True),
        ("x", None, False),
        ("*", None, False),
        ("*", "", True),
        ("o-1", "o-1", True),
        ("o-1", "O-1", False),
        ("o-1", "o-12", False),
        ("o-*", "o-12", True),
        ("o-?", "o-12", False),
        ("*1*", "a\n1", True),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        ("a\\", "a\\", True),
        (r"a\\*", r"a\b", True),
    ],
)
def test_exact_texts_and_patterns(pattern: str | None, text: str | None, expected: bool) -> None:
    assert fits(pattern, text) is expected


def test_names_of_queues_have_no_case_and_those_of_containers_do() -> None:
    assert matches(rule(Service.BROKER, entity="ORDERS"), "send")
    assert not matches(rule(entity="ORDERS"))


def test_group_and_id_must_fit_one_key_together() -> None:
    keys = (Key("s1", "a"), Key("s2", "b"))
    assert matches(rule(Service.BROKER, group="s2", id="b"), "send", "orders", *keys)
    assert not matches(rule(Service.BROKER, group="s1", id="b"), "send", "orders", *keys)
    assert not matches(rule(Service.BROKER, group="*"), "send", "orders", Key(None, "a"))


def test_without_operation_a_rule_is_for_items_and_leaves_the_client_s_own_requests_alone() -> None:
    assert matches(rule(), "Batch")
    assert not matches(rule(), "Account.Read")
    assert not matches(rule(), "Container.Read")
    assert matches(rule(operation="*"), "Account.Read")
    assert matches(rule(operation=("Container.*", "Read")), "Container.Read")
    assert not matches(rule(operation=("Container.*", "Read")), "Create")


def test_rule_is_for_its_own_service() -> None:
    assert not rule(Service.BROKER).matches(Operation(Service.COSMOS, "Create"))


@pytest.mark.parametrize(
    ("action", "names"),
    [
        (LoseSettlement(), {"complete", "abandon", "defer", "dead-letter", "release"}),
        (DeliverTwice(), {"complete"}),
        (
            ExpireLock(),
            {
                *("complete", "abandon", "defer", "dead-letter", "release", "renew-lock", "renew-session-lock"),
                *("get-session-state", "set-session-state", "receive", "accept"),
            },
        ),
        (Outage(), set()),
    ],
)
def test_action_is_done_to_operations_that_it_makes_sense_for(action: Any, names: set[str]) -> None:
    assert {name for name in OPERATIONS[Service.BROKER] if suits(action, name)} == names


def test_delivery_can_be_cut_off_and_not_be_lost_on_a_connection_that_lives() -> None:
    assert not suits(LoseRequest(), "receive")
    assert not suits(LoseReply(Loss.NEVER), "receive")
    assert suits(LoseReply(Loss.RESET), "receive")
    assert suits(Cut(), "receive")


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"operation": "create"}, "operation"),
        ({"operation": "send"}, "operation"),
        ({"operation": ()}, "operation"),
        ({"operation": ("Create", "Nothing")}, "operation"),
        ({"action": StaleRead(), "operation": "Create"}, "operation"),
        ({"skip": -1}, "skip"),
        ({"count": 0}, "count"),
        ({"probability": 0}, "probability"),
        ({"probability": 1.1}, "probability"),
        ({"action": Refuse()}, "action"),
        ({"service": Service.BROKER, "action": Answer(429)}, "action"),
        ({"service": Service.BROKER, "action": Throttle(1)}, "action"),
        ({"service": Service.BROKER, "action": LoseReply(Loss.TRUNCATE)}, "action.how"),
        ({"action": Outage(), "operation": "Create"}, "operation"),
        ({"action": Outage(), "skip": 1}, "skip"),
        ({"action": Outage(1), "id": "a"}, "id"),
    ],
)
def test_rule_that_can_not_be_is_refused_by_key(given: dict[str, Any], key: str) -> None:
    values: dict[str, Any] = {"name": "r", "service": Service.COSMOS, "action": Stall(), **given}
    with pytest.raises(FaultError) as caught:
        Rule(**values)
    assert caught.value.key == key


def test_misspelt_operation_is_answered_with_the_right_one() -> None:
    with pytest.raises(FaultError, match="did you mean Create"):
        rule(operation="create")


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Delay(-1), "seconds"),
        (lambda: Delay(float("nan")), "seconds"),
        (lambda: Outage(float("inf")), "seconds"),
        (lambda: Answer(200), "status"),
        (lambda: Answer(600), "status"),
        (lambda: Answer(429, -1), "subStatus"),
        (lambda: Answer(429, retry_after_ms=-1), "retryAfterMs"),
        (lambda: LoseReply(Loss.RESET, 500), "status"),
        (lambda: Cut(Loss.NEVER), "how"),
        (lambda: Throttle(0), "ruPerSecond"),
        (lambda: Refuse("busy"), "condition"),
        (lambda: ExpireLock(-1), "seconds"),
    ],
)
def test_action_with_values_that_mean_nothing_is_refused_by_key(make: Any, key: str) -> None:
    with pytest.raises(FaultError) as caught:
        make()
    assert caught.value.key == key


def test_outage_that_waits_for_an_operation_may_choose_it() -> None:
    assert rule(action=Outage(1, Starts.ON_HIT), operation="Create", skip=2, id="a").matches(
        Operation(Service.COSMOS, "Create", "orders", [Key("p", "a")])
    )
