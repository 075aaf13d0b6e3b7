"""The one error for a configuration file that can't be used."""

from __future__ import annotations


class ConfigError(Exception):
    """A file is wrong: says which file, which key, and why."""

    def __init__(self, file: str, key: str, reason: str) -> None:
        super().__init__(f"{file}: {key}: {reason}" if key else f"{file}: {reason}")
        self.file = file
        self.key = key
        self.reason = reason
