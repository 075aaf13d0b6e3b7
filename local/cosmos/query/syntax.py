"""Query text to a tree: a recursive-descent parser that refuses everything outside the subset by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from local.cosmos.errors import CosmosError
from local.cosmos.query.lexer import Token, refused, tokens_of, unquoted
from local.cosmos.query.tree import (
    ArrayOf,
    Binary,
    Call,
    Conditional,
    Exists,
    In,
    Literal,
    Member,
    Name,
    Node,
    ObjectOf,
    Parameter,
    Select,
    Source,
    Unary,
)
from local.cosmos.values import UNDEFINED, number

_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """SELECT VALUE DISTINCT TOP AS FROM IN JOIN WHERE ORDER BY ASC DESC OFFSET LIMIT GROUP
        AND OR NOT BETWEEN EXISTS LIKE ESCAPE TRUE FALSE NULL UNDEFINED ARRAY UDF""",
    )
)
_USABLE_AS_NAME = {"VALUE", "OFFSET", "LIMIT", "ARRAY", "UNDEFINED"}
_COMPARISONS = {"=", "!=", "<", "<=", ">", ">="}
# Bounds on nesting and on operators in a row keep the parser, and what it makes, within Python's own stack.
_MAX_DEPTH = 40
_MAX_CHAIN = 200
_MAX_TERMS = 2000  # of AND or OR in a row: the service's own limit, and the SDK asks for 1000 items at a time that way
_T = TypeVar("_T")


@lru_cache(maxsize=512)
def parse_query(text: str) -> Select:
    """Parse a whole query. Refuses syntax errors and what is outside the subset with 400."""
    parser = _Parser(text)
    return parser.whole(parser.select)


@lru_cache(maxsize=512)
def parse_condition(text: str) -> Select:
    """Parse a patch condition: `from c where ...`."""
    parser = _Parser(text)
    source, where = parser.whole(parser.condition)
    return Select(None, False, False, source, (), where, (), None, None, None)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokens_of(text)
        self._at = 0
        self._depth = 0

    def whole(self, rule: Callable[[], _T]) -> _T:
        result = rule()
        if self._peek().kind != "end":
            raise self._unexpected()
        return result

    def select(self) -> Select:
        self._expect("SELECT")
        is_distinct = self._accept("DISTINCT")
        top = self._count() if self._accept("TOP") else None
        is_value = self._accept("VALUE")
        items: tuple[tuple[str | None, Node], ...] | None = None
        if is_value:
            items = ((None, self.expression()),)
        elif not self._accept("*"):
            items = self._select_list()
        if not self._accept("FROM"):
            raise self._unexpected("FROM")
        source, joins = self._source(), []
        while self._accept("JOIN"):
            joins.append(self._in_source())
        where = self.expression() if self._accept("WHERE") else None
        if self._accept("GROUP"):
            raise refused("GROUP BY is outside the subset")
        order = self._order() if self._accept("ORDER") else ()
        offset = limit = None
        if self._accept("OFFSET"):
            offset = self._count()
            self._expect("LIMIT")
            limit = self._count()
            if top is not None:
                raise refused("TOP and OFFSET LIMIT exclude each other")
        return Select(items, is_value, is_distinct, source, tuple(joins), where, order, top, offset, limit)

    def condition(self) -> tuple[Source, Node]:
        self._expect("FROM")
        source = self._source()
        self._expect("WHERE")
        return source, self.expression()

    def _select_list(self) -> tuple[tuple[str | None, Node], ...]:
        items: list[tuple[str | None, Node]] = []
        unnamed = 0
        while True:
            node = self.expression()
            if self._accept("AS") or self._is_name():
                name = self._name()
            elif isinstance(node, Name):
                name = node.name
            elif isinstance(node, Member) and isinstance(node.key, Literal) and isinstance(node.key.value, str):
                name = node.key.value
            else:
                unnamed += 1
                name = f"${unnamed}"
            if any(name == other for other, _ in items):
                raise refused(f"the name {name} is there twice in the SELECT list")
            items.append((name, node))
            if not self._accept(","):
                return tuple(items)

    def _source(self) -> Source:
        """`c`, `c AS x`, `x IN c.path`: the first name of a plain source stands for the container, whatever it is."""
        name = self._name()
        if self._accept("IN"):
            # `FROM x IN c.path`: c is the container; its alias is not visible anywhere else.
            return Source(name, self._path())
        if self._peek().text in (".", "["):
            raise refused("FROM takes an alias, or alias IN path")
        if self._accept("AS") or self._is_name():
            name = self._name()
        return Source(name, None)

    def _in_source(self) -> Source:
        alias = self._name()
        self._expect("IN")
        return Source(alias, self._path())

    def _path(self) -> Node:
        if self._peek().text == "(":
            raise refused("a subquery in FROM or JOIN is outside the subset")
        return self._members(Name(self._name()))

    def _order(self) -> tuple[tuple[Node, bool], ...]:
        self._expect("BY")
        order = []
        while True:
            node = self.expression()
            descending = self._accept("DESC")
            if not descending:
                self._accept("ASC")
            order.append((node, descending))
            if not self._accept(","):
                return tuple(order)

    def _count(self) -> Node:
        token = self._next()
        if token.kind == "parameter":
            return Parameter(token.text)
        if token.kind == "number" and token.text.isdecimal():
            return Literal(int(token.text))
        raise refused(f"TOP, OFFSET and LIMIT take a whole number or a parameter, not {token.text!r}")

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise refused("it is nested too deeply")
        node = self._coalesced()
        if self._accept("?"):
            then = self.expression()
            self._expect(":")
            node = Conditional(node, then, self.expression())
        self._depth -= 1
        return node

    def _coalesced(self) -> Node:
        return self._chain(("??",), self._or)

    def _or(self) -> Node:
        return self._terms("OR", self._and)

    def _and(self) -> Node:
        return self._terms("AND", self._compared)

    def _compared(self) -> Node:
        node = self._concatenated()
        token = self._peek()
        operator = "!=" if token.text == "<>" else token.text
        if token.kind == "symbol" and operator in _COMPARISONS:
            self._next()
            node = Binary(operator, self._operand(node), self._operand(self._concatenated()))
            if self._peek().kind == "symbol" and self._peek().text in _COMPARISONS | {"<>"}:
                raise refused("comparisons in a chain need parentheses")
            return node
        if self._accept("LIKE"):
            raise refused("LIKE is outside the subset; STARTSWITH, ENDSWITH and CONTAINS are in it")
        negated = self._accept("NOT")
        if self._accept("IN"):
            found: Node = In(self._operand(node), self._listed("(", ")"))
        elif self._accept("BETWEEN"):
            operand, low = self._operand(node), self._concatenated()
            self._expect("AND")
            found = Binary("AND", Binary(">=", operand, low), Binary("<=", operand, self._concatenated()))
        elif negated:
            raise self._unexpected("IN or BETWEEN")
        else:
            return node
        return Unary("NOT", found, in_parentheses=True) if negated else found

    def _operand(self, node: Node) -> Node:
        # In the service NOT binds tighter than =, elsewhere looser: only parentheses say what is meant.
        if isinstance(node, Unary) and node.operator == "NOT" and not node.in_parentheses:
            raise refused("NOT before a comparison needs parentheses, NOT (a = b)")
        return node

    def _concatenated(self) -> Node:
        node = self._chain(("||",), self._sum)
        if self._peek().text in {"&", "|", "^", "<<", ">>"}:
            raise refused("bitwise operators are outside the subset")
        return node

    def _sum(self) -> Node:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._chain(("*", "/", "%"), self._unary)

    def _terms(self, operator: str, rule: Callable[[], Node]) -> Node:
        terms = [rule()]
        while self._accept(operator):
            terms.append(rule())
            if len(terms) > _MAX_TERMS:
                raise refused(f"it has more than {_MAX_TERMS} terms of {operator} in a row")
        return _balanced(operator, terms)

    def _chain(self, operators: tuple[str, ...], rule: Callable[[], Node]) -> Node:
        node = rule()
        for _ in range(_MAX_CHAIN):
            operator = next((each for each in operators if self._accept(each)), None)
            if operator is None:
                return node
            node = Binary(operator, node, rule())
        raise refused(f"it has more than {_MAX_CHAIN} operators {operators[0]} in a row")

    def _unary(self) -> Node:
        for operator in ("NOT", "-", "+"):
            if self._accept(operator):
                self._depth += 1
                if self._depth > _MAX_DEPTH:
                    raise refused("it is nested too deeply")
                node = Unary(operator, self._unary())
                self._depth -= 1
                return node
        return self._members(self._primary())

    def _members(self, node: Node) -> Node:
        while True:
            if self._accept("."):
                token = self._next()
                if token.kind != "word":
                    raise self._unexpected("a property name", token)
                node = Member(node, Literal(token.text))
            elif self._accept("["):
                node = Member(node, self.expression())
                self._expect("]")
            else:
                return node

    def _primary(self) -> Node:
        token = self._next()
        keyword = token.text.upper() if token.kind == "word" else ""
        if token.kind == "number":
            return Literal(number(float(token.text)))
        if token.kind == "string":
            return Literal(unquoted(token.text))
        if token.kind == "parameter":
            return Parameter(token.text)
        if keyword in {"TRUE", "FALSE", "NULL", "UNDEFINED"}:
            return Literal({"TRUE": True, "FALSE": False, "NULL": None}.get(keyword, UNDEFINED))
        if keyword == "EXISTS":
            return self._exists()
        if keyword == "UDF":
            raise refused("user-defined functions are outside the subset")
        if keyword == "ARRAY" and self._peek().text == "(":
            raise refused("ARRAY(subquery) is outside the subset")
        if token.kind == "word" and (keyword not in _KEYWORDS or keyword in _USABLE_AS_NAME):
            return Call(keyword, self._listed("(", ")")) if self._peek().text == "(" else Name(token.text)
        self._at -= 1
        if token.text == "(":
            return self._parenthesised()
        if token.text == "[":
            return ArrayOf(self._listed("[", "]"))
        if token.text == "{":
            return self._object()
        raise self._unexpected()

    def _parenthesised(self) -> Node:
        self._expect("(")
        if self._peek().text.upper() == "SELECT":
            raise refused("a subquery is served in EXISTS only")
        node = self.expression()
        self._expect(")")
        return Unary(node.operator, node.operand, in_parentheses=True) if isinstance(node, Unary) else node

    def _exists(self) -> Node:
        self._expect("(")
        query = self.select()
        self._expect(")")
        if query.source.path is None or query.order or query.top or query.offset:
            raise refused("EXISTS takes SELECT ... FROM alias IN path [WHERE ...]")
        return Exists(query)

    def _listed(self, start: str, end: str) -> tuple[Node, ...]:
        self._expect(start)
        nodes: list[Node] = []
        if self._accept(end):
            return ()
        while True:
            nodes.append(self.expression())
            if self._accept(end):
                return tuple(nodes)
            self._expect(",")

    def _object(self) -> Node:
        self._expect("{")
        pairs: list[tuple[str, Node]] = []
        while not self._accept("}"):
            if pairs:
                self._expect(",")
            token = self._next()
            if token.kind not in {"string", "word"}:
                raise self._unexpected("a property name", token)
            self._expect(":")
            name = unquoted(token.text) if token.kind == "string" else token.text
            pairs.append((name, self.expression()))
        return ObjectOf(tuple(pairs))

    def _is_name(self) -> bool:
        token = self._peek()
        keyword = token.text.upper()
        return token.kind == "word" and (keyword not in _KEYWORDS or keyword in {"VALUE", "ARRAY"})

    def _name(self) -> str:
        token = self._next()
        if token.kind == "word" and (token.text.upper() not in _KEYWORDS or token.text.upper() in _USABLE_AS_NAME):
            return token.text
        raise self._unexpected("a name", token)

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _accept(self, text: str) -> bool:
        token = self._tokens[self._at]
        matches = token.text.upper() == text if token.kind == "word" else token.kind == "symbol" and token.text == text
        self._at += matches
        return matches

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(text)

    def _unexpected(self, wanted: str = "", token: Token | None = None) -> CosmosError:
        found = token or self._peek()
        what = f"{found.text!r} at {found.at}" if found.text else "the end"
        return refused(f"syntax error near {what}" + (f", {wanted} is expected" if wanted else ""))


def _balanced(operator: str, terms: Sequence[Node]) -> Node:
    """Terms in their order, as a tree that is as flat as can be: AND and OR may be grouped in any way."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return Binary(operator, _balanced(operator, terms[:middle]), _balanced(operator, terms[middle:]))
