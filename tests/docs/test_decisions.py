"""docs/decisions.md is what docs/render_tables.py makes of the code's data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs import render_tables
from shared.domain import orders, streams, verdicts
from shared.domain.verdicts import TABLE, Outcome
from shared.errors import Reason

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8") == render_tables.render(), (
        "run: python docs/render_tables.py"
    )


def test_a_changed_rule_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = render_tables.render()
    monkeypatch.setattr(verdicts, "TABLE", TABLE[1:])
    without_a_row = render_tables.render()
    monkeypatch.undo()
    monkeypatch.setattr(streams, "TABLE", streams.TABLE[1:])

    assert len({before, without_a_row, render_tables.render()}) == 3


def test_every_row_is_shown() -> None:
    page = render_tables.render().splitlines()
    shown = [line for line in page if line.startswith("|")]

    assert sum(line.startswith("| not there |") for line in shown) == len(streams.TABLE)
    assert all(any(line.startswith(f"| `{message}` |") for line in shown) for message in orders.TABLE)
    assert all(any(line.startswith(f"| `{outcome}` |") for line in shown) for outcome in Outcome)
    assert all(sum(row.reaction in line for line in shown) >= 1 for row in verdicts.TABLE)
    assert {len(line.split(" | ")) for line in shown if "`order.amended`" in line} == {len(orders.Situation) + 1}


def test_every_reason_of_a_stream_is_shown() -> None:
    page = render_tables.render()

    assert all(f"`{row.reason}`" in page for row in streams.TABLE if row.reason is not None)
    assert f"`{Reason.POISON_MESSAGE}`" in page


def test_the_script_writes_the_file(tmp_path: Path) -> None:
    """Run as the docs say, on a copy that has no page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "render_tables.py").write_bytes((ROOT / "docs" / "render_tables.py").read_bytes())
    for file in (ROOT / "shared").rglob("*.py"):
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())

    subprocess.run([sys.executable, "docs/render_tables.py"], cwd=tmp_path, check=True)

    assert (tmp_path / "docs" / "decisions.md").read_bytes() == render_tables.render().encode()
