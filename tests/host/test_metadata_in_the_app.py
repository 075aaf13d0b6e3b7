"""What the library makes of the host's metadata, in a real worker (functions-platform 2.2 and 2.3; R50, R51)."""

from __future__ import annotations

from typing import Any

from local.broker.model import QueueOptions
from tests.host.conftest import Bench, MakeBench

QUEUES = [QueueOptions(name, requires_session=True, max_delivery_count=2) for name in ("binary", "text")]
SPOOF = '{"messageId":"SPOOFED","sessionId":"other","deliveryCount":99,"lockToken":"zz","userProperties":{"x":1}}'
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def seen(b: Bench, body: bytes | str, queue: str, **fields: Any) -> dict[str, Any]:
    count = len(b.told("seen"))
    b.send(body, "s1", queue=queue, **fields)
    await b.until(lambda: len(b.told("seen")) > count)
    line = b.told("seen")[-1]
    found = line.fields["seen"]
    assert isinstance(found, dict)
    return {**found, "body": line.fields["body"], "names": line.fields["names"]}


async def test_a_json_body_spoofs_the_identity_of_a_message_unless_the_trigger_is_binary(bench: MakeBench) -> None:
    b = await bench("metadata", queues=QUEUES)
    text = await seen(b, SPOOF, "text", message_id="m1")
    assert (text["message_id"], text["session_id"], text["delivery_count"]) == ("SPOOFED", "other", 99)
    assert (text["lock_token"], text["user_properties"]) == ("zz", {"x": 1})
    binary = await seen(b, SPOOF, "binary", message_id="m1")
    assert (binary["message_id"], binary["session_id"], binary["delivery_count"]) == ("m1", "s1", 1)
    assert binary["lock_token"] != "zz"
    assert binary["user_properties"] == {}


async def test_a_spoofed_value_of_the_wrong_type_fails_before_user_code_and_ends_dead_lettered(
    bench: MakeBench,
) -> None:
    b = await bench("metadata", queues=QUEUES)
    for body in ('{"sequenceNumber":"A-1"}', '{"userProperties":"x"}', '{"expiresAtUtc":"soon"}'):
        b.send(body, "s1", queue="text")
    await b.until(lambda: len(b.ended("text")) == 6)
    assert set(b.outcomes("text")) == {"abandoned"}
    assert not b.told("seen")
    assert b.service.counts("text").dead_letter == 3
    assert (await seen(b, '{"sequenceNumber":"A-1"}', "binary"))["sequence_number"] == 1


async def test_bytes_that_are_no_utf_8_survive_a_binary_trigger_only(bench: MakeBench) -> None:
    b = await bench("metadata", queues=QUEUES)
    assert (await seen(b, b"\xff\x00\xfe", "binary"))["body"] == "ff00fe"
    assert (await seen(b, b"\xff", "text"))["body"] == "efbfbd"
    assert (await seen(b, b"", "binary"))["body"] == ""


async def test_the_message_has_what_the_host_sends_and_none_for_the_rest(bench: MakeBench) -> None:
    b = await bench("metadata", queues=QUEUES)
    found = await seen(
        b,
        "{}",
        "binary",
        message_id="m1",
        correlation_id="c1",
        subject="order.placed",
        content_type="application/json",
        application_properties={"n": 1, "t": "x"},
    )
    assert (found["correlation_id"], found["subject"], found["label"]) == ("c1", "order.placed", "order.placed")
    assert (found["content_type"], found["sequence_number"]) == ("application/json", 1)
    assert found["application_properties"] == found["user_properties"] == {"n": 1, "t": "x"}
    assert "+" not in found["enqueued_time_utc"]  # naive: no offset
    for name in (
        "locked_until",
        "state",
        "time_to_live",
        "scheduled_enqueue_time_utc",
        "dead_letter_reason",
        "enqueued_sequence_number",
        "to",
        "reply_to",
        "reply_to_session_id",
    ):
        assert found[name] is None, name
    assert {"SessionActions", "Client", "ReceiveActions"} <= set(found["names"])


async def test_the_trace_context_is_the_message_s(bench: MakeBench) -> None:
    b = await bench()
    b.send("trace", application_properties={"Diagnostic-Id": PARENT, "tracestate": "a=b"})
    b.send("trace", "s2", application_properties={"traceparent": "garbage"})
    await b.until(lambda: len(b.told("trace")) == 2)
    assert {(line.fields["parent"], line.fields["state"]) for line in b.told("trace")} == {(PARENT, "a=b"), ("", "")}


async def test_the_context_names_function_folder_and_invocation(bench: MakeBench) -> None:
    b = await bench()
    b.send("context")
    await b.until(lambda: bool(b.told("context")))
    fields = b.told("context")[0].fields
    assert fields["function"] == "work"
    assert fields["directory"] == str(b.project)
    assert len(str(fields["invocation"])) == 36
