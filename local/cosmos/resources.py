"""Databases, containers and offers (throughput) as documents: create, read, replace, delete, list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from local.cosmos.catalogue import Container, Database, bytes_of_rid, text_of_rid
from local.cosmos.definition import (
    DEFAULT_THROUGHPUT,
    ContainerSpec,
    DatabaseSpec,
    InvalidDefinitionError,
    container_spec,
    resource_id,
)
from local.cosmos.errors import CosmosError
from local.cosmos.store import ConflictError, Store
from local.cosmos.values import Document, Json, lookup, parse_object

_Owner = TypeVar("_Owner", Database, Container)


class Resources:
    """The catalogue over one store; every refusal is a CosmosError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ensure(self, specs: Sequence[DatabaseSpec]) -> None:
        """Create what is missing; what is there stays as it is."""
        with self._store.write() as write:
            for spec in specs:
                database = self._store.databases.get(spec.id) or write.create_database(spec.id)
                for container in spec.containers:
                    if container.id not in database.containers:
                        write.create_container(database, container)

    def database(self, name: str) -> Database:
        """By id, or else by resource id."""
        found = self._store.databases.get(name) or _by_rid(name, list(self._store.databases.values()))
        if found is None:
            raise CosmosError(404, f"Database {name} does not exist.")
        return found

    def container(self, database_name: str, name: str) -> Container:
        database = self.database(database_name)
        found = database.containers.get(name) or _by_rid(name, list(database.containers.values()))
        if found is None:
            raise CosmosError(404, f"Container {name} does not exist. Owner resource does not exist.")
        return found

    def databases(self) -> list[Document]:
        return [self.database_document(database) for database in self._store.databases.values()]

    def containers(self, database: Database) -> list[Document]:
        return [self.container_document(container) for container in database.containers.values()]

    def create_database(self, body: bytes, throughput: int | None) -> Database:
        try:
            database_id = resource_id(parse_object(body, "database").get("id"))
            with self._store.write() as write:
                return write.create_database(database_id, throughput or 0)
        except InvalidDefinitionError as exc:
            raise CosmosError(400, f"The database is invalid: {exc}") from exc
        except ConflictError as exc:
            raise CosmosError(409, f"Database {exc} already exists.") from exc

    def delete_database(self, database: Database) -> None:
        with self._store.write() as write:
            write.delete_database(database)

    def create_container(self, database: Database, body: bytes, throughput: int | None) -> Container:
        usual = 0 if database.throughput else DEFAULT_THROUGHPUT
        try:
            spec = container_spec(parse_object(body, "container"))
            with self._store.write() as write:
                return write.create_container(database, spec, throughput or usual)
        except InvalidDefinitionError as exc:
            raise CosmosError(400, f"The container is invalid: {exc}") from exc
        except ConflictError as exc:
            raise CosmosError(409, f"Container {exc} already exists.") from exc

    def replace_container(self, container: Container, body: bytes) -> Container:
        """Change TTL or indexing. Refuses another id, partition key or unique key."""
        try:
            spec = container_spec(parse_object(body, "container"))
        except InvalidDefinitionError as exc:
            raise CosmosError(400, f"The container is invalid: {exc}") from exc
        if _fixed(spec) != _fixed(container.spec):
            raise CosmosError(400, "The id, the partition key and the unique keys of a container can't be changed.")
        with self._store.write() as write:
            write.replace_container(container, spec, container.throughput)
        return container

    def delete_container(self, container: Container) -> None:
        with self._store.write() as write:
            write.delete_container(container)

    def database_document(self, database: Database) -> Document:
        return {
            "id": database.id,
            "_rid": database.rid,
            "_self": database.self_link,
            "_etag": self._store.etag(database.version, database),
            "_colls": "colls/",
            "_users": "users/",
            "_ts": database.ts,
        }

    def statistics(self, container: Container) -> list[Json]:
        """What each partition of a container holds, in the service's form."""
        found: list[Json] = []
        for each in container.ranges:
            count, size = self._store.usage(container, each)
            found.append({"id": each.id, "sizeInKB": size // 1024, "documentCount": count, "partitionKeys": []})
        return found

    def usage(self, container: Container) -> str:
        """What a container holds, in the form of the header x-ms-resource-usage."""
        parts = [self._store.usage(container, each) for each in container.ranges]
        count, kilobytes = sum(part[0] for part in parts), sum(part[1] for part in parts) // 1024
        return f"documentsCount={count};documentsSize={kilobytes};collectionSize={kilobytes};"

    def container_document(self, container: Container) -> Document:
        return container.spec.document | {
            "_rid": container.rid,
            "_self": container.self_link,
            "_etag": self._store.etag(container.version, container.database),
            "_docs": "docs/",
            "_sprocs": "sprocs/",
            "_triggers": "triggers/",
            "_udfs": "udfs/",
            "_conflicts": "conflicts/",
            "_ts": container.ts,
        }

    def offers(self) -> list[Document]:
        return [self._offer(owner) for owner in self._owners()]

    def offer(self, rid: str) -> Document:
        return self._offer(self._offered(rid))

    def replace_offer(self, rid: str, body: bytes) -> Document:
        """Change the throughput. The number of partitions stays what it was at the creation."""
        owner = self._offered(rid)
        throughput = lookup(parse_object(body, "offer"), ("content", "offerThroughput"))
        if not isinstance(throughput, int) or isinstance(throughput, bool):
            raise CosmosError(400, "The offer needs a whole number in content.offerThroughput.")
        checked_throughput(throughput)
        with self._store.write() as write:
            if isinstance(owner, Database):
                write.replace_database(owner, throughput)
            else:
                write.replace_container(owner, owner.spec, throughput)
        return self._offer(owner)

    def _owners(self) -> Iterator[Database | Container]:
        """Whatever has a throughput of its own."""
        for database in self._store.databases.values():
            if database.throughput:
                yield database
            yield from (container for container in database.containers.values() if container.throughput)

    def _offered(self, rid: str) -> Database | Container:
        for owner in self._owners():
            if _offer_rid(owner) == rid:
                return owner
        raise CosmosError(404, f"Offer {rid} does not exist.")

    def _offer(self, owner: Database | Container) -> Document:
        rid = _offer_rid(owner)
        database = owner if isinstance(owner, Database) else owner.database
        content: Json = {"offerThroughput": owner.throughput}
        return {
            "id": rid,
            "_rid": rid,
            "_self": f"offers/{rid}/",
            "_etag": self._store.etag(owner.version, database),
            "_ts": owner.ts,
            "resource": owner.self_link,
            "offerResourceId": owner.rid,
            "offerVersion": "V2",
            "offerType": "Invalid",
            "content": content,
        }


def _fixed(spec: ContainerSpec) -> tuple[object, ...]:
    return spec.id, spec.key_path, spec.key_version, spec.unique_keys


def checked_throughput(value: int) -> int:
    if value < 400 or value % 100:
        raise CosmosError(
            400, f"The offer should have valid throughput values: at least 400, in steps of 100, not {value}."
        )
    return value


def _offer_rid(owner: Database | Container) -> str:
    kind = 1 << 23 if isinstance(owner, Database) else 0  # the two count on their own
    return text_of_rid((owner.number | kind).to_bytes(3, "big"))


def _by_rid(name: str, candidates: list[_Owner]) -> _Owner | None:
    rid = bytes_of_rid(name)
    return next((each for each in candidates if each.rid_bytes == rid), None)
