"""A deployment whose settings are wrong: no message is to blame, none is lost, and the app says what is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .harness import SETTINGS, running
from .messages import fresh, placed

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_missing_setting_burns_no_delivery_and_is_named(tmp_path: Path) -> None:
    """C41 D31 R69: the message waits in its first delivery; with the setting it is handled."""
    async with running(tmp_path, settings={"REPLAY_MAX": ""}) as app:
        order_id = fresh()
        await app.send(placed(order_id))
        await app.until(lambda: bool(app.told("configuration")), "the app says that its settings are wrong")
        assert "REPLAY_MAX: missing" in str(app.told("configuration")[0].fields["description"])
        code, answer, _ = await app.request("GET", "/api/health", key=False)
        assert (code, answer) == (503, {"status": "misconfigured", "missing": ["REPLAY_MAX"]})
        await asyncio.sleep(0.5)  # long enough for many deliveries, if it came back at once
        assert app.ends_of(order_id) == []
        assert app.parked(order_id) == []
        assert app.stack.host is not None
        environment = {**app.stack.environment(), **SETTINGS, "REPLAY_MAX": "5"}
        await app.stack.host.reload(environment, drain_seconds=0)
        assert await app.outcomes(order_id) == ["created"]
        assert app.stack.service.counts("orders").dead_letter == 0
