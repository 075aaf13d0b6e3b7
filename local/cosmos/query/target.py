"""The one partition key that a filter allows: such a query needs no leave to cross partitions."""

from __future__ import annotations

from collections.abc import Mapping

from local.cosmos.definition import ContainerSpec
from local.cosmos.partition import PartitionKey, key_of
from local.cosmos.query import tree
from local.cosmos.query.syntax import parse_query
from local.cosmos.query.tree import Node
from local.cosmos.values import UNDEFINED, Json, Value


def key_of_filter(text: str, parameters: Mapping[str, Json], spec: ContainerSpec) -> PartitionKey | None:
    """The key where the filter has `c.pk = value` as a part of an AND; None where it may be any other."""
    select = parse_query(text)
    if select.source.path is not None:
        return None
    path: Node = tree.Name(select.source.alias)
    for name in spec.key_path:
        path = tree.Member(path, tree.Literal(name))
    value = _equal_to(select.where, path, parameters)
    if value is UNDEFINED or isinstance(value, list | dict):
        return None
    return key_of(value, spec.key_version)


def _equal_to(where: Node | None, path: Node, parameters: Mapping[str, Json]) -> Value:
    match where:
        case tree.Binary("AND", left, right):
            found = _equal_to(left, path, parameters)
            return _equal_to(right, path, parameters) if found is UNDEFINED else found
        case tree.Binary("=", left, right) if left == path:
            return _constant(right, parameters)
        case tree.Binary("=", left, right) if right == path:
            return _constant(left, parameters)
    return UNDEFINED


def _constant(node: Node, parameters: Mapping[str, Json]) -> Value:
    match node:
        case tree.Literal(value):
            return value
        case tree.Parameter(name):
            return parameters.get(name, UNDEFINED)
    return UNDEFINED
