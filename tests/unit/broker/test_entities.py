"""Config.json: what the official emulator takes is taken, what is wrong is named by file and key (R32)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local.broker.durations import format_duration, parse_duration
from local.broker.entities import read_entities
from local.broker.model import QueueOptions
from local.config_errors import ConfigError

ROOT = Path(__file__).parents[3]


def config(*queues: object, topics: object = (), **user: object) -> dict[str, object]:
    namespace = {"Name": "sbemulatorns", "Queues": list(queues), "Topics": list(topics)}  # type: ignore[call-overload]
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File,Console"}, **user}}


def queue(name: object = "q", **properties: object) -> dict[str, object]:
    return {"Name": name, "Properties": properties}


def test_the_products_own_file_gives_its_four_queues() -> None:
    queues = {options.name: options for options in read_entities(ROOT / "local" / "Config.json")}
    assert list(queues) == ["orders", "ledger", "ledger-entries", "quarantine"]
    assert queues["orders"] == QueueOptions(
        "orders",
        requires_session=True,
        lock_seconds=60,
        max_delivery_count=10,
        default_ttl_seconds=3600,
        dead_letter_on_expiration=True,
        duplicate_detection=True,
        duplicate_window_seconds=5,
    )


def test_defaults_are_the_official_emulators_and_comments_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    text = json.dumps(config({"Name": "a/b.c"}, queue("q", ForwardTo="", LockDuration="PT1M30S")))
    path.write_text('\ufeff// a comment with a "quote"\n' + text + " // the end", encoding="utf-8")
    first, second = read_entities(path)
    assert first == QueueOptions("a/b.c", lock_seconds=60, max_delivery_count=3, default_ttl_seconds=3600)
    assert second.lock_seconds == 90


@pytest.mark.parametrize(
    ("content", "key", "word"),
    [
        ([], "", "must be an object"),
        ({}, "UserConfig", "is missing"),
        ({"UserConfig": {"Namespaces": []}}, "UserConfig.Namespaces", "exactly one"),
        ({"UserConfig": {"Namespaces": [{"Name": "x"}]}}, "UserConfig.Namespaces[0].Name", "'sbemulatorns'"),
        ({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns"}]}}, "UserConfig.Namespaces[0].Topics", "is missing"),
        (config(topics=[{"Name": "t"}]), "UserConfig.Namespaces[0].Topics", "queues only"),
        (config(Logging={"Type": "Screen"}), "UserConfig.Logging.Type", "'Screen'"),
        (config(*(queue(f"q{n}") for n in range(51))), "Queues", "the limit is 50"),
        (config(queue("q"), queue("Q")), "Queues[1].Name", "there twice"),
        (config(queue("-q")), "Queues[0].Name", "'-q' is no name"),
        (config(queue(None)), "Queues[0].Name", "None is no name"),
        (config("q"), "Queues[0]", "must be an object"),
        (config({"Name": "q", "Properties": 7}), "Queues[0].Properties", "must be an object"),
        (config(queue(LockDurations="PT1M")), "Queues[0].Properties.LockDurations", "no property of a queue"),
        (config(queue(LockDuration="1 minute")), "LockDuration", "no ISO 8601 duration"),
        (config(queue(LockDuration="PT4S")), "LockDuration", "outside 5 to 300 seconds"),
        (config(queue(LockDuration=60)), "LockDuration", "60 is no ISO 8601 duration"),
        (config(queue(DefaultMessageTimeToLive="PT2H")), "DefaultMessageTimeToLive", "outside 300 to 3600 seconds"),
        (config(queue(DuplicateDetectionHistoryTimeWindow="PT1S")), "DuplicateDetectionHistoryTimeWindow", "outside"),
        (config(queue(MaxDeliveryCount=11)), "MaxDeliveryCount", "from 1 to 10, not 11"),
        (config(queue(MaxDeliveryCount=True)), "MaxDeliveryCount", "not True"),
        (config(queue(RequiresSession="true")), "RequiresSession", "must be true or false"),
        (config(queue(ForwardTo="other")), "ForwardTo", "does not forward"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_key(tmp_path: Path, content: object, key: str, word: str) -> None:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError) as caught:
        read_entities(path)
    assert caught.value.file == path.name
    assert caught.value.key.endswith(key)
    assert word in caught.value.reason


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT1M", 60), ("PT0S", 0), ("P1D", 86400), ("P1DT2H3M4.5S", 93784.5), ("PT20S", 20)],
)
def test_durations_are_read_and_written(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert format_duration(seconds) == text


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1M", "P1M", "P1Y", "PT1M ", "-PT1M", "PT1,5S"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse_duration(text) is None
