"""Reads the queries of alerts and workbook, and finds what a service would only say when an alert should have fired.

Not a full parser: it knows the operators, tables and columns that the queries here use, and refuses others, so that a
misspelt one can't pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

TABLES: Final = {
    "AppMetrics": {"TimeGenerated", "Name", "Sum", "Min", "Max", "ItemCount", "Properties", "AppRoleName"},
    "AppTraces": {"TimeGenerated", "Message", "SeverityLevel", "ItemCount", "Properties", "OperationId", "AppRoleName"},
}
"""Tables of a workspace-based Application Insights component, with the columns that are used."""

OPERATORS: Final = {"where", "extend", "summarize", "project", "order", "top", "take", "render"}
FUNCTIONS: Final = {
    "sum", "sumif", "count", "countif", "max", "min", "arg_max", "avg", "dcount", "tostring", "todouble", "toint",
    "iff", "ago", "bin", "split", "round",
}  # fmt: skip
WORDS: Final = {"by", "and", "or", "not", "in", "startswith_cs", "has", "asc", "desc", "let"}

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|//[^\n]*)|(?P<text>\"(?:[^\"\\]|\\.)*\")|(?P<number>\d+(?:\.\d+)?)(?P<unit>[smhd])?"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<symbol>==|!=|<=|>=|=~|[][(){}|,=<>+*/;:-])"
)
_CLOSING: Final = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class Query:
    """One query: what it reads, and the names of metrics and events that it filters by."""

    name: str
    text: str
    tables: frozenset[str]
    metrics: frozenset[str]
    events: frozenset[str]
    attributes: frozenset[str]


def read(name: str, text: str) -> Query:
    """What a query is about."""
    tokens = [(kind, token) for kind, token in _tokens(name, text) if kind != "space"]
    words = {token for kind, token in tokens if kind == "name"}
    metrics = {value for column, value in _compared(tokens) if column == "Name"}
    events = {value for column, value in _compared(tokens) if column == "Message"}
    attributes = frozenset(re.findall(r"Properties\[\"([^\"]+)\"\]", text))
    return Query(name, text, frozenset(words & set(TABLES)), frozenset(metrics), frozenset(events), attributes)


def faults(name: str, text: str) -> Iterator[str]:
    """What is wrong with a query; placeholders must have been filled."""
    try:
        tokens = [(kind, token) for kind, token in _tokens(name, text) if kind != "space"]
    except ValueError as error:
        yield str(error)
        return
    yield from _unbalanced(name, tokens)
    known = _known_names(tokens)
    tables = [token for kind, token in tokens if kind == "name" and token in TABLES]
    if len(set(tables)) != 1:
        yield f"{name}: reads {sorted(set(tables)) or 'no known table'}, one was expected"
        return
    columns = TABLES[tables[0]]
    operator = ""
    for position, (kind, word) in enumerate(tokens):
        before = tokens[position - 1][1] if position else ""
        after = tokens[position + 1][1] if position + 1 < len(tokens) else ""
        operator = word if before == "|" else operator
        if word == "=" and operator == "where":
            yield f"{name}: '=' gives a name, a comparison was expected"
        if kind != "name" or word in TABLES:
            continue
        if before == "|":
            if word not in OPERATORS:
                yield f"{name}: unknown operator {word!r}"
        elif after == "(" and word not in WORDS:
            if word not in FUNCTIONS:
                yield f"{name}: unknown function {word!r}"
        elif word not in WORDS | columns | known:
            yield f"{name}: unknown column {word!r}"


def _tokens(name: str, text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise ValueError(f"{name}:{line}: unexpected {text[at]!r}")
        yield ("number" if match["number"] else str(match.lastgroup)), match.group()
        at = match.end()


def _unbalanced(name: str, tokens: list[tuple[str, str]]) -> Iterator[str]:
    opened: list[str] = []
    for kind, bracket in tokens:
        if kind == "symbol" and bracket in _CLOSING.values():
            opened.append(bracket)
        elif kind == "symbol" and bracket in _CLOSING and (not opened or opened.pop() != _CLOSING[bracket]):
            yield f"{name}: {bracket!r} closes nothing"
            return
    if opened:
        yield f"{name}: {opened[-1]!r} isn't closed"


def _known_names(tokens: list[tuple[str, str]]) -> set[str]:
    """Names that the query itself gives: `let x =`, `Name = ...` in extend, summarize and project."""
    return {
        token
        for position, (kind, token) in enumerate(tokens[:-1])
        if kind == "name" and tokens[position + 1][1] == "=" and tokens[position + 2][1] != "="
    }


def _compared(tokens: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Columns and the texts that they are compared with."""
    for position, (kind, token) in enumerate(tokens[:-2]):
        operator, text = tokens[position + 1][1], tokens[position + 2]
        if kind == "name" and operator in ("==", "startswith_cs") and text[0] == "text":
            yield token, text[1].strip('"')
        if kind == "name" and operator == "in":
            for other in tokens[position + 3 :]:
                if other[1] == ")":
                    break
                if other[0] == "text":
                    yield token, other[1].strip('"')
