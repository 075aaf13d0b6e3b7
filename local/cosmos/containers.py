"""Reads local/containers.json: the databases and containers that the stack has from its start."""

from __future__ import annotations

from pathlib import Path

from local.config_errors import ConfigError
from local.cosmos.definition import ContainerSpec, DatabaseSpec, InvalidDefinitionError, container_spec, resource_id
from local.cosmos.values import Json
from local.json_file import read_object


def read_containers(path: Path) -> list[DatabaseSpec]:
    """Read and check the file. A container has the form of the service's resource body.

    Raises:
        ConfigError: The file, the key and the reason.
    """
    databases = _list_of(read_object(path), "databases", path)
    read = [_database(entry, f"databases[{at}]", path) for at, entry in enumerate(databases)]
    _no_double([database.id for database in read], "databases", path)
    return read


def _database(entry: Json, key: str, path: Path) -> DatabaseSpec:
    entries = _list_of(entry, f"{key}.containers", path)
    try:
        database_id = resource_id(entry.get("id") if isinstance(entry, dict) else None)
    except InvalidDefinitionError as exc:
        raise ConfigError(path.name, f"{key}.{exc.key}", exc.reason) from exc
    containers: list[ContainerSpec] = []
    for at, container in enumerate(entries):
        try:
            containers.append(container_spec(container))
        except InvalidDefinitionError as exc:
            place = f"{key}.containers[{at}]"
            raise ConfigError(path.name, f"{place}.{exc.key}" if exc.key else place, exc.reason) from exc
    _no_double([container.id for container in containers], f"{key}.containers", path)
    return DatabaseSpec(database_id, tuple(containers))


def _list_of(content: Json, key: str, path: Path) -> list[Json]:
    value = content.get(key.rpartition(".")[2]) if isinstance(content, dict) else None
    if not isinstance(value, list):
        raise ConfigError(path.name, key, "a list is expected")
    return value


def _no_double(ids: list[str], key: str, path: Path) -> None:
    for name in ids:
        if ids.count(name) > 1:
            raise ConfigError(path.name, key, f"the id {name} is there twice")
