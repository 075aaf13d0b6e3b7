"""The JavaScript client, where Node.js is installed and `npm ci --prefix tests/conformance/broker` was run."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from running_broker import RunningBroker

from local.broker.service import QueueOptions

NODE = shutil.which("node") or ""
SCRIPT = Path(__file__).with_name("javascript_client.js")


def can_run() -> bool:
    look = [NODE, "-e", "require.resolve('@azure/service-bus')"]
    return bool(NODE) and subprocess.run(look, check=False, capture_output=True, cwd=SCRIPT.parent).returncode == 0


MISSING = "optional: Node.js, or `npm ci --prefix tests/conformance/broker` was not run"


@pytest.mark.skipif(not can_run(), reason=MISSING)
async def test_every_check_of_the_javascript_client_passes(start_broker: Callable[..., RunningBroker]) -> None:
    broker = start_broker(QueueOptions("plain"), QueueOptions("orders", requires_session=True))
    arguments = (NODE, SCRIPT, str(broker.server.amqp_port))
    process = await asyncio.create_subprocess_exec(*arguments, stderr=asyncio.subprocess.PIPE)
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, errors.decode()) == (0, "")
