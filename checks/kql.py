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
    outcomes: frozenset[str]
    attributes: frozenset[str]


def read(name: str, text: str) -> Query:
    """What a query is about."""
    tokens = [(kind, token) for kind, token in _tokens(name, text) if kind != "space"]
    words = {token for kind, token in tokens if kind == "name"}
    metrics = {value for column, value in _compared(tokens) if column == "Name"}
    events = {value for column, value in _compared(tokens) if column == "Message"}
    outcomes = {value for column, value in _compared(tokens) if column == "Outcome"}
    attributes = frozenset(re.findall(r"Properties\[\"([^\"]+)\"\]", text))
    tables = frozenset(words & set(TABLES))
    return Query(name, text, tables, frozenset(metrics), frozenset(events), frozenset(outcomes), attributes)


def faults(name: str, text: str) -> Iterator[str]:
    """What is wrong with a query; placeholders must have been filled."""
    try:
        tokens = [(kind, token) for kind, token in _tokens(name, text) if kind != "space"]
    except ValueError as error:
        yield str(error)
        return
    yield from _unbalanced(name, tokens)
    yield from _beside_each_other(name, tokens)
    tables = [token for kind, token in tokens if kind == "name" and token in TABLES]
    if len(set(tables)) != 1:
        yield f"{name}: reads {sorted(set(tables)) or 'no known table'}, one was expected"
        return
    start, *stages = _stages(tokens)
    variables = _given(start)
    columns = set(TABLES[tables[0]])
    for stage in stages:
        if len(stage) < 2:
            yield f"{name}: nothing stands behind {stage[0][1] if stage else '|'!r}"
    for stage in (start, *stages):
        yield from _unknown(name, stage, columns | variables)
        columns = _columns_behind(stage, columns)


def _stages(tokens: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """What stands between the pipes: variables and table first, then an operator each."""
    stages: list[list[tuple[str, str]]] = [[]]
    for token in tokens:
        if token == ("symbol", "|"):
            stages.append([])
        else:
            stages[-1].append(token)
    return stages


def _unknown(name: str, stage: list[tuple[str, str]], columns: set[str]) -> Iterator[str]:
    """Operator, functions and columns of one stage."""
    is_operator = bool(stage) and stage[0][1] not in (*TABLES, "let")
    if is_operator and stage[0][1] not in OPERATORS:
        yield f"{name}: unknown operator {stage[0][1]!r}"
        return
    for position, (kind, word) in enumerate(stage):
        after = stage[position + 1][1] if position + 1 < len(stage) else ""
        if word == "=" and is_operator and stage[0][1] == "where":
            yield f"{name}: '=' gives a name, a comparison was expected"
        if kind != "name" or word in TABLES or after == "=" or (is_operator and position == 0):
            continue
        if after == "(" and word not in WORDS:
            if word not in FUNCTIONS:
                yield f"{name}: unknown function {word!r}"
        elif word not in WORDS | columns:
            yield f"{name}: unknown column {word!r}"


def _columns_behind(stage: list[tuple[str, str]], columns: set[str]) -> set[str]:
    """The columns that the next stage has: `summarize` and `project` leave only what they name."""
    operator = stage[0][1] if stage else ""
    if operator not in ("extend", "project", "summarize"):
        return columns
    if operator == "extend":
        return columns | _given(stage)
    found: set[str] = set()
    for item in _items(stage[1:]):
        if len(item) > 1 and item[1][1] == "=":
            found.add(item[0][1])
        elif len(item) == 1 or (operator == "summarize" and item[0][1] in ("arg_max", "bin")):
            # A column by itself, or a function that keeps the names of its columns.
            found |= {word for kind, word in item if kind == "name" and word in columns}
    return found


def _items(tokens: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """What commas and `by` separate, outside of brackets."""
    depth, item = 0, list[tuple[str, str]]()
    for kind, token in [*tokens, ("symbol", ",")]:
        depth += (token in ("(", "[")) - (token in (")", "]")) if kind == "symbol" else 0
        if depth == 0 and token in (",", "by"):
            if item:
                yield item
            item = []
        else:
            item.append((kind, token))


def _beside_each_other(name: str, tokens: list[tuple[str, str]]) -> Iterator[str]:
    """Two values without anything between them: a pipe, a comma or a `by` is missing."""
    for position in range(1, len(tokens)):
        (kind, token), (kind_before, before) = tokens[position], tokens[position - 1]
        is_operator = position > 1 and tokens[position - 2] == ("symbol", "|")
        is_value = kind in ("name", "text", "number") and token not in WORDS
        was_value = kind_before in ("text", "number") or before in (")", "]")
        was_value |= kind_before == "name" and before not in WORDS and not is_operator
        if is_value and was_value:
            yield f"{name}: {before!r} and {token!r} stand beside each other"


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


def _given(tokens: list[tuple[str, str]]) -> set[str]:
    """Names that are given: `let x =`, `Name = ...` in extend, summarize and project."""
    return {
        token
        for position, (kind, token) in enumerate(tokens[:-1])
        if kind == "name" and tokens[position + 1][1] == "="
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
