"""local/containers.json: what it says, and how a wrong one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local.config_errors import ConfigError
from local.cosmos.containers import read_containers
from local.cosmos.indexing import IndexingPolicy

ROOT = Path(__file__).parents[3]
GOOD = {"id": "orders", "partitionKey": {"paths": ["/orderId"], "kind": "Hash", "version": 2}}


def written(path: Path, content: object) -> Path:
    file = path / "containers.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def with_container(**changes: object) -> dict[str, object]:
    return {"databases": [{"id": "convoy", "containers": [{**GOOD, **changes}]}]}


def test_the_four_containers_of_the_contract() -> None:
    [database] = read_containers(ROOT / "local" / "containers.json")
    assert database.id == "convoy"
    record = {("type", "?"), ("record", "status", "?"), ("record", "effect", "status", "?")}
    expected = {
        "orders": (("orderId",), record),
        "ledgers": (("ledgerId",), record),
        "ledger-entries": (
            ("orderId",),
            {("type", "?"), ("status", "?"), ("stream", "?"), ("sequence", "?"), ("position", "?")},
        ),
        "operations": (("sessionId",), {("type", "?"), ("status", "?")}),
    }
    assert {each.id: (each.key_path, set(each.indexing.included)) for each in database.containers} == expected
    assert all(each.default_ttl == -1 for each in database.containers)
    assert all(each.indexing.excluded == (("*",),) for each in database.containers)


@pytest.mark.parametrize(
    ("content", "key", "reason"),
    [
        ("{", "", "Expecting"),
        ({}, "databases", "a list is expected"),
        ({"databases": [{"id": "convoy"}]}, "databases[0].containers", "a list is expected"),
        ({"databases": [{"id": "a/b", "containers": []}]}, "databases[0].id", "unique non-empty string"),
        (with_container(id=""), "databases[0].containers[0].id", "unique non-empty string"),
        (with_container(partitionKey=None), "databases[0].containers[0].partitionKey", "an object"),
        (with_container(partitionKey={"paths": ["/a"], "version": 3}), "partitionKey.version", "1 or 2"),
        (with_container(partitionKey={"paths": ["/a"], "kind": "MultiHash"}), "partitionKey", "hierarchical"),
        (with_container(partitionKey={"paths": ["/a", "/b"], "version": 2}), "partitionKey.paths", "one path"),
        (with_container(partitionKey={"paths": ["orderId"], "version": 2}), "partitionKey.paths", "/orderId"),
        (with_container(partitionKey={"paths": ["/a'b"], "version": 2}), "partitionKey.paths", "/orderId"),
        (with_container(computedProperties=[{"name": "n"}]), "computedProperties", "computed properties"),
        (with_container(vectorEmbeddingPolicy={"vectorEmbeddings": []}), "vectorEmbeddingPolicy", "vector search"),
        (with_container(fullTextPolicy={"defaultLanguage": "en-US"}), "fullTextPolicy", "full-text search"),
        (with_container(changeFeedPolicy={"retentionDuration": 10}), "changeFeedPolicy", "all versions"),
        (with_container(analyticalStorageTtl=-1), "analyticalStorageTtl", "analytical store"),
        (with_container(defaultTtl=0), "defaultTtl", "positive integer"),
        (with_container(defaultTtl="60"), "defaultTtl", "positive integer"),
        (with_container(indexingPolicy={"indexingMode": "lazy"}), "indexingPolicy", "indexingMode"),
        (with_container(indexingPolicy={"includedPaths": [{"path": "/a/?"}]}), "indexingPolicy", "root path"),
        (with_container(indexingPolicy={"vectorIndexes": [{"path": "/v"}]}), "indexingPolicy", "vectorIndexes"),
        (with_container(indexingPolicy={"fullTextIndexes": [{"path": "/v"}]}), "indexingPolicy", "fullTextIndexes"),
        (with_container(uniqueKeyPolicy={}), "uniqueKeyPolicy.uniqueKeys", "a list"),
        ({"databases": [{"id": "convoy", "containers": [GOOD, GOOD]}]}, "containers", "orders is there twice"),
    ],
)
def test_wrong_file_is_refused_with_file_key_and_reason(tmp_path: Path, content: object, key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_containers(written(tmp_path, content))
    assert refused.value.file == "containers.json"
    assert refused.value.key.endswith(key)
    assert reason in refused.value.reason


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        read_containers(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("path", "is_indexed"),
    [
        (("id",), True),
        (("_ts",), True),
        (("status",), True),
        (("status", "deeper"), False),
        (("record", "any", "thing"), True),
        (("record", "secret"), False),
        (("other",), False),
    ],
)
def test_longest_path_of_the_indexing_policy_wins(path: tuple[str, ...], is_indexed: bool) -> None:
    policy = IndexingPolicy.read(
        {
            "includedPaths": [{"path": "/status/?"}, {"path": "/record/*"}],
            "excludedPaths": [{"path": "/*"}, {"path": "/record/secret/?"}],
        }
    )
    assert policy.has(path) is is_indexed


def test_terms_count_what_the_policy_puts_in_the_index() -> None:
    document = {"id": "a", "status": "x", "lines": [{"q": 1}, {"q": 2}], "_ts": 1}
    few = IndexingPolicy.read({"includedPaths": [{"path": "/status/?"}], "excludedPaths": [{"path": "/*"}]})
    lines = IndexingPolicy.read({"includedPaths": [{"path": "/lines/[]/q/?"}], "excludedPaths": [{"path": "/*"}]})
    everything = IndexingPolicy.read({"includedPaths": [{"path": "/*"}]})
    none = IndexingPolicy.read({"indexingMode": "none"})
    assert [each.terms(document) for each in (few, lines, everything, none)] == [3, 4, 5, 0]  # type: ignore[arg-type]
