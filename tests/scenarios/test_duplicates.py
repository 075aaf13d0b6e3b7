"""Copies of a message: equal ones are recognised and skipped, different ones parked, whatever happened in between."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from .harness import App, enc, running
from .messages import amended, batch, cancelled, entry, fresh, line, message_id_of, placed, status, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_second_copy_of_an_order_has_no_effect(app: App) -> None:
    """C01 C06 C07 C11 C37 C38: two broker messages, one MessageId, one effect; sequence numbers play no part."""
    order_id = fresh()
    body = placed(order_id)
    await app.send_all([body, body, body])
    assert await app.outcomes(order_id, 3) == ["created", "duplicate", "duplicate"]
    await app.outcomes(f"{order_id}:order:2")
    assert len({each.sequence_number for each in app.ends_of(order_id)}) == 3
    assert len(await app.entries(order_id)) == 2
    assert (await app.state(order_id))["applied"] == 2


@pytest.mark.parametrize("kind", ["amended", "cancelled", "ledger", "entry"])
async def test_second_copy_of_other_messages_has_no_effect(app: App, kind: str) -> None:
    """C01 C06 C38 C42 C27: an inbox record, a ledger batch and an entry are recognised as an order is."""
    order_id = fresh()
    bodies = {
        "amended": amended(order_id, "op-1"),
        "cancelled": cancelled(order_id, "op-1"),
        "ledger": batch(fresh("L"), "B-1", transaction(1, order_id), transaction(2, order_id)),
        "entry": entry(order_id, "T-1"),
    }
    body = bodies[kind]
    if kind in ("amended", "cancelled"):
        await app.outcome(placed(order_id))
    first = await app.outcome(body)
    assert first in ("applied", "created")
    await app.quiet()
    before = await app.state(order_id)
    assert await app.outcome(body) == "duplicate"
    await app.quiet()
    assert await app.state(order_id) == before
    assert app.parked(order_id) == []


async def test_known_id_with_other_content_is_parked_on_its_first_delivery(app: App) -> None:
    """C37 C39 D14 D15 R59: never dropped in silence, never redelivered; the stored document is not touched."""
    order_id = fresh()
    await app.outcome(placed(order_id))
    await app.quiet()
    before = await app.order(order_id)
    other = placed(order_id, line("1", 3))
    sent_as = {"correlation_id": "corr-9", "subject": "order.placed", "properties": {"tenant": "t-1", "n": 7}}
    assert await app.outcome(other, **sent_as) == "conflict"
    copy = await app.only_parked(order_id)
    assert json.loads(copy.body) == other
    assert (copy.correlation_id, copy.subject, copy.content_type) == ("corr-9", "order.placed", "application/json")
    properties = copy.properties
    assert before is not None
    assert properties["quarantine-reason"] == "PayloadMismatch"
    assert properties["quarantine-stored-hash"] == before["record"]["payloadHash"]
    assert str(properties["quarantine-payload-hash"]).startswith("sha256:jcs:v1:")
    assert properties["quarantine-payload-hash"] != properties["quarantine-stored-hash"]
    assert properties["quarantine-description"]
    assert (properties["quarantine-role"], properties["quarantine-consumer"]) == ("orders", "process_order")
    assert (properties["quarantine-message-id"], properties["quarantine-dedup-key"]) == (order_id, order_id)
    assert properties["quarantine-delivery-count"] == "1"
    assert properties["original-sequence-number"] == properties["quarantine-sequence-number"]
    assert (properties["tenant"], properties["n"]) == ("t-1", 7)
    assert await app.order(order_id) == before
    assert [each.delivery_count for each in app.ends_of(order_id)] == [1, 1]
    assert app.stack.service.counts("orders").dead_letter == 0


@pytest.mark.parametrize("kind", ["command", "ledger", "entry"])
async def test_other_content_is_found_for_every_kind_of_record(app: App, kind: str) -> None:
    """C39 C38: commands, ledger batches and entries compare hashes too."""
    order_id, ledger_id = fresh(), fresh("L")
    pairs: dict[str, tuple[Any, Any]] = {
        "command": (amended(order_id, "op-1"), amended(order_id, "op-1", line("1", 6))),
        "ledger": (
            batch(ledger_id, "B-1", transaction(1, order_id)),
            batch(ledger_id, "B-1", transaction(1, order_id, "2.00")),
        ),
        "entry": (entry(order_id, "T-1"), entry(order_id, "T-1", amount="1.01")),
    }
    first, second = pairs[kind]
    if kind == "command":
        await app.outcome(placed(order_id))
    await app.outcome(first)
    await app.quiet()
    assert await app.outcome(second) == "conflict"
    copy = await app.only_parked(ledger_id if kind == "ledger" else order_id)
    assert copy.reason == "PayloadMismatch"
    assert copy.properties["quarantine-stored-hash"] != copy.properties["quarantine-payload-hash"]
    assert len([each for each in app.handled if each["message_id"] == f"{order_id}:ledger.{ledger_id}:T-1"]) == (
        1 if kind == "ledger" else 0
    )


async def test_legitimate_change_of_state_is_no_reuse_of_the_id(app: App) -> None:
    """C40 D10: the request's hash is compared, not the order as it is now."""
    order_id = fresh()
    body = placed(order_id)
    await app.outcome(body)
    await app.outcome(amended(order_id, "op-1", line("1", 9)))
    await app.outcome(status(order_id, "confirmed", 1))
    await app.outcome(cancelled(order_id, "op-2"))
    assert await app.outcome(body) == "duplicate"
    assert await app.outcome(amended(order_id, "op-1", line("1", 9))) == "duplicate"  # illegal in today's state
    assert app.parked(order_id) == []


async def test_correlation_id_is_never_the_key(app: App) -> None:
    """C09: two messages with one CorrelationId are two messages; one message with two is one."""
    first, second = fresh(), fresh()
    assert await app.outcome(placed(first), correlation_id="same") == "created"
    assert await app.outcome(placed(second), correlation_id="same") == "created"
    assert await app.outcome(placed(first), correlation_id="other") == "duplicate"


async def test_consumers_do_not_suppress_each_other(app: App) -> None:
    """C12: each consumer has a container of its own, so one key may live in all of them."""
    shared = fresh("X")
    order, ledger = placed(shared), batch(shared, "op-1", transaction(1, shared))
    assert await app.outcome(order) == "created"
    assert await app.outcome(amended(shared, "op-1")) == "applied"  # message id <shared>:op-1
    assert await app.outcome(ledger) == "created"  # the same message id, on another queue
    assert app.outcomes_of(f"{shared}:op-1") == ["applied", "created"]
    await app.outcomes(f"{shared}:ledger.{shared}:T-1")
    assert (await app.state(shared))["balances"] == {"EUR": "30.50"}


async def test_two_streams_of_one_order_do_not_suppress_each_other(app: App) -> None:
    """C12: the stream is part of an entry's id."""
    order_id = fresh()
    assert await app.outcome(entry(order_id, "T-1", "ledger.A")) == "applied"
    assert await app.outcome(entry(order_id, "T-1", "ledger.B")) == "applied"
    assert (await app.state(order_id))["balances"] == {"EUR": "2.00"}


@pytest.mark.parametrize(
    ("spelling", "outcome"),
    [
        ('{"quantity":10.0', "duplicate"),
        ('{"quantity":1e1', "duplicate"),
        ('{"quantity":10.00', "duplicate"),
        ('{ "quantity" : 10', "duplicate"),
        ('{"quantity":11', "conflict"),
    ],
)
async def test_equal_numbers_are_equal_payloads(app: App, spelling: str, outcome: str) -> None:
    """R17 R42 D09: values are compared, not spellings; white space and the order of members don't count."""
    order_id = fresh()
    head = f'{{"orderId":"{order_id}","type":"order.placed","currency":"EUR","lines":['
    tail = ',"lineId":"1","sku":"TEA","unitPrice":"3.50"}]}'
    assert await app.outcome(placed(order_id, line("1", 10))) == "created"
    await app.send(head + spelling + tail, role="orders", message_id=order_id, session=order_id)
    assert (await app.outcomes(order_id, 2))[-1] == outcome


async def test_forms_of_one_body_are_one_payload(app: App) -> None:
    """R42 R45 D12: byte-order mark, gzip and `meta` change nothing; an escaped slash is a slash."""
    order_id = fresh("O/")
    text = json.dumps(placed(order_id))
    variants: list[tuple[bytes, dict[str, str]]] = [
        (b"\xef\xbb\xbf" + text.encode(), {}),
        (text.replace("/", "\\/").encode(), {}),
        (gzip.compress(text.encode()), {"content-encoding": "gzip"}),
        (json.dumps(placed(order_id, meta={"sentAt": "2026-01-01T00:00:00Z"})).encode(), {}),
    ]
    await app.outcome(placed(order_id))
    for number, (data, properties) in enumerate(variants):
        await app.send(data, role="orders", message_id=order_id, session=order_id, properties=properties)
        assert (await app.outcomes(order_id, number + 2))[-1] == "duplicate"


async def test_lines_in_another_order_are_another_payload(app: App) -> None:
    """R42: arrays keep their order."""
    order_id = fresh()
    await app.outcome(placed(order_id, line("1"), line("2")))
    assert await app.outcome(placed(order_id, line("2"), line("1"))) == "conflict"


async def test_replay_under_a_new_broker_id_is_recognised_by_its_dedup_id(app: App) -> None:
    """C08 C24 D26: what an operator sends again goes by `dedup-id`, so no broker window can swallow it."""
    order_id = fresh()
    body = placed(order_id)
    await app.outcome(body)
    again = {"dedup-id": order_id, "replay-count": "1"}
    await app.send(body, message_id=f"{order_id}~r1", properties=again)
    assert await app.outcomes(f"{order_id}~r1") == ["duplicate"]
    assert app.fields_of(f"{order_id}~r1")["replay_count"] == 1
    # A replay of what never got through is its first processing, under the original key.
    other = fresh()
    await app.send(placed(other), message_id=f"{other}~r1", properties={"dedup-id": other, "replay-count": "1"})
    assert await app.outcomes(f"{other}~r1") == ["created"]
    assert await app.outcome(placed(other)) == "duplicate"


async def test_cloud_event_goes_by_source_and_id(app: App) -> None:
    """C10: the id of another source is another key."""
    first, second = fresh(), fresh()

    def event(order_id: str, source: str) -> dict[str, Any]:
        data = {name: value for name, value in placed(order_id).items() if name != "type"}
        return {"specversion": "1.0", "type": "order.placed", "source": source, "id": order_id, "data": data}

    async def outcome(order_id: str, source: str, message_id: str) -> str:
        body = json.dumps(event(order_id, source))
        kind = "application/cloudevents+json"
        await app.send(body, role="orders", message_id=message_id, session=order_id, content_type=kind)
        return (await app.outcomes(message_id))[-1]

    assert await outcome(first, "/erp", f"{first}-a") == "created"
    assert await outcome(first, "/erp", f"{first}-b") == "duplicate"
    assert await outcome(first, "/shop", f"{first}-c") == "quarantined"
    assert [copy.reason for copy in app.parked(first)] == ["OrderExists"]
    assert await outcome(second, "/shop", f"{second}-a") == "created"
    assert message_id_of(placed(second)) == second


async def test_copy_that_comes_years_later_still_finds_its_record(tmp_path_factory: pytest.TempPathFactory) -> None:
    """C22 C23 C24: records don't expire; where somebody deletes one, its copy is let in as new."""
    order_id = fresh()
    async with running(tmp_path_factory.mktemp("late")) as app:
        assert await app.outcome(placed(order_id)) == "created"
        await app.quiet()
        app.clock.ahead += 3 * 365 * 86_400
        assert await app.outcome(placed(order_id)) == "duplicate"
        await app.container("orders").delete_item(enc(order_id), partition_key=order_id)
        assert await app.outcome(placed(order_id)) == "created"
        await app.quiet()
        assert len(await app.entries(order_id)) == 2  # the entries' own records were still there
