"""The example bodies are what the functions of their names take."""

from __future__ import annotations

import json

import function_app
from shared.domain.validation import order_message
from tests.docs.pages import ROOT


def test_each_example_is_a_body_of_the_function_of_its_name() -> None:
    files = sorted((ROOT / "docs" / "examples").glob("*.json"))
    assert [file.stem for file in files] == ["submit_order"]
    assert {file.stem for file in files} <= {each.get_function_name() for each in function_app.app.get_functions()}
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert order_message(json.loads(text)).type == "order.placed"
        shown = (ROOT / "docs" / "local.md").read_text(encoding="utf-8").partition("```json\n")[2].partition("```")[0]
        assert json.loads(shown) == json.loads(text)
