"""What a database and its containers are made of, checked as the service checks it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from local.cosmos.indexing import IndexingPolicy, InvalidPolicyError, completed
from local.cosmos.values import Document, Json

MAX_TTL = 2**31 - 1
RU_PER_PARTITION = 6000  # one physical partition per 6000 RU/s, as the SDK's own tests expect of the service
DEFAULT_THROUGHPUT = 400

_PATH = re.compile(r"""(/([^/"'*?\[\]\s]+|"[^"]+"|'[^']+'))+""")
_NAME = re.compile(r"""/(?:"([^"]+)"|'([^']+)'|([^/]+))""")
_ECHOED = ("conflictResolutionPolicy", "geospatialConfig")
_NOT_SERVED = {
    "analyticalStorageTtl": "an analytical store",
    "changeFeedPolicy": "a change feed of all versions",
    "clientEncryptionPolicy": "client encryption",
    "computedProperties": "computed properties",
    "fullTextPolicy": "full-text search",
    "materializedViewDefinition": "materialized views",
    "vectorEmbeddingPolicy": "vector search",
}


class InvalidDefinitionError(Exception):
    """A definition can't be used: says which key, and why."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container as it is asked for; `document` is the resource body without system properties."""

    id: str
    key_path: tuple[str, ...]
    key_version: int
    default_ttl: int | None
    unique_keys: tuple[tuple[tuple[str, ...], ...], ...]
    indexing: IndexingPolicy
    document: Document = field(compare=False)


@dataclass(frozen=True, slots=True)
class DatabaseSpec:
    id: str
    containers: tuple[ContainerSpec, ...] = ()


def resource_id(value: Json, key: str = "id") -> str:
    """The id of a database or container, of 1 to 255 characters.

    Refuses / \\ # ?, control characters (the id goes into response headers) and a space at the end.
    """
    if not isinstance(value, str) or not re.fullmatch(r"[^/\\#?\x00-\x1f]{0,254}[^/\\#?\x00-\x20]", value):
        raise InvalidDefinitionError(
            key, "Ensure to provide a unique non-empty string less than '255' characters. Not in it: / \\ # ?."
        )
    return value


def property_path(value: Json, key: str) -> tuple[str, ...]:
    """The names in a path such as /record/status."""
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise InvalidDefinitionError(key, f"a path such as /orderId is expected, not {value!r}")
    return tuple("".join(forms) for forms in _NAME.findall(value))


def container_spec(body: Json) -> ContainerSpec:
    """Read a container's resource body. Refuses what this server would otherwise have to ignore."""
    if not isinstance(body, dict):
        raise InvalidDefinitionError("", "an object is expected")
    container_id = resource_id(body.get("id"))
    for key, feature in _NOT_SERVED.items():
        if body.get(key):
            raise InvalidDefinitionError(key, f"this server does not serve {feature}")
    partition_key = body.get("partitionKey")
    if not isinstance(partition_key, dict):
        raise InvalidDefinitionError("partitionKey", "an object with paths, kind and version is expected")
    if partition_key.get("kind", "Hash") != "Hash":
        raise InvalidDefinitionError("partitionKey", "hierarchical keys are not served, only kind Hash is")
    key_version = partition_key.get("version", 1)
    if key_version not in (1, 2) or isinstance(key_version, bool):
        raise InvalidDefinitionError("partitionKey.version", f"1 or 2 is expected, not {key_version!r}")
    paths = partition_key.get("paths")
    if not isinstance(paths, list) or len(paths) != 1:
        raise InvalidDefinitionError("partitionKey.paths", "a list of one path is expected")
    key_path = property_path(paths[0], "partitionKey.paths")
    try:
        policy = completed(body.get("indexingPolicy") or {})
        indexing = IndexingPolicy.read(policy)
    except InvalidPolicyError as exc:
        raise InvalidDefinitionError("indexingPolicy", str(exc)) from exc
    default_ttl = _default_ttl(body.get("defaultTtl"))
    document: Document = {"id": container_id, "indexingPolicy": policy, "partitionKey": partition_key}
    if default_ttl is not None:
        document["defaultTtl"] = default_ttl
    unique_keys = _unique_keys(body.get("uniqueKeyPolicy"))
    if unique_keys:
        document["uniqueKeyPolicy"] = body["uniqueKeyPolicy"]
    document |= {key: body[key] for key in _ECHOED if key in body}
    return ContainerSpec(container_id, key_path, int(key_version), default_ttl, unique_keys, indexing, document)


def _default_ttl(value: Json) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not (value == -1 or 0 < value <= MAX_TTL):
        raise InvalidDefinitionError("defaultTtl", f"-1 or a positive integer is expected, not {value!r}")
    return value


def _unique_keys(policy: Json) -> tuple[tuple[tuple[str, ...], ...], ...]:
    if policy is None:
        return ()
    keys = policy.get("uniqueKeys") if isinstance(policy, dict) else None
    if not isinstance(keys, list):
        raise InvalidDefinitionError("uniqueKeyPolicy.uniqueKeys", "a list is expected")
    read = []
    for key in keys:
        paths = key.get("paths") if isinstance(key, dict) else None
        if not isinstance(paths, list) or not paths:
            raise InvalidDefinitionError("uniqueKeyPolicy.uniqueKeys", "each needs a list of paths")
        read.append(tuple(property_path(path, "uniqueKeyPolicy.uniqueKeys.paths") for path in paths))
    return tuple(read)
