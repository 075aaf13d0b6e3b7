"""What azd and Core Tools would ship: the app, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from checks import package

ROOT = Path(__file__).resolve().parents[2]
IGNORE = (ROOT / ".funcignore").read_text(encoding="utf-8")
READERS = {"azd": package.shipped_by_azd, "core tools": package.shipped_by_core_tools}

# What may lie in a work tree, whether it does on this machine or not.
NEVER = [
    ".azure/dev/local.settings.json",
    ".azure/dev/.env",
    ".env",
    ".venv/bin/python",
    ".venv-3.13/lib/x.py",
    ".stack.json",
    ".github/workflows/ci.yml",
    ".gitignore",
    ".vscode/launch.json",
    ".mypy_cache/3.11/x.json",
    ".pytest_cache/v/x",
    ".ruff_cache/x",
    ".hypothesis/constants/x",
    ".coverage",
    ".ci/run",
    ".devcontainer/devcontainer.json",
    "__pycache__/function_app.cpython-312.pyc",
    "shared/__pycache__/x.pyc",
    "shared/domain/__pycache__/x.pyc",
    "local/broker/machine.py",
    "local.settings.json",
    "tests/unit/test_x.py",
    "ops/cli.py",
    "checks/__main__.py",
    "bench/x.py",
    "infra/main.bicep",
    "docs/operations.md",
    "azure.yaml",
    "bicepconfig.json",
    "dev.py",
    "pyproject.toml",
    "requirements-dev.txt",
    "requirements-dev.in",
    "requirements.in",
    "node_modules/x/index.js",
    "README.md",
    "CHANGELOG.md",
]


@pytest.mark.parametrize("reader", READERS)
def test_nothing_else_is_shipped(reader: str) -> None:
    paths = [path for path in package.files(ROOT) if not path.startswith((".git/", ".azure/"))]

    assert package.superfluous(READERS[reader](IGNORE, paths)) == []


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("path", NEVER)
def test_what_may_lie_around_stays_here(reader: str, path: str) -> None:
    assert READERS[reader](IGNORE, [path]) == []


@pytest.mark.parametrize("reader", READERS)
def test_the_whole_app_is_shipped(reader: str) -> None:
    app = [path.relative_to(ROOT).as_posix() for path in (ROOT / "shared").rglob("*.py")]
    app += ["function_app.py", "host.json", "requirements.txt"]

    assert sorted(READERS[reader](IGNORE, app)) == sorted(app)


@pytest.mark.parametrize(
    ("pattern", "path", "azd", "core_tools"),
    [
        ("tests", "testsuite/x.py", True, False),
        ("*.json", "a/b.json", False, True),
        ("__pycache__/", "a/__pycache__/x.pyc", False, True),
        ("/tests/", "tests/x.py", False, False),
    ],
)
def test_the_two_readers_are_told_apart(pattern: str, path: str, azd: bool, core_tools: bool) -> None:
    """Core Tools compares beginnings from the root on, so a pattern can say too much to it, or too little."""
    assert bool(package.shipped_by_azd(pattern, [path])) is azd
    assert bool(package.shipped_by_core_tools(pattern, [path])) is core_tools


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, unpacked."""
    folder = tmp_path_factory.mktemp("package")
    for path in package.shipped_by_azd(IGNORE, list(package.files(ROOT))):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    return folder


def test_the_package_has_all_functions_and_needs_no_setting(shipped: Path) -> None:
    names = "[function.get_function_name() for function in function_app.app.get_functions()]"
    code = f"import function_app, json; print(json.dumps({names}))"
    # The project's root is last on the path on this plan, so that an installed package of our name would win.
    start = f"import sys; sys.path.append({str(shipped)!r}); {code}"
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "SYSTEMROOT", "HOME")}
    done = subprocess.run(
        [sys.executable, "-I", "-c", start], capture_output=True, text=True, check=False, encoding="utf-8", env=clean,
        cwd=shipped,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {
        "process_order", "fan_out_ledger", "apply_entry", "sweep", "submit_order", "get_order", "health",
    }  # fmt: skip


def test_no_installed_distribution_owns_our_names() -> None:
    ours = {"shared", "function_app"}
    owners = metadata.packages_distributions()

    assert not ours & set(owners)
    assert not ours & set(sys.stdlib_module_names)


def test_requirements_hold_what_runs_and_no_tool() -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    names = set(re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE))

    assert not names & {"azure-functions-worker", "azure-functions-runtime", "pytest", "ruff", "mypy", "rich"}
    assert "-r " not in text
    assert {"azure-functions", "azure-servicebus", "azure-cosmos", "azure-identity"} <= names


def test_functions_doctor_finds_nothing_that_fails(shipped: Path) -> None:
    command = [sys.executable, "-m", "azure_functions_doctor.cli", "doctor", "--path", str(shipped)]
    done = subprocess.run(
        [*command, "--profile", "deploy", "--format", "json"], capture_output=True, text=True, check=False,
        encoding="utf-8",
    )  # fmt: skip
    document = json.loads(done.stdout)
    items = [item for section in document["results"] for item in section.get("items", [section])]

    assert len(items) > 10
    assert [item for item in items if item["status"] == "fail"] == []
