"""How an invocation's end settles its message (functions-platform 3.4 and 4.2)."""

from __future__ import annotations

from tests.host.conftest import MakeBench


async def test_success_completes(bench: MakeBench) -> None:
    b = await bench()
    b.send("ok", message_id="m1")
    await b.until(lambda: bool(b.ended()))
    assert b.outcomes() == ["completed"]
    assert b.service.counts("orders").active == 0
