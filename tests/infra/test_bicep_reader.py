"""`checks/bicep` reads what infra/ is written in, and refuses the rest by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checks.bicep import names
from checks.bicep.evaluate import Instance, Runtime, TemplateError, used_names
from checks.bicep.syntax import BicepSyntaxError, parse


def value(expression: str, **parameters: Any) -> Any:
    text = "".join(f"param {name} string\n" for name in parameters) + f"var it = {expression}\noutput it string = it\n"
    return Instance(parse("a.bicep", text), Path(), Path(), "", parameters).output("it")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 / 3 - 1", 2),
        ("-1", -1),
        ("!true || true && false", False),
        ("1 < 2 == true", True),
        ("null ?? 'x'", "x"),
        ("true ? 'a' : false ? 'b' : 'c'", "a"),
        ("false\n  ? 'a'\n  : 'b'", "b"),
        ("'it\\'s ${1 + 1} of ${'two'}'", "it's 2 of two"),
        ("'\\${x}'", "${x}"),
        ("'''a\nb'''", "a\nb"),
        ("[1, 2\n 3]", [1, 2, 3]),
        ("{ a: 1, 'b.c': [] }", {"a": 1, "b.c": []}),
        ("{\n  a: 1 // one\n}", {"a": 1}),
        ("[for x in [1, 2]: x * 2]", [2, 4]),
        ("[for (x, i) in ['a', 'b']: if (i > 0) { n: '${x}${i}' }]", [{"n": "b1"}]),
        ("filter([1, 2, 3], x => x > 1)", [2, 3]),
        ("toObject([1, 2], x => 'k${x}', x => x)", {"k1": 1, "k2": 2}),
        ("map(items({ b: 1, a: 2 }), e => e.key)", ["a", "b"]),
        ("union({ a: 1 }, { b: 2 })", {"a": 1, "b": 2}),
        ("{ a: { b: 1 } }.a.b", 1),
        ("{ a: 1 }.?b ?? 2", 2),
        ("['a', 'b'][1]", "b"),
        ("cidrSubnet('10.0.0.0/16', 24, 2)", "10.0.2.0/24"),
        ("replace('a-b', '-', '+')", "a+b"),
        ("empty('') && !empty([1])", True),
    ],
)
def test_expressions_are_evaluated_as_bicep_does(expression: str, expected: object) -> None:
    assert value(expression) == expected


def test_what_only_the_deployment_knows_stays_open() -> None:
    assert value("'https://${environment().x}/'") == Runtime("https://<environment().x>/")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("var a = [1, 2", "unexpected 'end'"),
        ("var a = 'x", "isn't closed"),
        ("var a = '${1'", "isn't closed"),
        ("var a = 1 2", "'newline' was expected"),
        ("vra a = 1", "unknown statement 'vra'"),
        ("var a = { b 1 }", "':' was expected"),
        ("var a = ~1", "unexpected '~'"),
        ("var a = '\\x'", "unknown escape"),
        ("resource a = {}", "'string' was expected"),
        ("var a = { b: 1 c: 2 }", "a comma, a line end"),
    ],
)
def test_broken_text_is_refused_by_line(text: str, fault: str) -> None:
    with pytest.raises(BicepSyntaxError, match=r"a\.bicep:[12]: ") as raised:
        parse("a.bicep", text + "\n")
    assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("missing", "unknown name 'missing'"),
        ("missing()", "unknown function 'missing'"),
        ("{ a: 1 }.b", "no member 'b'"),
        ("[1][3]", "no element"),
        ("'a' + 1", "isn't a number"),
        ("environment() ? 1 : 2", "isn't known before the deployment"),
        ("loadTextContent('missing.txt')", "loadTextContent"),
    ],
)
def test_an_expression_that_cannot_be_known_is_refused_by_line(expression: str, fault: str) -> None:
    with pytest.raises(TemplateError, match=r"a\.bicep:1: ") as raised:
        value(expression)
    assert fault in str(raised.value)


def test_module_parameters_and_outputs_are_checked(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "part.bicep").write_text("param a string\noutput b string = a\n")

    def main(text: str) -> Instance:
        template = parse("infra/main.bicep", text + "\noutput o string = part.outputs.b\n")
        return Instance(template, tmp_path / "infra", tmp_path, "", {})

    assert main("module part 'part.bicep' = { params: { a: 'x' } }").output("o") == "x"
    for text, fault in (
        ("module part 'part.bicep' = { params: {} }", "parameter 'a' is not given"),
        ("module part 'part.bicep' = { params: { a: 'x', c: 1 } }", "no parameter 'c'"),
        ("module part 'prat.bicep' = { params: { a: 'x' } }", "no file prat.bicep"),
    ):
        with pytest.raises(TemplateError) as raised:
            main(text).output("o")
        assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("@description('x')\nparam a string\n", "param 'a' is never used"),
        ("var a = b\n@description('o')\noutput o string = a\n", "unknown name 'b'"),
        ("param a string\n@description('o')\noutput o string = a\n", "param 'a' has no description"),
        ("output o string = 'x'\n", "output 'o' has no description"),
        ("@description('')\noutput o string = 'x'\n", "output 'o' has no description"),
    ],
)
def test_names_are_checked(text: str, fault: str) -> None:
    assert any(fault in found for found in names.faults(parse("a.bicep", text)))


def test_loop_and_lambda_variables_are_names_of_their_own() -> None:
    text = "@description('o')\noutput o array = [for (x, i) in filter([1], y => y > 0): x + i]\n"

    assert list(names.faults(parse("a.bicep", text))) == []


def test_dependencies_are_read() -> None:
    declaration = parse("a.bicep", "module a 'a.bicep' = {\n  params: { x: b.outputs.c }\n  dependsOn: [d]\n}\n")

    assert set(used_names(declaration.of_kind("module")["a"].value)) == {"b", "d"}
