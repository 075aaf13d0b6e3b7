"""Change feed (latest version), partition key ranges and the account document: what clients poll.

Both feeds end at a 304 that carries an ETag. A client that never sees one asks for ever, at full speed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from local.cosmos.catalogue import Container
from local.cosmos.errors import CosmosError
from local.cosmos.partition import Range
from local.cosmos.store import Store
from local.cosmos.values import Document

DEFAULT_PAGE = 100
CONSISTENCY_LEVELS = ("Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual")  # strongest first


@dataclass(frozen=True, slots=True)
class Changes:
    """`etag` is where to go on; no items = nothing new, 304."""

    etag: str
    items: list[bytes]


def read_changes(
    store: Store,
    container: Container,
    where: Range,
    *,
    size: int,
    if_none_match: str | None,
    if_modified_since: str | None,
) -> Changes:
    """The items of a range that were written since, each once, at its last write; all of one transaction together."""
    lsn = _start(store, if_none_match)
    since = _seconds(if_modified_since) if if_modified_since else 0
    items: list[bytes] = []
    last = None
    for row in store.changes(container, lsn=lsn, since=since, start=where.start, end=where.end):
        if len(items) >= size and row.lsn != last:
            return Changes(f'"{last}"', items)
        last = row.lsn
        items.append(row.body[:-1] + b',"_lsn":%d}' % row.lsn)
    return Changes(f'"{store.lsn}"', items)


def _start(store: Store, if_none_match: str | None) -> int:
    if if_none_match is None:
        return 0
    if if_none_match == "*":
        return store.lsn
    if not re.fullmatch(r'"?\d{1,18}"?', if_none_match):
        raise CosmosError(400, f"The change feed continuation {if_none_match} is invalid.")
    return int(if_none_match.strip('"'))


def _seconds(date: str) -> int:
    try:
        return int(parsedate_to_datetime(date).timestamp())
    except ValueError as exc:
        raise CosmosError(400, f"The header if-modified-since is no RFC 1123 date: {date}.") from exc


def ranges_etag(container: Container) -> str:
    return f'"{container.number}"'  # the ranges of a container never change


def ranges(container: Container) -> list[Document]:
    return [
        {
            "_rid": f"{container.rid[:-1]}{each.id}",
            "id": each.id,
            "_etag": ranges_etag(container),
            "minInclusive": each.start,
            "maxExclusive": each.end,
            "ridPrefix": int(each.id),
            "_self": f"{container.self_link}pkranges/{each.id}/",
            "throughputFraction": 1 / len(container.ranges),
            "status": "online",
            "parents": [],
            "_ts": container.ts,
        }
        for each in container.ranges
    ]


def account(host: str, consistency: str) -> Document:
    """The account document. Later requests go to the endpoint in it, so it names the host that the client used."""
    name = "local"
    endpoint = f"http://{host}/"
    return {
        "_self": "",
        "id": name,
        "_rid": f"{name}.local",
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": [{"name": "Local", "databaseAccountEndpoint": endpoint}],
        "readableLocations": [{"name": "Local", "databaseAccountEndpoint": endpoint}],
        "enableMultipleWriteLocations": False,
        "continuousBackupEnabled": False,
        "enableNRegionSynchronousCommit": False,
        "enablePerPartitionFailoverBehavior": False,
        "userReplicationPolicy": {"asyncReplication": False, "minReplicaSetSize": 1, "maxReplicasetSize": 4},
        "userConsistencyPolicy": {"defaultConsistencyLevel": consistency},
        "systemReplicationPolicy": {"minReplicaSetSize": 1, "maxReplicasetSize": 4},
        "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
        "queryEngineConfiguration": "{}",
    }
