"""What a command prints: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

NARROWEST = 100


class Output:
    """Results go to `out`, progress and warnings to `err`; with `as_json` results are one JSON document."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        width = None if self._out.isatty() else 200
        self._console = Console(file=self._out, width=width, highlight=False, markup=False, soft_wrap=not width)

    def result(self, document: Mapping[str, object]) -> None:
        """Print a command's result as JSON; nothing without `as_json`."""
        if self.as_json:
            self._out.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")
            self._out.flush()

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows; nothing with `as_json`. Control characters of messages are escaped."""
        if self.as_json:
            return
        if not rows:
            self.line(f"{title}: none")
            return
        table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(shown(cell)) for cell in row))
        self._console.print(table)

    def line(self, text: str) -> None:
        """Print a line of a result; nothing with `as_json`."""
        if not self.as_json:
            self._console.print(Text(shown(text)))

    def note(self, text: str) -> None:
        """Say how it goes."""
        self._err.write(shown(text) + "\n")
        self._err.flush()


def shown(cell: object) -> str:
    """A cell's text: nothing for None, and nothing that would steer a terminal."""
    text = "" if cell is None else str(cell)
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)
