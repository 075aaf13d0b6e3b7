"""docs/operations.md says the numbers that hold, and explains each one of host.json and of the queues."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from checks import settings
from checks.sources import Sources
from tests.infra.cases import Deployment


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs/operations.md").read_text(encoding="utf-8")


def rows(page: str, heading: str) -> dict[str, str]:
    """Second cells of the table below a heading, by each name in the first."""
    section = re.search(rf"^### {re.escape(heading)}$.*?(?=^##)", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    cells = [line.strip("|").split("|") for line in section.group().splitlines() if line.startswith("|")]
    return {name: cell[1].strip() for cell in cells for name in re.findall(r"`([A-Za-z]+)`", cell[0])}


def test_each_number_of_host_json_is_explained(root: Path, page: str) -> None:
    document = json.loads((root / "host.json").read_text(encoding="utf-8"))
    leaves = {
        "functionTimeout": document["functionTimeout"],
        **document["extensions"]["serviceBus"],
        **document["extensions"]["http"],
    }
    explained = rows(page, "host.json")

    assert set(explained) == set(leaves)
    shown = {"00:05:00": "5 min", "1.00:00:00": "1 day, `1.00:00:00`", "00:00:01": "1 s", True: "true", "api": "`api`"}
    for name, value in leaves.items():
        # 1 == True, so the number is looked up by its text.
        expected = shown.get(value, str(value)) if isinstance(value, (bool, str)) else str(value)
        assert explained[name] == expected, name


def test_the_idle_time_out_is_said_not_to_end_work(page: str) -> None:  # D34
    (row,) = [line for line in page.splitlines() if line.startswith("| `sessionIdleTimeout` ")]

    assert "a running handler doesn't count" in row


def test_each_property_of_a_queue_is_explained(root: Path, page: str) -> None:
    explained = rows(page, "Queues")
    queue = Deployment(root, {}).of("Microsoft.ServiceBus/namespaces/queues")[0].properties

    assert set(queue) - {"deadLetteringOnMessageExpiration"} <= set(explained)
    assert explained["maxDeliveryCount"] == str(queue["maxDeliveryCount"])
    assert explained["maxSizeInMegabytes"] == str(queue["maxSizeInMegabytes"])
    assert explained["lockDuration"] == "1 min"


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("poison", "9 ≤ 1000"),
        ("attempt", "110 ≤ 300"),
        ("lock renewal (D33)", "300 ≤ 86,400"),
        ("lease", "90 ≤ 90"),
        ("sweep", "180 ≤ 300"),
        ("held", "95 ≤ 97"),
        ("retention (D23, R40)", "4,101,600 ≤ 5,097,600"),
    ],
)
def test_relations_are_shown_with_the_numbers_that_hold(page: str, parsed: Sources, rule: str, shown: str) -> None:
    found = [one.says for one in settings.of_profile(parsed.azure) if one.rule == rule]
    left, right = (number.replace(",", "") for number in shown.split(" ≤ "))

    assert shown in page or shown in page.replace("110 ≤ 300 ≤ 86,400", "110 ≤ 300, 300 ≤ 86,400")
    for says in found:
        assert re.search(rf"= {left} <= .*= {right}$", says), says


def test_every_environment_variable_of_the_page_is_a_parameters(root: Path, page: str) -> None:
    mapped = json.loads((root / "infra/main.parameters.json").read_text(encoding="utf-8"))["parameters"]
    variables = {re.findall(r"[A-Z][A-Z0-9_]+", one["value"])[0] for one in mapped.values()}
    named = set(re.findall(r"azd env set ([A-Z_]+)", page)) | set(re.findall(r"`([A-Z_]+)=\w", page))

    assert named
    assert named <= variables
