"""The app under load on real processes, while workers die, are drained, and services go away; all of it at once, since
most of the time is waiting."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from azure.cosmos.aio import CosmosClient
from azure.servicebus.aio import ServiceBusClient

from local.cosmos.server import EMULATOR_KEY, CosmosServer
from local.demo.gather import UNFINISHED
from local.demo.sending import message_of
from local.demo.verify import EndState, Verdict, verify
from local.faults import Service, Stage
from local.host.events import HostEvent, InvocationEnded, LogLine, Outcome, WorkerDied
from tests.chaos import __main__ as command
from tests.chaos.acting import Done
from tests.chaos.plan import TERMINATE, Away, End, Plan, Point, Reload
from tests.chaos.run import PROJECT, Result, Watched, besides, run
from tests.chaos.traffic import make_round

pytestmark = pytest.mark.asyncio(loop_scope="module")

OUTAGE_SECONDS = 20.0
MOST_DELIVERIES = 3
SECONDS_FOR_ALL = 300  # far more than it takes, for a machine that others use
BUSY_POINTS = [
    Point(Service.COSMOS, "Create", "orders", Stage.BEFORE),
    Point(Service.COSMOS, "Create", "orders", Stage.AFTER),
    Point(Service.BROKER, "send", "ledger-entries", Stage.BEFORE),
    Point(Service.BROKER, "send", "ledger-entries", Stage.AFTER),
]


def outage(service: Service, seed: int) -> Plan:
    away = (Away(2.0, OUTAGE_SECONDS, service),)
    seconds = 2.0 + OUTAGE_SECONDS + 1.0
    return Plan(seed, seconds, cosmos=away) if service is Service.COSMOS else Plan(seed, seconds, broker=away)


def drains() -> Plan:
    """SIGTERM to one worker, to both, and to the whole host, which drains; by turns at any moment and at a point."""
    acts: list[End | Reload] = []
    for number, point in enumerate(BUSY_POINTS):
        at = 2.0 + 3.0 * number
        if number % 2:
            acts += [Reload(at, 60.0, point), Reload(at + 1.5, 0.1 * (number // 2))]
        else:
            acts += [End(at, (0, 1), TERMINATE, point), End(at + 1.5, (number // 2 % 2,), TERMINATE)]
    return Plan(4, 14.5, processes=tuple(acts))


@dataclass(frozen=True)
class Runs:
    """What came of all of them."""

    database_away: Result
    broker_away: Result
    drained: Result
    code: int
    told: str
    report: dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    report = tmp_path_factory.mktemp("chaos") / "report.json"
    arguments = ["--minutes", "0.4", "--seed", "5", "--json", str(report)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos", *arguments, cwd=PROJECT, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS_FOR_ALL):
            (told, _), database_away, broker_away, drained = await asyncio.gather(
                process.communicate(),
                run(outage(Service.COSMOS, 2)),
                run(outage(Service.BROKER, 3)),
                run(drains()),
            )
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = told.decode()
    content = json.loads(report.read_text("utf-8")) if report.exists() else {}
    return Runs(database_away, broker_away, drained, process.returncode or 0, text, content)


async def test_chaos_is_proven_and_says_what_it_did(runs: Runs) -> None:
    """C55 D01 D02 D03: kill -9, drains, lost answers, cut connections, outages, lost locks and storms of copies."""
    assert runs.code == 0, runs.told
    report = runs.report
    assert (report["proven"], report["violations"], report["deadLettered"], report["seed"]) == (True, [], 0, 5)
    assert report["acts"]["kill -9"] + report["acts"].get("kill -9 at a point", 0) > 0
    assert set(report["awaySeconds"]) == {"outage of the database", "outage of the broker"}
    assert sum(report["hits"].values()) > 0
    assert report["received"] > report["sent"] > 50
    assert max(map(int, report["deliveryCounts"])) > 1  # or nothing was broken
    assert "PROVEN" in runs.told
    assert re.search(r"^ +\d+ s  sent \d+, handled \d+, waiting \d+", runs.told, re.MULTILINE)


@pytest.mark.parametrize("service", Service)
async def test_twenty_seconds_without_a_service_burn_no_delivery(runs: Runs, service: Service) -> None:
    """C41 C54 D31 R23: under load every order is done, nothing is dead-lettered, and no delivery count is above 3."""
    result = runs.database_away if service is Service.COSMOS else runs.broker_away
    assert result.verdict.violations == []
    assert result.verdict.dead_lettered == 0
    assert sum(result.done.away_seconds.values()) == OUTAGE_SECONDS
    assert result.watched.tally.received > 50
    assert max(result.watched.delivery_counts) <= MOST_DELIVERIES


async def test_a_drained_or_terminated_app_leaves_the_ledger_exact(runs: Runs) -> None:
    """R58 D53: no half effects, wherever in the protocol the workers were told to end."""
    result = runs.drained
    assert result.verdict.violations == []
    assert result.verdict.dead_lettered == 0
    assert result.done.acts["SIGTERM to a worker"] >= 2
    assert result.done.acts["reloaded, work cut off"] == 2
    assert sum(hits for title, hits in result.done.hits.items() if title.startswith("point: ")) >= 2
    assert result.watched.outcomes["worker-died"] > 0


async def test_a_difference_at_the_end_is_found(runs: Runs) -> None:
    """The proof is no formality: one entry missing, doubled or in another place, one order undone."""
    result = runs.drained
    assert found(result, lambda _: None).violations == []

    def drop(end: EndState) -> None:
        end.entries.remove(applied(end))

    def double(end: EndState) -> None:
        end.entries.append({**applied(end), "id": "twice"})

    def move(end: EndState) -> None:
        applied(end)["position"] = 99

    def leave(end: EndState) -> None:
        end.waiting["orders"] = 1

    def undo(end: EndState) -> None:
        del end.orders[0]

    for change in (drop, double, move, leave, undo):
        assert found(result, change).violations, change.__name__


def found(result: Result, change: Callable[[EndState], None]) -> Verdict:
    end = copy.deepcopy(result.end)
    change(end)
    return verify(result.expectation, end)


def applied(end: EndState) -> dict[str, Any]:
    return next(entry for entry in end.entries if entry.get("status") == "applied")


# The whole process


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
async def test_sigterm_to_the_host_under_load_ends_what_is_in_hand(tmp_path: Path) -> None:
    """R58 D53: exit code 0, and no record in the database has something left to do."""
    project, data = tmp_path / "project", tmp_path / "cosmos.db"
    project.mkdir()
    for name in ("function_app.py", "host.json", "local.settings.json"):
        shutil.copy(PROJECT / name, project)
    shutil.copytree(PROJECT / "shared", project / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    ports = [f"--{name}-port=0" for name in ("amqp", "admin", "cosmos", "control", "http")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-m", "local", "--app", "--no-reload", f"--data={data}", *ports, cwd=project,
        env={**os.environ, "PYTHONPATH": str(PROJECT)}, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(60):
            async for raw in process.stdout:
                lines.append(raw.decode().rstrip())
                if lines[-1] == "ready":
                    told = json.loads((project / ".stack.json").read_text("utf-8"))
                    await send_round(told["serviceBusConnection"])
                elif sum("completed" in line for line in lines) == 40 and process.returncode is None:
                    process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0, "\n".join(lines)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert any(line.startswith("stopping") for line in lines)
    assert not any("Traceback" in line or "worker-died" in line for line in lines)
    server = CosmosServer(path=data)
    await server.start(port=0)
    try:
        async with CosmosClient(f"http://127.0.0.1:{server.port}/", EMULATOR_KEY) as client:
            database = client.get_database_client("convoy")
            for container in ("orders", "ledgers"):
                query = database.get_container_client(container).query_items(UNFINISHED)
                assert [item async for item in query] == []
            records = database.get_container_client("orders").query_items("SELECT c.id FROM c")
            assert len([item async for item in records]) > 0
    finally:
        await server.stop()


async def send_round(connection: str) -> None:
    async with ServiceBusClient.from_connection_string(connection) as bus:
        for role in ("orders", "ledger"):
            async with bus.get_queue_sender(role) as sender:
                await sender.send_messages([message_of(line) for line in make_round(9, 1) if line.role == role])


# What is watched besides the end state


def ended(outcome: Outcome, count: int) -> InvocationEnded:
    return InvocationEnded("process_order", "orders", "s", "m", 7, count, outcome, 0.1)


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([ended(Outcome.ABANDONED, count) for count in (1, 2, 3)], "given-back"),
        ([ended(Outcome.TIMED_OUT, 1)], "time-out"),
        ([WorkerDied(0, 4711, -11, expected=False)], "worker"),
        ([LogLine("process_order", "ERROR", "message.handled", {"outcome": "failed"})], "unexpected"),
    ],
)
async def test_what_no_fault_explains_is_a_violation(events: list[HostEvent], rule: str) -> None:
    watched, done = Watched(), Done()
    watched(ended(Outcome.COMPLETED, 1))
    assert list(besides(Plan(1, 30.0), watched, done)) == []
    for event in events:
        watched(event)
    assert [violation.rule for violation in besides(Plan(1, 30.0), watched, done)] == [rule]


async def test_a_message_is_hard_hit_until_it_comes_through() -> None:
    watched = Watched()
    watched(ended(Outcome.WORKER_DIED, 4))
    assert watched.all_well.is_set()
    watched(ended(Outcome.WORKER_DIED, 5))
    assert not watched.all_well.is_set()
    watched(ended(Outcome.COMPLETED, 6))
    assert watched.all_well.is_set()


async def test_a_worker_that_the_plan_has_ended_is_no_violation() -> None:
    watched, done = Watched(), Done(ended={4711})
    watched(WorkerDied(0, 4711, -9, expected=False))
    assert list(besides(Plan(1, 30.0), watched, done)) == []


# The command


@pytest.mark.parametrize(
    "arguments", [["--minutes", "0"], ["--minutes", "x"], ["--minutes", "nan"], ["--seed", "x"], ["--sed", "1"], ["x"],
                  ["--json", "no/such/folder/x.json"]],
)  # fmt: skip
async def test_a_wrong_option_is_named_and_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert arguments[0] in told or arguments[-1] in told


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
async def test_an_interrupted_run_ends_with_130() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-m", "tests.chaos", cwd=PROJECT, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            async for line in process.stdout:
                if b"sent" in line:
                    process.send_signal(signal.SIGINT)
                    break
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, said.decode().strip()) == (130, "chaos: interrupted")


async def test_a_wrong_setting_is_named_before_any_traffic() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos", cwd=PROJECT, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "POISON_AFTER_DELIVERIES": "x"},
    )  # fmt: skip
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 2
    assert "POISON_AFTER_DELIVERIES" in said.decode()
