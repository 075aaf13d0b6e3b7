"""Strict JSON and its canonical form, against the rules of contracts 1 and the examples of RFC 8785."""

from __future__ import annotations

from decimal import Decimal

import pytest

from local.demo.jsontext import JsonTextError, canonical, depth, parse, payload_hash


@pytest.mark.parametrize("text", ["10", "10.0", "1e1", "0.1", "-0.0", "9007199254740991", "1.7976931e10", "5e-324"])
def test_numbers_that_a_double_carries_pass(text: str) -> None:
    assert parse(text) == Decimal(text)


@pytest.mark.parametrize("text", ["0e9999999999999999999", "-0.00E-9999999999999999999"])
def test_a_zero_is_a_zero_with_any_exponent(text: str) -> None:
    assert parse(text) == 0


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993",
        "9007199254740992",
        "0.1000000000000000055",
        "1e400",
        "1e9999999999",
        "1e9999999999999999999",
        "-1.5E+9999999999999999999",
        "1e-9999999999999999999",
        "-9007199254740992",
        "NaN",
        "Infinity",
        '{"a":1,"a":1}',
        '{"a":{"b":1,"b":2}}',
        '"\\ud800"',
        '{"\\udc00":1}',
        "{} x",
        "",
        "'a'",
        "[" * 100_000,
        '"\t"',
        "01",
    ],
)
def test_what_json_cannot_carry_safely_is_refused(text: str) -> None:
    with pytest.raises(JsonTextError):
        parse(text)


# The number samples are those of RFC 8785, appendix B, as far as the contracts accept the number.
@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("1.0", "1"),
        ("1e2", "100"),
        ("5e-324", "5e-324"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("333333333.33333329", "333333333.3333333"),
        ("4.50", "4.5"),
        ("2e-3", "0.002"),
        ("1.5e-9", "1.5e-9"),
        ("-12.25", "-12.25"),
    ],
)
def test_numbers_are_written_as_ecmascript_does(text: str, written: str) -> None:
    value = Decimal(text) if text == "333333333.33333329" else parse(text)
    assert canonical(value) == written


def test_members_are_sorted_by_utf16_and_only_control_characters_escaped() -> None:
    value = parse('{"\\ufb33":1,"\\ud83d\\ude00":2,"\\u20ac":3,"\\r":4,"1":5,"\\u0080":6,"ö":"\\u000f\\n\\"\\/<"}')
    assert canonical(value) == '{"\\r":4,"1":5,"\u0080":6,"ö":"\\u000f\\n\\"/<","€":3,"😀":2,"\ufb33":1}'


def test_the_payload_hash_ignores_meta_order_spelling_and_white_space() -> None:
    first = parse('{"a": 1e1, "b": ["x"], "meta": {"sent": 1}}')
    second = parse('{"b":["\\u0078"],"meta":7,"a":10}')
    other = parse('{"a":10,"b":["X"]}')
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert isinstance(other, dict)
    assert payload_hash(first) == payload_hash(second) != payload_hash(other)
    assert payload_hash(first).startswith("sha256:jcs:v1:")


@pytest.mark.parametrize(("text", "levels"), [("1", 0), ("[]", 1), ('{"a":[{}]}', 3), ("[[],[[]]]", 3)])
def test_levels_are_counted(text: str, levels: int) -> None:
    assert depth(parse(text)) == levels
