"""The queries of alerts and workbook are read by `checks/kql.py`, and it finds faults."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from checks import kql

GOOD = 'AppMetrics\n| where Name == "convoy.sweeps"\n| summarize Runs = sum(Sum) by bin(TimeGenerated, 5m)\n'


def test_no_query_has_a_fault(root: Path) -> None:
    texts = {file.name: file.read_text(encoding="utf-8") for file in (root / "infra" / "alerts").glob("*.kql")}
    workbook = json.loads((root / "infra" / "workbook.json").read_text(encoding="utf-8"))
    texts |= {item["name"]: item["content"]["query"] for item in workbook["items"] if item["type"] == 3}

    assert len(texts) > 20
    filled = {name: re.sub(r"\{\{\w+\}\}", "1", text) for name, text in texts.items()}
    assert [fault for name, text in filled.items() for fault in kql.faults(name, text)] == []


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
        ("AppMetrics", "union AppMetrics, AppTraces", "one was expected"),
    ],
)
def test_a_seeded_fault_is_found(old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert list(kql.faults("good", GOOD)) == []

    assert any(fault in found for found in kql.faults("bad", GOOD.replace(old, new, 1)))


def test_what_a_query_asks_for_is_read() -> None:
    query = kql.read("a", 'AppMetrics | where Name in ("x.y", "z") and tostring(Properties["k"]) == "v"')

    assert query.metrics == {"x.y", "z"}
    assert query.attributes == {"k"}
