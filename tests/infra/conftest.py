"""What the tests of `infra/` share: the files read once, and the official compiler where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks import compiler, sources

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def parsed() -> sources.Sources:
    """All files, Bicep by our own reader."""
    return sources.read(ROOT, use_compiler=False)


@pytest.fixture(scope="session")
def bicep() -> compiler.Compiler:
    """The official compiler; it can't be installed with the project's packages."""
    found = compiler.find(ROOT)
    if found is None:
        pytest.skip("optional: beside the project: the Bicep compiler (az bicep install)")
    return found
