"""Route templates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.host.routes import decode_path, parse_route


@pytest.mark.parametrize(
    ("template", "path", "parameters"),
    [
        ("orders", "/orders", {}),
        ("orders", "/ORDERS/", {}),
        ("orders", "/orders/1", None),
        ("orders", "/order", None),
        ("orders/{id}", "/orders/1", {"id": "1"}),
        ("orders/{id}", "/orders/", None),
        ("orders/{id}", "/orders/1/2", None),
        ("orders/{id?}", "/orders", {}),
        ("orders/{id?}", "/orders/1", {"id": "1"}),
        ("orders/{*id}", "/orders/1/2/", {"id": "1/2/"}),
        ("orders/{*id}", "/orders", {}),
        ("{*all}", "/a/b", {"all": "a/b"}),
        ("{a}/x/{b-c}", "/1/x/2", {"a": "1", "b-c": "2"}),
        ("a.b", "/axb", None),
        ("orders/{*id}", "/orders/a\nb", {"id": "a\nb"}),
    ],
)
def test_matching(template: str, path: str, parameters: dict[str, str] | None) -> None:
    assert parse_route(template).match(path) == parameters


@pytest.mark.parametrize("template", ["{id:int}", "{*id}/x", "{id?}/x", "a{id}", "{id=1}", "{", "x/{}"])
def test_what_is_not_supported_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"supported|at the end"):
        parse_route(template)


def test_literals_rank_before_parameters_and_these_before_the_rest() -> None:
    ranks = [parse_route(text).rank for text in ("a/{*rest}", "a/{b}", "a/b")]
    assert sorted(ranks) == [(0, 0), (0, 1), (0, 2)]


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="/%"), min_size=1, max_size=30))
def test_a_percent_encoded_id_arrives_as_it_was(text: str) -> None:
    from urllib.parse import quote

    assert decode_path(f"/x/{quote(text, safe='')}") == f"/x/{text}"
