"""The queries of alerts and workbook are read by `checks/kql.py`, and it finds faults."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from checks import kql
from shared.domain.verdicts import Outcome

GOOD = 'AppMetrics\n| where Name == "convoy.sweeps"\n| summarize Runs = sum(Sum) by bin(TimeGenerated, 5m)\n'


@pytest.fixture(scope="module")
def texts(root: Path) -> dict[str, str]:
    """All queries, with a number in place of what a deployment fills in."""
    found = {file.stem: file.read_text(encoding="utf-8") for file in (root / "infra" / "alerts").glob("*.kql")}
    workbook = json.loads((root / "infra" / "workbook.json").read_text(encoding="utf-8"))
    found |= {f"workbook {item['name']}": item["content"]["query"] for item in workbook["items"] if item["type"] == 3}
    return {name: re.sub(r"\{\{\w+\}\}", "1", text) for name, text in found.items()}


def test_no_query_has_a_fault(texts: dict[str, str]) -> None:
    assert len(texts) > 20
    assert [fault for name, text in texts.items() for fault in kql.faults(name, text)] == []


def test_outcomes_that_are_asked_for_are_those_of_the_app(texts: dict[str, str]) -> None:
    """A misspelt one makes a rule that is never true."""
    asked = {name: kql.read(name, text).outcomes for name, text in texts.items()}

    assert asked["payload-mismatch"] == {"conflict"}
    assert asked["duplicate-rate"] == {"duplicate"}
    assert asked["failures"] == {"failed", "transient"}
    assert set().union(*asked.values()) <= {outcome.value for outcome in Outcome}


def test_silence_of_the_sweep_gives_a_row(texts: dict[str, str]) -> None:
    """`summarize` without `by` gives a row where there is no data; with it there would be none to count."""
    assert texts["no-sweep"].endswith("| summarize Rows = count()\n| where Rows == 0\n")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("AppMetrics", "customMetrics", "no known table"),
        ("AppMetrics", "AppMetric", "no known table"),
        ("where", "wher", "unknown operator 'wher'"),
        ("Name ==", "Nmae ==", "unknown column 'Nmae'"),
        ("Sum)", "value)", "unknown column 'value'"),
        ("sum(", "summ(", "unknown function 'summ'"),
        ("(Sum)", "(Sum", "isn't closed"),
        ("(Sum)", "(Sum))", "closes nothing"),
        ("Name ==", "Name =", "a comparison was expected"),
        ('"convoy.sweeps"', '"convoy.sweeps', "unexpected"),
        ("5m", "5m?", "unexpected '?'"),
        ("| where", "where", "'AppMetrics' and 'where' stand beside each other"),
        ("by bin", "bin", "')' and 'bin' stand beside each other"),
        ("5m)", "5m) | where Sum > 0", "unknown column 'Sum'"),
        ("5m)", "5m) | where Run > 0", "unknown column 'Run'"),
        ("5m)", "5m) |", "nothing stands behind '|'"),
        ("| where", "| | where", "nothing stands behind '|'"),
        ("5m)", "5m) | take", "nothing stands behind 'take'"),
        ("5m)", "5m) | project tostring(Runs) | where Runs > 0", "unknown column 'Runs'"),
        ("5m)", "5m) | project Runs | where TimeGenerated > ago(5m)", "unknown column 'TimeGenerated'"),
        ("AppMetrics", "union AppMetrics, AppTraces", "one was expected"),
    ],
)
def test_a_seeded_fault_is_found(old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert list(kql.faults("good", GOOD)) == []

    assert any(fault in found for found in kql.faults("bad", GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    "text",
    [
        "AppMetrics | summarize arg_max(TimeGenerated, Sum) by Name | where Sum > 1 | order by TimeGenerated desc",
        "let recent = 5m;\nAppMetrics | where TimeGenerated > ago(recent) | extend A = Sum | project A | top 5 by A",
    ],
)
def test_columns_are_followed_from_one_operator_to_the_next(text: str) -> None:
    assert list(kql.faults("a", text)) == []


def test_what_a_query_asks_for_is_read() -> None:
    query = kql.read("a", 'AppMetrics | where Name in ("x.y", "z") and tostring(Properties["k"]) == "v"')

    assert query.metrics == {"x.y", "z"}
    assert query.attributes == {"k"}
