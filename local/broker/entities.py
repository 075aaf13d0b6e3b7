"""Config.json in the format of Microsoft's Service Bus emulator, so that one file configures both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from local.broker.durations import parse_duration
from local.broker.model import QueueOptions
from local.config_errors import ConfigError
from local.json_file import read_object

_NAMESPACE = "sbemulatorns"
_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][\w\-./]*[A-Za-z0-9]", re.ASCII)
_MAX_QUEUES = 50
# Each with its least and greatest value and what holds when it is absent. Limits are the official emulator's.
_DURATIONS = {
    "DefaultMessageTimeToLive": (300.0, 3600.0, 3600.0),
    "LockDuration": (5.0, 300.0, 60.0),
    "DuplicateDetectionHistoryTimeWindow": (5.0, 300.0, 20.0),
}
_FLAGS = ("RequiresSession", "RequiresDuplicateDetection", "DeadLetteringOnMessageExpiration")
_FORWARDS = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
_MAX_DELIVERY_COUNT = (1, 10, 3)
_LOGGING_TYPES = ("File", "Console", "File,Console", "Console,File")


def read_entities(path: Path) -> list[QueueOptions]:
    """The queues that a Config.json describes.

    Raises:
        ConfigError: for anything that the official emulator would refuse or this broker can't do, naming file and key.
    """
    reader = _Reader(path.name)
    config = reader.mapping(read_object(path, are_comments_allowed=True), "UserConfig", "")
    namespaces = reader.items(config, "Namespaces", "UserConfig")
    at = "UserConfig.Namespaces"
    if len(namespaces) != 1:
        raise reader.error(at, f"must hold exactly one namespace, not {len(namespaces)}")
    namespace = reader.as_mapping(namespaces[0], f"{at}[0]")
    at = f"{at}[0]"
    if namespace.get("Name") != _NAMESPACE:
        raise reader.error(f"{at}.Name", f"must be {_NAMESPACE!r}, not {namespace.get('Name')!r}")
    if reader.items(namespace, "Topics", at):
        raise reader.error(f"{at}.Topics", "this broker has queues only; the array must be empty")
    reader.check_logging(config)
    queues = reader.items(namespace, "Queues", at)
    if len(queues) > _MAX_QUEUES:
        raise reader.error(f"{at}.Queues", f"holds {len(queues)} queues; the limit is {_MAX_QUEUES}")
    found: dict[str, QueueOptions] = {}
    for index, item in enumerate(queues):
        options = reader.queue(item, f"{at}.Queues[{index}]")
        if options.name.lower() in found:
            raise reader.error(f"{at}.Queues[{index}].Name", f"{options.name!r} is there twice (case does not count)")
        found[options.name.lower()] = options
    return list(found.values())


class _Reader:
    """Reads one file and names the key of whatever is wrong in it."""

    def __init__(self, file: str) -> None:
        self._file = file

    def error(self, key: str, reason: str) -> ConfigError:
        return ConfigError(self._file, key, reason)

    def as_mapping(self, value: object, key: str) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise self.error(key, "must be an object")
        return value

    def mapping(self, parent: Mapping[str, object], name: str, at: str) -> Mapping[str, object]:
        key = f"{at}.{name}".lstrip(".")
        if name not in parent:
            raise self.error(key, "is missing")
        return self.as_mapping(parent[name], key)

    def items(self, parent: Mapping[str, object], name: str, at: str) -> list[object]:
        value = parent.get(name)
        if not isinstance(value, list):
            raise self.error(f"{at}.{name}", "is missing" if value is None else "must be an array")
        return value

    def check_logging(self, config: Mapping[str, object]) -> None:
        if "Logging" in config:
            kind = self.mapping(config, "Logging", "UserConfig").get("Type")
            if kind not in _LOGGING_TYPES:
                raise self.error("UserConfig.Logging.Type", f"must be one of {', '.join(_LOGGING_TYPES)}, not {kind!r}")

    def queue(self, item: object, at: str) -> QueueOptions:
        entry = self.as_mapping(item, at)
        name = entry.get("Name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self.error(f"{at}.Name", f"{name!r} is no name for a queue")
        properties = self.mapping(entry, "Properties", at) if "Properties" in entry else {}
        at = f"{at}.Properties"
        known = {*_DURATIONS, *_FLAGS, *_FORWARDS, "MaxDeliveryCount"}
        for key, value in properties.items():
            if key not in known:
                raise self.error(f"{at}.{key}", "is no property of a queue")
            if key in _FORWARDS and value not in ("", None):
                raise self.error(f"{at}.{key}", "this broker does not forward; leave it empty")
        ttl, lock, window = (self._duration(properties, key, at) for key in _DURATIONS)
        sessions, duplicates, dead_letters = (self._flag(properties, key, at) for key in _FLAGS)
        return QueueOptions(
            name=name,
            requires_session=sessions,
            lock_seconds=lock,
            max_delivery_count=self._max_delivery_count(properties, at),
            default_ttl_seconds=ttl,
            dead_letter_on_expiration=dead_letters,
            duplicate_detection=duplicates,
            duplicate_window_seconds=window,
        )

    def _duration(self, properties: Mapping[str, object], key: str, at: str) -> float:
        least, most, default = _DURATIONS[key]
        value = properties.get(key)
        if value is None:
            return default
        seconds = parse_duration(value) if isinstance(value, str) else None
        if seconds is None:
            raise self.error(f"{at}.{key}", f"{value!r} is no ISO 8601 duration such as PT1M")
        if not least <= seconds <= most:
            raise self.error(f"{at}.{key}", f"{value} is outside {least:g} to {most:g} seconds")
        return seconds

    def _flag(self, properties: Mapping[str, object], key: str, at: str) -> bool:
        value = properties.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"{at}.{key}", f"must be true or false, not {value!r}")
        return value

    def _max_delivery_count(self, properties: Mapping[str, object], at: str) -> int:
        least, most, default = _MAX_DELIVERY_COUNT
        value = properties.get("MaxDeliveryCount", default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(f"{at}.MaxDeliveryCount", f"must be a whole number from {least} to {most}, not {value!r}")
        return value
