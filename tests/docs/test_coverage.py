"""docs/coverage.md is what docs/render_coverage.py finds, and the generator finds what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import render_coverage
from docs.render_coverage import Place, Requirement, is_covered, named_parts, numbers_in, places, render, requirements

ROOT = Path(__file__).resolve().parents[2]
LISTS = {
    "C": ROOT.parent / "shared" / "requirements.md",
    "D": ROOT.parent / "shared" / "failure-modes.md",
    "R": ROOT.parent / "shared" / "field-faults.md",
}


def test_the_page_is_what_the_generator_finds() -> None:
    assert render_coverage.FILE.read_text(encoding="utf-8") == render(places(ROOT)), (
        "run: python docs/render_coverage.py"
    )


def test_each_number_has_one_requirement() -> None:
    numbers = [one.number for one in requirements()]
    c, d = [f"C{n:02}" for n in range(1, 81)], [f"D{n:02}" for n in range(1, 61)]
    assert numbers == [*c, *d, "R11", *(f"R{n}" for n in range(17, 76))]
    assert all(numbers_in(number) == {number} for number in numbers)
    assert {one.kind for one in requirements()} == {"T", "I", "D"}


@pytest.mark.skipif(
    not all(path.is_file() for path in LISTS.values()), reason="optional: beside the project lie no lists to compare"
)
def test_the_numbers_are_those_of_the_lists() -> None:
    listed = dict(re.findall(r"^\| (C\d\d) \| ([TID]) \|", LISTS["C"].read_text("utf-8"), re.MULTILINE))
    assert {one.number: one.kind for one in requirements() if one.number.startswith("C")} == listed
    for letter, mark in (("D", r"^\| (D\d\d) \|"), ("R", r"^### (R\d\d) ")):
        found = re.findall(mark, LISTS[letter].read_text("utf-8"), re.MULTILINE)
        assert [one.number for one in requirements() if one.number.startswith(letter)] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("C01 and D60,R75", {"C01", "D60", "R75"}),
        ("C74-C76", {"C74", "C75", "C76"}),
        ("C44 to C46", {"C44", "C45", "C46"}),
        ("R30–32", {"R30", "R31", "R32"}),
        ("C00 C81 D61 R12 R76 XC01 C011 c01", set()),
    ],
)
def test_numbers_are_found_in_text(text: str, found: set[str]) -> None:
    assert numbers_in(text) == found


def test_a_number_belongs_to_the_test_that_names_it() -> None:
    source = (
        '"""Whole file: C01."""\n'
        "# C02\n"
        "@mark\n"
        "def test_one() -> None:  # C03\n"
        '    """C04"""\n'
        "\n"
        "class TestMore:\n"
        "    async def test_two(self) -> None:\n"
        "        assert 'C05'\n"
        "CASES = ['C06']\n"
    )
    found = {name: numbers_in(part) for name, part in named_parts(source)}
    assert found == {"test_one": {"C02", "C03", "C04"}, "test_two": {"C05"}, "": {"C01", "C06"}}


@pytest.mark.parametrize(
    ("kind", "file", "covered"),
    [
        ("T", "tests/unit/test_x.py", True),
        ("T", "docs/x.md", False),
        ("T", "infra/main.bicep", False),
        ("I", "infra/main.bicep", True),
        ("I", "docs/x.md", False),
        ("D", "docs/x.md", True),
    ],
)
def test_evidence_has_to_be_of_the_right_kind(kind: str, file: str, covered: bool) -> None:
    assert is_covered(Requirement("C01", kind, "x"), {Place(file)}) is covered
    assert not is_covered(Requirement("C01", kind, "x"), set())


def test_what_is_open_is_listed() -> None:
    page = render({"C01": {Place("tests/unit/test_x.py", "test_y")}})
    assert f"1 of {len(requirements())} are named" in page
    assert "* **C02** (T)" in page
    assert "* **C01** (T)" not in page
    assert "[test_x.py](../tests/unit/test_x.py) `test_y`" in page


def test_the_script_writes_the_file(tmp_path: Path) -> None:
    """Run as the docs say, in a tree that has nothing but one test."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "docs" / "render_coverage.py", tmp_path / "docs")
    (tmp_path / "tests" / "test_x.py").write_text("def test_y() -> None:  # C01\n    pass\n")

    subprocess.run([sys.executable, "docs/render_coverage.py"], cwd=tmp_path, check=True, capture_output=True)

    assert "[test_x.py](../tests/test_x.py) `test_y`" in (tmp_path / "docs" / "coverage.md").read_text("utf-8")
