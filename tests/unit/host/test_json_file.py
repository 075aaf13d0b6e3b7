"""The files that people write: what is wrong with one is named, whichever file it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from local.broker.entities import read_entities
from local.config import read_host_config, read_local_settings
from local.config_errors import ConfigError
from local.cosmos.containers import read_containers
from local.faults.reading import read_faults
from local.json_file import read_object

READERS: list[Callable[[Path], object]] = [
    read_entities,
    read_containers,
    read_faults,
    read_host_config,
    read_local_settings,
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"{", "line 1: is not JSON: Expecting property name"),
        (b"\xff\xfe", "is not UTF-8 (byte 0)"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "is not JSON that can be read"),
        (b'{"a": 1, "a": 2}', "stands twice"),
        (b"[]", "must be an object, not an array"),
    ],
)
def test_a_file_that_is_no_json_object_is_named(
    tmp_path: Path, read: Callable[[Path], object], content: bytes, word: str
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"file\.json: ") as caught:
        read(path)
    assert word in caught.value.reason


def test_a_place_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"file\.json: there is no such file in "):
        read_object(tmp_path / "file.json")
    with pytest.raises(ConfigError, match="is a folder"):
        read_object(tmp_path)
    with pytest.raises(ConfigError, match=r"can't be read: .*embedded null"):
        read_object(tmp_path / "a\0b")


def test_comments_are_taken_where_the_official_emulator_takes_them(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('\ufeff{"a": "// none" // one\n}', encoding="utf-8")
    assert read_object(path, are_comments_allowed=True) == {"a": "// none"}
    with pytest.raises(ConfigError, match=r"line 1: is not JSON: .*; comments aren't allowed"):
        read_object(path)
