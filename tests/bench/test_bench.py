"""The benchmarks run and count right; how fast a machine is, no test says."""

from __future__ import annotations

import math

import pytest

from bench import __main__ as command
from bench import broker, cosmos, idle, memory


async def test_every_message_goes_through_the_broker_and_both_sides_are_measured() -> None:  # C61
    result = await broker.measure(messages=200, sessions=4)
    assert result["messages"] == 200
    assert result["client seconds"] > 0
    assert math.isclose(result["broker / client"], result["broker seconds"] / result["client seconds"])


async def test_both_databases_take_the_creates() -> None:  # C61
    result = await cosmos.measure(creates=80, warm_up=1)
    assert min(result.values()) > 0
    assert math.isclose(result["ratio"], result["creates / s"] / result["constant / s"])


async def test_idle_sessions_and_memory_are_measured() -> None:
    result = await idle.measure(sessions=50, seconds=0.5, settle=0)
    assert (result["sessions"], result["MiB"] > 10) == (50, True)
    assert 0 <= result["processor share"] < 1
    result = await memory.measure(messages=200)
    assert (result["messages"], result["MiB"] > 10) == (200, True)


def test_a_result_is_shown_and_a_wrong_name_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def made() -> dict[str, float]:
        return {"things": 12_345.0, "ratio": 0.5}

    monkeypatch.setattr(command, "BENCHES", {"one": (made, "a bench")})
    assert command.main(["one"]) == 0
    shown = capsys.readouterr().out
    assert "12,345" in shown
    assert "0.5" in shown
    with pytest.raises(SystemExit) as ended:
        command.main(["two"])
    assert ended.value.code == 2
    assert "two" in capsys.readouterr().err
