"""A fork that deletes the embedded stack, and what needs it, still has an app that loads and tests that pass."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {"__pycache__", "node_modules"}


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project without what docs/fork.md says can go with the stack."""
    place = tmp_path_factory.mktemp("fork") / "project"
    shutil.copytree(ROOT, place, ignore=_hidden)
    for deleted in _deletable("local/"):
        assert (place / deleted).exists(), deleted
        shutil.rmtree(place / deleted)
    return place


def _deletable(first: str) -> list[str]:
    """The folders of the row of docs/fork.md that begins with this one."""
    text = (ROOT / "docs" / "fork.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{first}`"))
    found = []
    for name in re.findall(r"`([^`]+)`", row.split("|")[1]):
        head, _, rest = name.partition("{")
        tails, _, end = rest.partition("}")
        found += [f"{head}{tail}{end}" for tail in tails.split(",")] if rest else [name]
    return found


def _hidden(folder: str, names: list[str]) -> set[str]:
    if Path(folder) == ROOT:
        return LEFT_OUT | {name for name in names if name.startswith(".") and name != ".funcignore"}
    return LEFT_OUT


def test_what_is_left_of_the_tests_can_be_collected(fork: Path) -> None:
    succeeds(fork, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider")


def test_a_fork_without_the_stack_passes_its_unit_tests(fork: Path) -> None:
    succeeds(fork, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit")


def test_a_fork_without_the_stack_loads_its_app(fork: Path) -> None:
    program = "import function_app; print(sorted(f.get_function_name() for f in function_app.app.get_functions()))"
    assert "process_order" in succeeds(fork, "-c", program)


def succeeds(folder: Path, *arguments: str) -> str:
    """What Python prints with these arguments, in this folder."""
    run = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    return run.stdout
