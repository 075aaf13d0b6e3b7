"""What would be shipped: `.funcignore` as its two readers see it, azd by git's rules and Core Tools by its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pathspec

SHIPPED: Final = re.compile(
    r"function_app\.py|host\.json|requirements\.txt|\.funcignore|shared/(?:[a-z_]+/)*[a-z_]+\.py"
)
"""Everything else in a package is a fault, `.funcignore` itself does no harm."""

_CORE_TOOLS_NEVER: Final = (".git/", ".vscode/", ".funcignore", ".gitignore", "local.settings.json")
_SPECIAL: Final = re.compile(r"[-\[\]/{}()+?.\\^$|]")


def files(root: Path) -> Iterator[str]:
    """All files below the root; git's own and those of virtual environments are too many to look at."""
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root).as_posix()
        if path.is_file() and not relative.startswith((".git/", ".venv")):
            yield relative


def shipped_by_azd(ignore: str, paths: list[str]) -> list[str]:
    """What azd packs: git's rules, and nothing of its own once the file is there."""
    spec = pathspec.GitIgnoreSpec.from_lines(ignore.splitlines())
    return [path for path in paths if not spec.match_file(path)]


def shipped_by_core_tools(ignore: str, paths: list[str]) -> list[str]:
    """What `func azure functionapp publish` packs: a regular expression from the root on, without end."""
    lines = [line.strip() for line in ignore.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    denied, allowed = (
        _expression([line.removeprefix("!") for line in lines if line.startswith("!") == negative])
        for negative in (False, True)
    )
    return [
        path
        for path in paths
        if not path.startswith(_CORE_TOOLS_NEVER) and (allowed.match(path) or not denied.match(path))
    ]


def _expression(patterns: list[str]) -> re.Pattern[str]:
    if not patterns:
        return re.compile(r"$^")
    parts = []
    for pattern in patterns:
        escaped = _SPECIAL.sub(lambda match: "\\" + match.group(), pattern.removeprefix("/"))
        parts.append(escaped.replace("**", "(.+)").replace("*", "([^/]+)"))
    return re.compile("^((" + ")|(".join(parts) + "))")


def superfluous(paths: list[str]) -> list[str]:
    """What is packed but not part of the app."""
    return [path for path in paths if not SHIPPED.fullmatch(path)]
