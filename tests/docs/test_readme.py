"""README.md, CHANGELOG.md and the tables that have to agree with a file of the project."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from shared.envelope import Role
from shared.handlers import apply_entry, fan_out_ledger, process_order, sweep
from shared.ports import Container
from shared.telemetry import VERSION
from tests.docs.pages import ROOT, page

README = page("README.md")
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)


@pytest.mark.parametrize(("name", "head"), [("README.md", "Guarantee"), ("docs/guarantees.md", "Further guard")])
def test_each_promise_names_a_test_that_exists(name: str, head: str) -> None:
    rows = page(name).table(head)
    assert len(rows) >= 7
    for promise, _, proof in rows:
        (linked,) = re.findall(r"^\[`(test_\w+)`\]\(([^)]+\.py)\)$", proof)
        test, file = linked
        source = ((ROOT / name).parent / file).read_text("utf-8")
        assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{promise}: {test}"


def test_the_dependencies_are_those_that_ship() -> None:
    wanted: dict[str, set[str]] = {}
    for name, version in REQUIREMENT.findall((ROOT / "requirements.in").read_text("utf-8")):
        wanted.setdefault(name, set()).add(version)
    shown = {row[0].strip("`"): set(re.findall(r"\d+\.\d+\.\d+\w*", row[1])) for row in README.table("Package")}
    assert shown == wanted
    assert all(len(row[2]) > 10 for row in README.table("Package"))


def test_the_gallery_finds_its_headings() -> None:
    headings = re.findall(r"^## (.+)$", README.prose, re.MULTILINE)
    wanted = ["Important Security Notice", "Features", "Getting Started", "Guidance", "Resources"]
    assert [heading for heading in headings if heading in wanted] == wanted


def test_the_gallery_finds_its_front_matter_and_its_picture() -> None:
    head = re.match(r"<!--\n---\n(.*?)\n---\n-->\n", README.text, re.DOTALL)
    assert head is not None
    members = set(re.findall(r"^(\w+):", head.group(1), re.MULTILINE))
    assert members == {"name", "description", "languages", "products", "page_type", "urlFragment"}
    assert re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README.text)[0].endswith(".png")


def test_the_picture_names_every_queue_function_and_container() -> None:
    drawn = ET.parse(ROOT / "docs" / "img" / "flow.svg").getroot()  # noqa: S314 - the project's own file
    texts = {(text.text or "").partition(" (")[0] for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    functions = {module.CONSUMER for module in (process_order, fan_out_ledger, apply_entry, sweep)}
    assert texts >= {*Role, *functions, *(set(Container) - {Container.OPERATIONS})}


@pytest.mark.parametrize("name", ["flow.svg", "demo.svg"])
def test_pictures_load_nothing_from_elsewhere(name: str) -> None:
    text = re.sub(r"<!--.*?-->", "", (ROOT / "docs" / "img" / name).read_text("utf-8"), flags=re.DOTALL)
    assert set(re.findall(r"https?://[^\s\"')]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in text


def test_readme_can_be_read_in_five_minutes() -> None:
    words = len(re.findall(r"\w+", re.sub(r"^\|.*$", "", README.prose, flags=re.MULTILINE)))
    assert words < 1250, f"{words} words outside of tables"


def test_the_two_commands_come_first() -> None:
    kind, block = README.blocks()[0]
    assert (kind, block) == ("", "python3 dev.py demo\npython3 dev.py test\n")


def test_the_changelog_s_newest_version_is_the_code_s() -> None:
    text = page("CHANGELOG.md").text
    versions = re.findall(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    newest, date = versions[1]
    assert newest == VERSION
    assert date
    assert set(re.findall(r"^### (\w+)$", text, re.MULTILINE)) <= {
        *("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"),
    }


def test_the_guards_are_those_that_the_simulation_takes_out() -> None:
    mutations = pytest.importorskip("tests.simulation.test_mutations", exc_type=ModuleNotFoundError)
    listed = [row[0].strip("`") for row in page("docs/guarantees.md").table("Guard") if row[0].startswith("`")]
    assert listed == list(mutations.GUARDS)


def test_the_requests_of_a_message_are_those_that_the_crash_matrix_finds() -> None:
    """C61, C79: the cost table of docs/performance.md."""
    matrix = pytest.importorskip("tests.crash.test_crash_matrix", exc_type=ModuleNotFoundError)
    cases = {case.name: case for case in matrix.CASES}
    compared = 0
    for name, requests, sends, *_ in page("docs/performance.md").table("Message"):
        case = cases.get(name.replace("`", ""))
        if case is None:
            continue
        operations = matrix.operations_of(case)
        sent = sum(operation.startswith("send ledger-entries") for operation in operations)
        calls = sum(operation.startswith(("pay", "send quarantine")) for operation in operations)
        assert (requests.partition(",")[0], sends) == (str(len(operations) - sent - calls), str(sent)), name
        compared += 1
    assert compared >= 5
