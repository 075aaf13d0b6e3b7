"""What only looks: sessions, orders, settings; the switch of a role; wrong usage and missing environments."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from local.host.control import ControlServer
from ops.cli import run
from ops.roles import az_command
from ops.wire import properties_of
from tests.ops.operators import Bench
from tests.scenarios.harness import PROJECT
from tests.scenarios.messages import amended, fresh, placed, status

pytestmark = pytest.mark.asyncio(loop_scope="session")

AZURE = {
    "ServiceBusConnection__fullyQualifiedNamespace": "nowhere.servicebus.windows.net",
    "CosmosConnection__accountEndpoint": "https://nowhere.documents.azure.com:443/",
}


async def test_sessions_are_counted_without_taking_them(bench: Bench) -> None:
    """C70 C71: active sessions, messages waiting in each, and those with parked messages."""
    busy, calm, stopped = fresh(), fresh(), fresh()
    await bench.app.send(amended(stopped, "op-1"))
    await bench.app.only_parked(stopped)
    bench.pause()
    await bench.app.send_all([placed(busy), placed(calm), status(busy, "confirmed", 1)])
    taken = bench.app.stack.service.counts("orders").locked
    told = (await bench.ops("sessions")).json
    rows = {each["sessionId"]: each for each in told["sessions"] if each["role"] == "orders"}
    assert (rows[busy]["waiting"], rows[calm]["waiting"], rows[stopped]["parked"]) == (2, 1, 1)
    assert told["totals"]["orders"]["sessions"] == 2
    assert told["totals"]["orders"]["waiting"] == 3
    assert bench.app.stack.service.counts("orders").locked == taken
    bench.resume()
    assert await bench.app.outcomes(f"{busy}:status.1") == ["applied"]


async def test_order_is_shown_with_everything_known_about_it(bench: Bench) -> None:
    order = fresh()
    await bench.app.outcome(placed(order))
    await bench.app.send(amended(order, "op-1") | {"colour": "red"})
    await bench.app.only_parked(order)
    await bench.app.quiet()
    told = (await bench.ops("order", order)).json
    assert told["order"]["state"] == "open"
    assert [each["sequence"] for each in told["entries"]] == [1, 2]
    assert [each["reason"] for each in told["parked"]] == ["InvalidMessage"]
    text = await bench.ops("order", order, text=True)
    assert "InvalidMessage" in text.text
    assert (await bench.ops("order", fresh())).code == 1


async def test_settings_name_secrets_and_never_show_them(bench: Bench) -> None:
    for told in (await bench.ops("settings"), await bench.ops("settings", text=True)):
        assert told.code == 0
        assert "ServiceBusConnection" in told.text
        for secret in ("SAS_KEY_VALUE", "C2y6yDjf5", "AccountKey"):
            assert secret not in told.text
    settings = (await bench.ops("settings")).json["settings"]
    assert settings["REPLAY_MAX"]["from"] == "environment"
    assert settings["ORDERS_QUEUE"] == {"value": "orders", "from": "local.settings.json"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["parked", "replay", "--yes"], "--because"),
        (["parked", "discard", "--because", "x", "--yes"], "nothing is chosen"),
        (["parked", "replay", "--body", "nowhere.json"], "nowhere.json"),
        (["gaps", "skip", "commands", "O-1", "--stream", "order", "--from", "2"], "--stream"),
        (["gaps", "show", "nobody"], "nobody"),
        (["parked", "show", "--id", "nothing"], "nothing"),
    ],
)
async def test_wrong_usage_ends_with_2_and_names_it(bench: Bench, arguments: list[str], named: str) -> None:
    told = await bench.ops(*arguments)
    assert (told.code, named in told.err) == (2, True), told.err


async def test_settings_of_two_worlds_are_refused(bench: Bench) -> None:
    environment = bench.ops.environment()
    del environment["CosmosConnection"]
    err = io.StringIO()
    assert await run(["parked", "list"], environment, project=PROJECT, out=io.StringIO(), err=err) == 2
    assert "CosmosConnection from local.settings.json" in err.getvalue()


async def test_stack_that_is_gone_ends_with_3_and_says_how_to_start_one(tmp_path: Path) -> None:
    """Contracts 15: a stale `.stack.json` is recognised."""
    (tmp_path / "local.settings.json").write_bytes((PROJECT / "local.settings.json").read_bytes())
    (tmp_path / ".stack.json").write_text(
        json.dumps(
            {
                "serviceBusConnection": "Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=a;SharedAccessKey=b;"
                "UseDevelopmentEmulator=true;",
                "cosmosConnection": "AccountEndpoint=http://127.0.0.1:9/;AccountKey=a2V5;",
                "controlUrl": "http://127.0.0.1:9",
                "controlToken": "t",
            }
        )
    )
    for arguments in (["sessions"], ["pause", "orders"]):
        err = io.StringIO()
        assert await run(arguments, {}, project=tmp_path, out=io.StringIO(), err=err) == 3
        assert "127.0.0.1:9" in err.getvalue()


async def test_role_of_the_stack_is_paused_and_resumed(bench: Bench, tmp_path: Path) -> None:
    """Contracts 11: through the control endpoint that `.stack.json` names."""
    stack = bench.app.stack
    control = ControlServer("token-1", lambda: stack.host)
    await control.start(0)
    try:
        (tmp_path / "local.settings.json").write_bytes((PROJECT / "local.settings.json").read_bytes())
        content = {
            "serviceBusConnection": stack.service_bus_connection,
            "cosmosConnection": stack.cosmos_connection,
            "controlUrl": f"http://127.0.0.1:{control.port}",
            "controlToken": "token-1",
        }
        (tmp_path / ".stack.json").write_text(json.dumps(content))
        order = fresh()
        assert await run(["pause", "orders"], {}, project=tmp_path, out=io.StringIO()) == 0
        await bench.app.send(placed(order))
        told = io.StringIO()
        assert await run(["sessions", "--json"], {}, project=tmp_path, out=told) == 0
        assert json.loads(told.getvalue())["totals"]["orders"]["waiting"] == 1
        assert bench.app.outcomes_of(order) == []
        assert await run(["resume", "orders"], {}, project=tmp_path, out=io.StringIO()) == 0
        assert await bench.app.outcomes(order) == ["created"]
    finally:
        await control.stop()


async def test_azure_is_switched_by_the_platforms_own_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contracts 11: the exact command is printed; without the Azure CLI the exit code is 3."""
    assert az_command("rg", "app", "apply_entry", disabled=True)[-2:] == [
        "--settings",
        "AzureWebJobs.apply_entry.Disabled=true",
    ]
    assert az_command("rg", "app", "apply_entry", disabled=False)[4:5] == ["delete"]
    monkeypatch.setenv("PATH", str(tmp_path))
    err = io.StringIO()
    arguments = ["pause", "ledger-entries", "--group", "rg", "--app", "app"]
    assert await run(arguments, AZURE, project=PROJECT, out=io.StringIO(), err=err) == 3
    assert "az functionapp config appsettings set -g rg -n app --settings AzureWebJobs.apply_entry.Disabled=true" in (
        err.getvalue()
    )


@pytest.mark.skipif(os.name == "nt", reason="optional: beside the project: a script stands for the Azure CLI")
async def test_azure_cli_is_called_with_yes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = tmp_path / "called"
    program = tmp_path / "az"
    program.write_text(f'#!/bin/sh\necho "$@" >> {called}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    arguments = ["resume", "orders", "--group", "rg", "--app", "app"]
    assert await run(arguments, AZURE, project=PROJECT, out=io.StringIO(), err=io.StringIO()) == 0
    assert not called.exists()
    assert await run([*arguments, "--yes"], AZURE, project=PROJECT, out=io.StringIO(), err=io.StringIO()) == 0
    assert "delete -g rg -n app --setting-names AzureWebJobs.process_order.Disabled" in called.read_text()


async def test_every_command_has_help() -> None:
    told = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [sys.executable, "-m", "ops", "--help"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    for name in ("sessions", "parked", "gaps", "pause", "resume", "order", "reconcile", "settings"):
        assert name in told


@pytest.mark.parametrize("data", [b"\x00", b"\x01\x02", b"\x00St\xc1\x10\x02\xa1", b"\x00St\x45"])
async def test_what_is_no_message_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"message|section|map|type"):
        properties_of(data)
