"""Query semantics, on documents in memory: undefined is not null, only equal types compare, logic has three values."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from local.cosmos.definition import container_spec
from local.cosmos.errors import CosmosError
from local.cosmos.indexing import IndexingPolicy
from local.cosmos.partition import key_of
from local.cosmos.query.metrics import Metrics
from local.cosmos.query.needles import needles_of
from local.cosmos.query.run import MAX_LOOKED_AT, Candidate, Page, Plan, Query
from local.cosmos.query.syntax import parse_query
from local.cosmos.query.target import key_of_filter
from local.cosmos.values import Document, Json, dump, parse

THINGS: list[Document] = [
    {"id": "a", "n": 1, "s": "Tea", "flag": True, "tags": ["x", "y"], "o": {"p": 1}, "lines": [{"q": 1}, {"q": 5}]},
    {"id": "b", "n": 2.5, "s": "tea pot", "flag": False, "tags": [], "o": {"p": None}, "lines": [{"q": 2}]},
    {"id": "c", "n": None, "s": None, "tags": ["x", 1, None, {"k": 1, "m": 2}]},
    {"id": "d", "n": "2", "s": 7, "flag": "true", "o": {}},
    {"id": "e"},
]


def plan(text: str, *, cross: bool = False, indexing: IndexingPolicy | None = None, **parameters: Json) -> Plan:
    return Plan(
        Query(text, {f"@{name}": value for name, value in parameters.items()}), indexing, is_cross_partition=cross
    )


def page(made: Plan, things: Sequence[Document], size: int = 1000, continuation: str | None = None) -> Page:
    known = [Candidate(at, dump(parse(json.dumps(each), "test"))) for at, each in enumerate(things, 1)]
    return made.page(lambda start: [each for each in known if each.sequence >= start], size, continuation)


def answer(text: str, things: Sequence[Document] = THINGS, **parameters: Json) -> list[Json]:
    return [json.loads(row) for row in page(plan(text, **parameters), things).rows]


def ids(where: str, **parameters: Json) -> str:
    found = answer(f"SELECT VALUE c.id FROM c WHERE {where}", **parameters)  # noqa: S608 - the text is a test case
    return "".join(str(each) for each in found)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("true", "abcde"),
        ("c.n = 1", "a"),
        ("c.n = 1.0", "a"),
        ("c.n != 1", "b"),  # null and "2" are of other types, e has none: all undefined
        ("c.n = null", "c"),
        ("c.n = undefined", ""),
        ("c.flag = true", "a"),
        ("c.flag", "a"),
        ("NOT c.flag", "b"),
        ("c.n", ""),
        ("c.n < 2.5", "a"),
        ("c.n <= 2.5", "ab"),
        ("c.n > '1'", "d"),
        ("c.n >= null", "c"),
        ("c.flag < true", "b"),
        ("c.o = {p: 1}", "a"),
        ("c.o = {'p': null}", "b"),
        ("c.tags = ['x', 'y']", "a"),
        ("c.tags < ['z']", ""),
        ("c.n BETWEEN 1 AND 2", "a"),
        ("c.n NOT BETWEEN 1 AND 2", "b"),
        ("c.n IN (1, '2', null)", "acd"),
        ("c.n NOT IN (1, 3)", "b"),
        ("c.o.p = 1", "a"),
        ("c['o']['p'] = 1", "a"),
        ("c.tags[0] = 'x'", "ac"),
        ("c.tags[9] = 'x'", ""),
        ("c.o.p.deeper = 1", ""),
        ("c.n + 1 = 2", "a"),
        ("c.n - 1 = 0 OR c.n * 2 = 5", "ab"),
        ("c.n / 0 = 1", ""),
        ("c.n % 2 = 1", "a"),
        ("-c.n = -1", "a"),
        ("c.s || '!' = 'Tea!'", "a"),
        ("(c.n ?? 'none') = 'none'", "e"),
        ("(c.flag = true ? 1 : 2) = 1", "a"),
        ("c.id = \"a\" OR c.id = 'b'", "ab"),
        (r"c.id = '\u0061'", "a"),
        ("EXISTS (SELECT VALUE l FROM l IN c.lines WHERE l.q > 4)", "a"),
        ("NOT EXISTS (SELECT VALUE l FROM l IN c.lines)", "cde"),
        ("exists (select value t from t in c.tags where t = c.s)", "c"),  # null = null
    ],
)
def test_filter(where: str, expected: str) -> None:
    assert ids(where) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        # undefined AND false is false, undefined OR true is true, everything else with undefined is undefined
        ("NOT (c.nothing = 1 AND 1 = 2)", "abcde"),
        ("NOT (c.nothing = 1 AND 1 = 1)", ""),
        ("c.nothing = 1 OR 1 = 1", "abcde"),
        ("NOT (c.nothing = 1 OR 1 = 2)", ""),
        ("NOT (c.nothing = 1)", ""),
        ("NOT (c.n IN (5, null))", ""),  # each compares with one option of another type
        ("c.nothing != 'parked'", ""),
        ("NOT IS_DEFINED(c.flag) OR c.flag != 'parked'", "cde"),
    ],
)
def test_three_valued_logic(where: str, expected: str) -> None:
    assert ids(where) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("IS_DEFINED(c.n)", "abcd"),
        ("IS_NULL(c.n)", "c"),
        ("NOT IS_NULL(c.n)", "abde"),
        ("IS_NUMBER(c.n)", "ab"),
        ("IS_INTEGER(c.n)", "a"),
        ("IS_STRING(c.n)", "d"),
        ("IS_BOOL(c.flag)", "ab"),
        ("IS_ARRAY(c.tags)", "abc"),
        ("IS_OBJECT(c.o)", "abd"),
        ("IS_PRIMITIVE(c.n)", "abcd"),
        ("STARTSWITH(c.s, 'T')", "a"),
        ("STARTSWITH(c.s, 'T', true)", "ab"),
        ("ENDSWITH(c.s, 'pot')", "b"),
        ("CONTAINS(c.s, 'ea')", "ab"),
        ("NOT CONTAINS(c.s, 'zz')", "ab"),  # null and 7 are no text: undefined
        ("LOWER(c.s) = 'tea'", "a"),
        ("UPPER(c.s) = 'TEA'", "a"),
        ("LENGTH(c.s) = 3", "a"),
        ("ARRAY_LENGTH(c.tags) = 0", "b"),
        ("ARRAY_CONTAINS(c.tags, 'x')", "ac"),
        ("ARRAY_CONTAINS(c.tags, 1)", "c"),
        ("ARRAY_CONTAINS(c.tags, true)", ""),
        ("ARRAY_CONTAINS(c.tags, {k: 1})", ""),
        ("ARRAY_CONTAINS(c.tags, {k: 1}, true)", "c"),
        ("ARRAY_CONTAINS(@wanted, c.id)", "bd"),
        ("ABS(0 - c.n) = 1", "a"),
        ("FLOOR(c.n) = 2 AND CEILING(c.n) = 3 AND ROUND(c.n) = 3", "b"),
        ("SUBSTRING(c.s, 1, 2) = 'ea'", "ab"),
        ("CONCAT(c.id, '-', c.s) = 'a-Tea'", "a"),
        ("INDEX_OF(c.s, 'pot') = 4", "b"),
        ("is_defined(c.flag) and not is_string(c.flag)", "ab"),
    ],
)
def test_functions(where: str, expected: str) -> None:
    assert ids(where, wanted=["b", "d"]) == expected


def test_projection_leaves_undefined_out_and_keeps_null() -> None:
    assert answer("SELECT c.id, c.n, c.o.p AS deep FROM c")[1:] == [
        {"id": "b", "n": 2.5, "deep": None},
        {"id": "c", "n": None},
        {"id": "d", "n": "2"},
        {"id": "e"},
    ]


def test_value_of_undefined_gives_no_row() -> None:
    assert answer("SELECT VALUE c.flag FROM c") == [True, False, "true"]


def test_unnamed_items_are_numbered() -> None:
    assert answer("SELECT 1, c.id, 'x' || c.id FROM c WHERE c.id = 'a'") == [{"$1": 1, "id": "a", "$2": "xa"}]


def test_objects_and_arrays_can_be_made() -> None:
    assert answer("SELECT VALUE {i: c.id, 'l': [c.n, c.nothing]} FROM c WHERE c.id = 'a'") == [{"i": "a", "l": [1]}]


def test_star_gives_the_document_itself() -> None:
    assert answer("SELECT * FROM anything") == THINGS


def test_parameters_and_both_kinds_of_quotes() -> None:
    assert answer("""SELECT VALUE c.id FROM c WHERE c.n IN (@x, 2.5) AND c.s IN ('Tea', "tea pot")""", x=1) == [
        "a",
        "b",
    ]


def test_join_gives_one_row_per_element_and_sees_the_document() -> None:
    rows = answer("SELECT c.id, l.q FROM c JOIN l IN c.lines WHERE l.q > 1")
    assert rows == [{"id": "a", "q": 5}, {"id": "b", "q": 2}]


def test_from_in_iterates_over_elements() -> None:
    assert answer("SELECT VALUE l.q FROM l IN c.lines") == [1, 5, 2]


def test_order_by_puts_types_in_order_and_undefined_first() -> None:
    assert answer("SELECT VALUE c.id FROM c ORDER BY c.n") == ["e", "c", "a", "b", "d"]
    assert answer("SELECT VALUE c.id FROM c ORDER BY c.n DESC") == ["d", "b", "a", "c", "e"]
    assert answer("SELECT VALUE c.id FROM c ORDER BY c.flag ASC") == ["c", "e", "b", "a", "d"]


def test_top_offset_and_limit() -> None:
    assert answer("SELECT TOP 2 VALUE c.id FROM c") == ["a", "b"]
    assert answer("SELECT VALUE c.id FROM c OFFSET 1 LIMIT @n", n=2) == ["b", "c"]
    assert answer("SELECT VALUE c.id FROM c ORDER BY c.id DESC OFFSET 1 LIMIT 2") == ["d", "c"]
    assert answer("SELECT TOP 0 VALUE c.id FROM c") == []


def test_distinct_compares_values_not_text() -> None:
    things: list[Document] = [{"v": {"a": 1, "b": 2}}, {"v": {"b": 2, "a": 1}}, {"v": 1}, {"v": True}, {"v": 1.0}, {}]
    assert answer("SELECT DISTINCT VALUE c.v FROM c", things) == [{"a": 1, "b": 2}, 1, True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT VALUE COUNT(1) FROM c", [5]),
        ("SELECT VALUE COUNT(c.n) FROM c", [4]),
        ("SELECT VALUE COUNT(1) FROM c JOIN l IN c.lines", [3]),
        ("SELECT VALUE SUM(c.n) FROM c WHERE IS_NUMBER(c.n)", [3.5]),
        ("SELECT VALUE SUM(c.n) FROM c", []),  # one value is no number: undefined
        ("SELECT VALUE AVG(c.n) FROM c WHERE IS_NUMBER(c.n)", [1.75]),
        ("SELECT VALUE AVG(c.n) FROM c WHERE false", []),
        ("SELECT VALUE MIN(c.n) FROM c", [None]),
        ("SELECT VALUE MAX(c.n) FROM c", ["2"]),
        ("SELECT VALUE MAX(c.nothing) FROM c", []),
        ("SELECT COUNT(1) AS n, MAX(c.id) FROM c", [{"n": 5, "$1": "e"}]),
        ("SELECT COUNT(1), SUM(c.n) FROM c", [{"$1": 5}]),
    ],
)
def test_aggregates(text: str, expected: list[Json]) -> None:
    assert answer(text) == expected


def test_aggregates_across_partitions_need_value_as_the_sdk_has_it() -> None:
    plan("SELECT VALUE COUNT(1) FROM c", cross=True)
    with pytest.raises(CosmosError, match="Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates"):
        plan("SELECT COUNT(1) AS n FROM c", cross=True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT",
        "SELECT * FROM",
        "SELECT * FROM c WHERE",
        "SELECT * FROM c WHERE c.n = ",
        "SELECT * FROM c WHERE c.n = 1 c.s = 2",
        "SELECT * FROM c WHERE c.n == 1",
        "SELECT * FROM c WHERE c.n = 1 = 1",
        "SELECT * FROM c WHERE x.n = 1",
        "SELECT c.id FROM d",
        "SELECT * FROM c WHERE NOSUCH(c.n)",
        "SELECT * FROM c WHERE ABS(c.n, 1) = 1",
        "SELECT * FROM c WHERE c.n = @missing",
        "SELECT * FROM c WHERE NOT c.n = 1",
        "SELECT * FROM c WHERE c.s LIKE 'a%'",
        "SELECT c.n, COUNT(1) FROM c GROUP BY c.n",
        "SELECT c.n, COUNT(1) FROM c",
        "SELECT * FROM c WHERE COUNT(1) > 1",
        "SELECT * FROM c JOIN l IN c.lines",
        "SELECT VALUE l FROM c JOIN c IN c.lines",
        "SELECT VALUE l.q FROM c JOIN l IN c.lines ORDER BY l.q",
        "SELECT * FROM c ORDER BY c.n + 1",
        "SELECT * FROM c ORDER BY c",
        "SELECT TOP 'a' * FROM c",
        "SELECT TOP 1 * FROM c OFFSET 1 LIMIT 1",
        "SELECT * FROM c WHERE c.n & 1 = 1",
        "SELECT * FROM c WHERE udf.f(c.n)",
        "SELECT * FROM c WHERE c.n IN (SELECT VALUE 1 FROM c)",
        "SELECT * FROM c WHERE c.n = 1 -- comment",
        "SELECT * FROM c WHERE c.s = 'unclosed",
        r"SELECT * FROM c WHERE c.s = '\q'",
        "SELECT c.id, c.o.id FROM c",
        "SELECT VALUE 1",
        "DELETE FROM c",
        "SELECT * FROM c WHERE " + "(" * 500 + "true" + ")" * 500,
        "SELECT * FROM c WHERE " + "NOT " * 500 + "true",
        "SELECT * FROM c WHERE true" + " OR true" * 2000,
        "SELECT VALUE 1" + " + 1" * 500 + " FROM c",
        "SELECT DISTINCT VALUE COUNT(1) FROM c",
        "SELECT TOP 1 VALUE COUNT(1) FROM c",
    ],
)
def test_what_is_wrong_or_outside_the_subset_is_refused_with_400(text: str) -> None:
    with pytest.raises(CosmosError) as refused:
        plan(text)
    assert refused.value.status == 400
    assert refused.value.message


@pytest.mark.parametrize("operator", ["OR", "AND"])
def test_two_thousand_terms_in_a_row_are_served_as_in_the_service(operator: str) -> None:
    others = [f"c.n {'=' if operator == 'OR' else '!='} {at}" for at in range(3, 1002)]
    terms = f" {operator} ".join([*["(c.n = 1)"] * 1000, *others, "c.n = 1"])
    assert answer("SELECT VALUE c.id FROM c WHERE {}".replace("{}", terms)) == ["a"]


def test_aggregate_takes_an_order_that_it_does_not_need_and_the_index_must_have_it() -> None:
    assert answer("SELECT VALUE COUNT(1) FROM c ORDER BY c.n") == [5]
    policy = IndexingPolicy.read({"includedPaths": [{"path": "/n/?"}], "excludedPaths": [{"path": "/*"}]})
    with pytest.raises(CosmosError, match="order-by item is excluded"):
        plan("SELECT VALUE COUNT(1) FROM c ORDER BY c.s", indexing=policy)


@pytest.mark.parametrize(
    ("item", "alone", "across"),
    [("MAX(c.s)", [], [None]), ("MIN(c.s)", [], [None]), ("AVG(c.n)", [], [None]), ("COUNT(1)", [0], [0])],
)
def test_aggregate_of_nothing_is_null_across_partitions_as_the_sdk_merges_it(
    item: str, alone: list[Json], across: list[Json]
) -> None:
    text = "SELECT VALUE {} FROM c WHERE c.id = 'nowhere'".replace("{}", item)
    assert [json.loads(row) for row in page(plan(text), THINGS).rows] == alone
    assert [json.loads(row) for row in page(plan(text, cross=True), THINGS).rows] == across


def test_metrics_count_what_a_page_read_and_nothing_for_a_count_alone() -> None:
    for text, counts in (("SELECT * FROM c WHERE c.n = 1", (5, 1)), ("SELECT VALUE COUNT(1) FROM c", (0, 1))):
        metrics = Metrics()
        known = [Candidate(at, dump(each)) for at, each in enumerate(THINGS, 1)]
        rows = plan(text).page(lambda start, known=known: known[start:], 100, None, metrics).rows
        named = dict(part.split("=") for part in metrics.header(rows).split(";"))
        assert (int(named["retrievedDocumentCount"]), int(named["outputDocumentCount"])) == counts
        assert (int(named["retrievedDocumentSize"]) > 0) == (counts[0] > 0)
        assert float(named["indexUtilizationRatio"]) == (0.2 if counts[0] else 1.0)


def test_filter_of_one_partition_key_names_it() -> None:
    spec = container_spec({"id": "c", "partitionKey": {"paths": ["/a/b"], "version": 2}})
    texts = {
        "SELECT * FROM c WHERE c.n = 1 AND c.a.b = @key": key_of("x"),
        "SELECT * FROM c WHERE 7 = c.a.b": key_of(7),
        "SELECT * FROM r WHERE r.a.b = null": key_of(None),
        "SELECT * FROM c WHERE c.a.b = 'x' OR c.n = 1": None,
        "SELECT * FROM c WHERE c.a.b > 'x'": None,
        "SELECT * FROM c WHERE c.a.b = c.n": None,
        "SELECT * FROM c WHERE c.a.b = @list": None,
        "SELECT * FROM c WHERE c.b = 'x'": None,
        "SELECT VALUE x FROM x IN c.a WHERE x.a.b = 'x'": None,
        "SELECT * FROM c": None,
    }
    assert {text: key_of_filter(text, {"@key": "x", "@list": []}, spec) for text in texts} == texts


def test_order_by_needs_the_path_in_the_index_as_in_the_service() -> None:
    policy = IndexingPolicy.read(
        {"includedPaths": [{"path": "/n/?"}, {"path": "/s/?"}], "excludedPaths": [{"path": "/*"}]}
    )
    plan("SELECT * FROM c ORDER BY c.n", indexing=policy)
    plan("SELECT * FROM c ORDER BY c._ts", indexing=policy)
    with pytest.raises(CosmosError, match="order-by item is excluded"):
        plan("SELECT * FROM c ORDER BY c.flag", indexing=policy)
    with pytest.raises(CosmosError, match="composite index"):
        plan("SELECT * FROM c ORDER BY c.n, c.s", indexing=policy)


def test_composite_index_serves_its_order_and_the_opposite_only() -> None:
    parts: list[Json] = [{"path": "/n", "order": "ascending"}, {"path": "/s", "order": "descending"}]
    policy = IndexingPolicy.read({"includedPaths": [{"path": "/*"}], "compositeIndexes": [parts]})
    plan("SELECT * FROM c ORDER BY c.n ASC, c.s DESC", indexing=policy)
    plan("SELECT * FROM c ORDER BY c.n DESC, c.s ASC", indexing=policy)
    with pytest.raises(CosmosError, match="composite index"):
        plan("SELECT * FROM c ORDER BY c.n, c.s", indexing=policy)


PAGED = [
    "SELECT VALUE c.id FROM c",
    "SELECT VALUE c.id FROM c ORDER BY c.n DESC",
    "SELECT VALUE c.id FROM c OFFSET 1 LIMIT 3",
    "SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 1 LIMIT 3",
    "SELECT TOP 3 VALUE c.id FROM c",
    "SELECT DISTINCT VALUE c.n FROM c",
    "SELECT VALUE [c.id, t] FROM c JOIN t IN c.tags",
    "SELECT VALUE c.id FROM c WHERE c.nothing = 1",
]


@pytest.mark.parametrize("text", PAGED)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_together_are_the_whole_answer(text: str, size: int) -> None:
    made, rows, continuation = plan(text), [], None
    while True:
        part = page(made, THINGS, size, continuation)
        assert len(part.rows) <= size
        rows += [json.loads(row) for row in part.rows]
        continuation = part.continuation
        if continuation is None:
            break
    assert rows == answer(text)


def test_writes_between_pages_neither_repeat_nor_skip_a_row() -> None:
    made = plan("SELECT VALUE c.id FROM c ORDER BY c.n")
    first = page(made, [{"id": "x", "n": 2}, {"id": "y", "n": 4}, {"id": "z", "n": 6}], 2)
    # Before the next page y goes, and v comes in before, w behind the place that was reached.
    gone: Document = {}
    later = [{"id": "x", "n": 2}, gone, {"id": "z", "n": 6}, {"id": "v", "n": 1}, {"id": "w", "n": 5}]
    rest = page(made, [each for each in later if each], 2, first.continuation)
    assert [json.loads(row) for row in first.rows + rest.rows] == ["x", "y", "w", "z"]


@pytest.mark.parametrize("token", ["nonsense", "e30=", "WyJhIiwxLG51bGxd", "%%%"])
def test_foreign_continuation_is_refused_with_400(token: str) -> None:
    with pytest.raises(CosmosError, match="continuation"):
        page(plan("SELECT * FROM c"), THINGS, 2, token)


def test_continuation_of_another_query_is_refused_with_400() -> None:
    token = page(plan("SELECT * FROM c WHERE c.n > @x", x=0), THINGS, 1).continuation
    with pytest.raises(CosmosError, match="continuation"):
        page(plan("SELECT * FROM c WHERE c.n > @x", x=1), THINGS, 1, token)


def test_long_scan_ends_its_page_early_and_goes_on() -> None:
    things: list[Document] = [{"id": str(at), "hit": at in (0, MAX_LOOKED_AT + 3)} for at in range(MAX_LOOKED_AT + 5)]
    made = plan("SELECT VALUE c.id FROM c WHERE c.hit")
    first = page(made, things)
    assert (first.rows, first.looked_at) == ([b'"0"'], MAX_LOOKED_AT)
    second = page(made, things, 1000, first.continuation)
    assert (second.rows, second.continuation) == ([b'"%d"' % (MAX_LOOKED_AT + 3)], None)


def test_page_ends_before_4_mib_whatever_its_size() -> None:
    things: list[Document] = [{"id": str(at), "text": "x" * 1_900_000} for at in range(3)]
    made = plan("SELECT * FROM c")
    first = page(made, things)
    assert len(first.rows) == 2
    assert len(page(made, things, 1000, first.continuation).rows) == 1


@pytest.mark.parametrize(
    ("where", "needles"),
    [
        ("c.o.p = 'x'", [(b'"p":"x"',)]),
        ("@x = c.o.p AND c.n > 1", [(b'"p":"\xc3\xa9"',)]),
        ("c.p IN ('a', 'b') AND c.q = \"c\"", [(b'"p":"a"', b'"p":"b"'), (b'"q":"c"',)]),
        ("c.tags[0] = 'a'", [(b'"a"',)]),
        ("c.p = 'a' OR c.q = 'b'", []),
        ("c.p = 1", []),
        ("c.p IN ('a', 1)", []),
        ("NOT (c.p = 'a')", []),
        ("LOWER(c.p) = 'a'", []),
        ("{p: 'a'}.p = 'a'", []),
    ],
)
def test_bytes_that_a_match_must_hold(where: str, needles: list[tuple[bytes, ...]]) -> None:
    query = parse_query(f"SELECT * FROM c WHERE {where}")  # noqa: S608 - the text is a test case
    assert needles_of(query.where, {"@x": "é"}) == needles
