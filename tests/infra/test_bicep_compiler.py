"""The official compiler: no finding, and the same resources as our own reader lists."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from checks import compiler
from tests.infra.cases import CASES, Deployment, comparable, compiled

TOP_LEVEL = ("sku", "kind", "tags", "identity", "properties", "location")


def test_compiler_and_linter_find_nothing(root: Path, bicep: compiler.Compiler) -> None:
    assert compiler.findings(bicep, root / "infra" / "main.bicep") == []


def test_every_file_is_formatted(root: Path, bicep: compiler.Compiler, tmp_path: Path) -> None:
    shutil.copytree(root / "infra", tmp_path / "infra")
    done = bicep.run("format", "--pattern", "infra/**/*.bicep", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    for file in sorted((root / "infra").rglob("*.bicep")):
        assert (tmp_path / file.relative_to(root)).read_text(encoding="utf-8") == file.read_text(encoding="utf-8"), file


def test_every_file_is_compiled(root: Path) -> None:
    """A file that nothing refers to is not looked at by the compiler."""
    text = "".join(file.read_text(encoding="utf-8") for file in (root / "infra").rglob("*.bicep"))
    for file in (root / "infra" / "app").glob("*.bicep"):
        assert f"{file.name}'" in text, file


SEEDED = {
    "a misspelt property": ("infra/app/messaging.bicep", "lockDuration: 'PT1M'", "lockDuraton: 'PT1M'", "BCP089"),
    "an unknown API version": ("infra/app/data.bicep", "databaseAccounts@2026-03-15' = {", "databaseAccounts@2027-03-15' = {", "BCP081"),  # noqa: E501
    "a parameter without a description": ("infra/app/identity.bicep", "@description('Tags.')\n", "", "use-description-params"),  # noqa: E501
    "an output without a description": ("infra/main.bicep", "@description('Region.')\noutput", "output", "use-description-outputs"),  # noqa: E501
    "an untyped object": ("infra/app/storage.bicep", "param tags { *: string }", "param tags object", "use-user-defined-types"),  # noqa: E501
    "a fixed region": ("infra/app/workbook.bicep", "  location: location", "  location: 'westeurope'", "no-hardcoded-location"),  # noqa: E501
    "a number for a text": ("infra/main.bicep", "REPLAY_MAX: '5'", "REPLAY_MAX: 5", "BCP036"),
    "a missing module parameter": ("infra/main.bicep", "    queueSizeMegabytes: queueSizeMegabytes\n    isPublic", "    isPublic", "BCP035"),  # noqa: E501
}


def test_each_seeded_fault_is_found(root: Path, bicep: compiler.Compiler, tmp_path: Path) -> None:
    """All in one run; each has a code of its own. Shows too that the rules of bicepconfig.json are spelt right."""
    shutil.copytree(root / "infra", tmp_path / "infra")
    shutil.copy(root / "bicepconfig.json", tmp_path)
    for name, old, new, _ in SEEDED.values():
        file = tmp_path / name
        text = file.read_text(encoding="utf-8")
        assert old in text, name
        file.write_text(text.replace(old, new, 1), encoding="utf-8")

    found = "\n".join(compiler.findings(bicep, tmp_path / "infra" / "main.bicep"))

    assert [seed for seed, (_, _, _, code) in SEEDED.items() if code not in found] == []


def body_of(resource: Mapping[str, Any]) -> dict[str, Any]:
    return {key: resource[key] for key in TOP_LEVEL if resource.get(key) is not None}


@pytest.fixture(scope="module")
def predicted(
    root: Path, bicep: compiler.Compiler, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    return compiled(bicep, root, tmp_path_factory.mktemp("cases"), CASES)


@pytest.mark.parametrize("case", CASES)
def test_our_reader_lists_what_the_compiler_predicts(
    root: Path, predicted: dict[str, list[dict[str, Any]]], case: str
) -> None:
    ours = Deployment(root, CASES[case]).resources

    assert [one["type"] for one in predicted[case]] == [one.type for one in ours]
    for theirs, our in zip(predicted[case], ours, strict=True):
        assert body_of(theirs) == body_of(comparable(our.body, "")), our.name
        if our.scope is not None:  # a role or a diagnostic setting: the id begins with what it is on
            assert theirs["id"].removeprefix("[extensionResourceId('").startswith(
                (f"{our.scope}'", f"{our.scope}/providers/")
            ), our.name
