"""A filter before the filter: bytes that a document must hold to match, so that most need not be parsed.

`c.record.status IN ("effect", "accepted")` as a part of an AND can be true only where the stored JSON, which is always
written the same way, has "status":"effect" or "status":"accepted" in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from local.cosmos.query import tree
from local.cosmos.query.tree import Node
from local.cosmos.values import Json, dump


def needles_of(where: Node | None, parameters: Mapping[str, Json]) -> list[tuple[bytes, ...]]:
    """Groups of bytes; of each group at least one is in every document that the filter lets through."""
    match where:
        case tree.Binary("AND", left, right):
            return needles_of(left, parameters) + needles_of(right, parameters)
        case tree.Binary("=", left, right):
            pairs: list[tuple[Node, tuple[Node, ...]]] = [(left, (right,)), (right, (left,))]
        case tree.In(operand, options):
            pairs = [(operand, options)]
        case _:
            return []
    for path, values in pairs:
        prefix = _prefix(path)
        texts = [_text(value, parameters) for value in values]
        if prefix is not None and None not in texts:
            return [tuple(prefix + dump(text) for text in texts)]
    return []


def _prefix(path: Node) -> bytes | None:
    """The bytes before a value at this path; None where it is no path into the document."""
    root = path
    while isinstance(root, tree.Member):
        root = root.base
    if not isinstance(root, tree.Name):
        return None
    match path:
        case tree.Member(_, tree.Literal(str() as name)):
            return dump(name) + b":"
    return b""


def _text(value: Node, parameters: Mapping[str, Json]) -> str | None:
    match value:
        case tree.Literal(str() as text):
            return text
        case tree.Parameter(name):
            given = parameters.get(name)
            return given if isinstance(given, str) else None
    return None
