"""Rules as JSON: what is written is read again, and what is wrong is refused by file, key and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local.config_errors import ConfigError
from local.faults import (
    Answer,
    Cut,
    Delay,
    DeliverTwice,
    ExpireLock,
    Faults,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Rule,
    Service,
    Stage,
    StaleRead,
    Stall,
    Starts,
    Throttle,
)
from local.faults.actions import ACTIONS
from local.faults.reading import Plan, read_faults, rule_as_json, rule_of

EXAMPLES = Path(__file__).parents[3] / "docs" / "faults"

ALL = [
    (Service.COSMOS, Delay(0.5, Stage.AFTER)),
    (Service.COSMOS, Stall()),
    (Service.COSMOS, Answer(429, 3200, 10, "busy")),
    (Service.BROKER, Refuse("amqp:not-found", "gone")),
    (Service.COSMOS, LoseRequest()),
    (Service.COSMOS, LoseReply(Loss.STATUS, 500, 1)),
    (Service.BROKER, Cut(Loss.CLOSE)),
    (Service.BROKER, LoseSettlement()),
    (Service.BROKER, DeliverTwice()),
    (Service.BROKER, ExpireLock(2)),
    (Service.COSMOS, Throttle(400)),
    (Service.COSMOS, StaleRead()),
    (Service.COSMOS, Outage(5, Starts.ON_HIT)),
]


def test_every_action_is_in_these_tests() -> None:
    assert {action.kind for _, action in ALL} == set(ACTIONS)


@pytest.mark.parametrize(("service", "action"), ALL)
def test_rule_that_is_written_is_read_again(service: Service, action: Any) -> None:
    operation = None if isinstance(action, LoseSettlement | DeliverTwice | ExpireLock | StaleRead) else ("*",)
    full = Rule(
        name="r",
        service=service,
        action=action,
        operation=operation,
        entity="e",
        group="g",
        id="i",
        skip=1,
        count=2,
        probability=0.5,
        seed=3,
    )
    text = json.dumps(rule_as_json(full))
    assert rule_of("f", "", json.loads(text)) == full


def test_action_without_parameters_may_be_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text(
        '{"seed": 7, "rules": [{"name": "a", "service": "cosmos", "operation": ["Create", "Batch"], "action": "cut"}]}'
    )
    expected = Rule(name="a", service=Service.COSMOS, operation=("Create", "Batch"), action=Cut())
    assert read_faults(file) == Plan("faults.json", 7, (expected,))


GOOD: dict[str, Any] = {"name": "a", "service": "cosmos", "action": {"kind": "delay", "seconds": 1}}


@pytest.mark.parametrize(
    ("rule", "key", "reason"),
    [
        ([], "rules[0]", "must be an object"),
        ({**GOOD, "name": None}, "rules[0].name", "must be a string, not null"),
        ({**GOOD, "name": "a b"}, "rules[0].name", "'a b' must be"),
        ({k: v for k, v in GOOD.items() if k != "name"}, "rules[0].name", "is missing"),
        ({k: v for k, v in GOOD.items() if k != "action"}, "rules[0].action", "is missing"),
        ({**GOOD, "service": "kafka"}, "rules[0].service", "must be one of cosmos, broker, not 'kafka'"),
        ({**GOOD, "service": []}, "rules[0].service", "must be one of cosmos, broker"),
        ({**GOOD, "Entity": "x"}, "rules[0].Entity", "did you mean entity?"),
        ({**GOOD, "queue": "x"}, "rules[0].queue", "unknown; there are"),
        ({**GOOD, "entity": 1}, "rules[0].entity", "must be a string, not a number"),
        ({**GOOD, "operation": ["Create", 1]}, "rules[0].operation[1]", "must be a string, not a number"),
        ({**GOOD, "operation": "Make"}, "rules[0].operation", "'Make' is no operation of the service cosmos"),
        ({**GOOD, "count": True}, "rules[0].count", "must be an integer, not a boolean"),
        ({**GOOD, "count": 1.5}, "rules[0].count", "must be an integer, not a number"),
        ({**GOOD, "count": 0}, "rules[0].count", "must be at least 1"),
        ({**GOOD, "probability": "x"}, "rules[0].probability", "must be a number, not a string"),
        ({**GOOD, "action": "explode"}, "rules[0].action", "must be one of delay, stall"),
        ({**GOOD, "action": {"kind": 1}}, "rules[0].action.kind", "must be one of delay, stall"),
        ({**GOOD, "action": 1}, "rules[0].action", "must be an object, not a number"),
        ({**GOOD, "action": "delay"}, "rules[0].action.seconds", "is missing"),
        ({**GOOD, "action": {"kind": "delay", "seconds": 10**400}}, "rules[0].action.seconds", "is too large"),
        ({**GOOD, "action": {"kind": "delay", "seconds": -1}}, "rules[0].action.seconds", "must be from 0"),
        ({**GOOD, "action": {"kind": "delay", "seconds": 1, "stage": "x"}}, "rules[0].action.stage", "before, after"),
        ({**GOOD, "action": {"kind": "answer", "status": 429, "substatus": 1}}, "rules[0].action.substatus", "unknown"),
        ({**GOOD, "action": "deliver-twice"}, "rules[0].action", "is not for the service cosmos"),
    ],
)
def test_wrong_rule_is_refused_by_file_key_and_reason(tmp_path: Path, rule: Any, key: str, reason: str) -> None:
    file = tmp_path / "my-faults.json"
    file.write_text(json.dumps({"rules": [rule]}))
    with pytest.raises(ConfigError) as caught:
        read_faults(file)
    assert (caught.value.file, caught.value.key) == ("my-faults.json", key)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("[]", "", "must be an object"),
        ("{", "", "is not JSON"),
        ("{}", "rules", "is missing"),
        ('{"rules": {}}', "rules", "must be an array"),
        ('{"rules": [], "seed": "x"}', "seed", "must be an integer"),
        ('{"rules": [], "rule": 1}', "rule", "unknown"),
        ('{"rules": [], "rules": []}', "rules", "stands twice"),
        (json.dumps({"rules": [GOOD, GOOD]}), "rules[1].name", "is there twice"),
    ],
)
def test_wrong_file_is_refused(tmp_path: Path, text: str, key: str, reason: str) -> None:
    file = tmp_path / "faults.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_faults(file)
    assert caught.value.key == key
    assert reason in caught.value.reason


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_faults(tmp_path / "none.json")


def test_plan_is_armed_as_a_whole_or_not_at_all() -> None:
    faults = Faults()
    with pytest.raises(ConfigError) as caught:
        Plan("f.json", 0, (Rule(name="a", service=Service.BROKER, action=Stall()),)).arm(faults)
    assert (caught.value.key, list(faults.armed)) == ("rules[0].service", [])


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.json")), ids=lambda file: file.name)
def test_examples_are_good_files(file: Path) -> None:
    assert read_faults(file).rules
