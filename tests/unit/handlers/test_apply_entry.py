"""What `apply_entry` tells of what it did (docs/contracts.md, section 6), also when the database's answer is lost."""

from __future__ import annotations

import json
import logging

import pytest

from shared.envelope import OutgoingMessage, Role
from tests.unit.handlers.conftest import Points
from tests.unit.handlers.handler_bench import Bench, entry, message


def close(number: int) -> OutgoingMessage:
    body = json.loads(entry(number).body)
    del body["amount"]
    return message(f"O:ledger.L:T{number}", "O", {**body, "kind": "close", "entryCount": number - 1})


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_an_entry_released_and_refused_is_told_once(
    caplog: pytest.LogCaptureFixture, measured: Points, is_lost: bool
) -> None:
    """R22: a refused entry waits for a person, so the alert must come although the attempt's own answer was lost."""
    bench = Bench()
    worker = bench.worker()
    with caplog.at_level(logging.INFO, logger="convoy"):
        for sent in (entry(2), close(3), entry(4)):
            bench.send(Role.LEDGER_ENTRIES, sent)
        bench.drain(worker)
        if is_lost:
            bench.loses_answer("batch ledger-entries")
        bench.send(Role.LEDGER_ENTRIES, entry(1))
        bench.drain(worker)
    outcomes = [vars(line)["outcome"] for line in caplog.records if line.message == "message.handled"]
    assert outcomes == ["held", "held", "held", "mine" if is_lost else "applied"]
    refused = [vars(line)["entry"] for line in caplog.records if line.message == "entry.refused"]
    assert refused == ["O:ledger.L:T4"]
    assert measured("convoy.entries.released") == [({}, 2)]
