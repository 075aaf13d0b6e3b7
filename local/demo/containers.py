"""`python -m local.demo.containers CONNECTION`: creates the database and containers of containers.json in any account.

The embedded server has them from its start; the official emulator gets them this way. What is there already is left as
it is, and what of it differs is named.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any, cast

from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from local.config_errors import ConfigError
from local.cosmos.containers import read_containers
from local.cosmos.definition import ContainerSpec, DatabaseSpec

CONTAINERS = Path(__file__).parents[1] / "containers.json"
COMPARED = ("partitionKey", "defaultTtl")

DONE, DIFFERENT, WRONG, UNREACHABLE = 0, 1, 2, 3


async def apply(connection: str, databases: list[DatabaseSpec]) -> list[str]:
    """Create what is missing; gives what is there and differs."""
    different: list[str] = []
    client = CosmosClient.from_connection_string(connection)
    try:
        for database in databases:
            place = await client.create_database_if_not_exists(database.id)
            for spec in database.containers:
                container = await place.create_container_if_not_exists(
                    id=spec.id,
                    partition_key=PartitionKey(path=_path(spec)),
                    default_ttl=spec.default_ttl,
                    indexing_policy=cast("dict[str, Any]", spec.document["indexingPolicy"]),
                )
                different += _differences(spec, await container.read())
    finally:
        await client.close()  # not by `async with`: one that fails to enter leaves its connections open
    return different


def _path(spec: ContainerSpec) -> str:
    return "/" + "/".join(spec.key_path)


def _differences(spec: ContainerSpec, found: dict[str, object]) -> list[str]:
    wanted = {"partitionKey": [_path(spec)], "defaultTtl": spec.default_ttl}
    key = found.get("partitionKey")
    there = {"partitionKey": key.get("paths") if isinstance(key, dict) else None, "defaultTtl": found.get("defaultTtl")}
    return [
        f"{spec.id}: {name}: {there[name]} instead of {wanted[name]}"
        for name in COMPARED
        if there[name] != wanted[name]
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; gives its exit code."""
    parser = argparse.ArgumentParser(prog="python -m local.demo.containers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("connection", help="AccountEndpoint=...;AccountKey=...;")
    connection = parser.parse_args(arguments).connection
    try:
        different = asyncio.run(apply(connection, read_containers(CONTAINERS)))
    except (ConfigError, ValueError, KeyError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    except (AzureError, OSError) as error:
        sys.stderr.write(f"the account does not answer as it should: {error}\n")
        return UNREACHABLE
    for line in different:
        sys.stderr.write(f"{line}\n")
    if not different:
        sys.stdout.write("database and containers are there\n")
    return DIFFERENT if different else DONE


if __name__ == "__main__":
    sys.exit(main())
