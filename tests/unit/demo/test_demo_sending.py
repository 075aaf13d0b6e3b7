"""Messages go out with exactly what a line has."""

from __future__ import annotations

import pytest

from local.demo.lines import Line
from local.demo.sending import message_of


@pytest.mark.parametrize("message_id", [None, ""])
def test_a_missing_id_stays_missing_although_the_client_makes_one_up(message_id: str | None) -> None:
    properties = message_of(Line(1, "orders", message_id, "s", b"")).raw_amqp_message.properties
    assert properties is not None
    assert properties.message_id == message_id
    assert properties.group_id == "s"


def test_fields_and_properties_are_the_lines() -> None:
    line = Line(1, "orders", "m", "", b"\xff", {"a": "x", "b": True, "c": 2**40}, "subject", "text/plain", "corr")
    message = message_of(line)
    assert (message.session_id, message.subject, message.content_type) == ("", "subject", "text/plain")
    assert (message.message_id, message.correlation_id, b"".join(message.body)) == ("m", "corr", b"\xff")
    assert message.application_properties == {"a": "x", "b": True, "c": {"TYPE": "LONG", "VALUE": 2**40}}


def test_an_id_beyond_the_limit_is_refused_by_the_client() -> None:
    with pytest.raises(ValueError, match="128"):
        message_of(Line(1, "orders", "m" * 129, "s", b""))
