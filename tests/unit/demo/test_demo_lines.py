"""The input file: what a line may hold, and that a bad one is named with its number before anything is sent."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from local.demo.generate import FILE, generate
from local.demo.lines import InputError, Line, parse_lines, plan, read_lines

GOOD = {"queue": "orders", "messageId": "ORD-1", "sessionId": "ORD-1", "body": {"a": 1}}


def one(text: str | bytes) -> Line:
    """Read a file of one line."""
    (line,) = parse_lines(text.encode() if isinstance(text, str) else text, "input")
    return line


def test_a_line_with_everything() -> None:
    more = {
        "properties": {"tenant": "t1", "flag": True, "count": 3, "rate": 0.5},
        "subject": "s",
        "contentType": "application/json",
        "correlationId": "c",
        "repeat": 2,
    }
    line = one(json.dumps({**GOOD, **more}))
    assert (line.role, line.message_id, line.session_id, line.body) == ("orders", "ORD-1", "ORD-1", b'{"a":1}')
    assert line.properties == more["properties"]
    assert (line.subject, line.content_type, line.correlation_id, line.repeat) == ("s", "application/json", "c", 2)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (' { "a" : [ 1e1 , 1.10 ] } ', b'{"a":[1e1,1.10]}'),
        ('{"a":9007199254740993}', b'{"a":9007199254740993}'),
        ('{"a":0.1000000000000000055}', b'{"a":0.1000000000000000055}'),
        ('{"a":"x \\/ y\\u00e9 \\" "}', b'{"a":"x \\/ y\\u00e9 \\" "}'),
        ('{"a":1,"a":2}', b'{"a":1,"a":2}'),
        ('{"a":"\\ud800"}', b'{"a":"\\ud800"}'),
        ('"é"', '"é"'.encode()),
        ("null", b"null"),
        ("[]", b"[]"),
        (" -0.0 ", b"-0.0"),
        ("1" * 6000, b"1" * 6000),
    ],
)
def test_the_text_of_a_body_is_sent_without_its_white_space_and_unchanged_otherwise(text: str, sent: bytes) -> None:
    assert one(f'{{"queue":"orders","messageId":"m","sessionId":"s","body":{text}}}').body == sent


def test_raw_bytes_are_sent_as_they_are() -> None:
    body = base64.b64encode(b"\xff\x00 no text").decode()
    assert one(json.dumps({"queue": "ledger", "sessionId": "", "bodyBase64": body})).body == b"\xff\x00 no text"


def test_a_missing_and_a_null_message_id_are_sent_without_one_and_an_empty_one_stays() -> None:
    ids = [one(json.dumps({**GOOD, "messageId": value})).message_id for value in (None, "")]
    assert ids == [None, ""]
    assert one(json.dumps({name: GOOD[name] for name in ("queue", "sessionId", "body")})).message_id is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object expected"),
        ('{"a":NaN}', "not JSON: NaN"),
        ("{} {}", "not JSON"),
        ('{"queue":"orders","queue":"orders"}', "member 'queue' stands twice"),
        (json.dumps({**GOOD, "queue": "quarantine"}), "queue: one of orders, ledger, ledger-entries"),
        (json.dumps({**GOOD, "queue": 1}), "queue: a string expected"),
        (json.dumps({**GOOD, "queue": None}), "queue: one of"),
        (json.dumps({**GOOD, "messageId": 7}), "messageId: a string expected"),
        (json.dumps({**GOOD, "sessionId": None}), "sessionId: a string expected"),
        (json.dumps({**GOOD, "sessionId": "\ud800"}), "sessionId: a lone surrogate"),
        (json.dumps({**GOOD, "bodyBase64": ""}), "exactly one of body and bodyBase64"),
        (json.dumps({"queue": "orders", "sessionId": "s"}), "exactly one of body and bodyBase64"),
        (json.dumps({"queue": "orders", "sessionId": "s", "bodyBase64": "%"}), "bodyBase64: not base64"),
        (json.dumps({"queue": "orders", "sessionId": "s", "bodyBase64": 1}), "bodyBase64: a string expected"),
        (json.dumps({"queue": "orders", "sessionId": "s", "bodyBase64": "é"}), "bodyBase64: not base64"),
        (json.dumps({**GOOD, "properties": []}), "properties: an object expected"),
        (json.dumps({**GOOD, "properties": {"a": []}}), "properties.a: a string, number or boolean expected"),
        (json.dumps({**GOOD, "properties": {"a": 2**63}}), "properties.a: beyond 64 bits"),
        (json.dumps({**GOOD, "repeat": 0}), "repeat: 1 to"),
        (json.dumps({**GOOD, "repeat": 1.5}), "repeat: a whole number expected"),
        (json.dumps(GOOD)[:-1] + ',"repeat":1e400}', "repeat: 1 to"),
        (json.dumps(GOOD)[:-1] + ',"repeat":0e9999999999999999999}', "repeat: 1 to"),
        (json.dumps(GOOD)[:-1] + ',"repeat":1.00000000000000000001}', "repeat: a whole number expected"),
        (json.dumps({**GOOD, "repeat": True}), "repeat: a whole number expected"),
        (json.dumps({**GOOD, "repeat": "2"}), "repeat: a whole number expected"),
        (json.dumps({**GOOD, "color": "red"}), "unknown member 'color'"),
        ('{"a":' * 100_000, "too deeply nested"),
    ],
)
def test_a_bad_line_is_named_with_file_number_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "input.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n\n{text}\n{json.dumps(GOOD)}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_lines(path)
    assert str(caught.value).startswith(f"{path}: line 3: {reason}")


def test_a_line_that_is_no_utf8_is_named() -> None:
    with pytest.raises(InputError, match="input: line 2: not UTF-8"):
        parse_lines(json.dumps(GOOD).encode() + b"\n\xff\n", "input")


def test_every_bad_line_is_named_but_not_without_end() -> None:
    good = json.dumps(GOOD).encode()
    with pytest.raises(InputError) as caught:
        parse_lines(b"\n".join([b"{", good, b"\xff", b"[]"]), "input")
    told = str(caught.value).splitlines()
    assert [text.partition(": ")[2].partition(":")[0] for text in told] == ["line 1", "line 3", "line 4"]
    with pytest.raises(InputError) as caught:
        parse_lines(b"{\n" * 100, "input")
    told = str(caught.value).splitlines()
    assert (len(told), told[-1]) == (21, "input: and 80 more bad lines")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.jsonl: No such file"):
        read_lines(tmp_path / "nothing.jsonl")


def test_byte_order_mark_blank_lines_and_other_line_ends_are_fine() -> None:
    data = b"\xef\xbb\xbf\r\n" + json.dumps(GOOD).encode() + b"\r\n   \n" + json.dumps(GOOD).encode()
    assert [line.number for line in parse_lines(data, "input")] == [2, 4]
    separator = json.dumps({**GOOD, "body": "\u2028"}, ensure_ascii=False).encode()
    assert len(parse_lines(separator, "input")) == 1  # U+2028 ends no line


def test_copies_go_out_by_turns_at_once_and_behind_the_window() -> None:
    lines = [Line(1, "orders", "a", "a", b"", repeat=3), Line(2, "orders", "b", "b", b"", repeat=2)]
    assert [(one.line.number, one.copy, one.round) for one in plan(lines)] == [
        (1, 1, 0),
        (1, 2, 0),
        (2, 1, 0),
        (2, 2, 0),
        (1, 3, 1),
    ]


def test_the_data_set_is_what_its_generator_makes() -> None:
    assert FILE.read_text(encoding="utf-8") == generate()


def test_the_data_set_has_what_makes_such_systems_fail() -> None:
    lines = read_lines(FILE)
    placed = [line for line in lines if b'"order.placed"' in line.body and line.repeat == 1]
    assert 300 <= len(placed) <= 420
    assert {line.role for line in lines} == {"orders", "ledger", "ledger-entries"}
    assert {None, ""} <= {line.message_id for line in lines}
    assert any(line.repeat > 1 for line in lines)
    assert any(line.properties.get("content-encoding") == "gzip" for line in lines)
