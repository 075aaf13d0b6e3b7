"""Who may import whom.

Imports are read from the source: plain, relative, under TYPE_CHECKING, and dynamic ones with a literal name; a dynamic
import of a computed name is refused where it would open a way around.

Each rule has a seeded violation in a small tree of its own, so that a rule that finds nothing is itself found.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"shared", "local", "ops", "checks", "bench", "tests", "function_app", "dev", "docs"}
COMPUTED = "<computed name>"
DYNAMIC = {"__import__", "import_module", "run_module"}


@dataclass(frozen=True)
class Rule:
    """What a package (or one module) may import. `ours` and `outside` None: not limited by this rule.

    `but` opens, for single modules below the package, some of what `never` closes. `only_run_time`: names for
    annotations alone do not count.
    """

    package: str
    ours: frozenset[str] | None = None
    outside: frozenset[str] | None = None
    never: frozenset[str] = frozenset()
    but: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_computed_allowed: bool = False
    only_run_time: bool = False

    def refuses(self, module: str, imported: str) -> bool:
        """Whether this module of the package must not import that name."""
        if imported == COMPUTED:
            return not self.is_computed_allowed
        opened = {name for below, names in self.but.items() if is_below(module, {below}) for name in names}
        if is_below(imported, opened):
            return False
        if is_below(imported, self.never):
            return True
        root = imported.partition(".")[0]
        if root in OURS:
            return self.ours is not None and not is_below(imported, self.ours)
        return self.outside is not None and root not in self.outside and root not in sys.stdlib_module_names


def names(*of: str) -> frozenset[str]:
    return frozenset(of)


# No I/O, no clock, no environment, no randomness, no tasks.
IMPURE = names(
    *("os", "time", "random", "asyncio", "secrets", "uuid", "socket", "ssl", "http", "urllib.request", "subprocess"),
    *("threading", "multiprocessing", "concurrent", "pathlib", "tempfile", "shutil", "glob", "sqlite3", "logging"),
    *("signal", "platform", "locale", "getpass"),
)
VALUES = names("shared.contracts", "shared.envelope", "shared.errors")
ABOVE = names("local", "ops", "checks", "bench", "tests", "function_app", "dev", "docs")
EXPORTERS = names("opentelemetry.exporter", "opentelemetry.sdk")

RULES = (
    Rule("shared.contracts", ours=names("shared.contracts"), outside=names("pydantic", "pydantic_core")),
    # pydantic here: the errors of the contracts' models.
    Rule(
        "shared.domain",
        ours=VALUES | {"shared.domain"},
        outside=names("rfc8785", "pydantic", "pydantic_core"),
        never=IMPURE | {"azure", "opentelemetry"},
    ),
    Rule("shared.errors", ours=names(), outside=names(), never=IMPURE),
    Rule("shared.envelope", ours=names("shared.errors"), outside=names(), never=IMPURE),
    Rule("shared.ports", ours=VALUES, outside=names(), never=IMPURE),
    Rule(
        "shared.handlers",
        ours=VALUES | {"shared.handlers", "shared.domain", "shared.ports", "shared.telemetry"},
        outside=names("opentelemetry", "pydantic"),
        never=EXPORTERS | {"azure", "shared.adapters", "shared.settings"},
    ),
    Rule(
        "shared.adapters",
        ours=VALUES | {"shared.adapters", "shared.ports", "shared.settings"},
        never=names("shared.handlers", "shared.domain"),
    ),
    # Only what starts the process knows the whole graph; the exporter is telemetry's.
    Rule("shared.settings", never=names("azure", "shared.adapters", "shared.handlers", "shared.bootstrap")),
    Rule("shared.telemetry", never=names("shared.adapters", "shared.handlers", "shared.bootstrap", "shared.settings")),
    Rule(
        "shared",
        never=ABOVE | {"azure"},
        but={"shared.adapters": names("azure"), "shared.telemetry": names("azure.monitor")},
    ),
    Rule("function_app", ours=names("shared.bootstrap", "shared.adapters", "shared.envelope"), outside=names("azure")),
    Rule(
        "local",
        never=names("shared", "ops", "checks", "bench", "tests", "azure"),
        but={"local.host.worker": names("azure.functions"), "local.demo": names("azure")},
        is_computed_allowed=True,
    ),
    Rule("ops", never=names("local", "function_app")),
    Rule("checks", ours=names("checks", "shared.settings"), never=names("local", "azure")),
    Rule("dev", ours=names(), outside=names(), only_run_time=True),
)


@dataclass(frozen=True, order=True)
class Violation:
    file: str
    line: int
    what: str


def is_below(name: str, packages: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def files_of(root: Path, package: str) -> list[tuple[str, Path]]:
    """The modules of a package, or the one module of that name, with their dotted names."""
    path = root.joinpath(*package.split("."))
    if path.with_suffix(".py").is_file():
        return [(package, path.with_suffix(".py"))]
    found = []
    for file in sorted(path.rglob("*.py")):
        parts = [*package.split("."), *file.relative_to(path).with_suffix("").parts]
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), file))
    return found


def imports_of(module: str, file: Path, *, only_run_time: bool = False) -> Iterator[tuple[int, str]]:
    """Each name that a module imports, `from a import b` as "a.b"."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes_of(ast.parse(file.read_text(encoding="utf-8"), str(file)), only_run_time):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in DYNAMIC:
            yield node.lineno, dynamic_name(node, package)


def nodes_of(node: ast.AST, only_run_time: bool) -> Iterator[ast.AST]:
    yield node
    if only_run_time and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    for child in ast.iter_child_nodes(node):
        yield from nodes_of(child, only_run_time)


def called(node: ast.Call) -> str:
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def dynamic_name(node: ast.Call, package: str) -> str:
    arguments = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
    if not arguments or not isinstance(arguments[0], ast.Constant) or not isinstance(arguments[0].value, str):
        return COMPUTED
    name = arguments[0].value
    return importlib.util.resolve_name(name, package) if name.startswith(".") else name


def import_violations(root: Path, rule: Rule) -> list[Violation]:
    return [
        Violation(file.relative_to(root).as_posix(), line, f"{rule.package}: {imported}")
        for module, file in files_of(root, rule.package)
        for line, imported in imports_of(module, file, only_run_time=rule.only_run_time)
        if rule.refuses(module, imported)
    ]


def impure_calls(root: Path) -> list[Violation]:
    """Calls in the domain that need no import: of the clock, of files, of the terminal."""
    return [
        Violation(file.relative_to(root).as_posix(), node.lineno, called(node))
        for _, file in files_of(root, "shared.domain")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Attribute) and called(node) in {"now", "utcnow", "today"})
            or (isinstance(node.func, ast.Name) and called(node) in {"open", "print", "input", "exec", "eval"})
        )
    ]


def top_level_names(root: Path) -> set[str]:
    """The names under which the project's root is importable: folders with Python code, and modules."""
    folders = {
        path.name
        for path in root.iterdir()
        if path.is_dir() and path.name.isidentifier() and next(path.rglob("*.py"), None) is not None
    }
    return folders | {path.stem for path in root.glob("*.py")}


def clashes(ours: Iterable[str], standard: Iterable[str], installed: Mapping[str, Iterable[str]]) -> dict[str, str]:
    taken = dict.fromkeys(standard, "the standard library")
    taken |= {name: ", ".join(distributions) for name, distributions in installed.items()}
    return {name: taken[name] for name in sorted(ours) if name in taken}


# --- The tree -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=[rule.package for rule in RULES])
def test_no_package_imports_what_its_layer_must_not_know(rule: Rule) -> None:
    assert import_violations(ROOT, rule) == []


def test_the_domain_reads_no_clock_and_no_file() -> None:
    assert impure_calls(ROOT) == []


@pytest.mark.parametrize("package", ["contracts", "domain", "errors", "envelope", "ports", "handlers", "adapters"])
def test_the_rules_look_at_files(package: str) -> None:
    """A renamed package would leave its rule behind with nothing to read."""
    assert files_of(ROOT, f"shared.{package}")


def test_shared_is_a_package_with_a_docstring_and_nothing_else() -> None:
    """On some plans the project's root is last on sys.path: without this file, any other `shared` would win."""
    tree = ast.parse((ROOT / "shared" / "__init__.py").read_text(encoding="utf-8"))

    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


def test_no_top_level_name_is_taken() -> None:
    """An installed distribution of the same name would win on the plans where the root is last on sys.path."""
    assert clashes(top_level_names(ROOT), sys.stdlib_module_names, importlib.metadata.packages_distributions()) == {}


# --- The tests of the tests ---------------------------------------------------------------------------------------

SEEDS = (
    ("shared.contracts", "shared/contracts/orders.py", "from shared.domain import orders", "shared.domain.orders"),
    ("shared.contracts", "shared/contracts/orders.py", "import shared.errors", "shared.errors"),
    ("shared.contracts", "shared/contracts/orders.py", "from ..errors import Reason", "shared.errors.Reason"),
    ("shared.contracts", "shared/contracts/orders.py", "from .. import ports", "shared.ports"),
    ("shared.contracts", "shared/contracts/__init__.py", "from ..errors import Reason", "shared.errors.Reason"),
    ("shared.contracts", "shared/contracts/orders.py", "import rfc8785", "rfc8785"),
    ("shared.domain", "shared/domain/orders.py", "import os", "os"),
    ("shared.domain", "shared/domain/orders.py", "from os import path", "os.path"),
    ("shared.domain", "shared/domain/orders.py", "import os.path as where", "os.path"),
    ("shared.domain", "shared/domain/orders.py", "import time", "time"),
    ("shared.domain", "shared/domain/orders.py", "from random import random", "random.random"),
    ("shared.domain", "shared/domain/deep/er.py", "import asyncio", "asyncio"),
    ("shared.domain", "shared/domain/orders.py", "def f():\n    import secrets", "secrets"),
    ("shared.domain", "shared/domain/orders.py", "import azure.cosmos", "azure.cosmos"),
    ("shared.domain", "shared/domain/orders.py", "from opentelemetry import trace", "opentelemetry.trace"),
    ("shared.domain", "shared/domain/orders.py", "from shared.ports import Clock", "shared.ports.Clock"),
    ("shared.domain", "shared/domain/orders.py", "from shared import handlers", "shared.handlers"),
    ("shared.domain", "shared/domain/orders.py", "import importlib\nimportlib.import_module('time')", "time"),
    ("shared.domain", "shared/domain/orders.py", "__import__('random')", "random"),
    (
        "shared.domain",
        "shared/domain/orders.py",
        "from importlib import import_module\nimport_module('..ports', __package__)",
        "shared.ports",
    ),
    ("shared.domain", "shared/domain/orders.py", "__import__('o' + 's')", COMPUTED),
    ("shared.errors", "shared/errors.py", "from shared.envelope import Role", "shared.envelope.Role"),
    ("shared.envelope", "shared/envelope.py", "import azure.servicebus", "azure.servicebus"),
    ("shared.ports", "shared/ports.py", "from shared.domain.verdicts import Policy", "shared.domain.verdicts.Policy"),
    ("shared.handlers", "shared/handlers/claim.py", "import azure.cosmos", "azure.cosmos"),
    ("shared.handlers", "shared/handlers/claim.py", "from shared.adapters import cosmos", "shared.adapters.cosmos"),
    ("shared.handlers", "shared/handlers/claim.py", "from shared import settings", "shared.settings"),
    ("shared.handlers", "shared/handlers/claim.py", "import aiohttp", "aiohttp"),
    ("shared.handlers", "shared/handlers/claim.py", "import opentelemetry.sdk.trace", "opentelemetry.sdk.trace"),
    (
        "shared.adapters",
        "shared/adapters/cosmos.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shared.domain import orders",
        "shared.domain.orders",
    ),
    ("shared.adapters", "shared/adapters/cosmos.py", "from ..handlers import claim", "shared.handlers.claim"),
    ("shared.adapters", "shared/adapters/cosmos.py", "from shared.bootstrap import build", "shared.bootstrap.build"),
    ("shared.settings", "shared/settings.py", "import azure.identity", "azure.identity"),
    ("shared.telemetry", "shared/telemetry.py", "from shared.settings import Settings", "shared.settings.Settings"),
    ("shared", "shared/bootstrap.py", "import local.stack", "local.stack"),
    ("shared", "shared/bootstrap.py", "from tests import simulation", "tests.simulation"),
    ("shared", "shared/bootstrap.py", "import function_app", "function_app"),
    ("shared", "shared/bootstrap.py", "import importlib\nimportlib.import_module(name='ops.cli')", "ops.cli"),
    ("shared", "shared/bootstrap.py", "from azure.cosmos.aio import CosmosClient", "azure.cosmos.aio.CosmosClient"),
    ("shared", "shared/telemetry.py", "import azure.cosmos", "azure.cosmos"),
    ("function_app", "function_app.py", "from shared.domain import orders", "shared.domain.orders"),
    ("function_app", "function_app.py", "import local", "local"),
    ("function_app", "function_app.py", "import aiohttp", "aiohttp"),
    ("local", "local/stack.py", "from shared.contracts import orders", "shared.contracts.orders"),
    ("local", "local/broker/machine.py", "import ops", "ops"),
    ("local", "local/host/sessions.py", "import azure.functions", "azure.functions"),
    ("local", "local/host/worker/__main__.py", "import azure.servicebus", "azure.servicebus"),
    ("local", "local/demo/run.py", "from shared.settings import Settings", "shared.settings.Settings"),
    ("ops", "ops/gaps.py", "import local.stack", "local.stack"),
    ("ops", "ops/gaps.py", "from function_app import app", "function_app.app"),
    ("checks", "checks/bicep.py", "from shared.domain import orders", "shared.domain.orders"),
    ("checks", "checks/bicep.py", "import azure.identity", "azure.identity"),
    ("dev", "dev.py", "import rich", "rich"),
    ("dev", "dev.py", "def f():\n    import pytest", "pytest"),
    ("dev", "dev.py", "from shared.settings import Settings", "shared.settings.Settings"),
)

INNOCENT = (
    ("shared/contracts/orders.py", "import typing\nfrom pydantic import Field\nfrom shared.contracts.values import Id"),
    ("shared/domain/orders.py", "import re\nimport rfc8785\nfrom . import amounts\nfrom ..errors import Reason"),
    ("shared/handlers/claim.py", "import asyncio\nfrom shared import telemetry\nfrom opentelemetry import trace"),
    ("shared/adapters/cosmos.py", "import azure.cosmos\nimport aiohttp\nfrom shared.settings import Settings"),
    ("shared/telemetry.py", "from azure.monitor.opentelemetry.exporter import AzureMonitorTraceExporter"),
    ("shared/bootstrap.py", "from shared.adapters import cosmos\nfrom shared.handlers import guard\nimport os"),
    (
        "function_app.py",
        "import azure.functions\nfrom shared.bootstrap import services\nfrom shared.envelope import Role",
    ),
    ("local/host/worker/__main__.py", "import importlib\nimport azure.functions\nimportlib.import_module(name)"),
    ("local/demo/run.py", "from azure.servicebus.aio import ServiceBusClient\nimport local.stack"),
    ("ops/gaps.py", "from shared.domain import streams\nimport azure.identity"),
    ("checks/settings.py", "from shared.settings import Settings\nimport checks.bicep"),
    ("tests/unit/test_x.py", "import local, shared, ops, azure.cosmos"),
    ("dev.py", "import subprocess\nimport venv"),
    ("dev.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pytest"),
)


def planted(root: Path, file: str, source: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# a comment first, so that lines count\n" + source + "\n", encoding="utf-8")


@pytest.mark.parametrize(("package", "file", "source", "found"), SEEDS, ids=[f"{seed[0]}-{seed[3]}" for seed in SEEDS])
def test_a_seeded_violation_is_found(package: str, file: str, source: str, found: str, tmp_path: Path) -> None:
    planted(tmp_path, file, source)
    violations = [one for rule in RULES if rule.package == package for one in import_violations(tmp_path, rule)]

    assert Violation(file, 1 + source.count("\n") + 1, f"{package}: {found}") in violations


@pytest.mark.parametrize(("file", "source"), INNOCENT)
def test_what_is_allowed_is_not_reported(file: str, source: str, tmp_path: Path) -> None:
    planted(tmp_path, file, source)

    assert [one for rule in RULES for one in import_violations(tmp_path, rule)] == []


def test_each_rule_has_a_seeded_violation() -> None:
    assert {rule.package for rule in RULES} == {seed[0] for seed in SEEDS}
    assert len(RULES) == len({rule.package for rule in RULES})


@pytest.mark.parametrize("call", ["datetime.now(UTC)", "date.today()", "datetime.utcnow()", "open('x')", "print(1)"])
def test_a_seeded_call_of_the_clock_or_a_file_is_found(call: str, tmp_path: Path) -> None:
    planted(tmp_path, "shared/domain/deep/orders.py", f"x = {call}")

    assert [(one.file, one.line) for one in impure_calls(tmp_path)] == [("shared/domain/deep/orders.py", 2)]


def test_a_taken_top_level_name_is_found(tmp_path: Path) -> None:
    for file in ("shared/a.py", "samples/deep/a.py", "json.py", ".hidden/a.py", "infra/main.bicep"):
        planted(tmp_path, file, "")
    ours = top_level_names(tmp_path)

    assert ours == {"shared", "samples", "json"}
    assert clashes(ours, {"json", "re"}, {"samples": ["beta-binding"], "shared": ["shared"], "rich": ["rich"]}) == {
        "json": "the standard library",
        "samples": "beta-binding",
        "shared": "shared",
    }
