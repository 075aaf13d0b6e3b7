"""Is the database the bottleneck? Creates a second, beside those against one that answers a constant."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.process import running, running_stack
from local.demo.clients import local_cosmos

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
            async with running("-m", "bench.constant", folder=Path(folder), ready=b"http"):
                beside = (Path(folder) / "log").read_text(encoding="utf-8").split()[0]
                for number in range(ROUNDS):
                    ours.append(await _creates(endpoint, key, creates, warm_up, number))
                    constant.append(await _creates(beside, key, creates, warm_up, number))
    return {"creates / s": max(ours), "constant / s": max(constant), "ratio": max(ours) / max(constant)}


async def _creates(endpoint: str, key: str, count: int, warm_up: int, number: int) -> float:
    async with local_cosmos(endpoint, key) as client:
        orders = client.get_database_client("convoy").get_container_client("orders")

        async def create(worker: int, share: int) -> None:
            for document in range(share):
                order = f"{number}-{worker}-{document}"
                await orders.create_item({"id": order, "orderId": order, **DOCUMENT})

        await create(AT_ONCE, warm_up)
        started = time.perf_counter()
        share = count // AT_ONCE
        await asyncio.gather(*(create(worker, share) for worker in range(AT_ONCE)))
        return share * AT_ONCE / (time.perf_counter() - started)


DOCUMENT = {
    "type": "order",
    "v": 1,
    "customerId": "C-9",
    "currency": "EUR",
    "state": "open",
    "lines": [{"lineId": "1", "sku": "TEA", "quantity": 5, "unitPrice": "3.50", "amount": "17.50", "entry": "1"}],
    "record": {"key": "ORD-1", "payloadHash": "sha256:jcs:v1:" + "a" * 64, "status": "accepted"},
}
