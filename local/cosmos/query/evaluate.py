"""Trees to Python functions: an expression becomes a function of the aliases' values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from local.cosmos.query import tree
from local.cosmos.query.compare import equal, is_number, less
from local.cosmos.query.functions import FUNCTIONS, finite
from local.cosmos.query.lexer import refused
from local.cosmos.query.tree import Node, Source
from local.cosmos.values import UNDEFINED, Json, Undefined, Value

Scope: TypeAlias = Mapping[str, Json]  # alias -> value
Evaluate: TypeAlias = Callable[[Scope], Value]

AGGREGATES = {"COUNT", "SUM", "MIN", "MAX", "AVG"}


def compile_node(node: Node, parameters: Mapping[str, Json], aliases: frozenset[str]) -> Evaluate:
    """Refuses unknown names, parameters and functions, and aggregates, with 400."""

    def inner(part: Node) -> Evaluate:
        return compile_node(part, parameters, aliases)

    match node:
        case tree.Literal(value):
            return lambda _: value
        case tree.Parameter(name):
            if name not in parameters:
                raise refused(f"the parameter {name} has no value")
            given = parameters[name]
            return lambda _: given
        case tree.Name(name):
            if name not in aliases:
                raise refused(f"Identifier '{name}' could not be resolved")
            return lambda scope: scope[name]
        case tree.Member(base, tree.Literal(str() as name)):
            return _property(inner(base), name)
        case tree.Member(base, key):
            return _element(inner(base), inner(key))
        case tree.Unary(operator, operand):
            return _unary(operator, inner(operand))
        case tree.Binary(operator, left, right):
            return _binary(operator, inner(left), inner(right))
        case tree.In(operand, options):
            return _any_equal(inner(operand), [inner(option) for option in options])
        case tree.Conditional(test, then, otherwise):
            parts = inner(test), inner(then), inner(otherwise)
            return lambda scope: parts[1](scope) if parts[0](scope) is True else parts[2](scope)
        case tree.Call(name, arguments):
            return _call(name, [inner(argument) for argument in arguments])
        case tree.ArrayOf(items):
            return _array([inner(item) for item in items])
        case tree.ObjectOf(pairs):
            return compile_object([(name, inner(value)) for name, value in pairs])
        case tree.Exists(query):
            return _exists(query, parameters, aliases)


def compile_object(pairs: Sequence[tuple[str, Evaluate]]) -> Evaluate:
    """An object without the properties whose value is undefined."""

    def build(scope: Scope) -> Value:
        made: dict[str, Json] = {}
        for name, evaluate in pairs:
            value = evaluate(scope)
            if not isinstance(value, Undefined):
                made[name] = value
        return made

    return build


def compile_sources(
    sources: Sequence[Source], parameters: Mapping[str, Json], aliases: frozenset[str]
) -> tuple[Callable[[Scope], Iterator[Scope]], frozenset[str]]:
    """The cross product of `alias IN path` sources, each seeing those before it; and the aliases then visible."""
    steps: list[tuple[str, Evaluate]] = []
    for source in sources:
        if source.alias in aliases:
            raise refused(f"the alias {source.alias} is there twice")
        if source.path is not None:
            steps.append((source.alias, compile_node(source.path, parameters, aliases)))
        aliases |= {source.alias}

    def expand(scope: Scope, at: int = 0) -> Iterator[Scope]:
        if at == len(steps):
            yield scope
            return
        alias, evaluate = steps[at]
        elements = evaluate(scope)
        for element in elements if isinstance(elements, list) else ():
            yield from expand({**scope, alias: element}, at + 1)

    return expand, aliases


def _property(base: Evaluate, name: str) -> Evaluate:
    def get(scope: Scope) -> Value:
        value = base(scope)
        return value.get(name, UNDEFINED) if isinstance(value, dict) else UNDEFINED

    return get


def _element(base: Evaluate, key: Evaluate) -> Evaluate:
    def get(scope: Scope) -> Value:
        value, at = base(scope), key(scope)
        if isinstance(value, dict) and isinstance(at, str):
            return value.get(at, UNDEFINED)
        if isinstance(value, list) and isinstance(at, int) and not isinstance(at, bool) and 0 <= at < len(value):
            return value[at]
        return UNDEFINED

    return get


def _unary(operator: str, operand: Evaluate) -> Evaluate:
    def negate(scope: Scope) -> Value:
        value = operand(scope)
        return not value if isinstance(value, bool) else UNDEFINED

    def sign(scope: Scope) -> Value:
        value = operand(scope)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return UNDEFINED
        return -value if operator == "-" else value

    return negate if operator == "NOT" else sign


def _binary(operator: str, left: Evaluate, right: Evaluate) -> Evaluate:
    match operator:
        case "AND":
            return lambda scope: _and(left(scope), right, scope)
        case "OR":
            return lambda scope: _or(left(scope), right, scope)
        case "=":
            return lambda scope: equal(left(scope), right(scope))
        case "!=":
            return lambda scope: _not(equal(left(scope), right(scope)))
        case "<":
            return lambda scope: less(left(scope), right(scope))
        case ">":
            return lambda scope: less(right(scope), left(scope))
        case "<=":
            return lambda scope: _at_most(left(scope), right(scope))
        case ">=":
            return lambda scope: _at_most(right(scope), left(scope))
        case "??":
            return lambda scope: right(scope) if (value := left(scope)) is UNDEFINED else value
        case "||":
            return lambda scope: _joined(left(scope), right(scope))
    calculate = _ARITHMETIC[operator]
    return lambda scope: _calculated(calculate, left(scope), right(scope))


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": math.fmod,
}


def _and(left: Value, right: Evaluate, scope: Scope) -> Value:
    if left is False:
        return False
    other = right(scope)
    if other is False:
        return False
    return True if left is True and other is True else UNDEFINED


def _or(left: Value, right: Evaluate, scope: Scope) -> Value:
    if left is True:
        return True
    other = right(scope)
    if other is True:
        return True
    return False if left is False and other is False else UNDEFINED


def _not(value: Value) -> Value:
    return not value if isinstance(value, bool) else UNDEFINED


def _at_most(left: Value, right: Value) -> Value:
    # Not "not right < left" alone: arrays and objects have no order, null has none but with itself.
    return _not(less(right, left))


def _joined(left: Value, right: Value) -> Value:
    return left + right if isinstance(left, str) and isinstance(right, str) else UNDEFINED


def _calculated(calculate: Callable[[float, float], float], left: Value, right: Value) -> Value:
    return finite(calculate, left, right) if is_number(left) and is_number(right) else UNDEFINED


def _any_equal(operand: Evaluate, options: list[Evaluate]) -> Evaluate:
    def test(scope: Scope) -> Value:
        value = operand(scope)
        result: Value = False
        for option in options:
            match = equal(value, option(scope))
            if match is True:
                return True
            if match is UNDEFINED:
                result = UNDEFINED
        return result

    return test


def _call(name: str, arguments: list[Evaluate]) -> Evaluate:
    if name in AGGREGATES:
        raise refused(f"{name} is served as a whole item of the SELECT list only")
    function = FUNCTIONS.get(name)
    if function is None:
        raise refused(f"the function {name} is not known, or outside the subset")
    if not function.fewest <= len(arguments) <= function.most:
        raise refused(f"{name} takes {function.fewest} to {function.most} arguments, not {len(arguments)}")
    body = function.body
    if len(arguments) == 1:
        [only] = arguments
        return lambda scope: body(only(scope))
    return lambda scope: body(*(argument(scope) for argument in arguments))


def _array(items: list[Evaluate]) -> Evaluate:
    def build(scope: Scope) -> Value:
        values = (item(scope) for item in items)
        return [value for value in values if not isinstance(value, Undefined)]

    return build


def _exists(query: tree.Select, parameters: Mapping[str, Json], aliases: frozenset[str]) -> Evaluate:
    expand, visible = compile_sources((query.source, *query.joins), parameters, aliases)
    where = None if query.where is None else compile_node(query.where, parameters, visible)
    value = query.items[0][1] if query.is_value and query.items else tree.Literal(True)
    projected = compile_node(value, parameters, visible)

    def test(scope: Scope) -> Value:
        return any((where is None or where(row) is True) and projected(row) is not UNDEFINED for row in expand(scope))

    return test
