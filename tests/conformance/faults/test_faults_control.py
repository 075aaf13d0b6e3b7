"""Faults from outside: the file at the start, the control endpoint while the stack runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusServerBusyError
from faulty_stack import FaultyStack

from local.config_errors import ConfigError
from local.faults import Faults, Rule, Service, Stall
from local.host.control import ControlServer
from local.stack import Stack

ROOT = Path(__file__).parents[3]
TOKEN = "the-token"
BUSY = {"name": "busy", "service": "broker", "operation": "send", "count": 2, "action": "refuse"}


class Control:
    """A client of the control endpoint."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        self.url = url
        self._token = token

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token}", **headers}
        data = body if isinstance(body, str) else None if body is None else json.dumps(body)
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, f"{self.url}/control/{path}", data=data, headers=headers) as answer,
        ):
            return answer.status, await answer.json(content_type=None)


@pytest.fixture
async def control(stack: FaultyStack) -> AsyncIterator[Control]:
    server = ControlServer(TOKEN, lambda: None, stack.faults)
    await server.start(0)
    yield Control(f"http://127.0.0.1:{server.port}")
    await server.stop()


async def test_rules_are_armed_shown_and_disarmed(stack: FaultyStack, control: Control) -> None:
    shown = {**BUSY, "action": {"kind": "refuse"}, "seen": 0, "hits": 0, "held": 0}
    assert await control.call("POST", "faults", BUSY) == (201, {"rules": [shown]})
    async with stack.bus() as bus, bus.get_queue_sender("plain") as sender:
        with pytest.raises(ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage(b"x", message_id="m1"))
    shown |= {"seen": 1, "hits": 1}
    assert await control.call("GET", "faults") == (200, {"seed": 0, "rules": [shown], "out": []})
    assert await control.call("DELETE", "faults/busy") == (200, shown)
    assert await control.call("DELETE", "faults/busy") == (404, {"error": "no rule busy is armed"})
    two = [{**BUSY, "name": "a"}, {"name": "b", "service": "cosmos", "action": {"kind": "outage", "seconds": 60}}]
    assert (await control.call("POST", "faults", {"rules": two}))[0] == 201
    assert (await control.call("GET", "faults"))[1]["out"] == ["cosmos"]
    _, ended = await control.call("DELETE", "faults")
    assert [rule["name"] for rule in ended["rules"]] == ["a", "b"]
    assert (await control.call("GET", "faults"))[1] == {"seed": 0, "rules": [], "out": []}


async def test_stalled_operation_is_released(stack: FaultyStack, control: Control) -> None:
    stall = {"name": "stall", "service": "cosmos", "operation": "Create", "action": "stall"}
    await control.call("POST", "faults", stall)
    async with stack.orders() as orders:
        creating = asyncio.create_task(orders.create_item({"id": "a", "orderId": "o"}))
        armed = stack.faults.named("stall")
        assert armed is not None
        await armed.until_hit()
        assert (await control.call("GET", "faults"))[1]["rules"][0]["held"] == 1
        assert await control.call("POST", "faults/stall/release") == (200, {"released": 1})
        await creating
    assert (await control.call("POST", "faults/none/release"))[0] == 404


async def test_history_is_read_back_in_parts(stack: FaultyStack, control: Control) -> None:
    lost = {"kind": "lose-reply", "how": "status"}
    await control.call("POST", "faults", {"name": "r", "service": "cosmos", "action": lost})
    async with stack.orders() as orders:
        with contextlib.suppress(Exception):
            await orders.create_item({"id": "a", "orderId": "o"})
    status, found = await control.call("GET", "history?operation=Create&group=o&id=a&service=cosmos")
    assert status == 200
    assert [(e["operation"], e["entity"], e["keys"], e["rule"], e["result"]) for e in found["entries"]] == [
        ("Create", "orders", [{"group": "o", "id": "a"}], "r", "201"),
        ("Create", "orders", [{"group": "o", "id": "a"}], "r", "409"),
    ]
    first = found["entries"][0]["number"]
    _, rest = await control.call("GET", f"history?after={first}&limit=1&operation=Create")
    assert [e["result"] for e in rest["entries"]] == ["409"]
    for query in ("after=x", f"after={'9' * 5000}", "limit=-1", "service=kafka", "queue=x"):
        assert (await control.call("GET", f"history?{query}"))[0] == 400, query


@pytest.mark.parametrize(
    ("body", "key", "reason"),
    [
        ({**BUSY, "action": "explode"}, "action", "must be one of"),
        ({**BUSY, "entity": "none"}, "entity", "there is no queue 'none'; the broker has plain, orders, short"),
        ({"rules": [BUSY, {**BUSY, "name": "b", "count": 0}]}, "rules[1].count", "must be at least 1"),
        ({"rules": [BUSY], "seed": 1}, "seed", "belongs to the start"),
        ({"name": "s", "service": "cosmos", "action": "stale-read"}, "action", "the account is Strong"),
        ([], "", "must be an object"),
    ],
)
async def test_wrong_rule_is_400_with_key_and_reason(
    stack: FaultyStack, control: Control, body: object, key: str, reason: str
) -> None:
    status, answer = await control.call("POST", "faults", body)
    assert (status, answer["key"]) == (400, key)
    assert reason in answer["reason"]
    assert list(stack.faults.armed) == []


async def test_body_that_is_no_json_is_400(control: Control) -> None:
    for body in ("", "{", "[" * 5000):
        assert (await control.call("POST", "faults", body))[0] == 400


async def test_strangers_are_refused(stack: FaultyStack, control: Control) -> None:
    """Any page in the developer's browser can reach loopback."""
    stack.faults.add(Rule(name="r", service=Service.COSMOS, action=Stall()))
    for headers, status in (
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ""}, 401),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ):
        for method, path in (
            ("GET", "faults"),
            ("POST", "faults"),
            ("DELETE", "faults"),
            ("DELETE", "faults/r"),
            ("POST", "faults/r/release"),
            ("GET", "history"),
        ):
            assert (await control.call(method, path, BUSY if method == "POST" else None, **headers))[0] == status
    assert [armed.rule.name for armed in stack.faults.armed] == ["r"]


# ---------------------------------------------------------------------------------------------------- the whole stack


async def test_stack_starts_with_the_rules_of_a_file_and_ends_with_an_outage_and_a_stall(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text(json.dumps({"seed": 9, "rules": [BUSY, {**BUSY, "name": "wait", "action": "stall"}]}))
    async with Stack(ports="free", faults=file) as stack:
        assert (stack.faults.seed, [armed.rule.name for armed in stack.faults.armed]) == (9, ["busy", "wait"])
        connection = stack.service_bus_connection
        options: dict[str, Any] = {"retry_total": 2, "retry_backoff_factor": 0.01, "keep_alive": 0}
        async with (
            ServiceBusClient.from_connection_string(connection, **options) as bus,
            bus.get_queue_sender("orders") as sender,
        ):
            sending = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"x", session_id="s")))
            wait = stack.faults.named("wait")
            assert wait is not None
            await wait.until_hit()
            sending.cancel()
            await asyncio.wait([sending])
        down = {"name": "down", "service": "cosmos", "action": {"kind": "outage"}}
        assert _arm(stack.faults, down) == ["busy", "wait", "down"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_stack_with_a_wrong_file_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    for rule, key in (({**BUSY, "count": 0}, "count"), ({**BUSY, "entity": "none"}, "entity")):
        file.write_text(json.dumps({"rules": [rule]}))
        with pytest.raises(ConfigError) as caught:
            await Stack(ports="free", faults=file).__aenter__()
        assert (caught.value.file, caught.value.key) == ("faults.json", f"rules[0].{key}")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_command_line_takes_a_file_and_names_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text("{}")
    file = tmp_path / "faults.json"
    file.write_text(json.dumps({"rules": [BUSY]}))
    async with _running(tmp_path, "--faults", str(file)) as process:
        assert process.stdout is not None
        async with asyncio.timeout(40):
            while (await process.stdout.readline()).strip() != b"ready":
                assert process.returncode is None
        run = json.loads((tmp_path / ".stack.json").read_text())
        _, shown = await Control(run["controlUrl"], run["controlToken"]).call("GET", "faults")
        assert [rule["name"] for rule in shown["rules"]] == ["busy"]
        process.terminate()
        assert await process.wait() == 0
    stale = {"name": "s", "service": "cosmos", "operation": "Read", "action": "stale-read"}
    file.write_text(json.dumps({"rules": [stale]}))
    async with _running(tmp_path, "--faults", str(file), "--consistency", "Session") as process:
        assert process.stdout is not None
        async with asyncio.timeout(40):
            while (await process.stdout.readline()).strip() != b"ready":
                assert process.returncode is None
    for rule, reason in (
        ({**BUSY, "probability": 2}, "rules[0].probability: must be above 0 and at most 1, not 2.0"),
        (stale, "rules[0].action: stale-read: the account is Strong, so that no read is stale"),
    ):
        file.write_text(json.dumps({"rules": [rule]}))
        async with _running(tmp_path, "--faults", str(file)) as process:
            _, errors = await asyncio.wait_for(process.communicate(), 40)
            assert process.returncode == 2
        assert errors.decode().strip() == f"error: faults.json: {reason}"


def _arm(faults: Faults, rule: dict[str, Any]) -> list[str]:
    from local.faults.reading import rule_of

    faults.add(rule_of("test", "", rule))
    return [armed.rule.name for armed in faults.armed]


@contextlib.asynccontextmanager
async def _running(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    ports = [part for name in ("amqp", "admin", "cosmos", "control") for part in (f"--{name}-port", "0")]
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "local", *ports, *arguments, cwd=folder, env=environment, **pipes
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "faults").glob("*.json")), ids=lambda file: file.name)
async def test_examples_are_for_this_stack(file: Path) -> None:
    async with Stack(ports="free", faults=file) as stack:
        assert [armed.rule.name for armed in stack.faults.armed]
