"""Draw docs/img/demo.svg, the picture of the demo's end: `python docs/render_demo.py` runs the demo for it."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from local.demo.__main__ import SHIPPED  # noqa: E402 - found by the line above when run as a script
from local.demo.lines import read_lines  # noqa: E402
from local.demo.report import show  # noqa: E402
from local.demo.run import run  # noqa: E402

FILE = ROOT / "docs" / "img" / "demo.svg"
WIDTH = 92


def main() -> int:
    """Run the demo that ships and record what it prints at its end; the exit code is the demo's."""
    result = asyncio.run(run(read_lines(SHIPPED), 1, Console(stderr=True)))
    recorder = Console(record=True, width=WIDTH, force_terminal=True)
    show(recorder, result.tally, result.verdict, result.seconds)
    FILE.write_text(self_contained(recorder.export_svg(title="python3 dev.py demo", theme=MONOKAI)), encoding="utf-8")
    return 0 if result.verdict.is_proven else 1


def self_contained(svg: str) -> str:
    """Take out the fonts that would be fetched from elsewhere; a viewer's own monospace font is used instead."""
    without = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    plain = without.replace("Fira Code", "Menlo, Consolas, DejaVu Sans Mono")
    return re.sub(r"[ \t]+$", "", plain, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
