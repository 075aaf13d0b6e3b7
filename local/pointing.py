"""Points the app's settings at this stack, and refuses those that would let it write to a real account."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from local.config_errors import ConfigError

FILE: Final = "local.settings.json"
_ENVIRONMENT: Final = "environment"
_LOOPBACK: Final = r"(?:localhost|127\.0\.0\.1|\[::1\])(?=[:/;]|$)"
_PARTS: Final = ("__fullyQualifiedNamespace", "__accountEndpoint")
_NOT_HERE: Final = "names an account that isn't this stack's; for that one use `func start`"


@dataclass(frozen=True, slots=True)
class Own:
    """A connection string of this stack: how one of its kind is told, and how an emulator's, which it takes the place
    of."""

    value: str
    is_kind: re.Pattern[str]
    is_emulator: re.Pattern[str]


def bus(value: str) -> Own:
    """The broker's connection string."""
    return Own(
        value,
        re.compile(r"(?:^|;)\s*Endpoint\s*=\s*sb://", re.IGNORECASE),
        re.compile(r"(?:^|;)\s*UseDevelopmentEmulator\s*=\s*true\s*(?:;|$)", re.IGNORECASE),
    )


def database(value: str) -> Own:
    """The database account's connection string."""
    return Own(
        value,
        re.compile(r"(?:^|;)\s*AccountEndpoint\s*=", re.IGNORECASE),
        re.compile(rf"(?:^|;)\s*AccountEndpoint\s*=\s*https?://{_LOOPBACK}", re.IGNORECASE),
    )


def pointed(
    values: Mapping[str, str], environment: Mapping[str, str], settings: Mapping[str, str], ours: tuple[Own, ...]
) -> dict[str, str]:
    """The app's settings: the file's, overridden by the environment and then by `settings`, emulators made this stack.

    What stands in the environment alone is not the app's by any sign, so it is passed on unseen.

    Raises: ConfigError, for a connection of the file or of `settings` that ends elsewhere.
    """
    merged = {**values, **environment, **settings}
    names = values.keys() | settings.keys()
    for name in sorted(names):
        own = next((own for own in ours if own.is_kind.search(merged[name])), None)
        if own is not None:
            if not own.is_emulator.search(merged[name]):
                raise _elsewhere(name, values, merged)
            merged[name] = own.value
        elif any(own.is_kind.search(values.get(name, "")) for own in ours):
            raise ConfigError(_ENVIRONMENT, name, f"takes the place of a connection string in {FILE}, and is none")
    bases = {name.partition("__")[0] for name in names}
    for base in sorted(bases):
        for name in (base + part for part in _PARTS):
            if merged.get(name):
                raise _elsewhere(name, values, merged)
    return merged


def _elsewhere(name: str, values: Mapping[str, str], merged: Mapping[str, str]) -> ConfigError:
    if values.get(name) == merged[name]:
        return ConfigError(FILE, f"Values.{name}", _NOT_HERE)
    return ConfigError(_ENVIRONMENT, name, _NOT_HERE)
