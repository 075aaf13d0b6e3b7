"""Reads the JSON files that people write, and names file, place and reason of what is wrong with one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from local.config_errors import ConfigError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def read_object(path: Path, *, are_comments_allowed: bool = False) -> dict[str, Json]:
    """The JSON object in a file; refuses a key that stands twice, where all but the last would go unseen.

    Raises: ConfigError.
    """
    if path.is_dir():  # what reading it says differs from system to system
        raise ConfigError(path.name, "", "is a folder")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(path.name, "", f"there is no such file in {path.parent}") from None
    except UnicodeDecodeError as exc:
        raise ConfigError(path.name, "", f"is not UTF-8 (byte {exc.start})") from None
    except (OSError, ValueError) as exc:  # ValueError: a path with a NUL
        raise ConfigError(path.name, "", f"can't be read: {getattr(exc, 'strerror', None) or exc}") from None
    if are_comments_allowed:
        text = _without_comments(text)
    try:
        value: Json = json.loads(text, object_pairs_hook=_no_doubles)
    except json.JSONDecodeError as exc:
        hint = "; comments aren't allowed" if text[exc.pos : exc.pos + 1] == "/" else ""
        raise ConfigError(path.name, "", f"line {exc.lineno}: is not JSON: {exc.msg}{hint}") from None
    except _DoubleKeyError as exc:
        raise ConfigError(path.name, exc.key, "stands twice") from None
    except RecursionError:
        raise ConfigError(path.name, "", "is nested too deeply") from None
    except ValueError as exc:  # a number of thousands of digits
        raise ConfigError(path.name, "", f"is not JSON that can be read: {exc}") from None
    if not isinstance(value, dict):
        raise ConfigError(path.name, "", f"must be an object, not {kind_of(value)}")
    return value


def _without_comments(text: str) -> str:
    """The text with `//` comments blanked, which the official emulator accepts; positions stay as they are."""
    return re.sub(
        r'"(?:[^"\\\n]|\\.)*"|//[^\n]*',
        lambda found: " " * len(found[0]) if found[0].startswith("//") else found[0],
        text,
    )


class _DoubleKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _no_doubles(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        if key in found:
            raise _DoubleKeyError(key)
        found[key] = value
    return found


def kind_of(value: Json) -> str:
    """What a JSON value is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"
