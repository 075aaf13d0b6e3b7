"""What every implementation of the port Sender must do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from shared.envelope import OutgoingMessage, Role
from shared.errors import PermanentError, Reason
from shared.ports import Sender

LIMIT = 4_000
"""Bytes that a message, and a batch, may have in these tests."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message as the broker has it."""

    message_id: object
    session_id: str | None
    body: bytes
    subject: str | None
    content_type: str | None
    correlation_id: object
    to: str | None
    reply_to: str | None
    reply_to_session_id: str | None
    properties: Mapping[str, object]


Look = Callable[[Role], list[Arrived]]
"""What is in a queue, in order."""


def message(number: int = 1, session: str = "S-1", size: int = 10) -> OutgoingMessage:
    return OutgoingMessage(f"M-{number}", session, b"x" * size)


class SenderContract:
    """Subclasses give the fixtures `sender`, of empty queues with a limit of LIMIT bytes, and `look`."""

    async def test_message_arrives_with_all_that_it_has(self, sender: Sender, look: Look) -> None:
        """C09 C75 C76 R61: session, ids, content type and properties with their types."""
        whole = {"int": 7, "negative": -1, "least": -(2**31), "long": 2**31, "large": -(2**63), "ulong": 2**64 - 1}
        properties = {"text": "ä", "yes": True, "no": False, "double": 1.5, "empty": "", **whole}
        sent = OutgoingMessage(
            message_id="ORD-1:op/ü",
            session_id="ORD-1",
            body=b'{"a":1}\x00\xff',
            subject="ledger.entry",
            content_type="application/json",
            correlation_id="corr-1",
            to="somewhere",
            reply_to="answers",
            reply_to_session_id="S-9",
            properties=properties,
        )
        assert await sender.send(Role.LEDGER_ENTRIES, [sent]) == 1
        (arrived,) = look(Role.LEDGER_ENTRIES)
        assert arrived == Arrived(
            message_id="ORD-1:op/ü",
            session_id="ORD-1",
            body=b'{"a":1}\x00\xff',
            subject="ledger.entry",
            content_type="application/json",
            correlation_id="corr-1",
            to="somewhere",
            reply_to="answers",
            reply_to_session_id="S-9",
            properties=properties,
        )
        assert {name: type(value) for name, value in arrived.properties.items()} == {
            name: type(value) for name, value in properties.items()
        }

    async def test_number_that_no_broker_knows_goes_as_text(self, sender: Sender, look: Look) -> None:
        """A property never keeps a copy from being parked."""
        await sender.send(Role.QUARANTINE, [OutgoingMessage("M-1", "S-1", b"", properties={"n": 2**64})])
        assert look(Role.QUARANTINE)[0].properties == {"n": str(2**64)}

    async def test_message_without_more_has_no_more(self, sender: Sender, look: Look) -> None:
        """R26: what is not set is absent, not empty."""
        bare = OutgoingMessage("M-1", "", b"", content_type=None)
        assert await sender.send(Role.QUARANTINE, [bare]) == 1
        (arrived,) = look(Role.QUARANTINE)
        assert (arrived.message_id, arrived.session_id, arrived.body) == ("M-1", "", b"")
        others = (arrived.subject, arrived.content_type, arrived.correlation_id, arrived.to, arrived.reply_to)
        assert others == (None,) * 5
        assert arrived.properties == {}

    async def test_each_role_is_a_queue_of_its_own(self, sender: Sender, look: Look) -> None:
        for number, role in enumerate(Role):
            assert await sender.send(role, [message(number)]) == 1
        for number, role in enumerate(Role):
            assert [arrived.message_id for arrived in look(role)] == [f"M-{number}"]

    async def test_messages_of_several_sessions_go_together_in_order(self, sender: Sender, look: Look) -> None:
        """D02 D06 C74: one batch, each message with its own session."""
        messages = [message(number, f"S-{number % 3}") for number in range(6)]
        assert await sender.send(Role.LEDGER_ENTRIES, messages) == 6
        arrived = look(Role.LEDGER_ENTRIES)
        assert [(each.message_id, each.session_id) for each in arrived] == [(f"M-{n}", f"S-{n % 3}") for n in range(6)]

    async def test_as_many_go_as_fit(self, sender: Sender, look: Look) -> None:
        """D05: what does not fit is left for the next call."""
        messages = [message(number, size=900) for number in range(10)]
        sent = 0
        while sent < len(messages):
            accepted = await sender.send(Role.LEDGER_ENTRIES, messages[sent:])
            assert 1 <= accepted <= 4
            sent += accepted
        assert [each.message_id for each in look(Role.LEDGER_ENTRIES)] == [f"M-{number}" for number in range(10)]

    async def test_full_batch_is_taken_however_full_it_is(self, sender: Sender, look: Look) -> None:
        """D05 R65: a batch's envelope carries the ids of its first message too, and the SDK doesn't count them."""
        for size in range(0, 420, 28):  # so that the last message leaves each rest of room
            messages = [OutgoingMessage(f"{'m' * 90}-{size}-{n}", "s" * 120, b"x" * size) for n in range(30)]
            sent = 0
            while sent < len(messages):
                sent += await sender.send(Role.LEDGER_ENTRIES, messages[sent:])
        assert len(look(Role.LEDGER_ENTRIES)) == 15 * 30

    async def test_message_that_fits_alone_but_in_no_batch_goes_alone(self, sender: Sender, look: Look) -> None:
        """D05: nothing that the broker takes is called too large."""
        for size in range(LIMIT - 160, LIMIT):
            try:
                assert await sender.send(Role.LEDGER_ENTRIES, [message(size, size=size), message(1)]) == 1
            except PermanentError:
                break
        largest = max(len(each.body) for each in look(Role.LEDGER_ENTRIES))
        assert LIMIT - 60 < largest < LIMIT

    async def test_large_message_in_the_middle_ends_the_batch_before_it(self, sender: Sender, look: Look) -> None:
        """D05: the others are not refused with it."""
        messages = [message(1), message(2, size=2 * LIMIT), message(3)]
        assert await sender.send(Role.LEDGER_ENTRIES, messages) == 1
        with pytest.raises(PermanentError) as caught:
            await sender.send(Role.LEDGER_ENTRIES, messages[1:])
        assert caught.value.reason is Reason.ITEM_TOO_LARGE
        assert [each.message_id for each in look(Role.LEDGER_ENTRIES)] == ["M-1"]

    async def test_calls_at_once_lose_and_double_nothing(self, sender: Sender, look: Look) -> None:
        """D54 R65: many handlers share the sender."""
        calls = [sender.send(Role.LEDGER_ENTRIES, [message(10 * n + k) for k in range(3)]) for n in range(20)]
        assert await asyncio.gather(*calls) == [3] * 20
        arrived = [str(each.message_id) for each in look(Role.LEDGER_ENTRIES)]
        assert sorted(arrived) == sorted(f"M-{10 * n + k}" for n in range(20) for k in range(3))
        for n in range(20):
            own = [name for name in arrived if name in {f"M-{10 * n + k}" for k in range(3)}]
            assert own == [f"M-{10 * n + k}" for k in range(3)]

    async def test_message_that_the_broker_can_not_take_is_permanent(self, sender: Sender, look: Look) -> None:
        """No redelivery makes an id shorter."""
        with pytest.raises(PermanentError):
            await sender.send(Role.LEDGER_ENTRIES, [OutgoingMessage("x" * 129, "S-1", b"")])
        assert look(Role.LEDGER_ENTRIES) == []
