from __future__ import annotations

from dataclasses import dataclass, field

from local.cosmos.catalogue import Container
from local.cosmos.definition import DatabaseSpec, container_spec
from local.cosmos.items import Items
from local.cosmos.partition import PartitionKey
from local.cosmos.resources import Resources
from local.cosmos.store import Store
from local.cosmos.values import Document

START = 1_800_000_000.0


@dataclass
class Clock:
    """A time that tests move on."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """A store in memory with its item operations and one container at a time."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = Store(None, self.clock)

    def items(self, container: Container, key: PartitionKey) -> Items:
        return Items(self.store, "Session", container, key)

    def container(self, **settings: object) -> Container:
        body: Document = {
            "id": "things",
            "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
            **settings,  # type: ignore[dict-item]  # tests give JSON
        }
        Resources(self.store).ensure([DatabaseSpec("db", (container_spec(body),))])
        return self.store.databases["db"].containers["things"]
