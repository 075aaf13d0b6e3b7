"""Databases and containers as they are open, and the resource ids that name them and their items.

A resource id is 4 bytes for a database, 4 more for a container, 8 more for an item, in base64 with / written as -.
"""

from __future__ import annotations

import base64

from local.cosmos import partition
from local.cosmos.definition import ContainerSpec


class Database:
    """`throughput` is what containers without their own share; 0 = each has its own."""

    def __init__(
        self, number: int, database_id: str, rid: bytes, version: int, ts: int, throughput: int = 0
    ) -> None:
        self.number = number
        self.id = database_id
        self.rid_bytes = rid
        self.rid = text_of_rid(rid)
        self.version = version
        self.ts = ts
        self.throughput = throughput
        self.containers: dict[str, Container] = {}

    @property
    def self_link(self) -> str:
        return f"dbs/{self.rid}/"


class Container:
    """A container as it is open: its spec may be replaced, its number, rid and ranges stay.

    `throughput` is 0 where it shares its database's.
    """

    def __init__(
        self,
        number: int,
        database: Database,
        spec: ContainerSpec,
        partitions: int,
        throughput: int,
        version: int,
        ts: int,
    ) -> None:
        self.number = number
        self.database = database
        self.spec = spec
        # The high bit tells a container's rid from that of a user, as in the service.
        self.rid_bytes = database.rid_bytes + (number | 1 << 31).to_bytes(4, "big")
        self.rid = text_of_rid(self.rid_bytes)
        self.ranges = partition.ranges(partitions, spec.key_version)
        self.throughput = throughput
        self.version = version
        self.ts = ts
        self.purge_at = 0.0

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def path(self) -> str:
        return f"dbs/{self.database.id}/colls/{self.id}"

    @property
    def self_link(self) -> str:
        return f"dbs/{self.database.rid}/colls/{self.rid}/"

    def item_rid(self, sequence: int) -> str:
        return text_of_rid(self.rid_bytes + sequence.to_bytes(8, "little"))

    def range_of(self, epk: str) -> partition.Range:
        return next(candidate for candidate in self.ranges if epk in candidate)


def text_of_rid(rid: bytes) -> str:
    return base64.b64encode(rid).decode().replace("/", "-")


def bytes_of_rid(text: str) -> bytes | None:
    """The bytes behind a resource id, or None when the text is none."""
    try:
        return base64.b64decode(text.replace("-", "/"), validate=True)
    except ValueError:
        return None
