"""Rules as JSON: in the file that `--faults` names, and over the control endpoint. And the history as JSON.

    {"seed": 7, "rules": [{"name": "busy", "service": "cosmos", "operation": "Create", "entity": "orders", "count": 3,
                           "action": {"kind": "answer", "status": 429, "subStatus": 3200, "retryAfterMs": 10}}]}

The keys are those of `Rule` and of its action, in camelCase. An action without parameters may be its kind alone.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from local.config_errors import ConfigError
from local.faults.actions import ACTIONS, Action, FaultError
from local.faults.engine import Armed, Entry, Faults
from local.faults.rules import Rule
from local.json_file import Json, kind_of, read_object

_T = TypeVar("_T")
_WANTED: Final[Mapping[type, tuple[tuple[type, ...], str]]] = {
    str: ((str,), "a string"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a faults file holds."""

    file: str
    seed: int
    rules: tuple[Rule, ...]
    at: str = "rules[{}]."  # where a rule's keys are, by its number

    def arm(self, faults: Faults) -> list[Armed]:
        """Arm all rules in their order, or none.

        Raises:
            ConfigError: the stack can't do one of them.
        """
        done: list[Armed] = []
        try:
            for index, rule in enumerate(self.rules):
                with _named(self.file, self.at.format(index)):
                    done.append(faults.add(rule))
        except ConfigError:
            for armed in done:
                armed.disarm()
            raise
        return done


def read_faults(path: Path) -> Plan:
    """Read a faults file.

    Raises:
        ConfigError: naming file, key and reason.
    """
    return plan_of(path.name, read_object(path))


def plan_of(file: str, content: Mapping[str, Json]) -> Plan:
    """Rules and seed from an object; `file` is what errors name."""
    _only(file, "", content, {"seed", "rules"})
    rules = content.get("rules")
    if not isinstance(rules, list):
        raise ConfigError(file, "rules", "is missing" if rules is None else f"must be an array, not {kind_of(rules)}")
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigError(file, "seed", f"must be an integer, not {kind_of(seed)}")
    read = tuple(rule_of(file, f"rules[{index}].", each) for index, each in enumerate(rules))
    for index, rule in enumerate(read):
        if rule.name in {other.name for other in read[:index]}:
            raise ConfigError(file, f"rules[{index}].name", f"{rule.name!r} is there twice")
    return Plan(file, seed, read)


def rule_of(file: str, at: str, value: Json) -> Rule:
    """A rule from its object. `at` leads to its keys in errors, such as `rules[0].`"""
    content = _object(file, at, value)
    action = _action_of(file, f"{at}action", content)
    rest = {key: each for key, each in content.items() if key != "action"}
    return _made(Rule, file, at, rest, {"action": action})


def rule_as_json(rule: Rule) -> dict[str, Json]:
    """The rule as it may stand in a file, without what is as it would be anyway."""
    action: dict[str, Json] = {"kind": rule.action.kind, **_given(rule.action)}
    return {**_given(rule, but="action"), "action": action}


def armed_as_json(armed: Armed) -> dict[str, Json]:
    """A rule and how it does."""
    counts: dict[str, Json] = {"seen": armed.seen, "hits": armed.hits, "held": len(armed.held)}
    return {**rule_as_json(armed.rule), **counts}


def entry_as_json(entry: Entry) -> dict[str, Json]:
    """An operation of the history."""
    return {
        "number": entry.number,
        "time": entry.time,
        "service": entry.service.value,
        "operation": entry.operation,
        "entity": entry.entity,
        "keys": [{"group": key.group, "id": key.id} for key in entry.keys],
        "moreKeys": entry.more_keys,
        "rule": entry.rule,
        "result": entry.result,
    }


def _action_of(file: str, at: str, content: Mapping[str, Json]) -> Action:
    value = content.get("action")
    if isinstance(value, str):
        value = {"kind": value}
        key = at
    else:
        key = f"{at}.kind"
    if value is None:
        raise ConfigError(file, at, "is missing")
    given = _object(file, f"{at}.", value)
    kind = given.get("kind")
    made = ACTIONS.get(kind) if isinstance(kind, str) else None
    if made is None:
        raise ConfigError(file, key, f"must be one of {', '.join(ACTIONS)}, not {kind!r}")
    return _made(made, file, f"{at}.", {name: each for name, each in given.items() if name != "kind"}, {})


def _made(made: type[_T], file: str, at: str, content: Mapping[str, Json], ready: Mapping[str, object]) -> _T:
    """An instance of a dataclass from an object that has its fields in camelCase."""
    fields = {_camel(each.name): each for each in dataclasses.fields(made) if each.name not in ready}  # type: ignore[arg-type]  # only dataclasses come
    hints = typing.get_type_hints(made)
    _only(file, at, content, set(fields))
    values: dict[str, object] = dict(ready)
    for name, field in fields.items():
        if name in content:
            values[field.name] = _value(file, f"{at}{name}", content[name], hints[field.name])
        elif field.default is dataclasses.MISSING:
            raise ConfigError(file, f"{at}{name}", "is missing")
    with _named(file, at):
        return made(**values)


def _value(file: str, key: str, value: Json, hint: object) -> object:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in options:
        return None
    if isinstance(value, list) and any(typing.get_origin(each) is tuple for each in options):
        return tuple(_value(file, f"{key}[{index}]", each, str) for index, each in enumerate(value))
    wanted = next(each for each in options if isinstance(each, type) and each is not types.NoneType)
    if issubclass(wanted, enum.Enum):
        try:
            return wanted(value)
        except ValueError:
            names = ", ".join(each.value for each in wanted)
            raise ConfigError(file, key, f"must be one of {names}, not {value!r}") from None
    kinds, words = _WANTED[wanted]
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise ConfigError(file, key, f"must be {words}, not {kind_of(value)}")
    if wanted is float and isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(file, key, "is too large") from None
    return value


def _given(made: Rule | Action, but: str = "") -> dict[str, Json]:
    found: dict[str, Json] = {}
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if field.name != but and value != field.default:
            plain = value.value if isinstance(value, enum.Enum) else value
            found[_camel(field.name)] = list(plain) if isinstance(plain, tuple) else plain
    return found


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _object(file: str, at: str, value: Json) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise ConfigError(file, at.rstrip("."), f"must be an object, not {kind_of(value)}")
    return value


def _only(file: str, at: str, content: Mapping[str, Json], known: set[str]) -> None:
    for key in content:
        if key not in known:
            close = [name for name in known if name.lower() == key.lower()]
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(known))}"
            raise ConfigError(file, f"{at}{key}", f"unknown; {hint}")


class _named:  # noqa: N801 - a context manager that reads like a function
    """Turns a FaultError inside into the ConfigError of a file."""

    def __init__(self, file: str, at: str) -> None:
        self._file = file
        self._at = at

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FaultError):
            raise ConfigError(self._file, f"{self._at}{error.key}", error.reason) from None
