"""Faults that can be seen in one file without evaluating it: unknown, unused and undescribed names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from checks.bicep.syntax import Call, Declaration, Lambda, Loop, Name, Template, Text


def faults(template: Template) -> Iterator[str]:
    """What is wrong with the names of a file, each with its line."""
    declared = template.of_kind("param", "var", "resource", "module")
    used: set[str] = set()
    for declaration in template.declarations:
        for reference in _free_names(declaration.value, frozenset()):
            used.add(reference.name)
            if reference.name not in declared:
                yield f"{template.path}:{reference.line}: unknown name {reference.name!r}"
        yield from _described(template, declaration)
    for name, declaration in declared.items():
        if declaration.kind in ("param", "var") and name not in used:
            yield f"{template.path}:{declaration.line}: {declaration.kind} {name!r} is never used"


def _described(template: Template, declaration: Declaration) -> Iterator[str]:
    if declaration.kind not in ("param", "output", "type"):
        return
    call = declaration.decorator("description")
    text = call.arguments[0] if isinstance(call, Call) and call.arguments else None
    if not isinstance(text, Text) or not any(text.parts):
        yield f"{template.path}:{declaration.line}: {declaration.kind} {declaration.name!r} has no description"


def _free_names(node: object, bound: frozenset[str]) -> Iterator[Name]:
    if isinstance(node, Name):
        if node.name not in bound:
            yield node
    elif isinstance(node, Loop):
        yield from _free_names(node.source, bound)
        yield from _free_names(node.body, bound | {node.item, node.index or node.item})
    elif isinstance(node, Lambda):
        yield from _free_names(node.body, bound | {node.name})
    elif isinstance(node, tuple):
        for part in node:
            yield from _free_names(part, bound)
    elif is_dataclass(node):
        for part in fields(node):
            yield from _free_names(getattr(node, part.name), bound)
