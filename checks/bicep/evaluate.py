"""Lists the resources that a template and its parameters lead to, as far as that is known before a deployment.

What only the deployment knows (a client id, an endpoint) stays a `Runtime` value. A name that can't be made here, such
as that of `uniqueString`, is replaced by a fixed text of the same length.
"""

from __future__ import annotations

import ipaddress
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from checks.bicep.syntax import (
    Array,
    Call,
    Condition,
    Declaration,
    Expression,
    Index,
    Lambda,
    Literal,
    Loop,
    Member,
    Name,
    Object,
    Operation,
    Template,
    Text,
    parse,
)

SUBSCRIPTION: Final = "/subscriptions/00000000-0000-0000-0000-000000000001"
UNIQUE: Final = "uniquestring0"


class TemplateError(Exception):
    """The template asks for something that isn't there; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A value that the deployment makes; the text says from what."""

    text: str


@dataclass(frozen=True, slots=True)
class Function:
    """A lambda with the names that it sees."""

    body: Lambda
    names: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ResourceRef:
    """A resource symbol; of a loop, with the element's index and variables."""

    instance: Instance
    declaration: Declaration
    names: Mapping[str, Value]
    body: Object

    @property
    def full_name(self) -> str:
        """The name with those of its parents, joined by slashes."""
        name = _string(self.instance.entry(self.body, "name", self.names))
        parent = self.instance.entry(self.body, "parent", self.names)
        return f"{parent.full_name}/{name}" if isinstance(parent, ResourceRef) else name

    @property
    def id(self) -> str:
        """The resource id."""
        kind = self.declaration.target.partition("@")[0]
        if kind == "Microsoft.Resources/resourceGroups":
            return f"{SUBSCRIPTION}/resourceGroups/{self.full_name}"
        provider, *kinds = kind.split("/")
        pairs = zip(kinds, self.full_name.split("/"), strict=True)
        return f"{self.instance.scope}/providers/{provider}/" + "/".join(f"{one}/{name}" for one, name in pairs)


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A module symbol; `instance` is none where its condition doesn't hold."""

    instance: Instance | None


@dataclass(frozen=True, slots=True)
class Outputs:
    """`outputs` of a module."""

    instance: Instance


Value: TypeAlias = (
    "str | int | bool | Sequence[Value] | dict[str, Value] | Runtime | Function | ResourceRef | ModuleRef | Outputs"
    " | None"
)


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the deployment."""

    type: str
    api_version: str
    name: str
    id: str
    scope: str | None
    body: Mapping[str, Value]
    place: str
    module: str
    depends_on: frozenset[str]

    @property
    def properties(self) -> Mapping[str, Value]:
        """Its member `properties`."""
        found = self.body.get("properties")
        return found if isinstance(found, dict) else {}


@dataclass(slots=True)
class Instance:
    """A template with its parameters, in a scope."""

    template: Template
    folder: Path
    root: Path
    scope: str
    parameters: Mapping[str, Value]
    symbol: str = "main"
    _modules: dict[str, ModuleRef] = field(default_factory=dict)

    def __post_init__(self) -> None:
        declared = self.template.of_kind("param")
        for name in self.parameters:
            if name not in declared:
                raise TemplateError(f"{self.template.path}: no parameter {name!r}")
        for name, parameter in declared.items():
            if name not in self.parameters and parameter.value is None and not parameter.type_text.endswith("?"):
                raise TemplateError(f"{self.template.path}:{parameter.line}: parameter {name!r} is not given")

    def resources(self) -> Iterator[Resource]:
        """All resources, those of the modules too."""
        for declaration in self.template.of_kind("resource", "module").values():
            if declaration.kind == "module":
                module = self._module(declaration)
                if module.instance is not None:
                    yield from module.instance.resources()
            elif not declaration.is_existing:
                for reference in self._references(declaration):
                    yield self._resource(reference)

    def outputs(self) -> dict[str, Value]:
        """All outputs."""
        return {name: self.output(name) for name in self.template.of_kind("output")}

    def output(self, name: str) -> Value:
        """One output."""
        declaration = self.template.of_kind("output").get(name)
        if declaration is None or declaration.value is None or isinstance(declaration.value, Condition):
            raise TemplateError(f"{self.template.path}: no output {name!r}")
        return self.value(declaration.value, {})

    def entry(self, body: Object, key: str, names: Mapping[str, Value]) -> Value:
        """One entry of an object, without a look at the others."""
        for text, expression in body.entries:
            if text.parts == (key,):
                return self.value(expression, names)
        return None

    def value(self, expression: Expression, names: Mapping[str, Value]) -> Value:
        """What an expression comes to."""
        match expression:
            case Literal():
                return expression.value
            case Text():
                return self._text(expression, names)
            case Name():
                return self._name(expression, names)
            case Member():
                return self._member(expression, names)
            case Index():
                return self._index(expression, names)
            case Call():
                return self._call(expression, names)
            case Lambda():
                return Function(expression, names)
            case Operation():
                return self._operation(expression, names)
            case Array():
                return [self.value(item, names) for item in expression.items]
            case Object():
                return {
                    _string(self._text(key, names)): self.value(entry, names) for key, entry in expression.entries
                }
            case Loop():
                return [
                    self.value(body, inner)
                    for body, inner in self._iterations(expression, names)
                    if not isinstance(body, Condition) or self._holds(body.test, inner)
                    for body in [body.body if isinstance(body, Condition) else body]
                ]

    def _resource(self, reference: ResourceRef) -> Resource:
        declaration = reference.declaration
        kind, _, version = declaration.target.partition("@")
        body = {
            _string(self._text(key, reference.names)): self.value(entry, reference.names)
            for key, entry in reference.body.entries
            if key.parts not in (("dependsOn",), ("parent",), ("scope",))
        }
        scope = self.entry(reference.body, "scope", reference.names)
        return Resource(
            type=kind,
            api_version=version,
            name=reference.full_name,
            id=reference.id,
            scope=scope.id if isinstance(scope, ResourceRef) else None,
            body=body,
            place=f"{self.template.path}:{declaration.line}",
            module=self.symbol,
            depends_on=frozenset(used_names(reference.body)),
        )

    def _references(self, declaration: Declaration) -> list[ResourceRef]:
        body = declaration.value
        found: list[ResourceRef] = []
        iterations = self._iterations(body, {}) if isinstance(body, Loop) else [(body, {})]
        for one, names in iterations:
            inner = one
            if isinstance(inner, Condition):
                if not declaration.is_existing and not self._holds(inner.test, names):
                    continue
                inner = inner.body
            if not isinstance(inner, Object):
                raise TemplateError(f"{self.template.path}:{declaration.line}: an object was expected")
            found.append(ResourceRef(self, declaration, names, inner))
        return found

    def _module(self, declaration: Declaration) -> ModuleRef:
        if declaration.name not in self._modules:
            self._modules[declaration.name] = self._load(declaration)
        return self._modules[declaration.name]

    def _load(self, declaration: Declaration) -> ModuleRef:
        body = declaration.value
        if isinstance(body, Condition):
            if not self._holds(body.test, {}):
                return ModuleRef(None)
            body = body.body
        if not isinstance(body, Object):
            raise TemplateError(f"{self.template.path}:{declaration.line}: loops of modules aren't read")
        path = self.folder / declaration.target
        if not path.is_file():
            raise TemplateError(f"{self.template.path}:{declaration.line}: no file {declaration.target}")
        scope = self.entry(body, "scope", {})
        parameters = self.entry(body, "params", {})
        return ModuleRef(
            Instance(
                template=read(path, self.root),
                folder=path.parent,
                root=self.root,
                scope=scope.id if isinstance(scope, ResourceRef) else self.scope,
                parameters=parameters if isinstance(parameters, dict) else {},
                symbol=declaration.name,
            )
        )

    def _iterations(
        self, loop: Loop, names: Mapping[str, Value]
    ) -> Iterator[tuple[Expression | Condition, Mapping[str, Value]]]:
        source = self.value(loop.source, names)
        if not isinstance(source, list):
            raise self._fault(loop.line, "a loop over something that isn't known before the deployment")
        for number, item in enumerate(source):
            inner: dict[str, Value] = {**names, loop.item: item}
            if loop.index is not None:
                inner[loop.index] = number
            yield loop.body, inner

    def _holds(self, test: Expression, names: Mapping[str, Value]) -> bool:
        value = self.value(test, names)
        if not isinstance(value, bool):
            raise self._fault(test.line, "a condition that isn't known before the deployment")
        return value

    def _text(self, text: Text, names: Mapping[str, Value]) -> Value:
        parts = [part if isinstance(part, str) else self.value(part, names) for part in text.parts]
        if any(isinstance(part, Runtime) for part in parts):
            return Runtime("".join(f"<{part.text}>" if isinstance(part, Runtime) else _string(part) for part in parts))
        return "".join(_string(part) for part in parts)

    def _name(self, name: Name, names: Mapping[str, Value]) -> Value:
        if name.name in names:
            return names[name.name]
        declaration = self.template.of_kind("param", "var", "resource", "module").get(name.name)
        if declaration is None:
            raise self._fault(name.line, f"unknown name {name.name!r}")
        if declaration.kind == "module":
            return self._module(declaration)
        if declaration.kind == "resource":
            references = self._references(declaration)
            if isinstance(declaration.value, Loop):
                return references
            return references[0] if references else None
        if declaration.kind == "param" and name.name in self.parameters:
            return self.parameters[name.name]
        if declaration.value is None or isinstance(declaration.value, Condition):
            return None
        return self.value(declaration.value, {})

    def _member(self, member: Member, names: Mapping[str, Value]) -> Value:
        of = self.value(member.of, names)
        if isinstance(of, Runtime):
            return Runtime(f"{of.text}.{member.name}")
        if isinstance(of, ResourceRef):
            return self._resource_member(of, member.name)
        if isinstance(of, ModuleRef):
            if of.instance is None:
                return None
            return Outputs(of.instance)
        if isinstance(of, Outputs):
            return of.instance.output(member.name)
        if isinstance(of, dict) and (member.name in of or member.is_safe):
            return of.get(member.name)
        if of is None and (member.is_safe or _is_safe(member.of)):
            return None
        raise self._fault(member.line, f"no member {member.name!r}")

    def _resource_member(self, reference: ResourceRef, name: str) -> Value:
        if name == "id":
            return reference.id
        if name == "name":
            return self.entry(reference.body, "name", reference.names)
        return Runtime(f"{reference.declaration.name}.{name}")

    def _index(self, index: Index, names: Mapping[str, Value]) -> Value:
        of, at = self.value(index.of, names), self.value(index.at, names)
        if isinstance(of, list) and isinstance(at, int) and at < len(of):
            items: Sequence[Value] = of
            return items[at]
        if isinstance(of, dict) and isinstance(at, str) and at in of:
            return of[at]
        raise self._fault(index.line, f"no element {at!r}")

    def _operation(self, operation: Operation, names: Mapping[str, Value]) -> Value:
        first = self.value(operation.operands[0], names)
        rest = operation.operands[1:]
        match operation.operator:
            case "?:":
                return self.value(rest[0] if self._holds(operation.operands[0], names) else rest[1], names)
            case "??":
                return self.value(rest[0], names) if first is None else first
            case "&&":
                return bool(first) and bool(self.value(rest[0], names))
            case "||":
                return bool(first) or bool(self.value(rest[0], names))
            case "unary !":
                return not first
            case "==":
                return first == self.value(rest[0], names)
            case "!=":
                return first != self.value(rest[0], names)
        numbers = [first, *(self.value(operand, names) for operand in rest)]
        if not all(isinstance(number, int) for number in numbers):
            raise self._fault(operation.line, f"{operation.operator!r} of something that isn't a number")
        return _ARITHMETIC[operation.operator](*numbers)

    def _call(self, call: Call, names: Mapping[str, Value]) -> Value:
        arguments = [self.value(argument, names) for argument in call.arguments]
        own: dict[str, Callable[..., Value]] = {
            "loadTextContent": lambda path: (self.folder / path).read_text(encoding="utf-8"),
            "loadJsonContent": lambda path: json.loads((self.folder / path).read_text(encoding="utf-8")),
            "filter": lambda items, test: [item for item in items if self._apply(test, item)],
            "map": lambda items, make: [self._apply(make, item) for item in items],
            "toObject": lambda items, key, make: {
                _string(self._apply(key, item)): self._apply(make, item) for item in items
            },
            "resourceGroup": lambda: {"id": self.scope, "location": Runtime("resourceGroup().location")},
            "subscription": lambda: {"id": SUBSCRIPTION},
            "subscriptionResourceId": lambda kind, name: f"{SUBSCRIPTION}/providers/{kind}/{_string(name)}",
        }
        function = own.get(call.function) or _FUNCTIONS.get(call.function)
        if function is None:
            raise self._fault(call.line, f"unknown function {call.function!r}")
        try:
            return function(*arguments)
        except (TypeError, ValueError, OSError, AttributeError) as error:
            raise self._fault(call.line, f"{call.function}: {error}") from error

    def _apply(self, function: Function, item: Value) -> Value:
        return self.value(function.body.body, {**function.names, function.body.name: item})

    def _fault(self, line: int, what: str) -> TemplateError:
        return TemplateError(f"{self.template.path}:{line}: {what}")


def _is_safe(expression: Expression) -> bool:
    """Whether a missing value further left ends the chain of members quietly."""
    return isinstance(expression, Member) and (expression.is_safe or _is_safe(expression.of))


def _string(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Runtime):
        return f"<{value.text}>"
    return str(value)


def _union(*values: Value) -> Value:
    if all(isinstance(value, dict) for value in values):
        merged: dict[str, Value] = {}
        for value in values:
            merged.update(value if isinstance(value, dict) else {})
        return merged
    raise TypeError("union of anything but objects isn't read")


def _subnet(prefix: str, length: int, number: int) -> Value:
    subnets = ipaddress.ip_network(prefix).subnets(new_prefix=length)
    return str(next(subnet for position, subnet in enumerate(subnets) if position == number))


_ARITHMETIC: Final[Mapping[str, Callable[..., Value]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "unary -": lambda a: -a,
}

_FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "empty": lambda value: not isinstance(value, Runtime) and not value,
    "string": _string,
    "replace": lambda text, old, new: text.replace(old, _string(new)),
    "max": max,
    "items": lambda value: [{"key": key, "value": value[key]} for key in sorted(value)],
    "union": _union,
    "uniqueString": lambda *_: UNIQUE,
    "guid": lambda *parts: str(uuid.uuid5(uuid.NAMESPACE_URL, "|".join(_string(part) for part in parts))),
    "tenant": lambda: {"tenantId": Runtime("tenant().tenantId")},
    "environment": lambda: Runtime("environment()"),
    "cidrSubnet": _subnet,
}


def used_names(node: object) -> Iterator[str]:
    """The names that an expression refers to, `dependsOn` included."""
    if isinstance(node, Name):
        yield node.name
    elif isinstance(node, (tuple, list)):
        for part in node:
            yield from used_names(part)
    elif hasattr(node, "__slots__"):
        for slot in node.__slots__:
            yield from used_names(getattr(node, slot))


def read(path: Path, root: Path) -> Template:
    """Parse one file; places are told relative to the root."""
    return parse(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def deployment(root: Path, parameters: Mapping[str, Value]) -> Instance:
    """`infra/main.bicep` below the root, with these parameters.

    Raises: BicepSyntaxError, TemplateError.
    """
    folder = root / "infra"
    return Instance(read(folder / "main.bicep", root), folder, root, SUBSCRIPTION, parameters)
