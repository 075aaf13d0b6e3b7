"""The stack, from Python and from the command line: ports, settings, .stack.json, exit codes (contracts 12, 15)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from local import runfile
from local.config_errors import ConfigError
from local.host.events import HostEvent, InvocationEnded
from local.stack import PortError, Ports, Stack
from tests.host.conftest import APPS

REPOSITORY = Path(__file__).resolve().parents[2]
EMULATOR_BUS = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true;"
EMULATOR_COSMOS = "AccountEndpoint=http://localhost:8081/;AccountKey=eA==;"


UNWELL = """
import azure.functions as func

app = func.FunctionApp()


@app.route(route="health", auth_level=func.AuthLevel.ANONYMOUS)
def health(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse("ORDERS_LIMIT: not a number", status_code=503)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small app of its own."""
    shutil.copy(APPS / "orders" / "function_app.py", tmp_path)
    shutil.copy(APPS / "host.json", tmp_path)
    values = {"ORDERS_QUEUE": "orders", "Bus": EMULATOR_BUS, "Db": EMULATOR_COSMOS, "OTHER": "file", "BOTH": "file"}
    (tmp_path / "local.settings.json").write_text(json.dumps({"Values": values}))
    return tmp_path


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody has."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_the_app_handles_what_the_real_sdk_sends(project: Path) -> None:
    told: asyncio.Queue[HostEvent] = asyncio.Queue()
    async with Stack(project, app=True, ports="free", observers=[told.put_nowait]) as stack:
        async with (
            ServiceBusClient.from_connection_string(stack.service_bus_connection) as client,
            client.get_queue_sender("orders") as sender,
        ):
            await sender.send_messages(ServiceBusMessage("ok", session_id="s1", message_id="m1"))
        async with asyncio.timeout(20):
            while not isinstance(event := await told.get(), InvocationEnded):
                pass
        assert (event.message_id, event.outcome) == ("m1", "completed")
        assert stack.http_url is not None
        async with aiohttp.ClientSession() as http, http.get(f"{stack.admin_url}/health") as answer:
            assert answer.status == 200


async def test_the_app_s_settings_point_at_the_stack(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOTH", "environment")
    async with Stack(project, ports="free", settings={"EXTRA": "1"}) as stack:
        environment = stack.environment()
        assert environment["Bus"] == stack.service_bus_connection
        assert environment["Db"] == stack.cosmos_connection
        assert (environment["OTHER"], environment["BOTH"], environment["EXTRA"]) == ("file", "environment", "1")


async def test_an_app_that_would_write_to_a_real_account_is_not_fed_from_this_stack(project: Path) -> None:
    """What azd writes for the cloud is for `func start`."""
    file = project / "local.settings.json"
    values = json.loads(file.read_text())["Values"]
    values["Bus"] = "Endpoint=sb://real.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=v"
    file.write_text(json.dumps({"Values": values}))
    with pytest.raises(ConfigError, match=r"Values\.Bus: names an account that isn't this stack's"):
        await Stack(project, app=True, ports="free").__aenter__()


@pytest.mark.parametrize("name", ["amqp", "admin", "cosmos", "http"])
async def test_a_taken_port_is_named_with_what_wants_it(project: Path, taken: int, name: str) -> None:
    ports = Ports(**{**dict.fromkeys(("amqp", "admin", "cosmos", "http", "control"), 0), name: taken})
    with pytest.raises(PortError, match=f"port {taken} is taken; .* wants it"):
        await Stack(project, app=True, ports=ports).__aenter__()


async def test_a_wrong_file_is_named_and_nothing_stays(project: Path) -> None:
    (project / "Config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"Config\.json"):
        await Stack(project, ports="free", config=project / "Config.json").__aenter__()
    (project / "local.settings.json").write_text('{"Values": {"X": 1}}')
    with pytest.raises(ConfigError, match=r"local\.settings\.json: Values\.X"):
        await Stack(project, app=True, ports="free").__aenter__()


# ------------------------------------------------------------------------------------------------------- command line


class Running:
    """`python -m local` in a project's folder."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.lines: list[str] = []

    async def until(self, text: str) -> str:
        """Read lines up to one that holds a text."""
        assert self.process.stdout is not None
        async with asyncio.timeout(40):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line.rstrip())
                if text in line:
                    return line
        raise AssertionError(f"{text!r} never came: {self.lines}")

    async def ready(self) -> None:
        while (await self.until("ready")).rstrip() != "ready":
            pass

    async def end(self, number: int | None = None) -> int:
        if number is not None:
            self.process.send_signal(number)
        async with asyncio.timeout(40):
            out, err = await self.process.communicate()
        self.lines += (out + err).decode().splitlines()
        assert self.process.returncode is not None
        return self.process.returncode

    @property
    def told(self) -> dict[str, Any]:
        content = runfile.read(self.folder / runfile.NAME)
        assert content is not None
        return content


@pytest.fixture
async def run(project: Path) -> AsyncIterator[Any]:
    started: list[Running] = []

    async def start(*arguments: str, free: bool = True) -> Running:
        names = ("amqp", "admin", "cosmos", "control", "http")
        ports = [f"--{name}-port=0" for name in names if free and not any(f"--{name}-port" in a for a in arguments)]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "local", *ports, *arguments, cwd=project, env=environment, **pipes
        )
        started.append(Running(process, project))
        return started[-1]

    yield start
    for each in started:
        if each.process.returncode is None:
            each.process.kill()
            await each.end()


async def test_the_stack_says_where_it_is_and_ends_with_130_on_ctrl_c(run: Any, project: Path) -> None:
    stack = await run()
    await stack.ready()
    assert sum(line == "ready" for line in stack.lines) == 1
    content = stack.told
    assert any(content["serviceBusConnection"] in line for line in stack.lines)
    assert any(content["cosmosConnection"] in line for line in stack.lines)
    if os.name == "posix":
        assert stat.S_IMODE((project / runfile.NAME).stat().st_mode) == 0o600
    assert (content["functionKey"], content["functionsUrl"], content["pid"]) == (None, None, stack.process.pid)
    assert await stack.end(signal.SIGINT) == 130
    assert not (project / runfile.NAME).exists()


async def test_sigterm_drains_and_ends_with_0(run: Any) -> None:
    stack = await run("--app")
    await stack.ready()
    content = stack.told
    async with (
        ServiceBusClient.from_connection_string(content["serviceBusConnection"]) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("sleep 1", session_id="s1", message_id="m1"))
        await stack.until("start")
    assert await stack.end(signal.SIGTERM) == 0
    assert any("work: completed" in line and "message m1" in line for line in stack.lines)
    assert not any("Traceback" in line for line in stack.lines)


async def test_a_second_stack_leaves_a_live_file_alone_and_says_so(run: Any) -> None:
    first = await run()
    await first.ready()
    content = first.told
    second = await run()
    await second.ready()
    assert any(".stack.json belongs to another stack" in line for line in second.lines)
    assert first.told == content
    await second.end(signal.SIGINT)
    assert first.told == content
    await first.end(signal.SIGINT)


async def test_a_stale_file_is_recognised_and_replaced(run: Any) -> None:
    first = await run()
    await first.ready()
    first.process.kill()
    await first.end()
    stale = first.told
    second = await run()
    await second.ready()
    assert second.told["controlToken"] != stale["controlToken"]
    await second.end(signal.SIGINT)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"controlUrl": 7},
        {"controlUrl": "http://[x/"},
        {"controlUrl": "http://127.0.0.1:99999"},
        {"controlUrl": "http://127.0.0.1:8083", "controlToken": "a\r\nb"},
        {"controlUrl": "http://127.0.0.1:8083", "controlToken": "\u20ac"},
    ],
)
def test_a_file_that_no_stack_wrote_is_stale(content: dict[str, object]) -> None:
    assert not runfile.is_live(content)


async def test_a_changed_source_loads_the_app_anew(run: Any, project: Path) -> None:
    stack = await run("--app")
    await stack.ready()
    source = (project / "function_app.py").read_text()
    (project / "function_app.py").write_text("def f(:\n")
    await stack.until("the app is not loaded")
    assert any("SyntaxError" in line for line in stack.lines)
    (project / "function_app.py").write_text(source.replace('"work"', '"renamed"'))
    await stack.until("ready (pid")
    assert "renamed" in stack.lines[-1]
    await stack.end(signal.SIGINT)


async def test_settings_are_read_anew_with_the_app(run: Any, project: Path) -> None:
    stack = await run("--app")
    await stack.ready()
    (project / "local.settings.json").write_text('{"Values": {"ORDERS_QUEUE": "orders"}}')
    await stack.until("connection 'Bus'")
    await stack.end(signal.SIGINT)


async def test_the_printed_curl_examples_hold_the_key(run: Any, project: Path) -> None:
    shutil.copy(APPS / "web" / "function_app.py", project)
    (project / "docs" / "examples").mkdir(parents=True)
    echo = {"a": 1, "orderId": "x'; echo y; '\ud800"}
    (project / "docs" / "examples" / "echo.json").write_text(json.dumps(echo))
    (project / "docs" / "examples" / "special.json").write_text("[]")
    stack = await run("--app", "--no-reload")
    await stack.ready()
    content = stack.told
    quoted = "x%27%3B%20echo%20y%3B%20%27%3F"
    curls = [line.strip() for line in stack.lines if line.strip().startswith("curl ")]
    assert (
        f"curl -i -H 'x-functions-key: {content['functionKey']}' '{content['functionsUrl']}/api/orders/{quoted}'"
        in curls
    )
    assert "  (docs/examples/special.json: must be an object, not an array)" in stack.lines
    assert any(line.endswith(f"-d @docs/examples/echo.json '{content['functionsUrl']}/api/echo'") for line in curls)
    async with aiohttp.ClientSession() as client:
        headers = {"x-functions-key": content["functionKey"]}
        async with client.get(f"{content['functionsUrl']}/api/orders/1", headers=headers) as answer:
            assert answer.status == 200
    await stack.end(signal.SIGINT)


async def test_wrong_options_files_and_settings_end_with_2_and_are_named(run: Any, project: Path) -> None:
    for arguments, named in (
        (["--amqp-port=99999"], "99999"),
        (["--nonsense"], "--nonsense"),
        (["--debug"], "--debug needs --app"),
        (["--health", "/api/health"], "--health needs --app"),
        (["--config", "none.json"], "none.json"),
    ):
        stack = await run(*arguments)
        assert await stack.end() == 2, arguments
        assert any(named in line for line in stack.lines), stack.lines
    (project / "host.json").write_text('{"version": "2.0", "functionTimout": "1"}')
    stack = await run("--app")
    assert await stack.end() == 2
    assert any("host.json: functionTimout" in line for line in stack.lines)
    assert not any("Traceback" in line for line in stack.lines)


async def test_an_app_that_is_not_well_ends_with_2_and_what_it_says(run: Any, project: Path) -> None:
    (project / "function_app.py").write_text(UNWELL)
    stack = await run("--app", "--health", "/api/health")
    assert await stack.end() == 2
    assert any("GET /api/health: 503" in line and "ORDERS_LIMIT: not a number" in line for line in stack.lines)
    stack = await run("--app", "--health", "/api/nothing-there")  # nothing to judge the app by
    await stack.ready()
    assert await stack.end(signal.SIGINT) == 130


async def test_a_start_whose_health_never_answers_can_be_left_at_once(run: Any, project: Path) -> None:
    hanging = UNWELL.replace("def health(", "async def health(")
    hanging = hanging.replace("    return", "    await asyncio.sleep(99)\n    return")
    (project / "function_app.py").write_text("import asyncio\n" + hanging)
    stack = await run("--app", "--health", "/api/health")
    await stack.until("worker 0 ready")
    await asyncio.sleep(0.5)
    started = time.monotonic()
    assert await stack.end(signal.SIGINT) == 130
    assert time.monotonic() - started < 20  # the drain of what is in hand takes a minute
    assert any(line.startswith("stopping") for line in stack.lines)


async def test_a_taken_port_ends_with_3_and_is_named(run: Any, taken: int) -> None:
    for option in ("--amqp-port", "--cosmos-port", "--control-port"):
        stack = await run(f"{option}={taken}")
        assert await stack.end() == 3
        assert any(f"port {taken} is taken" in line for line in stack.lines), stack.lines


async def test_debug_waits_for_a_debugger(run: Any) -> None:
    stack = await run("--app", "--debug")
    start = time.monotonic()
    await stack.until("waiting for a debugger on 127.0.0.1:9091")
    assert await stack.end(signal.SIGINT) == 130
    assert time.monotonic() - start < 30
    assert not any(line == "ready" for line in stack.lines)
