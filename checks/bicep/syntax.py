"""Parses the part of Bicep that `infra/` is written in.

Refuses what it doesn't know, by line: a construct that was skipped could hide a number that the checks rest on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

_T = TypeVar("_T")


class BicepSyntaxError(Exception):
    """The text isn't Bicep as this reader knows it; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Token:
    """One lexical unit. `parts` is filled for strings: texts, and the tokens of interpolated expressions."""

    kind: str
    text: str
    line: int
    parts: tuple[str | tuple[Token, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a boolean or null."""

    value: int | bool | None
    line: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string; its parts are texts and expressions."""

    parts: tuple[str | Expression, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Name:
    """A reference to a parameter, variable, resource, module, or loop variable."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Member:
    """`of.name`, or `of.?name`."""

    of: Expression
    name: str
    is_safe: bool
    line: int


@dataclass(frozen=True, slots=True)
class Index:
    """`of[at]`."""

    of: Expression
    at: Expression
    line: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a built-in function."""

    function: str
    arguments: tuple[Expression, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Lambda:
    """`name => body`."""

    name: str
    body: Expression
    line: int


@dataclass(frozen=True, slots=True)
class Operation:
    """A unary, binary or ternary operator with its operands."""

    operator: str
    operands: tuple[Expression, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Array:
    """`[a, b]`."""

    items: tuple[Expression, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Object:
    """`{ key: value }`."""

    entries: tuple[tuple[Text, Expression], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`[for item in source: body]`; `index` is the second loop variable."""

    item: str
    index: str | None
    source: Expression
    body: Expression | Condition
    line: int


@dataclass(frozen=True, slots=True)
class Condition:
    """`if (test) body`."""

    test: Expression
    body: Expression
    line: int


Expression: TypeAlias = "Literal | Text | Name | Member | Index | Call | Lambda | Operation | Array | Object | Loop"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One statement with its decorators."""

    kind: str
    name: str
    line: int
    value: Expression | Condition | None = None
    type_text: str = ""
    target: str = ""
    is_existing: bool = False
    decorators: tuple[Call, ...] = ()

    def decorator(self, name: str) -> Call | None:
        """The decorator of that name."""
        return next((call for call in self.decorators if call.function == name), None)


@dataclass(frozen=True, slots=True)
class Template:
    """One file."""

    path: str
    scope: str
    declarations: tuple[Declaration, ...]

    def of_kind(self, *kinds: str) -> dict[str, Declaration]:
        """The declarations of these kinds, by name."""
        return {declaration.name: declaration for declaration in self.declarations if declaration.kind in kinds}


_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", "$": "$"}
_SIMPLE: Final = re.compile(
    r"(?P<space>[ \t]+|//[^\n]*|/\*.*?\*/)|(?P<newline>\r?\n)|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+)"
    r"|(?P<symbol>=>|==|!=|<=|>=|&&|\|\||\?\?|\.\?|[][(){}.,:?=<>!+*/%@|-])",
    re.DOTALL,
)


class _Lexer:
    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text
        self._at = 0
        self._line = 1

    def tokens(self, *, inside: bool = False) -> tuple[Token, ...]:
        """All tokens to the end; inside a string, to the brace that closes the interpolation."""
        found: list[Token] = []
        depth = 0
        while self._at < len(self._text):
            if self._text.startswith("'", self._at):
                found.append(self._string())
                continue
            match = _SIMPLE.match(self._text, self._at)
            if match is None:
                raise BicepSyntaxError(f"{self._path}:{self._line}: unexpected {self._text[self._at]!r}")
            kind, text = str(match.lastgroup), match.group()
            if inside and text == "}" and depth == 0:
                self._at = match.end()
                return tuple(found)
            depth += {"{": 1, "}": -1}.get(text, 0)
            if kind != "space":
                found.append(Token(kind, text, self._line))
            self._line += text.count("\n")
            self._at = match.end()
        if inside:
            raise BicepSyntaxError(f"{self._path}:{self._line}: an interpolation isn't closed")
        found.append(Token("end", "", self._line))
        return tuple(found)

    def _string(self) -> Token:
        line = self._line
        if self._text.startswith("'''", self._at):
            end = self._text.find("'''", self._at + 3)
            if end < 0:
                raise BicepSyntaxError(f"{self._path}:{line}: a string isn't closed")
            text = self._text[self._at + 3 : end].removeprefix("\n")
            self._line += self._text.count("\n", self._at, end)
            self._at = end + 3
            return Token("string", text, line, (text,))
        self._at += 1
        parts: list[str | tuple[Token, ...]] = []
        plain = ""
        while True:
            character = self._text[self._at : self._at + 1]
            if character in ("", "\n"):
                raise BicepSyntaxError(f"{self._path}:{line}: a string isn't closed")
            self._at += 1
            if character == "'":
                break
            if character == "\\":
                escape = self._text[self._at : self._at + 1]
                if escape not in _ESCAPES:
                    raise BicepSyntaxError(f"{self._path}:{line}: unknown escape \\{escape}")
                plain += _ESCAPES[escape]
                self._at += 1
            elif character == "$" and self._text.startswith("{", self._at):
                self._at += 1
                parts += [plain, self.tokens(inside=True)]
                plain = ""
            else:
                plain += character
        return Token("string", "", line, (*parts, plain))


# Lowest first; the ternary and the unary operators are handled apart.
_PRECEDENCE: Final = (("??",), ("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"))


class _Parser:
    def __init__(self, path: str, tokens: tuple[Token, ...]) -> None:
        self._path = path
        self._tokens = tokens
        self._at = 0

    def template(self) -> Template:
        scope = "resourceGroup"
        declarations: list[Declaration] = []
        self._skip_lines()
        while self._peek().kind != "end":
            decorators = self._decorators()
            word = self._take("name")
            if word.text == "targetScope":
                self._take("symbol", "=")
                value = self._expression()
                scope = value.parts[0] if isinstance(value, Text) and isinstance(value.parts[0], str) else scope
            else:
                declarations.append(self._declaration(word, decorators))
            if self._peek().kind != "end":
                self._take("newline")
            self._skip_lines()
        return Template(self._path, scope, tuple(declarations))

    def _declaration(self, word: Token, decorators: tuple[Call, ...]) -> Declaration:
        if word.text not in ("param", "var", "output", "type", "resource", "module"):
            raise self._fault(word, f"unknown statement {word.text!r}")
        kind, name = word.text, self._take("name").text
        if kind in ("resource", "module"):
            target = self._plain(self._take("string"))
            is_existing = self._accept("existing")
            self._take("symbol", "=")
            return Declaration(
                kind, name, word.line, self._body(), target=target, is_existing=is_existing, decorators=decorators
            )
        type_text = self._type() if kind in ("param", "output") else ""
        value: Expression | None = None
        if kind == "type":
            self._take("symbol", "=")
            type_text = self._type()
        elif kind != "param" or self._peek().text == "=":
            self._take("symbol", "=")
            value = self._expression()
        return Declaration(kind, name, word.line, value, type_text, decorators=decorators)

    def _body(self) -> Expression | Condition:
        if self._peek().text == "if":
            return self._condition()
        return self._expression()

    def _condition(self) -> Condition:
        line = self._take("name", "if").line
        self._take("symbol", "(")
        test = self._expression()
        self._take("symbol", ")")
        return Condition(test, self._expression(), line)

    def _decorators(self) -> tuple[Call, ...]:
        found: list[Call] = []
        while self._accept("@"):
            call = self._expression()
            if not isinstance(call, Call):
                raise self._fault(self._peek(), "a decorator must be a call")
            found.append(call)
            self._take("newline")
            self._skip_lines()
        return tuple(found)

    def _type(self) -> str:
        """A type as text; its structure doesn't matter to the checks."""
        depth, text = 0, ""
        while True:
            token = self._peek()
            if depth == 0 and (token.kind in ("newline", "end") or token.text == "="):
                return text.strip()
            depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(token.text, 0)
            text += f"'{self._plain(token)}'" if token.kind == "string" else f"{token.text} "
            self._at += 1

    def _expression(self) -> Expression:
        condition = self._binary(0)
        if not self._accept_on_next_line("?"):
            return condition
        self._skip_lines()
        then = self._expression()
        self._skip_lines()
        self._take("symbol", ":")
        self._skip_lines()
        return Operation("?:", (condition, then, self._expression()), condition.line)

    def _binary(self, level: int) -> Expression:
        if level == len(_PRECEDENCE):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek().kind == "symbol" and self._peek().text in _PRECEDENCE[level]:
            operator = self._take("symbol").text
            self._skip_lines()
            left = Operation(operator, (left, self._binary(level + 1)), left.line)
        return left

    def _unary(self) -> Expression:
        token = self._peek()
        if token.kind == "symbol" and token.text in ("!", "-"):
            self._at += 1
            return Operation(f"unary {token.text}", (self._unary(),), token.line)
        return self._postfix(self._primary())

    def _postfix(self, value: Expression) -> Expression:
        while self._peek().kind == "symbol":
            token = self._peek()
            if token.text in (".", ".?"):
                self._at += 1
                name = self._take("name").text
                if self._accept("("):  # a method, such as listKeys: its receiver is its first argument
                    value = Call(name, (value, *self._items(")", self._expression)), token.line)
                else:
                    value = Member(value, name, token.text == ".?", token.line)
            elif token.text == "[":
                self._at += 1
                self._skip_lines()
                at = self._expression()
                self._skip_lines()
                self._take("symbol", "]")
                value = Index(value, at, token.line)
            elif token.text == "!" and self._tokens[self._at + 1].text == ".":
                self._at += 1  # says to the compiler that the value isn't null
            else:
                break
        return value

    def _primary(self) -> Expression:
        token = self._peek()
        self._at += 1
        if token.kind == "number":
            return Literal(int(token.text), token.line)
        if token.kind == "string":
            return self._text(token)
        if token.text == "(":
            self._skip_lines()
            value = self._expression()
            self._skip_lines()
            self._take("symbol", ")")
            return value
        if token.text == "{":
            return self._object(token)
        if token.text == "[":
            return self._array(token)
        if token.kind != "name":
            raise self._fault(token, f"unexpected {token.text or token.kind!r}")
        if token.text in ("true", "false", "null"):
            return Literal({"true": True, "false": False, "null": None}[token.text], token.line)
        if self._peek().text == "=>":
            self._at += 1
            self._skip_lines()
            return Lambda(token.text, self._expression(), token.line)
        if self._peek().text == "(":
            self._at += 1
            return Call(token.text, tuple(self._items(")", self._expression)), token.line)
        return Name(token.text, token.line)

    def _text(self, token: Token) -> Text:
        parts: list[str | Expression] = []
        for part in token.parts:
            if isinstance(part, str):
                parts.append(part)
            else:
                inner = _Parser(self._path, (*part, Token("end", "", token.line)))
                parts.append(inner._expression())
                inner._take("end")
        return Text(tuple(parts), token.line)

    def _array(self, start: Token) -> Expression:
        self._skip_lines()
        if self._peek().text != "for":
            return Array(tuple(self._items("]", self._expression)), start.line)
        self._at += 1
        index: str | None = None
        if self._accept("("):
            item = self._take("name").text
            self._take("symbol", ",")
            index = self._take("name").text
            self._take("symbol", ")")
        else:
            item = self._take("name").text
        self._take("name", "in")
        source = self._expression()
        self._take("symbol", ":")
        self._skip_lines()
        body = self._body()
        self._skip_lines()
        self._take("symbol", "]")
        return Loop(item, index, source, body, start.line)

    def _object(self, start: Token) -> Object:
        return Object(tuple(self._items("}", self._entry)), start.line)

    def _entry(self) -> tuple[Text, Expression]:
        token = self._peek()
        self._at += 1
        if token.kind not in ("name", "string"):
            raise self._fault(token, f"a property name was expected, not {token.text!r}")
        key = self._text(token) if token.kind == "string" else Text((token.text,), token.line)
        self._take("symbol", ":")
        self._skip_lines()
        return key, self._expression()

    def _items(self, closing: str, read: Callable[[], _T]) -> list[_T]:
        """What stands between brackets, separated by commas or line ends."""
        found: list[_T] = []
        self._skip_lines()
        while not self._accept(closing):
            found.append(read())
            separated = self._accept(",")
            separated = self._skip_lines() or separated
            if not separated and self._peek().text != closing:
                raise self._fault(self._peek(), f"a comma, a line end or {closing!r} was expected")
        return found

    def _plain(self, token: Token) -> str:
        if len(token.parts) != 1 or not isinstance(token.parts[0], str):
            raise self._fault(token, "a string without interpolation was expected")
        return token.parts[0]

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _take(self, kind: str, text: str | None = None) -> Token:
        token = self._peek()
        if token.kind != kind or (text is not None and token.text != text):
            raise self._fault(token, f"{text or kind!r} was expected, not {token.text or token.kind!r}")
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if token.kind in ("name", "symbol") and token.text == text:
            self._at += 1
            return True
        return False

    def _accept_on_next_line(self, text: str) -> bool:
        start = self._at
        self._skip_lines()
        if self._accept(text):
            return True
        self._at = start
        return False

    def _skip_lines(self) -> bool:
        start = self._at
        while self._peek().kind == "newline":
            self._at += 1
        return self._at > start

    def _fault(self, token: Token, what: str) -> BicepSyntaxError:
        return BicepSyntaxError(f"{self._path}:{token.line}: {what}")


def parse(path: str, text: str) -> Template:
    """Read one file.

    Raises: BicepSyntaxError.
    """
    return _Parser(path, _Lexer(path, text).tokens()).template()
