"""The nodes of a parsed query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from local.cosmos.values import Value


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """A property by name or an element by index."""

    base: Node
    key: Node


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: Node
    in_parentheses: bool = False


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class In:
    operand: Node
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    test: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ArrayOf:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ObjectOf:
    pairs: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Exists:
    query: Select


Node: TypeAlias = (
    "Literal | Parameter | Name | Member | Unary | Binary | In | Conditional | Call | ArrayOf | ObjectOf | Exists"
)


@dataclass(frozen=True, slots=True)
class Source:
    """`alias IN path`, or the whole document under its alias where `path` is None."""

    alias: str
    path: Node | None


@dataclass(frozen=True, slots=True)
class Select:
    """`items` is None for *; an item has the name it gets in the result, None for VALUE."""

    items: tuple[tuple[str | None, Node], ...] | None
    is_value: bool
    is_distinct: bool
    source: Source
    joins: tuple[Source, ...]
    where: Node | None
    order: tuple[tuple[Node, bool], ...]  # of (path, descending)
    top: Node | None
    offset: Node | None
    limit: Node | None
