"""Query text to tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from local.cosmos.errors import CosmosError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<parameter>@\w+)|(?P<word>[^\W\d]\w*)"
    r"|(?P<symbol>!=|<>|<=|>=|\|\||\?\?|<<|>>|--|/\*|[=<>+\-*/%()\[\]{},.:?&|^~])|(?P<end>\Z))",
    re.DOTALL,
)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # number, string, parameter, word, symbol or end
    text: str
    at: int


def refused(reason: str) -> CosmosError:
    """The error for whatever in a query is wrong or outside the subset."""
    return CosmosError(400, f"The query can't be answered: {reason}.")


def tokens_of(text: str) -> list[Token]:
    """The tokens of a query, with one of kind `end` behind them."""
    tokens: list[Token] = []
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise refused(f"syntax error near {text[at : at + 20].strip()!r}")
        kind, part = match.lastgroup, match.group(match.lastgroup)
        if part in {"--", "/*"}:
            raise refused("comments are outside the subset")
        tokens.append(Token(kind, part, match.start(kind)))
        if kind == "end":
            return tokens
        at = match.end()


def unquoted(text: str) -> str:
    """The text that a string token stands for."""

    def escape(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] == "u" and len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            raise refused(f"the escape \\{code} is not known")
        return _ESCAPES[code]

    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    unescaped = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", escape, inner, flags=re.DOTALL)
    try:
        return unescaped.encode("utf-16", "surrogatepass").decode("utf-16")  # joins \ud83d\ude00 to one character
    except UnicodeDecodeError as exc:
        raise refused("a string holds half a surrogate pair") from exc
