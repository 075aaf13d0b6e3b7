"""Numbers and trigger options that stand in the code, read from its text: the checks don't import the app."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from checks.facts import Fact, FactError


@dataclass(frozen=True, slots=True)
class Trigger:
    """One function of function_app.py."""

    function: str
    kind: str
    options: Mapping[str, str]
    decorators: frozenset[str]
    is_async: bool
    place: str


def constant(path: Path, name: str) -> Fact:
    """A whole number that a module assigns to a name.

    Raises: FactError.
    """
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Constant):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return Fact(node.value.value, f"{path.parent.name}/{path.name}:{node.lineno} ({name})")
    raise FactError(f"{path}: no constant {name}")


def triggers(path: Path) -> tuple[Trigger, ...]:
    """The functions of an app, with the decorators and options that stand on them."""
    return tuple(_triggers(path))


def _triggers(path: Path) -> Iterator[Trigger]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        calls = [item for item in node.decorator_list if isinstance(item, ast.Call)]
        decorators = {ast.unparse(call.func): call for call in calls}
        for name, call in decorators.items():
            kind = name.rpartition(".")[2]
            if kind.endswith("_trigger") or kind == "route":
                yield Trigger(
                    function=node.name,
                    kind=kind,
                    options={str(keyword.arg): ast.unparse(keyword.value) for keyword in call.keywords},
                    decorators=frozenset(item.rpartition(".")[2] for item in decorators),
                    is_async=isinstance(node, ast.AsyncFunctionDef),
                    place=f"{path.name}:{node.lineno} ({node.name})",
                )
