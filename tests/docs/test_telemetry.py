"""Names of events and metrics are the same in code, documentation, alerts and workbook (contracts, section 14)."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from checks import kql
from shared import errors, telemetry

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
CONTRACTS = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
PLACEHOLDER = re.compile(r"\{\{\w+\}\}")


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by the name in their first cell."""
    section = re.search(rf"^## (?:\d+\. )?{heading}.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = [line.strip("|").split("|") for line in section.group().splitlines() if line.startswith("| `")]
    return {name: [cell.strip() for cell in row[1:]] for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


def events_in_code() -> set[str]:
    """The constants of shared/telemetry.py that are events, and those that errors carry."""
    carried = {value for name, value in vars(errors).items() if name.startswith("EVENT_")}
    return carried | {
        value
        for name, value in vars(telemetry).items()
        if name.isupper() and isinstance(value, str) and name not in ("VERSION", "LOGGER") and not name.startswith("_")
    }


def metrics_in_code() -> dict[str, tuple[str, str]]:
    """Kind and unit of each instrument that shared/telemetry.py makes."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse((ROOT / "shared" / "telemetry.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("create_"):
            name, unit = (ast.literal_eval(argument) for argument in node.args[:2])
            found[name] = (node.func.attr.removeprefix("create_"), unit)
    return found


def queries() -> dict[str, str]:
    found = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "infra" / "alerts").glob("*.kql")}
    workbook = json.loads((ROOT / "infra" / "workbook.json").read_text(encoding="utf-8"))
    found |= {item["name"]: item["content"]["query"] for item in workbook["items"] if item["type"] == 3}
    return {name: PLACEHOLDER.sub("900", text) for name, text in found.items()}


def test_events_are_those_of_the_code() -> None:
    assert set(table(PAGE, "Log lines")) == events_in_code()


def test_metrics_are_those_of_the_code_with_kind_and_unit() -> None:
    documented = table(PAGE, "Metrics")

    assert set(documented) == set(metrics_in_code())
    for name, (kind, unit) in metrics_in_code().items():
        assert documented[name][0] in (f"{kind}, {unit}", f"{kind}, `{unit}`"), name


def test_the_contracts_name_the_same() -> None:
    for name in events_in_code() | set(metrics_in_code()):
        assert f"`{name}`" in CONTRACTS, name


def test_attributes_are_those_that_the_code_sets() -> None:
    code = (ROOT / "shared" / "telemetry.py").read_text(encoding="utf-8")
    for name, cells in table(PAGE, "Metrics").items():
        for attribute in re.findall(r"`([^`]+)`", cells[1]):
            assert f'"{attribute}"' in code, (name, attribute)


def test_fields_of_a_delivery_are_those_that_the_code_writes() -> None:
    code = (ROOT / "shared" / "telemetry.py").read_text(encoding="utf-8")
    fields = re.findall(r"`([^`]+)`", table(PAGE, "Log lines")["message.handled"][1])

    assert fields
    for field in fields:
        assert f'"{field}"' in code or f"{field}=" in code, field


@pytest.mark.parametrize("name", sorted(queries()))
def test_a_query_asks_only_for_what_the_code_emits(name: str) -> None:
    query = kql.read(name, queries()[name])
    documented = table(PAGE, "Metrics")
    attributes = {
        attribute for metric in query.metrics for attribute in re.findall(r"`([^`]+)`", documented[metric][1])
    }
    fields = {
        field for event in query.events for field in re.findall(r"`([^`]+)`", table(PAGE, "Log lines")[event][1])
    }

    assert query.metrics | query.events
    assert query.metrics <= set(metrics_in_code())
    assert query.events <= events_in_code()
    assert query.attributes <= attributes | fields


def test_outcomes_in_queries_are_outcomes() -> None:
    decided = set(re.findall(r"^\| `([a-z_]+)`", CONTRACTS, re.MULTILINE)) | {"duplicate", "resumed", "taken_over"}
    for name, text in queries().items():
        for outcomes in re.findall(r'Outcome (?:==|in) \(?("[a-z_", ]+)', text):
            assert set(re.findall(r'"([a-z_]+)"', outcomes + '"')) <= decided, name


def test_every_event_that_needs_a_person_has_an_alert() -> None:
    told = {event for text in queries().values() for event in kql.read("", text).events}
    needs_a_person = {name for name, cells in table(PAGE, "Log lines").items() if cells[0] == "error"}
    by_metric = {telemetry.GAP_OPEN}  # convoy.gap.oldest says the same and is not sampled

    assert needs_a_person | {telemetry.STREAM_INCOMPLETE} <= told
    assert telemetry.GAP_OPEN in by_metric - told


def test_the_alert_on_duplicates_counts_them_alone_and_fires_when_they_rise() -> None:  # C30, D55
    text = queries()["duplicate-rate.kql"]

    assert "convoy.messages" in kql.read("duplicate-rate", text).metrics
    assert set(re.findall(r'Outcome == "(\w+)"', text)) == {"duplicate"}
    assert re.search(r"Rate > 0\.1 and Rate > 3 \* RateBefore", text)
    assert re.search(r"RateBefore = iff\(DeliveriesBefore > 0, DuplicatesBefore / DeliveriesBefore, 0\.0\)", text)


def test_resumed_work_and_conflicts_are_outcomes_of_their_own() -> None:  # D55
    outcomes = set(re.findall(r"^\| (`[a-z_`, ]+`) \|", CONTRACTS, re.MULTILINE))
    named = {name for cell in outcomes for name in re.findall(r"`([a-z_]+)`", cell)}

    assert {"duplicate", "resumed", "taken_over", "conflict", "quarantined", "in_flight", "transient"} <= named
