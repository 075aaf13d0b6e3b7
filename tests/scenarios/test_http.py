"""The HTTP functions: an order goes in, and comes out again; what is wrong with a request is said by field."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from .harness import App
from .messages import Body, amended, cancelled, fresh, line, placed, status

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_submitted_order_runs_its_course(app: App) -> None:
    """C34: 202 with id and place; then the order can be looked at."""
    order_id = fresh()
    code, answer, headers = await app.request("POST", "/api/orders", body=placed(order_id), x_correlation_id="corr-3")
    assert (code, answer) == (202, {"orderId": order_id, "messageId": order_id})
    assert headers["Location"] == f"/api/orders/{order_id}"
    assert await app.outcomes(order_id) == ["created"]
    assert app.fields_of(order_id)["correlation_id"] == "corr-3"
    await app.quiet()
    code, answer, headers = await app.request("GET", headers["Location"])
    assert code == 200
    assert answer == {
        "orderId": order_id,
        "state": "open",
        "fulfilment": None,
        "currency": "EUR",
        "total": "19.00",
        "lines": [
            {"lineId": "1", "sku": "TEA", "quantity": 2, "unitPrice": "3.50", "amount": "7.00"},
            {"lineId": "2", "sku": "CUP", "quantity": 1, "unitPrice": "12", "amount": "12"},
        ],
        "revision": 1,
        "processing": "completed",
    }
    order = await app.order(order_id)
    assert order is not None
    assert headers["ETag"] == order["_etag"]


async def test_same_body_again_gets_the_same_answer_and_sends_nothing(app: App) -> None:
    """C06 C38: repeating a request whose answer was lost is safe."""
    order_id = fresh()
    first = await app.request("POST", "/api/orders", body=placed(order_id))
    await app.outcomes(order_id)
    await app.quiet()
    with app.counting(order_id, "orders") as cost:
        again = await app.request("POST", "/api/orders", body=placed(order_id, meta={"try": 2}))
    assert (again[0], again[1], again[2]["Location"]) == (first[0], first[1], first[2]["Location"])
    assert (cost.requests, cost.sends) == (1, 0)


async def test_known_id_with_other_content_is_a_conflict(app: App) -> None:
    """C37 C39: for orders and for commands."""
    order_id = fresh()
    await app.outcome(placed(order_id))
    await app.outcome(amended(order_id, "op-1"))
    await app.quiet()
    for body in (placed(order_id, line("1", 9)), amended(order_id, "op-1", line("1", 7))):
        sends = len(app.sends)
        code, answer, headers = await app.request("POST", "/api/orders", body=body)
        assert (code, answer["type"], answer["status"]) == (409, "urn:problem:other-content", 409)
        assert headers["Content-Type"].startswith("application/problem+json")
        assert len(app.sends) == sends


async def test_every_order_message_can_be_submitted(app: App) -> None:
    """C34 C08: the app makes MessageId and session id."""
    order_id = fresh()
    bodies = [
        placed(order_id),
        amended(order_id, "op-1"),
        status(order_id, "confirmed", 1),
        cancelled(order_id, "op-2"),
    ]
    ids = [order_id, f"{order_id}:op-1", f"{order_id}:status.1", f"{order_id}:op-2"]
    for body, message_id in zip(bodies, ids, strict=True):
        code, answer, _ = await app.request("POST", "/api/orders", body=body)
        assert (code, answer["messageId"]) == (202, message_id)
        await app.outcomes(message_id)
    _, answer, _ = await app.request("GET", f"/api/orders/{order_id}")
    assert (answer["state"], answer["fulfilment"]) == ("cancelled", {"status": "confirmed", "version": 1})


@pytest.mark.parametrize("stem", ["a/b", "a b", "ä€/注文", "50%", "%2F", "a?b#c", "a+b&c=d", "..", "a//b", "'q\""])
async def test_order_of_any_id_can_be_submitted_and_looked_at(app: App, stem: str) -> None:
    """C34 R25: ids with slashes, spaces and all of Unicode, over HTTP and queue."""
    order_id = f"{stem}-{fresh('')}"
    code, answer, headers = await app.request("POST", "/api/orders", body=placed(order_id))
    assert (code, answer["orderId"]) == (202, order_id)
    assert headers["Location"] == f"/api/orders/{quote(order_id, safe='')}"
    assert await app.outcomes(order_id) == ["created"]
    code, answer, _ = await app.request("GET", headers["Location"])
    assert (code, answer["orderId"]) == (200, order_id)


async def test_slash_may_stand_unencoded_in_the_path(app: App) -> None:
    """The route is a catch-all."""
    order_id = fresh("a/b")
    await app.outcome(placed(order_id))
    code, answer, _ = await app.request("GET", f"/api/orders/{order_id}")
    assert (code, answer["orderId"]) == (200, order_id)


@pytest.mark.parametrize("path", ["nobody", "a%2Fb-nobody", "", "x" * 300, "%00", "~state", "%F0%9F%98%80"])
async def test_unknown_order_is_not_found(app: App, path: str) -> None:
    """404 as a problem, whatever the id looks like."""
    code, answer, headers = await app.request("GET", f"/api/orders/{path}")
    assert code == 404
    if path:
        assert (answer["type"], answer["title"]) == ("urn:problem:unknown-order", "There is no such order")
        assert headers["Content-Type"].startswith("application/problem+json")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"not json",
        b"[]",
        b'"text"',
        b"null",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b"\xff\xfe",
        b'{"a":"\\udc00"}',
    ],
)
async def test_body_that_is_no_json_object_is_a_400(app: App, data: bytes) -> None:
    code, answer, _ = await app.request("POST", "/api/orders", body=data)
    assert (code, answer["type"], answer["status"]) == (400, "urn:problem:not-json", 400)
    assert answer["detail"]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (b'"quantity": 1', b'"quantity": 9007199254740993', "/lines/0/quantity"),
        (b'"quantity": 1', b'"quantity": 0.1000000000000000055', "/lines/0/quantity"),
        (b'"quantity": 1', b'"quantity": 1, "quantity": 2', "/lines/0"),
        (b'"sku": "TEA"', b'"sku": "\\ud800"', "/lines/0/sku"),
        (b'{"type"', b'{type', ""),
    ],
)
async def test_body_that_cannot_be_read_is_a_400_that_points_at_the_place(
    app: App, old: bytes, new: bytes, place: str
) -> None:
    """R17 R42: what is no JSON by the contract is shown beside the field, as what breaks a rule is."""
    text = json.dumps(placed(fresh(), line("1"))).encode()
    assert old in text
    code, answer, _ = await app.request("POST", "/api/orders", body=text.replace(old, new))
    assert (code, answer["type"]) == (400, "urn:problem:not-json")
    assert [error["pointer"] for error in answer["errors"]] == [place]
    assert answer["detail"] == f"{place or 'body'}: {answer['errors'][0]['reason']}"


@pytest.mark.parametrize(
    ("change", "pointers"),
    [
        ({"orderId": 7}, ["/orderId"]),
        ({"orderId": "a:b"}, ["/orderId"]),
        ({"orderId": " a"}, ["/orderId"]),
        ({"currency": "euro", "lines": []}, ["/currency", "/lines"]),
        ({"lines": [line("1"), {**line("2"), "quantity": -1}]}, ["/lines/1/quantity"]),
        ({"lines": [{**line("1"), "unitPrice": "1e3"}]}, ["/lines/0/unitPrice"]),
        ({"lines": [{**line("1"), "a/b~c": 1}]}, ["/lines/0/a~1b~0c"]),
        ({"colour": "red"}, ["/colour"]),
        ({"sequence": 2}, ["/sequence"]),
        ({"type": "order.vanished"}, ["/type"]),
        ({"type": "ledger.batch"}, ["/type"]),
        ({"schemaVersion": 9}, ["/schemaVersion"]),
    ],
    ids=str,
)
async def test_broken_rule_is_a_422_that_points_at_the_member(app: App, change: Body, pointers: list[str]) -> None:
    sends = len(app.sends)
    code, answer, headers = await app.request("POST", "/api/orders", body={**placed(fresh()), **change})
    assert (code, answer["type"]) == (422, "urn:problem:invalid-message")
    assert sorted(error["pointer"] for error in answer["errors"]) == pointers
    assert all(error["reason"] for error in answer["errors"])
    assert headers["Content-Type"].startswith("application/problem+json")
    assert len(app.sends) == sends


async def test_missing_members_are_each_pointed_at(app: App) -> None:
    code, answer, _ = await app.request("POST", "/api/orders", body={"type": "order.placed"})
    assert code == 422
    assert {error["pointer"] for error in answer["errors"]} == {"/orderId", "/currency", "/lines"}


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/jsonx", "multipart/form-data"])
async def test_other_content_type_is_a_415(app: App, kind: str) -> None:
    code, answer, _ = await app.request("POST", "/api/orders", body=placed(fresh()), content_type=kind)
    assert (code, answer["type"]) == (415, "urn:problem:content-type")


async def test_content_type_may_have_parameters_and_any_case(app: App) -> None:
    order_id = fresh()
    kind = "Application/JSON; charset=utf-8"
    assert (await app.request("POST", "/api/orders", body=placed(order_id), content_type=kind))[0] == 202
    await app.outcomes(order_id)


async def test_body_beyond_any_link_is_a_413(app: App) -> None:
    """C34: refused before it is read."""
    text = json.dumps(placed(fresh())).encode()
    code, answer, _ = await app.request("POST", "/api/orders", body=text + b" " * 1_100_000)
    assert (code, answer["type"]) == (413, "urn:problem:too-large")


async def test_white_space_is_not_sent(app: App) -> None:
    """What counts is the message, not its spelling in the request."""
    order_id = fresh()
    text = json.dumps(placed(order_id), indent=4).encode()
    code, _, _ = await app.request("POST", "/api/orders", body=text + b" " * 300_000)
    assert code == 202
    assert await app.outcomes(order_id) == ["created"]


async def test_message_beyond_the_links_limit_is_a_413(app: App) -> None:
    lines = [line("x" * 55 + str(n), 1, "1", sku="y" * 60) for n in range(1900)]
    code, answer, _ = await app.request("POST", "/api/orders", body=placed(fresh(), *lines))
    assert (code, answer["type"]) == (413, "urn:problem:too-large")


async def test_trace_goes_on_from_the_request(app: App) -> None:
    """C31: the client's trace runs through the queue; a problem names it."""
    order_id, trace = fresh(), "0af7651916cd43dd8448eb211c80319c"
    parent = f"00-{trace}-b7ad6b7169203331-01"
    await app.request("POST", "/api/orders", body=placed(order_id), traceparent=parent)
    await app.outcomes(f"{order_id}:order:2")
    assert app.fields_of(order_id)["trace_id"] == trace
    assert app.fields_of(f"{order_id}:order:2")["trace_id"] == trace
    _, answer, _ = await app.request("POST", "/api/orders", body=b"{", traceparent=parent)
    assert answer["traceId"] == trace


async def test_functions_need_a_key_but_for_health(app: App) -> None:
    assert (await app.request("POST", "/api/orders", body=placed(fresh()), key=False))[0] == 401
    assert (await app.request("GET", "/api/orders/x", key=False))[0] == 401
    code, answer, _ = await app.request("GET", "/api/health", key=False)
    assert (code, answer["status"]) == (200, "ok")
    assert set(answer) == {"status", "version", "functions"}
    assert set(answer["functions"]) == {
        "process_order",
        "fan_out_ledger",
        "apply_entry",
        "sweep",
        "submit_order",
        "get_order",
        "health",
    }
