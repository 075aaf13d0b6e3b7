"""Is the database the bottleneck? Creates a second, beside those against one that answers a constant."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import CosmosClient

from bench.process import running, running_stack

CREATES = 3_000
AT_ONCE = 8
WARM_UP = 200
ROUNDS = 3


async def measure(creates: int = CREATES, warm_up: int = WARM_UP) -> Mapping[str, float]:
    """Creates a second against both, best of some rounds in turn."""
    ours, constant = [], []
    async with running_stack() as served:
        connection = dict(part.split("=", 1) for part in served.address["cosmosConnection"].strip(";").split(";"))
        endpoint, key = connection["AccountEndpoint"], connection["AccountKey"]
        with tempfile.TemporaryDirectory() as folder:
            arguments = (str(Path(__file__).with_name("constant.py")), endpoint)
            async with running(*arguments, folder=Path(folder), ready=b"http") as _:
                beside = (Path(folder) / "log").read_text(encoding="utf-8").split()[0]
                for number in range(ROUNDS):
                    ours.append(await _creates(endpoint, key, creates, warm_up, number))
                    constant.append(await _creates(beside, key, creates, warm_up, number))
    return {"creates / s": max(ours), "constant / s": max(constant), "ratio": max(ours) / max(constant)}


async def _creates(endpoint: str, key: str, count: int, warm_up: int, number: int) -> float:
    transport = AioHttpTransport(use_env_settings=False)
    async with CosmosClient(endpoint, key, transport=transport) as client:
        orders = client.get_database_client("convoy").get_container_client("orders")

        async def create(worker: int, share: int) -> None:
            for document in range(share):
                order = f"{number}-{worker}-{document}"
                await orders.create_item({"id": order, "orderId": order, **DOCUMENT})

        await create(AT_ONCE, warm_up)
        started = time.perf_counter()
        await asyncio.gather(*(create(worker, count // AT_ONCE) for worker in range(AT_ONCE)))
        return count / (time.perf_counter() - started)


DOCUMENT = {
    "type": "order",
    "v": 1,
    "customerId": "C-9",
    "currency": "EUR",
    "state": "open",
    "lines": [{"lineId": "1", "sku": "TEA", "quantity": 5, "unitPrice": "3.50", "amount": "17.50", "entry": "1"}],
    "record": {"key": "ORD-1", "payloadHash": "sha256:jcs:v1:" + "a" * 64, "status": "accepted"},
}
