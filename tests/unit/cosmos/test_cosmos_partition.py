"""Effective partition keys: the SDK computes them too, so they have to agree bit by bit."""

from __future__ import annotations

import itertools

import pytest
from azure.cosmos.partition_key import PartitionKey as SdkPartitionKey

from local.cosmos import partition
from local.cosmos.errors import CosmosError
from local.cosmos.values import UNDEFINED, Value

VECTORS = {
    '["o1"]': "2D633033DCE54EBBCBEBDEB7047C6C17",
    '["order-1"]': "3815BA40E3A5B182711B2F7C5DCAF885",
    '[""]': "32E9366E637A71B4E710384B2F4970A0",
    '["é"]': "007199F104E04116EE25AF912CA4889B",
    "[1]": "20CD98B339BA78A5D0CF6953B87070B0",
    "[1.5]": "35C5DDEB6C795D16A9963C73C54E97BC",
    "[-1]": "19938E7A936C1C5B9E3AE842BBC16839",
    "[true]": "0E711127C5B5A8E4726AC6DD306A3E59",
    "[false]": "2FE1BE91E90A3439635E0E9E37361EF2",
    "[null]": "378867E4430E67857ACE5C908374FE16",
    "[{}]": "11622DAA78F835834610ABE56EFF5CB5",
    '["%s"]' % ("a" * 49): "19FA4212F22058075269A0830907C08B",
}


@pytest.mark.parametrize(("header", "epk"), VECTORS.items())
def test_effective_partition_key_of_a_known_value(header: str, epk: str) -> None:
    assert partition.key_from_header(header).epk == epk


@pytest.mark.parametrize("length", range(34))
def test_effective_partition_key_is_that_of_the_sdk_for_every_tail_length(length: int) -> None:
    value = "x" * length
    theirs = SdkPartitionKey("/pk")._get_epk_range_for_partition_key([value])
    assert partition.key_of(value).epk == theirs.min


@pytest.mark.parametrize(
    "value", ["a", "abc", "é" * 60, "日" * 40, "x" * 101, 1, 7, 1.5, -1.5, 2**32 - 1, True, False, UNDEFINED]
)
def test_effective_partition_key_of_version_1_is_that_of_the_sdk(value: Value) -> None:
    theirs = SdkPartitionKey("/pk", version=1)._get_epk_range_for_partition_key(  # {} = the property is not there
        [{} if value is UNDEFINED else value]
    )
    assert partition.key_of(value, 1).epk == str(theirs.min).upper()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_ranges_of_version_1_share_its_keys_evenly(count: int) -> None:
    ranges = partition.ranges(count, 1)
    assert (ranges[0].start, ranges[-1].end) == ("", "FF")
    keys = [partition.key_of(f"order-{at}", 1).epk for at in range(1000)]
    shares = [sum(epk in each for epk in keys) for each in ranges]
    assert sum(shares) == 1000
    assert all(abs(share - 1000 / count) < 100 for share in shares)


def test_parts_of_ranges_within_bounds() -> None:
    [low, high] = partition.ranges(2)
    assert partition.overlapping((low, high), partition.Range("", "10", "30")) == (
        partition.Range("0", "10", low.end),
        partition.Range("1", low.end, "30"),
    )
    assert partition.overlapping((low, high), partition.Range("", "", "10")) == (partition.Range("0", "", "10"),)


def test_r46_number_and_text_are_different_keys_and_one_is_one_point_zero() -> None:
    assert partition.key_from_header("[7]").text == partition.key_from_header("[7.0]").text
    assert partition.key_from_header("[7]").text != partition.key_from_header('["7"]').text


@pytest.mark.parametrize(
    ("document", "header"),
    [
        ({}, "[{}]"),
        ({"pk": None}, "[null]"),
        ({"pk": 7}, "[7]"),
        ({"pk": "C7"}, '["C7"]'),
        ({"pk": "é"}, '["\\u00e9"]'),
        ({"pk": {"a": 1}}, "[{}]"),
        ({"pk": ["C7"]}, "[{}]"),
    ],
)
def test_r46_document_fits_the_header_that_the_sdk_computes_from_it(document: dict[str, object], header: str) -> None:
    partition.refuse_mismatch(partition.key_from_header(header), document, ("pk",))  # type: ignore[arg-type]


@pytest.mark.parametrize("document", [{}, {"pk": None}, {"pk": "c7"}, {"pk": ["C7"]}, {"pk": {"a": 1}}])
def test_r46_document_with_another_key_is_refused_with_400_1001(document: dict[str, object]) -> None:
    with pytest.raises(CosmosError) as refused:
        partition.refuse_mismatch(partition.key_from_header('["C7"]'), document, ("pk",))  # type: ignore[arg-type]
    assert (refused.value.status, refused.value.sub_status) == (400, 1001)


@pytest.mark.parametrize("header", ["[]", '["a","b"]', '"a"', "[[1]]", '[{"a":1}]', "[", "[NaN]"])
def test_header_that_is_no_key_of_one_component_is_refused(header: str) -> None:
    with pytest.raises(CosmosError) as refused:
        partition.key_from_header(header)
    assert refused.value.status == 400


def test_key_longer_than_2048_bytes_is_refused() -> None:
    partition.key_of("x" * 2048)
    with pytest.raises(CosmosError, match="2048"):
        partition.key_of("x" * 2049)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_ranges_cover_everything_without_gap_or_overlap(count: int) -> None:
    ranges = partition.ranges(count)
    assert (ranges[0].start, ranges[-1].end) == ("", "FF")
    assert all(one.end == other.start for one, other in itertools.pairwise(ranges))
    for epk in VECTORS.values():
        assert sum(epk in each for each in ranges) == 1


def test_unknown_range_is_gone_with_410_1002() -> None:
    with pytest.raises(CosmosError) as refused:
        partition.range_by_id(partition.ranges(2), "2")
    assert (refused.value.status, refused.value.sub_status) == (410, 1002)
