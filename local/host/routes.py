"""Route templates of HTTP triggers, matched as ASP.NET Core matches them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

_PARAMETER: Final = re.compile(r"\{(\*{0,2})([A-Za-z_][\w-]*)(\??)\}")
_ENCODED_SLASH: Final = re.compile("%2f", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Route:
    """A template with the pattern for paths behind the prefix, and its place among others: literal before parameter."""

    template: str
    pattern: re.Pattern[str]
    rank: tuple[int, ...]

    def match(self, path: str) -> dict[str, str] | None:
        """The route's parameters if the (decoded) path fits; literals fit in any case."""
        found = self.pattern.fullmatch(path.removeprefix("/"))
        if found is None:
            return None
        return {_plain(name): value for name, value in found.groupdict().items() if value is not None}


def parse_route(template: str) -> Route:
    """Parse a template: literals, `{name}`, `{name?}` at the end, `{*name}` at the end. Raises ValueError."""
    segments = template.strip("/").split("/")
    pattern, rank = "", []
    for position, segment in enumerate(segments):
        is_last = position == len(segments) - 1
        slash = "" if position == 0 else "/"
        parameter = _PARAMETER.fullmatch(segment)
        if parameter is None:
            if "{" in segment or "}" in segment:
                raise ValueError(f"{segment!r} isn't supported: only {{name}}, {{name?}} and {{*name}} are")
            pattern += slash + re.escape(segment)
            rank.append(0)
            continue
        stars, name, optional = parameter.groups()
        if (stars or optional) and not is_last:
            raise ValueError(f"{segment!r} may stand at the end only")
        group = _group(name)
        if stars:
            pattern += f"(?:{slash}(?P<{group}>.*))?"
            rank.append(2)
        elif optional:
            pattern += f"(?:{slash}(?P<{group}>[^/]+))?"
            rank.append(1)
        else:
            pattern += f"{slash}(?P<{group}>[^/]+)"
            rank.append(1)
    if rank[-1] != 2:
        pattern += "/?"  # a slash at the end is part of a catch-all only
    return Route(template, re.compile(pattern, re.IGNORECASE | re.DOTALL), tuple(rank))


def decode_path(raw: str) -> str:
    """Decode a request's path as Kestrel does: everything but the encoded slash, which stays as it came."""
    return unquote(_ENCODED_SLASH.sub(lambda match: match[0].replace("%", "%25"), raw))


def _group(name: str) -> str:
    return "p_" + name.replace("-", "__dash__")


def _plain(group: str) -> str:
    return group.removeprefix("p_").replace("__dash__", "-")
