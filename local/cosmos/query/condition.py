"""The condition of a patch: a predicate over the one document."""

from __future__ import annotations

from local.cosmos.query.evaluate import compile_node
from local.cosmos.query.lexer import refused
from local.cosmos.query.syntax import parse_condition
from local.cosmos.values import Document


def holds(condition: str, document: Document) -> bool:
    """Whether `from c where ...` is true for the document. Refuses what is no such condition with 400."""
    query = parse_condition(condition)
    if query.source.path is not None or query.where is None:
        raise refused("a condition has the form: from c where ...")
    alias = query.source.alias
    return compile_node(query.where, {}, frozenset({alias}))({alias: document}) is True
