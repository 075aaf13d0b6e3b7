"""Microsoft's .NET client, the one inside the Functions host, where its check program is at hand."""

from __future__ import annotations

import asyncio
import platform
from pathlib import Path

import pytest

from local.broker.entities import read_entities
from local.broker.server import BrokerServer
from local.broker.service import BrokerService

PROBE = Path(__file__).parents[3].parent / "shared" / "tools" / "sbprobe" / "sbprobe"
CAN_RUN = PROBE.is_file() and (platform.system(), platform.machine()) == ("Linux", "x86_64")
AT_ONCE = 6


async def run(*arguments: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(PROBE, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    return output.decode().splitlines()


async def check(name: str) -> list[str]:
    """Run one check against a broker of its own; gives what it prints."""
    server = BrokerServer(BrokerService(read_entities(PROBE.parent / "probe.Config.json")))
    await server.start()
    amqp, admin = (f"localhost:{port}" for port in (server.amqp_port, server.admin_port))
    try:
        return await run("--address", amqp, "--admin", admin, "--only", name)
    finally:
        await server.stop()


@pytest.mark.skipif(not CAN_RUN, reason="optional: beside the project: the .NET check program, or not for this machine")
async def test_every_check_of_the_dotnet_client_passes() -> None:
    names = await run("--list")
    assert len(names) >= 16
    slots = asyncio.Semaphore(AT_ONCE)  # the checks mostly wait for locks and time-outs

    async def check_in_turn(name: str) -> list[str]:
        async with slots:
            return await check(name)

    reports = await asyncio.gather(*(check_in_turn(name) for name in reversed(names)))
    assert [report for report in reports if report[-1] != "1 passed, 0 failed"] == []
