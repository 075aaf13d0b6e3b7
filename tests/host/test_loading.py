"""Indexing, refusals at start, logs, reload: the app as the worker finds it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from local.broker.model import QueueOptions
from local.config_errors import ConfigError
from local.host.errors import HostError
from local.host.watch import stamps, watch
from tests.host.conftest import SETTINGS, Bench, MakeBench

HEAD = "import typing\nimport azure.functions as func\napp = func.FunctionApp()\n"
TRIGGER = (
    "@app.function_name('work')\n@app.service_bus_queue_trigger(arg_name='message', queue_name='orders', "
    "connection='Bus', is_sessions_enabled=True)\n"
)


async def refusal(bench: MakeBench, source: str, **options: object) -> str:
    b = await bench(source=source, start=False, **options)
    with pytest.raises(HostError) as caught:
        await b.host.start()
    assert b.host.worker_pids == [None]
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found'"),
        ("def f(:\n", "SyntaxError"),
        ("x = 1\n", "no FunctionApp"),
        (HEAD + "other = func.FunctionApp()\n", "more than one FunctionApp"),
        (HEAD + TRIGGER + "def work(msg): pass\n", "function work: parameters without a binding: msg"),
        (HEAD + TRIGGER + "def work(): pass\n", "function work: bindings without a parameter: message"),
        (HEAD + TRIGGER + "def work(message: func.HttpRequest): pass\n", "function work: serviceBusTrigger"),
        (HEAD + TRIGGER + "def work(message, context: int): pass\n", "parameter context must be annotated"),
        (HEAD + TRIGGER + "def work(message: typing.List[func.ServiceBusMessage]): pass\n", "its cardinality is ONE"),
        (HEAD + (TRIGGER + "def work(message): pass\n") * 2, "does not have a unique function name"),
        (HEAD + "@app.function_name('work')\ndef work(message): pass\n", "does not have a trigger"),
        ("import sys\nprint('last words')\nsys.exit(7)\n", "exit code 7: last words"),
        ("import os\nos._exit(8)\n", "exit code 8: it said nothing"),
    ],
)
async def test_an_app_that_can_not_be_indexed_is_refused_with_the_cause(
    bench: MakeBench, source: str, reason: str
) -> None:
    assert reason in await refusal(bench, source)


async def test_an_indexing_error_comes_with_its_traceback(bench: MakeBench) -> None:
    text = await refusal(bench, HEAD + "raise RuntimeError('at import')\n")
    lines = text.splitlines()
    assert lines[0].endswith("the app can't be indexed:")
    assert 'function_app.py", line 4' in lines[2], "its own first line, behind the heading"
    assert lines[-1] == "RuntimeError: at import"


async def test_batches_are_refused_by_function(bench: MakeBench) -> None:
    """R18, R52, R53, R56: cardinality MANY: bytes would not stay as sent, and one failure would fail them all."""
    source = (
        HEAD
        + TRIGGER.replace("connection=", "cardinality='many', connection=")
        + ("def work(message: typing.List[func.ServiceBusMessage]): pass\n")
    )
    assert "function work: cardinality MANY" in await refusal(bench, source)


async def test_retry_policies_are_refused(bench: MakeBench) -> None:
    """R60."""
    retry = "@app.retry(strategy='fixed_delay', max_retry_count='3', delay_interval='00:00:01')\n"
    assert "function work: retry policies" in await refusal(bench, HEAD + retry + TRIGGER + "def work(message): pass\n")


async def test_queue_setting_and_sessions_must_fit(bench: MakeBench) -> None:
    good = HEAD + TRIGGER + "def work(message): pass\n"
    assert "function work: the broker has no queue 'none'" in await refusal(bench, good.replace("'orders'", "'none'"))
    plain = [QueueOptions("orders")]
    assert "function work: queue 'orders' has no sessions" in await refusal(bench, good, queues=plain)
    without = good.replace("is_sessions_enabled=True", "is_sessions_enabled=False")
    assert "has sessions, but the trigger isn't enabled" in await refusal(bench, without)
    setting = good.replace("'orders'", "'%MISSING_QUEUE%'")
    assert "function work: setting 'MISSING_QUEUE'" in await refusal(bench, setting)
    assert "connection 'Bus'" in await refusal(bench, good, settings={})


async def test_a_wrong_host_json_stops_the_start_with_file_and_key(bench: MakeBench) -> None:
    b = await bench(start=False, service_bus={"maxConcurrentSesions": 1})
    with pytest.raises(ConfigError, match=r"host\.json: extensions\.serviceBus\.maxConcurrentSesions"):
        await b.host.start()


async def test_host_json_may_name_the_functions_that_run(bench: MakeBench) -> None:
    b = await bench(host_json={"functions": ["other"]})
    assert b.host.functions == []


async def test_more_than_one_worker_process_is_refused_by_setting(bench: MakeBench) -> None:
    b = await bench(start=False, settings={**SETTINGS, "FUNCTIONS_WORKER_PROCESS_COUNT": "2"})
    with pytest.raises(HostError, match="FUNCTIONS_WORKER_PROCESS_COUNT"):
        await b.host.start()


async def test_a_taken_http_port_leaves_nothing_running(bench: MakeBench) -> None:
    first = await bench()
    second = await bench(start=False)
    second.host.http_port = first.host.http_port
    with pytest.raises(OSError, match=str(first.host.http_port)):
        await second.host.start()
    assert second.host.worker_pids == [None]


LOGS = (
    "import azure.functions as func\nimport logging, sys, threading\napp = func.FunctionApp()\n"
    + TRIGGER
    + "def work(message, context: func.Context):\n"
    "    log = logging.getLogger('mine')\n"
    "    log.info('message.handled', extra={'n': 1, 'd': {'k': [1, object]}, 'when': None})\n"
    "    try: 1 / 0\n"
    "    except ZeroDivisionError: log.exception('it broke')\n"
    "    print('on stdout'); print('on stderr', file=sys.stderr)\n"
    "    def other():\n"
    "        context.thread_local_storage.invocation_id = context.invocation_id\n"
    "        log.warning('from a thread')\n"
    "    thread = threading.Thread(target=other); thread.start(); thread.join()\n"
)


async def test_log_records_come_with_level_logger_fields_exception_and_function(bench: MakeBench) -> None:
    """R68: each line once, also from a thread that took its invocation along."""
    b = await bench(source=LOGS)
    b.send("x")
    await b.until(lambda: bool(b.ended()) and bool(b.told("on stdout")) and bool(b.told("on stderr")))
    (handled,) = b.told("message.handled")
    assert (handled.level, handled.logger, handled.function) == ("INFO", "mine", "work")
    assert handled.fields == {"n": 1, "d": {"k": [1, "<class 'object'>"]}, "when": None}
    (broke,) = b.told("it broke")
    assert "ZeroDivisionError: division by zero" in str(broke.exception)
    (thread,) = b.told("from a thread")
    assert (thread.level, thread.function) == ("WARNING", "work")
    assert [line.logger for line in b.told("on stdout") + b.told("on stderr")] == ["stdout", "stderr"]


PLACE = (
    "import azure.functions as func\nimport logging, os, sys\napp = func.FunctionApp()\n"
    "import beside\n" + TRIGGER + "def work(message):\n"
    "    logging.info('place', extra={'cwd': os.getcwd(), 'last': sys.path[-1], 'first': sys.path[0],"
    " 'value': os.environ.get('X_VALUE'), 'bus': os.environ.get('Bus')})\n"
)


async def test_the_project_is_working_folder_and_last_in_the_path_and_settings_are_environment(
    bench: MakeBench,
) -> None:
    b = await bench(source=PLACE, start=False, settings={**SETTINGS, "X_VALUE": "1"})
    (b.project / "beside.py").write_text("")
    await b.host.start()
    b.send("x")
    await b.until(lambda: bool(b.told("place")))
    fields = b.told("place")[0].fields
    assert fields["cwd"] == fields["last"] == str(b.project)
    assert fields["first"] != str(Path.cwd())
    assert (fields["value"], fields["bus"]) == ("1", SETTINGS["Bus"])


NUMBERED = HEAD + "import logging\n" + TRIGGER + "def work(message): logging.info('version %s', NUMBER)\nNUMBER = 1\n"


async def test_a_reload_takes_the_new_source_after_the_work_in_hand(bench: MakeBench) -> None:
    b = await bench(source=NUMBERED)
    b.send("x")
    await b.until(lambda: bool(b.ended()))
    (b.project / "function_app.py").write_text(NUMBERED.replace("NUMBER = 1", "NUMBER = 2"))
    await b.host.reload()
    b.send("x")
    await b.until(lambda: bool(b.told("version 2")))
    assert len(b.starts) == 2
    assert not b.deaths  # the end of the first worker was expected


async def test_a_reload_of_a_broken_app_says_so_and_the_next_one_repairs_it(bench: MakeBench) -> None:
    b = await bench(source=NUMBERED)
    (b.project / "function_app.py").write_text("def f(:\n")
    with pytest.raises(HostError, match="SyntaxError"):
        await b.host.reload()
    b.send("x")
    (b.project / "function_app.py").write_text(NUMBERED)
    await b.host.reload()
    await b.until(lambda: bool(b.ended()))
    assert b.outcomes() == ["completed"]


async def test_a_worker_that_comes_back_with_another_app_is_loaded_anew(bench: MakeBench) -> None:
    b = await bench(source=NUMBERED, queues=[QueueOptions(name, requires_session=True) for name in ("orders", "new")])
    (b.project / "function_app.py").write_text(NUMBERED.replace("queue_name='orders'", "queue_name='new'"))
    b.host.kill_worker()
    b.send("x", queue="new")
    await b.until(lambda: bool(b.ended()))
    assert b.ended()[0].queue == "new"


async def test_a_worker_that_dies_at_every_start_is_started_with_back_off(bench: MakeBench) -> None:
    b = await bench(source=NUMBERED)
    (b.project / "function_app.py").write_text("import os\nos._exit(9)\n")
    start = time.monotonic()
    b.host.kill_worker()
    errors = [event for event in b.events if "exit code 9" in getattr(event, "message", "")]
    await b.until(lambda: len(_errors(b)) >= 3)
    assert not errors
    assert time.monotonic() - start > 1.4  # 0.5 s and 1 s between the starts
    (b.project / "function_app.py").write_text(NUMBERED)
    b.send("x")
    await b.until(lambda: bool(b.ended()))


@pytest.mark.skipif(sys.platform == "win32", reason="waits for a process without taking its exit code")
async def test_a_host_that_is_drained_while_a_dead_worker_is_being_replaced_comes_to_its_end(bench: MakeBench) -> None:
    """R58: whichever step the replacement has come to; each costs a turn of the event loop or a few."""
    b = await bench()
    for turns in range(16):
        (pid,) = b.host.worker_pids
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # its exit code may be taken already
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - no turn may pass meanwhile
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await b.host.reload(drain_seconds=0)
    b.send("x")
    await b.until(lambda: bool(b.ended()))
    assert b.outcomes() == ["completed"]


def _errors(b: Bench) -> list[str]:
    return [event.message for event in b.events if "exit code 9" in getattr(event, "message", "")]  # type: ignore[union-attr]


async def test_the_watcher_tells_a_change_once_it_has_settled(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / ".venv").mkdir()
    for name in ("function_app.py", "shared/a.py", "tests/b.py", ".venv/c.py", "host.json", "notes.txt"):
        (tmp_path / name).write_text("1")
    assert {Path(path).name for path in stamps(tmp_path)} == {"function_app.py", "a.py", "host.json"}
    told: asyncio.Queue[list[str]] = asyncio.Queue()
    watching = asyncio.create_task(watch(tmp_path, stamps(tmp_path), told.put, poll=0.02))
    try:
        (tmp_path / "shared/a.py").write_text("22")
        (tmp_path / "shared/new.py").write_text("1")
        async with asyncio.timeout(10):
            names = await told.get()
            while len(names) < 2:  # the machine may have stalled between the two
                names += await told.get()
        assert names == ["a.py", "new.py"]
        (tmp_path / "shared/new.py").unlink()
        async with asyncio.timeout(10):
            assert await told.get() == ["new.py"]
    finally:
        watching.cancel()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def attach(port: int) -> asyncio.StreamWriter:
    """Attach as an editor does, over the debug adapter protocol."""
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
    calls = (("initialize", {"adapterID": "test"}), ("attach", {"justMyCode": False}), ("configurationDone", {}))
    for number, (command, arguments) in enumerate(calls, 1):
        text = json.dumps({"seq": number, "type": "request", "command": command, "arguments": arguments})
        writer.write(f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
    await writer.drain()
    return writer


async def test_a_debugged_worker_waits_for_the_debugger_and_has_no_time_out(bench: MakeBench) -> None:
    port = free_port()
    b = await bench(start=False, debug_port=port, host_json={"functionTimeout": "00:00:00.3"})
    starting = asyncio.create_task(b.host.start())
    await b.until(lambda: bool(b.told(f"waiting for a debugger on 127.0.0.1:{port}")))
    assert not starting.done()
    writer = await attach(port)
    await starting
    b.send("sleep 0.8")
    await b.until(lambda: bool(b.ended()))
    assert b.outcomes() == ["completed"]
    writer.close()


HOST_THAT_DIES = """
import asyncio, os, sys
from pathlib import Path
from local.broker.model import QueueOptions
from local.broker.service import BrokerService
from local.host.host import FunctionsHost

async def main():
    service = BrokerService([QueueOptions("orders", requires_session=True)])
    settings = {"ORDERS_QUEUE": "orders", "Bus": sys.argv[2]}
    host = FunctionsHost(Path(sys.argv[1]), service, environment=settings, http_port=0)
    await host.start()
    from local.broker.messages import build_message
    started = asyncio.Event()
    host.observers.append(lambda event: started.set() if getattr(event, "message", "") == "start" else None)
    service.send("orders", [build_message(b"block 60", session_id="s")])
    await started.wait()
    print(host.worker_pids[0], flush=True)
    os._exit(1)

asyncio.run(main())
"""


async def test_a_worker_dies_with_its_host_even_while_user_code_blocks_its_loop(bench: MakeBench) -> None:
    import psutil

    b = await bench(start=False)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOST_THAT_DIES,
        str(b.project),
        SETTINGS["Bus"],
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    out, _ = await process.communicate()
    pid = int(out)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the worker outlived its host"
        await asyncio.sleep(0.05)
