"""The demo end to end: real SDKs, real processes, a killed worker, and a verdict that tampering overturns.

Covers C01, C02, C03, C06, C16, C34, C56, C74 to C78 and the demo's part of contracts 15.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local.demo import __main__ as command
from local.demo.lines import read_lines
from local.demo.run import Result, run
from local.demo.verify import EndState, verify
from tests.unit.demo.ideal import (
    amended,
    batch,
    cancelled,
    entry,
    line,
    placed,
    posting,
    status,
)

ROOT = Path(__file__).resolve().parents[2]
MEMBERS = {
    "sent", "received", "outcomes", "applied", "held", "quarantined", "deadLettered", "workerKills", "ordersChecked",
    "violations", "seconds", "proven",
}  # fmt: skip


def small_day() -> list[dict[str, Any]]:
    """Make orders, ledgers, doubles, strange ids and bad messages, some thirty lines."""
    orders = [placed(f"ORD-{number}", "10.00", "2.50", sequenced=number % 2 == 0) for number in range(8)]
    lines = [{**order, "repeat": 2} for order in orders]
    lines += [amended("ORD-1", "op-1", ("1", 3, "10.00"), ("2", 0, "0")), status("ORD-1", "shipped", 1)]
    lines += [amended("ORD-1", "op-2", ("1", 1, "1")), cancelled("ORD-2", "op-1", sequence=2)]
    lines += [amended("ORD-4", "op-2", ("1", 1, "1"), sequence=3), cancelled("NOWHERE", "op-1")]
    lines += [placed(order) for order in ("a/b", "a\\b", "a?b#c", "größe 注文", 'q"q', "x" * 63)]
    lines += [
        batch("L-1", "1", posting("T-1", sequence=1), posting("T-3", sequence=3), batchSequence=1),
        batch("L-1", "2", posting("T-2", sequence=2), posting("T-4", "ORD-3", "-4.25"), batchSequence=2),
        batch("L-1", "4", posting("T-9"), batchSequence=4),
    ]
    lines += [entry("E-2", "ORD-5", sequence=2), entry("E-1", "ORD-5", sequence=1), entry("E-4", "ORD-5", sequence=4)]
    lines += [
        line("orders", None, "N-1", placed("N-1")["body"]),
        line("orders", "", "N-2", placed("N-2")["body"]),
        line("orders", "N-3", "", placed("N-3")["body"]),
        line("orders", "N-4", "N-4", "no object", repeat=2),
        line("orders", "m" * 129, "N-5", placed("N-5")["body"]),
        line("orders", "N-6", "N-6", {**placed("N-6")["body"], "meta": {"fill": "x" * 262_000}}),
    ]
    return lines


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


def demo(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the demo as people do."""
    return subprocess.run(
        [sys.executable, "-m", "local.demo", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=170, check=False, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Run the small day once, in this process, so that its end state can be tampered with."""
    path = write(tmp_path_factory.mktemp("demo") / "day.jsonl", small_day())
    return asyncio.run(run(read_lines(path), 7, Console(file=io.StringIO())))


def test_a_small_day_with_a_killed_worker_is_proven(good: Result) -> None:
    assert good.verdict.violations == []
    assert good.tally.worker_kills >= 1
    assert good.tally.refused.keys() == {number for number, one in enumerate(small_day(), 1) if is_refused(one)}
    assert good.verdict.held == 1
    assert good.verdict.quarantined["SequenceGap"] == 2
    assert good.verdict.dead_lettered == 0


def is_refused(one: dict[str, Any]) -> bool:
    return len(one["messageId"] or "") > 128 or len(json.dumps(one["body"])) > 262_000


def drop(end: EndState) -> None:
    end.entries.remove(next(one for one in end.entries if one["id"] == "ORD-1:order:2"))


def double(end: EndState) -> None:
    end.entries.append(next(one for one in end.entries if one["id"] == "ORD-1:order:2"))


def swap(end: EndState) -> None:
    first, second = (next(one for one in end.entries if one["id"] == f"ORD-1:order:{n}") for n in (1, 2))
    first["position"], second["position"] = second["position"], first["position"]


def change(end: EndState) -> None:
    next(one for one in end.entries if one["id"] == "ORD-3:ledger.L-1:T-4")["amount"] = "4.25"


def lose_a_parked_copy(end: EndState) -> None:
    end.quarantine.pop()


@pytest.mark.parametrize("tamper", [drop, double, swap, change, lose_a_parked_copy])
def test_tampering_with_a_real_outcome_ends_with_exit_code_1(
    good: Result, tamper: Callable[[EndState], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = EndState(
        orders=json.loads(json.dumps(good.end.orders)),
        ledgers=json.loads(json.dumps(good.end.ledgers)),
        entries=json.loads(json.dumps(good.end.entries)),
        quarantine=list(good.end.quarantine),
    )
    tamper(end)
    tampered = Result(good.tally, verify(good.expectation, end), 1.0, good.expectation, end)

    async def ran(*_arguments: object) -> Result:
        return tampered

    monkeypatch.setattr(command, "run", ran)
    report = tmp_path / "report.json"
    assert command.main(["--json", str(report)]) == 1
    told = json.loads(report.read_text(encoding="utf-8"))
    assert told["proven"] is False
    assert told["violations"]
    assert set(told["violations"][0]) == {"rule", "orderId", "detail"}


def test_the_command_writes_its_report_and_exits_0(tmp_path: Path) -> None:
    lines = [placed("ORD-1"), {**placed("ORD-2"), "repeat": 3}, amended("ORD-1", "op", ("1", 2, "1"))]
    report = tmp_path / "report.json"
    done = demo("--input", str(write(tmp_path / "in.jsonl", lines)), "--json", str(report), "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PROVEN" in done.stdout
    told = json.loads(report.read_text(encoding="utf-8"))
    assert set(told) == MEMBERS
    assert (told["proven"], told["sent"], told["applied"], told["workerKills"]) == (True, 5, 3, 1)
    assert told["violations"] == []


def test_an_empty_input_is_proven(tmp_path: Path) -> None:
    done = demo("--input", str(write(tmp_path / "in.jsonl", [])))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_bad_line_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(command, "run")
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(placed("ORD-1")) + "\n{\n", encoding="utf-8")
    assert command.main(["--input", str(path)]) == 2
    assert f"{path}: line 2: not JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--input", "nothing-here.jsonl"], ["--seed", "x"], ["--sed", "1"], ["--json", "no/such/folder/x.json"], ["x"]],
)
def test_a_wrong_option_is_named_and_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = command.main(arguments)
    except SystemExit as ended:  # argparse
        code = int(ended.code or 0)
    assert code == 2
    told = capsys.readouterr().err
    assert arguments[0] in told or arguments[-1] in told


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)],
    ids=["sigterm", "ctrl-c twice"],
)
def test_an_interrupted_demo_ends_with_130_and_leaves_no_process(numbers: tuple[signal.Signals, ...]) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "local.demo"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        for text in child.stdout:
            if text.startswith("sent"):
                break
        for number in numbers:
            child.send_signal(number)
            time.sleep(0.05)
        _, told = child.communicate(timeout=60)
        assert child.returncode == 130
        assert "Traceback" not in told
    ends = time.monotonic() + 10
    while _is_group_alive(child.pid) and time.monotonic() < ends:
        time.sleep(0.1)
    assert not _is_group_alive(child.pid)


def test_a_wrong_setting_is_named_and_not_run_into_a_time_out(tmp_path: Path) -> None:
    environment = {**os.environ, "POISON_AFTER_DELIVERIES": "x"}
    done = demo("--input", str(write(tmp_path / "in.jsonl", [placed("ORD-1")])), env=environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "POISON_AFTER_DELIVERIES" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_demo_that_nobody_reads_any_more_is_proven_behind_a_proxy_too(tmp_path: Path) -> None:
    """`… | head` takes its words away, and the proxy is for the world outside: neither may be in the way."""
    report, nowhere = tmp_path / "report.json", "http://127.0.0.1:9"
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "local.demo", "--input", str(write(tmp_path / "in.jsonl", [placed("ORD-1")])),
         "--json", str(report)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "HTTP_PROXY": nowhere, "http_proxy": nowhere, "ALL_PROXY": nowhere},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr is not None
        told = child.stderr.read()
        assert child.wait(timeout=170) == 0, told
    assert json.loads(report.read_text(encoding="utf-8"))["proven"]


def _is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
