"""Queries over a container, page by page.

A page ends at its size and goes on behind the last row's key: sort values, then insertion order, then the row within
its document. So writes between two pages neither repeat a row nor skip one that was there before and after.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from local.cosmos.errors import CosmosError
from local.cosmos.indexing import IndexingPolicy
from local.cosmos.query import tree
from local.cosmos.query.aggregate import Accumulator, accumulator
from local.cosmos.query.compare import compare
from local.cosmos.query.evaluate import AGGREGATES, Evaluate, Scope, compile_node, compile_object, compile_sources
from local.cosmos.query.lexer import refused
from local.cosmos.query.metrics import Metrics
from local.cosmos.query.needles import needles_of
from local.cosmos.query.syntax import parse_query
from local.cosmos.query.tree import Node
from local.cosmos.values import UNDEFINED, Json, Undefined, Value, canonical, dump, parse, parse_stored

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000  # what -1, "as you like", gives
MAX_PAGE_BYTES = 4 * 1024 * 1024
MAX_LOOKED_AT = 10_000  # documents per page of a query in insertion order: bounds how long others have to wait


class Candidate(NamedTuple):
    """A document that the query may look at, as `values.dump` wrote it."""

    sequence: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    parameters: Mapping[str, Json]

    @classmethod
    def read(cls, body: bytes) -> Query:
        """Read the body of a query request."""
        content = parse(body, "query")
        text = content.get("query") if isinstance(content, dict) else None
        given = content.get("parameters") or [] if isinstance(content, dict) else None
        if not isinstance(text, str) or not isinstance(given, list):
            raise CosmosError(400, "The query must be an object with the text query and the list parameters.")
        parameters: dict[str, Json] = {}
        for entry in given:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not isinstance(name, str) or not name.startswith("@"):
                raise CosmosError(400, "A query parameter must have a name that starts with @, and a value.")
            parameters[name] = entry.get("value")
        return cls(text, parameters)


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[bytes]
    continuation: str | None
    looked_at: int


class _Row(NamedTuple):
    order: tuple[Value, ...]
    sequence: int
    within: int  # number of the row in its document: JOIN gives several
    body: bytes


@dataclass(slots=True)
class _Position:
    """Where the page before ended: its last row, and how many rows came before it, OFFSET included."""

    row: _Row | None
    passed: int


class Plan:
    """A query made ready to run over a scope. Refuses with 400 what the subset or the index does not serve."""

    def __init__(
        self, query: Query, indexing: IndexingPolicy | None, *, is_cross_partition: bool, scope: str = ""
    ) -> None:
        self._select = select = parse_query(query.text)
        self._parameters = query.parameters
        whole: Json = [scope, query.text, dict(query.parameters)]
        self._fingerprint = hashlib.sha256(canonical(whole).encode()).hexdigest()  # what a continuation belongs to
        first = select.source
        self._root = first.alias if first.path is None else _root_of(first.path)
        root = frozenset({self._root})
        self._expand, aliases = compile_sources(
            select.joins if first.path is None else (first, *select.joins), query.parameters, root
        )
        if first.path is not None:
            aliases -= root - {first.alias}
        self._has_joins = bool(select.joins) or first.path is not None
        if select.items is None and select.joins:
            raise refused("'SELECT *' is only valid with a single input set")
        self._where = None if select.where is None else compile_node(select.where, query.parameters, aliases)
        self._needles = needles_of(select.where, query.parameters)
        self._aggregates = self._aggregated(aliases, is_cross_partition)
        # Across partitions the SDK merges what each of them has, and makes null of nothing at all.
        self._empty: Value = None if is_cross_partition else UNDEFINED
        self._only_counts = self._where is None and not self._has_joins and _counts_only(select.items or ())
        self._project = None if self._aggregates else self._projection(aliases)
        self._order = self._ordering(aliases, indexing)
        self._first, self._last = self._window()

    def page(
        self,
        candidates: Callable[[int], Iterable[Candidate]],
        size: int,
        continuation: str | None,
        metrics: Metrics | None = None,
    ) -> Page:
        """One page. `candidates` gives the documents in insertion order, from a sequence on."""
        if metrics is not None and not self._only_counts:
            candidates = metrics.watched(candidates)
        if self._aggregates:
            return self._aggregate_page(candidates(0))
        position = self._read_token(continuation)
        looked_at = 0
        last_seen = 0

        def counted(rows: Iterable[Candidate]) -> Iterator[Candidate]:
            nonlocal looked_at, last_seen
            for candidate in rows:
                looked_at += 1
                last_seen = candidate.sequence
                yield candidate

        streams = not self._order and not self._select.is_distinct
        start = position.row.sequence if streams and position.row else 0
        bounded = itertools.islice(candidates(start), MAX_LOOKED_AT if streams else None)
        rows = self._rows(counted(bounded))
        if not streams:
            rows = iter(sorted(self._distinct(rows), key=functools.cmp_to_key(self._compare)))
        result: list[bytes] = []
        taken = 0
        for row in rows:
            if position.row is not None and self._compare(row, position.row) <= 0:
                continue
            if self._last is not None and position.passed >= self._last:
                return Page(result, None, looked_at)
            if position.passed >= self._first:
                if len(result) >= size or (result and taken + len(row.body) > MAX_PAGE_BYTES):
                    return Page(result, self._token(position), looked_at)
                result.append(row.body)
                taken += len(row.body)
            position = _Position(row, position.passed + 1)
        if streams and looked_at == MAX_LOOKED_AT:
            behind = _Row((), last_seen, 2**53, b"")  # behind all rows of the last document
            return Page(result, self._token(_Position(behind, position.passed)), looked_at)
        return Page(result, None, looked_at)

    def _rows(self, candidates: Iterable[Candidate]) -> Iterator[_Row]:
        is_plain = not self._has_joins and self._where is None and self._select.items is None and not self._order
        for candidate in candidates:
            if is_plain:
                yield _Row((), candidate.sequence, 0, candidate.body)
                continue
            for within, scope in enumerate(self._matches(candidate)):
                value = self._project(scope) if self._project else UNDEFINED
                if not isinstance(value, Undefined):
                    body = candidate.body if self._select.items is None and not self._has_joins else dump(value)
                    yield _Row(tuple(by(scope) for by, _ in self._order), candidate.sequence, within, body)

    def _matches(self, candidate: Candidate) -> Iterator[Scope]:
        if not all(any(needle in candidate.body for needle in needles) for needles in self._needles):
            return
        if self._only_counts:
            yield {}
            return
        for scope in self._expand({self._root: parse_stored(candidate.body)}):
            if self._where is None or self._where(scope) is True:
                yield scope

    def _distinct(self, rows: Iterator[_Row]) -> Iterator[_Row]:
        seen: set[str] = set()
        for row in rows:
            if self._select.is_distinct:
                value = canonical(parse_stored(row.body))
                if value in seen:
                    continue
                seen.add(value)
            yield row

    def _compare(self, left: _Row, right: _Row) -> int:
        for (_, descending), a, b in zip(self._order, left.order, right.order, strict=True):
            if result := compare(a, b):
                return -result if descending else result
        return (left[1:3] > right[1:3]) - (left[1:3] < right[1:3])

    def _projection(self, aliases: frozenset[str]) -> Evaluate:
        select = self._select
        if select.items is None:
            return compile_node(tree.Name(select.source.alias), self._parameters, aliases)
        pairs = [(name, compile_node(node, self._parameters, aliases)) for name, node in select.items]
        if select.is_value:
            return pairs[0][1]
        return compile_object([(name or "", evaluate) for name, evaluate in pairs])

    def _aggregated(self, aliases: frozenset[str], is_cross_partition: bool) -> list[_Aggregate]:
        calls = [(name, node) for name, node in self._select.items or () if _is_aggregate(node)]
        if not calls:
            return []
        select = self._select
        if len(calls) != len(select.items or ()):
            raise refused("aggregates beside other items need GROUP BY, which is outside the subset")
        if select.is_distinct or select.top or select.offset:
            raise refused("an aggregate goes with neither DISTINCT, TOP nor OFFSET LIMIT")
        if is_cross_partition and not select.is_value:
            # The service leaves the merging of partitions to the SDK, which refuses this with the same words.
            raise CosmosError(400, "Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates.")
        aggregates = []
        for name, node in calls:
            assert isinstance(node, tree.Call)  # noqa: S101 - _is_aggregate
            if len(node.arguments) != 1:
                raise refused(f"{node.name} takes one argument")
            evaluate = compile_node(node.arguments[0], self._parameters, aliases)
            aggregates.append(_Aggregate(name, node.name, evaluate))
        return aggregates

    def _aggregate_page(self, candidates: Iterable[Candidate]) -> Page:
        running: list[Accumulator] = [accumulator(each.function) for each in self._aggregates]
        looked_at = 0
        for candidate in candidates:
            looked_at += 1
            for scope in self._matches(candidate):
                for each, total in zip(self._aggregates, running, strict=True):
                    total.add(each.evaluate(scope))
        results = [self._empty if (result := total.result()) is UNDEFINED else result for total in running]
        named = {
            each.name or "": result
            for each, result in zip(self._aggregates, results, strict=True)
            if not isinstance(result, Undefined)
        }
        if not self._select.is_value:
            return Page([dump(named)], None, looked_at)
        return Page([dump(value) for value in named.values()], None, looked_at)

    def _ordering(self, aliases: frozenset[str], indexing: IndexingPolicy | None) -> list[tuple[Evaluate, bool]]:
        order = self._select.order
        if not order:
            return []
        if self._has_joins:
            raise refused("ORDER BY over JOIN or IN is not supported")
        paths = tuple((_document_path(node, self._root), descending) for node, descending in order)
        if indexing is not None and len(paths) == 1 and not indexing.has(paths[0][0]):
            raise CosmosError(400, "The index path corresponding to the specified order-by item is excluded.")
        if indexing is not None and len(paths) > 1 and not indexing.serves_order(paths):
            raise CosmosError(
                400, "The order by query does not have a corresponding composite index that it can be served from."
            )
        return [(compile_node(node, self._parameters, aliases), descending) for node, descending in order]

    def _window(self) -> tuple[int, int | None]:
        """The rows to give out: from the first number on, up to the last."""
        select = self._select
        if select.top is not None:
            return 0, self._count(select.top)
        if select.offset is None or select.limit is None:
            return 0, None
        offset = self._count(select.offset)
        return offset, offset + self._count(select.limit)

    def _count(self, node: Node) -> int:
        value = compile_node(node, self._parameters, frozenset())({})
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise refused(f"TOP, OFFSET and LIMIT take a whole number, not {value!r}")
        return value

    def _token(self, position: _Position) -> str:
        row = position.row
        place: Json = None
        if row is not None:
            place = [[[] if isinstance(value, Undefined) else [value] for value in row.order], row.sequence, row.within]
        content: Json = [self._fingerprint, position.passed, place]
        return base64.urlsafe_b64encode(dump(content)).decode()

    def _read_token(self, text: str | None) -> _Position:
        if not text:
            return _Position(None, 0)
        try:
            match parse(base64.b64decode(text, altchars=b"-_", validate=True), "continuation"):
                case [str() as fingerprint, int() as passed, place] if fingerprint == self._fingerprint:
                    return _Position(self._read_place(place), passed)
        except ValueError:
            pass
        raise CosmosError(400, "The continuation token is invalid: it is none of this query.")

    def _read_place(self, place: Json) -> _Row | None:
        match place:
            case [list() as order, int() as sequence, int() as within] if len(order) == len(self._order):
                values = [value for value in order if isinstance(value, list)]
                return _Row(tuple(value[0] if value else UNDEFINED for value in values), sequence, within, b"")
        return None


@dataclass(frozen=True, slots=True)
class _Aggregate:
    name: str | None
    function: str
    evaluate: Evaluate


def _is_aggregate(node: Node) -> bool:
    return isinstance(node, tree.Call) and node.name in AGGREGATES


def _counts_only(items: Iterable[tuple[str | None, Node]]) -> bool:
    """Whether COUNT(1) is all there is: no document need be read for it."""
    counts = [isinstance(node, tree.Call) and _is_count_of_literal(node) for _, node in items]
    return bool(counts) and all(counts)


def _is_count_of_literal(node: tree.Call) -> bool:
    return node.name == "COUNT" and all(isinstance(each, tree.Literal) for each in node.arguments)


def _root_of(path: Node) -> str:
    while isinstance(path, tree.Member):
        path = path.base
    if not isinstance(path, tree.Name):
        raise refused("FROM alias IN takes a path")
    return path.name


def _document_path(node: Node, root: str) -> tuple[str, ...]:
    names: list[str] = []
    while isinstance(node, tree.Member):
        if not isinstance(node.key, tree.Literal) or not isinstance(node.key.value, str):
            break
        names.append(node.key.value)
        node = node.base
    if not names or node != tree.Name(root):
        raise refused("ORDER BY takes property paths, such as c.position")
    return tuple(reversed(names))
