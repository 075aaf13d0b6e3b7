"""What the service makes of an indexing policy: clients read back another one than they wrote."""

from __future__ import annotations

import pytest

from local.cosmos.definition import InvalidDefinitionError, container_spec, property_path
from local.cosmos.values import Document, Json

ALL: Json = [{"path": "/*"}]
ETAG: Json = [{"path": '/"_etag"/?'}]
NONE: Json = []


def policy_of(given: Json) -> Document:
    body: Document = {"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}, "indexingPolicy": given}
    policy = container_spec(body).document["indexingPolicy"]
    assert isinstance(policy, dict)
    return policy


@pytest.mark.parametrize(
    ("given", "included", "excluded"),
    [
        (None, ALL, ETAG),
        ({}, ALL, ETAG),
        ({"indexingMode": "Consistent"}, ALL, ETAG),
        ({"includedPaths": [{"path": "/*"}]}, ALL, ETAG),
        ({"includedPaths": [{"path": "/", "indexes": [{"kind": "Hash", "dataType": "String"}]}]}, ALL, ETAG),
        ({"excludedPaths": [{"path": '/"a"/*'}]}, ALL, [{"path": '/"a"/*'}, {"path": '/"_etag"/?'}]),
        ({"includedPaths": [{"path": "/a/?"}], "excludedPaths": [{"path": "/*"}]}, [{"path": "/a/?"}], ALL),
        ({"includedPaths": [], "excludedPaths": [{"path": "/*"}]}, NONE, ALL),
        ({"indexingMode": "none", "automatic": False}, NONE, NONE),
    ],
)
def test_what_a_policy_does_not_say_is_filled_in(given: Json, included: Json, excluded: Json) -> None:
    policy = policy_of(given)
    assert (policy["includedPaths"], policy["excludedPaths"]) == (included, excluded)
    assert policy["indexingMode"] == ("none" if included == excluded else "consistent")
    assert policy["automatic"] is (included != excluded)


def test_other_indexes_are_stored_as_they_are_given() -> None:
    composite: Json = [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]]
    spatial: Json = [{"path": "/place/*", "types": ["Point"]}]
    policy = policy_of({"compositeIndexes": composite, "spatialIndexes": spatial})
    assert (policy["compositeIndexes"], policy["spatialIndexes"]) == (composite, spatial)


@pytest.mark.parametrize("given", ["all", [1], {"includedPaths": "/*"}, {"indexingMode": 1}, {"includedPaths": [1]}])
def test_policy_of_another_form_is_refused(given: Json) -> None:
    with pytest.raises(InvalidDefinitionError, match="indexingPolicy"):
        policy_of(given)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/a/b", ("a", "b")),
        ("/\"le/vel' 1*()\"/b", ("le/vel' 1*()", "b")),
        ("/'level\" 1*()'/'le/vel2'", ('level" 1*()', "le/vel2")),
    ],
)
def test_names_in_a_path_may_be_quoted_either_way(path: str, names: tuple[str, ...]) -> None:
    assert property_path(path, "partitionKey.paths") == names
