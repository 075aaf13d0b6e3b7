"""The step that gives an account the containers of local/containers.json, and the compose file that needs it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from azure.cosmos.aio import CosmosClient

from local.cosmos.containers import read_containers
from local.cosmos.server import EMULATOR_KEY, CosmosServer
from local.demo.containers import CONTAINERS, DIFFERENT, DONE, UNREACHABLE, WRONG, apply, main

ROOT = Path(__file__).resolve().parents[2]


@pytest_asyncio.fixture
async def server() -> AsyncIterator[CosmosServer]:
    server = CosmosServer()
    await server.start()
    yield server
    await server.stop()


def connection_to(port: int) -> str:
    return f"AccountEndpoint=http://127.0.0.1:{port}/;AccountKey={EMULATOR_KEY};"


async def test_an_empty_account_gets_database_and_containers_and_a_second_run_changes_nothing(
    server: CosmosServer, capsys: pytest.CaptureFixture[str]
) -> None:  # D25 C35
    for _ in range(2):
        assert await asyncio.to_thread(main, [connection_to(server.port)]) == DONE
    (wanted,) = read_containers(CONTAINERS)
    async with CosmosClient(f"http://127.0.0.1:{server.port}/", EMULATOR_KEY) as client:
        database = client.get_database_client(wanted.id)
        for spec in wanted.containers:
            found = await database.get_container_client(spec.id).read()
            assert found["defaultTtl"] == -1
            assert found["partitionKey"]["paths"] == spec.document["partitionKey"]["paths"]
            assert found["indexingPolicy"]["includedPaths"] == spec.document["indexingPolicy"]["includedPaths"]
    assert capsys.readouterr().out == "database and containers are there\n" * 2


async def test_a_container_that_differs_is_named_and_left_alone(
    server: CosmosServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with CosmosClient(f"http://127.0.0.1:{server.port}/", EMULATOR_KEY) as client:
        database = await client.create_database("convoy")
        await database.create_container("orders", {"paths": ["/id"], "kind": "Hash", "version": 2})
    assert await asyncio.to_thread(main, [connection_to(server.port)]) == DIFFERENT
    assert capsys.readouterr().err.splitlines() == [
        "orders: partitionKey: ['/id'] instead of ['/orderId']",
        "orders: defaultTtl: None instead of -1",
    ]
    assert await apply(connection_to(server.port), []) == []


def test_a_wrong_connection_string_and_a_dead_account_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == WRONG
    assert main([connection_to(1)]) == UNREACHABLE
    assert "does not answer" in capsys.readouterr().err


def test_the_compose_file_serves_the_ports_and_files_of_the_local_settings() -> None:  # D58
    compose = yaml.safe_load((ROOT / "local" / "compose.yaml").read_text(encoding="utf-8"))
    values = json.loads((ROOT / "local.settings.json").read_text(encoding="utf-8"))["Values"]
    ports = {port for service in compose["services"].values() for port in service.get("ports", [])}
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert "127.0.0.1:5672:5672" in ports
    assert "http://localhost:8081/" in values["CosmosConnection"]
    assert "127.0.0.1:8081:8081" in ports
    assert values["AzureWebJobsStorage"] == "UseDevelopmentStorage=true"
    assert {f"127.0.0.1:{port}:{port}" for port in (10000, 10001, 10002)} <= ports
    (mount,) = compose["services"]["servicebus"]["volumes"]
    source, target, mode = mount.split(":")
    assert (ROOT / "local" / source).is_file()
    assert (target, mode) == ("/ServiceBus_Emulator/ConfigFiles/Config.json", "ro")
