"""function_app.py: what the host indexes, on every supported version of the library."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SERVICE_BUS = {
    "process_order": "%ORDERS_QUEUE%",
    "fan_out_ledger": "%LEDGER_QUEUE%",
    "apply_entry": "%LEDGER_ENTRIES_QUEUE%",
}
HTTP = {
    "submit_order": ("orders", ["POST"], "function"),
    "get_order": ("orders/{*orderId}", ["GET"], "function"),
    "health": ("health", ["GET"], "anonymous"),
}
ALL = {*SERVICE_BUS, *HTTP, "sweep"}


def run(code: str) -> str:
    """Run code in a process without any setting, as the platform does before a placeholder is specialised."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TEMP", "TMP") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", "-c", code],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def module() -> Any:
    """The app, loaded as the worker loads it; the library lists its functions only once."""
    spec = importlib.util.spec_from_file_location("function_app_as_indexed", ROOT / "function_app.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def functions(module: Any) -> dict[str, Any]:
    return {function.get_function_name(): function for function in module.app.get_functions()}


def trigger(function: Any) -> dict[str, Any]:
    """The trigger's binding as the host gets it."""
    (found,) = [
        each for each in map(json.loads, function.get_raw_bindings()) if each["type"].lower().endswith("trigger")
    ]
    return dict(found)


def test_importing_needs_no_setting_and_opens_nothing() -> None:
    """A failed import means no functions at all, and nobody says why."""
    assert run("import function_app; print('imported')").strip() == "imported"


def test_seven_functions_are_indexed(module: Any, functions: dict[str, Any]) -> None:
    assert set(functions) == ALL
    assert set(module.FUNCTIONS) == ALL
    assert len(module.FUNCTIONS) == len(ALL)


@pytest.mark.parametrize("name", SERVICE_BUS)
def test_queue_trigger_takes_bytes_of_one_message_in_a_session(functions: dict[str, Any], name: str) -> None:
    """C56 C78 D35 D36: binary, so that a JSON body can't overwrite the broker's metadata; one message at a time."""
    found = trigger(functions[name])
    assert {key: found[key] for key in found if key != "name"} == {
        "type": "serviceBusTrigger",
        "direction": "IN",
        "queueName": SERVICE_BUS[name],
        "connection": "ServiceBusConnection",
        "dataType": "BINARY",
        "isSessionsEnabled": True,
        "cardinality": "ONE",
    }


@pytest.mark.parametrize("name", HTTP)
def test_http_trigger_has_its_route_and_key(functions: dict[str, Any], name: str) -> None:
    route, methods, level = HTTP[name]
    found = trigger(functions[name])
    assert (found["route"], found["methods"], found["authLevel"].lower()) == (route, methods, level)


def test_timer_has_its_schedule_from_the_settings(functions: dict[str, Any]) -> None:
    found = trigger(functions["sweep"])
    assert (found["type"], found["schedule"], found["runOnStartup"]) == ("timerTrigger", "%SWEEP_SCHEDULE%", False)


@pytest.mark.parametrize("name", sorted(ALL))
def test_function_is_async_and_the_host_repeats_nothing(functions: dict[str, Any], name: str) -> None:
    """D54 R60: a retry of the host would multiply with the broker's."""
    function = functions[name]
    assert inspect.iscoroutinefunction(function.get_user_function())
    assert not function.get_settings_dict("retry_policy")


@pytest.mark.parametrize("name", sorted({*SERVICE_BUS, "sweep"}))
def test_trigger_without_an_output_returns_nothing(name: str) -> None:
    """R59: the worker fails an invocation that returns a value nobody asked for, and the message comes back."""
    tree = ast.parse((ROOT / "function_app.py").read_text(encoding="utf-8"))
    (function,) = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef) and node.name == name]
    assert isinstance(function.returns, ast.Constant)
    assert function.returns.value is None
    assert not [node for node in ast.walk(function) if isinstance(node, ast.Return | ast.Yield)]


def test_functions_bind_and_do_nothing_else() -> None:
    """One statement each, besides the docstring: rules live in handlers."""
    tree = ast.parse((ROOT / "function_app.py").read_text(encoding="utf-8"))
    bodies = {node.name: node.body for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    assert {name: len(body) for name, body in bodies.items()} == dict.fromkeys(ALL, 2)


if sys.version_info >= (3, 13):
    LOAD = """
import asyncio, json, logging, types
from azure_functions_runtime import functions_metadata_request, worker_init_request

class Message(types.SimpleNamespace):
    Failure, Success = 0, 1  # the numbers of FunctionRpc.proto
    out, inout, undefined = 1, 2, 0

class Messages:
    def __getattr__(self, name):
        return Message

init = types.SimpleNamespace(capabilities={}, function_app_directory=".")
request = types.SimpleNamespace(
    request=types.SimpleNamespace(worker_init_request=init), properties={"host": "127.0.0.1", "protos": Messages()}
)

async def load():
    answer = await worker_init_request(request)
    if answer.result.status != 1:
        raise SystemExit(answer.result.exception.message)
    return await functions_metadata_request(request)

answer = asyncio.run(load())
print(json.dumps({each.name: list(each.raw_bindings) for each in answer.function_metadata_results}))
"""

    def test_platforms_own_runtime_indexes_the_app() -> None:
        """The runtime of Python 3.13 and later, with a plain object for each message of its protocol."""
        found = json.loads(run(LOAD).strip().splitlines()[-1])
        assert set(found) == ALL
        for name, queue in SERVICE_BUS.items():
            binding = json.loads(found[name][0])
            assert (binding["queueName"], binding["dataType"], binding["isSessionsEnabled"]) == (queue, "BINARY", True)
