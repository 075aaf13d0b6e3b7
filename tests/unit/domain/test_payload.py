"""Bodies: what is refused, and when two of them are the same (D09, D10, D13, R17, R41 to R45)."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import time
import tracemalloc
from decimal import Decimal
from fractions import Fraction

import pytest
import rfc8785
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shared.domain import payload
from shared.errors import PermanentError, Reason

# A machine may be slow, and that proves nothing.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def hash_of(body: bytes | str) -> str:
    return payload.payload_hash(payload.read(body.encode() if isinstance(body, str) else body, None).value)


def refusal(body: bytes | str, encoding: str | None = None) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        payload.read(body.encode() if isinstance(body, str) else body, encoding)
    return caught.value


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "description"),
    [
        ("", "body: not JSON"),
        ("   ", "body: not JSON"),
        ("{", "body: not JSON"),
        ("[]", "body: must be a JSON object"),
        ('"text"', "body: must be a JSON object"),
        ("null", "body: must be a JSON object"),
        ("NaN", "body: NaN is not JSON"),
        ("1e400", "body: number"),
        ("{} {}", "body: not JSON: Extra data"),
        ("{}\0", "body: not JSON: Extra data"),
        ('{"a": 1,}', "body: not JSON"),
        ('{"a": 01}', "body: not JSON"),
        ('{"a": +1}', "body: not JSON"),
        ('{"a": .5}', "body: not JSON"),
        ('{"a": 0x1}', "body: not JSON"),
        ("{'a': 1}", "body: not JSON"),
        ('{"a": "line\nfeed"}', "body: not JSON"),
        ('{"a": "\\x41"}', "body: not JSON"),
        ('{"a": 1} // comment', "body: not JSON"),
        (b'{"a": "\xff"}', "body: not UTF-8 at byte 7"),
        (b'{"a": "\xed\xa0\x80"}', "body: not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "body: not UTF-8"),
        (b'@\x06string\x083http://schemas.example/2003/10/Serialization/{"a":1}', "body: not JSON"),
        ('{"a": {"b": [1, NaN]}}', "/a/b/1: NaN is not JSON"),
        ('{"a": -Infinity}', "/a: -Infinity is not JSON"),
        ('{"qty": 1, "qty": 2}', "body: member qty appears twice"),
        ('{"a": [{"b": 1, "b": 1}]}', "/a/0: member b appears twice"),
        ('{"a": 1, "\\u0061": 1}', "body: member a appears twice"),
        ('{"a": ["\\ud800"]}', "/a/0: lone surrogate"),
        ('{"a": "\\udc00\\ud800"}', "/a: lone surrogate"),
        ('{"\\uDFFF": 1}', "/\\udfff: lone surrogate in the member's name"),
        ('{"meta": {"x": "\\udc00"}}', "/meta/x: lone surrogate"),
    ],
)
def test_what_parsers_could_read_differently_is_refused_with_its_place(body: bytes | str, description: str) -> None:
    refused = refusal(body)
    assert refused.reason is Reason.INVALID_MESSAGE
    assert refused.description.startswith(description)


@pytest.mark.parametrize(
    "number",
    [
        "9007199254740993",
        "9007199254740992",
        "-9007199254740992",
        "9007199254740992.0",
        "0.1000000000000000055",
        "1e400",
        "-1E400",
        "1e16",
        "1E-999999999",
        "1e-99999999999999999999999",
        "1e99999999999999999999999",
        "1e-400",
        "123456789012345678.5",
        "0.30000000000000004440892098500626",
        "9" * 5000,
        "0." + "3" * 5000,
    ],
)
def test_a_number_that_a_double_does_not_hold_exactly_is_refused(number: str) -> None:
    assert refusal(f'{{"a": {number}}}').description.startswith("/a: number")


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("10", 10),
        ("10.0", 10),
        ("1e1", 10),
        ("1E+01", 10),
        ("100e-1", 10),
        ("0.1", 0.1),
        ("1e-1", 0.1),
        ("0.10", 0.1),
        ("-0", 0),
        ("-0.0", 0),
        ("0e999999999999999999999", 0),
        ("9007199254740991", 9007199254740991),
        ("-9007199254740991.0", -9007199254740991),
        ("5e-324", 5e-324),
        ("2.2250738585072014e-308", 2.2250738585072014e-308),
        ("0.30000000000000004", 0.30000000000000004),
        ("1" + "0" * 5000 + "e-5000", 1),
        ("0." + "0" * 5000 + "1e5001", 1),
        ("1e" + "0" * 5000 + "1", 10),
    ],
)
def test_a_number_counts_by_its_value_not_by_its_spelling(number: str, value: float) -> None:
    read = payload.read(f'{{"a": {number}}}'.encode(), None).value["a"]
    assert read == value
    assert type(read) is type(value)


@steady
@given(st.from_regex(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_the_number_rule_is_the_contract_s(text: str) -> None:
    nearest = float(text)
    is_exact = math.isfinite(nearest) and abs(nearest) < 2**53 and Decimal(text) == Decimal(repr(nearest))
    read = payload.exact_number(text)
    assert (read is not None) == is_exact
    if read is not None:
        assert Fraction(read) == Fraction(nearest)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_more_than_64_levels_are_refused_and_64_are_not(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    assert payload.read(f'{{"a":{opening * 63}0{closing * 63}}}'.encode(), None)
    assert refusal(f'{{"a":{opening * 64}0{closing * 64}}}').description == "body: more than 64 levels deep"


def test_brackets_in_strings_are_no_levels() -> None:
    text = json.dumps({"a": "[" * 1000 + '"' + "{" * 1000 + "\\", "b": '\\"[' * 500})
    assert payload.read(text.encode(), None)
    assert refusal('{"a":"]]]]]]]]]]]]]]","b":' + "[" * 64 + '"]]]]"' + "]" * 64 + "}").description == (
        "body: more than 64 levels deep"
    )


@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 2_000_000,
        b'{"a":' * 400_000,
        b'{"' + b'\\"' * 1_000_000,
        b'{"a":' + b"9" * 2_000_000 + b"}",
        b'{"a":0.' + b"1" * 2_000_000 + b"}",
        b'{"a":1e' + b"9" * 2_000_000 + b"}",
        b'{"a":-' + b"1" * 2_000_000 + b"e-2000000}",
        b'{"a":"' + b"\\ud800" * 300_000 + b'"}',
    ],
    ids=["arrays", "objects", "open string", "digits", "fraction", "exponent", "long and small", "surrogates"],
)
def test_a_bomb_is_refused_in_linear_time(bomb: bytes) -> None:
    started = time.process_time()
    refused = refusal(bomb)
    assert time.process_time() - started < 5  # a quadratic reader needs minutes, a recursive one dies
    assert len(refused.description) < 200


def test_the_name_that_is_shown_is_bounded_and_printable() -> None:
    name = "x" * 5000
    assert refusal(f'{{"{name}": 1, "{name}": 2}}').description == f"body: member {'x' * 64}… appears twice"
    assert refusal('{"a\\nb": 1, "a\\nb": 2}').description == "body: member a\\nb appears twice"


def test_a_description_holds_no_value_of_the_payload() -> None:
    for body in ('{"card": "4111", "card": "4111"}', '{"a": 4111e4111}', '{"a": "4111', '{"a": "4111\\ud800"}'):
        refused = refusal(body)
        assert "4111" not in refused.description
        assert refused.__cause__ is None  # a parser's error holds the whole text


def test_a_pointer_escapes_tilde_and_slash() -> None:
    assert payload.pointer(("a/b", "~", 0)) == "/a~1b/~0/0"
    assert refusal('{"a/b": [{"~": NaN}]}').description.startswith("/a~1b/0/~0:")


# -- encodings (R45) -------------------------------------------------------------------------------------------------


def test_a_byte_order_mark_is_stripped_and_the_hash_stays() -> None:
    assert hash_of(b'\xef\xbb\xbf{"a": 1}') == hash_of(b'{"a": 1}')
    assert refusal(b'\xef\xbb\xbf\xef\xbb\xbf{"a": 1}').reason is Reason.INVALID_MESSAGE


def test_gzip_is_undone_where_it_is_declared_and_only_there() -> None:
    packed = gzip.compress(b'{"a": 1}')
    assert payload.read(packed, "gzip").value == {"a": 1}
    assert refusal(packed).description.startswith("body: not UTF-8")
    assert refusal(b'{"a": 1}', "gzip").description.startswith("body: not gzip")


@pytest.mark.parametrize("encoding", ["", "GZIP", "gzip ", "x-gzip", "deflate", "br", "identity", "gzip, gzip"])
def test_any_other_encoding_is_refused(encoding: str) -> None:
    assert refusal(b'{"a": 1}', encoding).reason is Reason.UNSUPPORTED_ENCODING


def test_broken_gzip_is_refused() -> None:
    packed = gzip.compress(b'{"a": 1}')
    for broken in (packed[:-1], packed[:5], b"", packed + b"garbage", packed[:-8] + b"\0" * 8):
        assert refusal(broken, "gzip").reason is Reason.INVALID_MESSAGE


def test_gzip_members_are_joined_and_bounded() -> None:
    assert payload.read(gzip.compress(b'{"a":') + gzip.compress(b" 1}"), "gzip").value == {"a": 1}
    assert "gzip members" in refusal(gzip.compress(b"") * 65 + gzip.compress(b"{}"), "gzip").description


def test_a_decompression_bomb_stops_at_the_cap() -> None:
    bomb = gzip.compress(b" " * 200_000_000, compresslevel=9)
    tracemalloc.start()
    try:
        refused = refusal(bomb, "gzip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.description == "body: unpacks to more than 4194304 bytes"
    assert peak < 32 * 1024 * 1024


def test_the_cap_itself_is_allowed() -> None:
    body = b'{"a": 1}'.ljust(payload.MAX_DECOMPRESSED_BYTES)
    assert payload.read(gzip.compress(body), "gzip").value == {"a": 1}
    assert refusal(gzip.compress(body + b" "), "gzip").reason is Reason.INVALID_MESSAGE


# -- hashes ----------------------------------------------------------------------------------------------------------


def test_the_raw_hash_is_over_the_bytes_as_received() -> None:
    for body, encoding in ((b'{"a": 1}', None), (b'\xef\xbb\xbf{"a": 1}', None), (gzip.compress(b'{"a": 1}'), "gzip")):
        assert payload.read(body, encoding).raw_hash == "sha256:raw:" + hashlib.sha256(body).hexdigest()


def test_the_payload_hash_is_over_the_rfc_8785_form() -> None:
    expected = "sha256:jcs:v1:" + hashlib.sha256('{"a":1,"b":"é€"}'.encode()).hexdigest()
    assert hash_of('{"b": "\\u00e9€", "a": 1.0}') == expected


def test_only_the_top_level_meta_is_left_out_of_the_hash() -> None:
    # D12: a send time or a trace in `meta` makes no conflict.
    assert hash_of('{"a": {"meta": 1}, "meta": {"sentAt": 1}}') == hash_of('{"a": {"meta": 1}, "meta": {"sentAt": 2}}')
    assert hash_of('{"a": 1, "meta": {}}') == hash_of('{"a": 1}')
    assert hash_of('{"a": {"meta": 1}}') != hash_of('{"a": {"meta": 2}}')


def test_only_a_whole_hash_of_a_known_version_is_known() -> None:
    # D13: what another release hashed otherwise is not compared.
    known = hash_of("{}")
    assert payload.is_known_hash(known)
    for text in ("", known[:-1], known + "0", known + "\n", known.replace("v1", "v2"), known.upper()):
        assert not payload.is_known_hash(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"price": 10}', '{"price": 10.0}'),
        ('{"price": 10}', '{"price": 1e1}'),
        ('{"price": 10}', '{"price": 10.00}'),
        ('{"a": 0}', '{"a": -0.0}'),
        ('{"a": 100}', '{"a": 1E2}'),
        ('{"a": {"x": 1, "y": 2}}', '{"a":{"y":2,"x":1}}'),
        ('{"a": "x\\/y"}', '{"a": "x/y"}'),
        ('{"a": "\\u00e9"}', '{"a": "é"}'),
        ('{"a": "\\ud83d\\ude00"}', '{"a": "😀"}'),
    ],
)
def test_the_same_payload_spelt_otherwise_has_the_same_hash(one: str, other: str) -> None:
    assert hash_of(one) == hash_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1}', '{"a": true}'),
        ('{"a": 0}', '{"a": false}'),
        ('{"a": 1}', '{"a": "1"}'),
        ('{"a": null}', "{}"),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": []}', '{"a": {}}'),
        ('{"a": "\\u00e9"}', '{"a": "e\\u0301"}'),  # R43: no Unicode normalisation anywhere
        ('{"a": "10"}', '{"a": "10.0"}'),
        ('{"a": "2024-01-01T00:00:00Z"}', '{"a": "2024-01-01T00:00:00+00:00"}'),  # R44: texts are opaque
        ('{"a": 9007199254740991}', '{"a": 9007199254740990}'),
        ('{"a": 0.1}', '{"a": 0.10000000000000002}'),
        ('{"a": 1}', '{"A": 1}'),
    ],
)
def test_another_payload_has_another_hash(one: str, other: str) -> None:
    assert hash_of(one) != hash_of(other)


def test_names_are_sorted_by_utf_16_code_units() -> None:
    # R43: an emoji sorts before U+FFFF, since its first code unit is a surrogate.
    assert payload.canonical({"\uffff": 1, "😀": 2, "a": 3}) == '{"a":3,"😀":2,"\uffff":1}'.encode()


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(-(2.0**53) + 1, 2.0**53 - 1, allow_nan=False),
    st.text(),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
bodies = st.dictionaries(st.text(max_size=8), values, max_size=5)


@steady
@given(values)
def test_the_fast_canonical_form_is_rfc_8785_s(value: object) -> None:
    assert payload.canonical(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


def spelt(value: object, draw: st.DataObject) -> str:
    """The value as JSON text, in one of its many spellings."""
    space = draw.draw(st.sampled_from(["", " ", "\n", "\t \r\n"]))
    if isinstance(value, dict):
        members = draw.draw(st.permutations(list(value.items())))
        inner = f"{space},{space}".join(f"{spelt(n, draw)}{space}:{space}{spelt(v, draw)}" for n, v in members)
        return f"{{{space}{inner}{space}}}"
    if isinstance(value, list):
        return f"[{space}{f'{space},'.join(spelt(item, draw) for item in value)}{space}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=draw.draw(st.booleans()))
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    shift = draw.draw(st.integers(0, 3))
    whole = "".join(map(str, digits)) + "0" * shift
    return draw.draw(
        st.sampled_from([json.dumps(value), f"{'-' * sign}{whole}{draw.draw(st.sampled_from('eE'))}{exponent - shift}"])
        if not whole.startswith("0")
        else st.just(json.dumps(value))
    )


@steady
@given(bodies, st.data())
def test_order_white_space_escapes_and_spelling_of_numbers_leave_the_hash(
    body: dict[str, object], data: st.DataObject
) -> None:
    assert hash_of(spelt(body, data)) == payload.payload_hash(body)


def meaning(value: object) -> object:
    """What a JSON value means: a number its value, and true is no number."""
    if isinstance(value, dict):
        return frozenset((name, meaning(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(meaning(item) for item in value)
    return (isinstance(value, bool), value if not isinstance(value, float | int) else float(value))


@steady
@given(bodies, bodies)
def test_bodies_have_the_same_hash_only_if_they_mean_the_same(one: dict[str, object], other: dict[str, object]) -> None:
    one.pop("meta", None)
    other.pop("meta", None)
    assume(meaning(one) != meaning(other))
    assert payload.payload_hash(one) != payload.payload_hash(other)


@steady
@given(bodies.filter(bool), st.data())
def test_one_changed_value_changes_the_hash(body: dict[str, object], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(body)))
    assume(name != "meta")
    changed = {**body, name: data.draw(values)}
    assert (payload.payload_hash(changed) == payload.payload_hash(body)) == (
        meaning(changed[name]) == meaning(body[name])
    )


@steady
@given(
    st.binary(max_size=200) | st.text(alphabet='{}[]":,\\u0123456789abcdefntrlsNIE+-. ', max_size=60).map(str.encode)
)
def test_any_bytes_are_read_or_refused_with_a_reason(body: bytes) -> None:
    for encoding in (None, "gzip"):
        try:
            payload.read(body, encoding)
        except PermanentError as refused:
            assert refused.reason is Reason.INVALID_MESSAGE  # noqa: PT017 - both endings are right
