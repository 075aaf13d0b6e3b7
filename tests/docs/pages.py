"""The project's pages, cut into what can be checked: links, code spans, fenced blocks, tables, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {"node_modules", "__pycache__"}
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """One page."""

    path: Path

    @property
    def name(self) -> str:
        """Its path in the project."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """What is no fenced block and no comment."""
        return COMMENT.sub("", FENCE.sub("", self.text))

    def blocks(self) -> list[tuple[str, str]]:
        """The fenced blocks: language (and what stands behind it), content."""
        return [(str(kind), str(content)) for kind, content in FENCE.findall(self.text)]

    def spans(self) -> list[str]:
        """The code spans of the prose."""
        return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", self.prose)]

    def links(self) -> list[str]:
        """The targets of all links and images."""
        without_code = re.sub(r"`[^`]*`", "", self.prose)
        return [str(target) for target in re.findall(r"\]\(([^()\s]+)\)", without_code)]

    def anchors(self) -> set[str]:
        """The names under which its headings can be linked to."""
        found: dict[str, int] = {}
        names = set()
        for heading in re.findall(r"^#+ +(.+?) *$", self.prose, re.MULTILINE):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", str(heading)).replace("`", "").lower()
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            count = found.get(slug, 0)
            found[slug] = count + 1
            names.add(f"{slug}-{count}" if count else slug)
        return names

    def table(self, head: str) -> list[list[str]]:
        """The rows of the one table whose first heading is `head`."""
        tables = re.findall(r"(?:^\|.*\|\n)+", self.prose, re.MULTILINE)
        (table,) = [found for found in tables if found.startswith(f"| {head} |")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]

    def command_lines(self) -> Iterator[str]:
        """What a reader could type: the lines of plain blocks, and the spans."""
        for kind, content in self.blocks():
            if kind in ("", "sh", "bash", "console"):
                yield from (line.partition("  #")[0].strip() for line in content.splitlines())
        yield from self.spans()


def pages() -> list[Page]:
    """Every page of the project."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md"), *ROOT.glob("infra/**/*.md")]
    return [Page(path) for path in sorted(found) if not SKIPPED & set(path.parts)]


def page(name: str) -> Page:
    """The page of that path."""
    return Page(ROOT / name)
