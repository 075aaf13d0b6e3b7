"""A fork that deletes the embedded stack, and what needs it, still has an app that loads and tests that pass."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DELETED = ("local", "bench", "ops")
KEPT_TESTS = "unit"


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project without the stack and without the tests that run on it."""
    place = tmp_path_factory.mktemp("fork") / "project"
    shutil.copytree(ROOT, place, ignore=_without_the_stack)
    return place


def _without_the_stack(folder: str, names: list[str]) -> list[str]:
    if Path(folder) == ROOT:
        return [name for name in names if name in DELETED or (name.startswith(".") and name != ".funcignore")]
    if Path(folder) == ROOT / "tests":
        return [name for name in names if name != KEPT_TESTS]
    return [name for name in names if name == "__pycache__"]


def test_a_fork_without_the_stack_passes_its_unit_tests(fork: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit"],
        cwd=fork,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]


def test_a_fork_without_the_stack_loads_its_app(fork: Path) -> None:
    program = "import function_app; print(sorted(f.get_function_name() for f in function_app.app.get_functions()))"
    run = subprocess.run([sys.executable, "-c", program], cwd=fork, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "process_order" in run.stdout
