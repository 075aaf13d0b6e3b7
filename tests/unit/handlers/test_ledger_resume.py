"""A ledger's earlier batch that is not finished: it is brought to its end, paced, and never by guessing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.envelope import OutgoingMessage, Role
from shared.errors import TransientError
from shared.ports import Container
from tests.unit.handlers.handler_bench import Bench, DiedError, message

BEHIND_THE_LEASE = 200.0


def batch(number: int, count: int = 3) -> OutgoingMessage:
    transactions = [
        {"transactionId": f"T{number}.{place}", "orderId": "O", "kind": "add", "amount": "1"} for place in range(count)
    ]
    body: dict[str, Any] = {
        "ledgerId": "L",
        "batchId": f"B{number}",
        "batchSequence": number,
        "currency": "EUR",
        "transactions": transactions,
    }
    return message(f"L:B{number}", "L", body)


def with_one_unfinished() -> Bench:
    """The first batch is accepted and half sent; its worker died, and its message is gone."""
    bench = Bench(batch_messages=1)
    bench.send(Role.LEDGER, batch(1))
    bench.dies("replace ledgers", behind=True)
    assert isinstance(bench.deliver(bench.worker(), Role.LEDGER), DiedError)
    bench.queues[Role.LEDGER].clear()
    bench.clock.seconds += BEHIND_THE_LEASE
    bench.faults.clear()
    bench.send(Role.LEDGER, batch(2))
    return bench


def sweeps(bench: Bench) -> int:
    claim: dict[str, int] = bench.document(Container.LEDGERS, "L", "L:B1")["record"]["claim"]
    return claim["sweeps"]


def test_the_rest_of_the_earlier_batch_goes_out_first() -> None:  # D04 D30 R63
    bench = with_one_unfinished()
    assert bench.deliver(bench.worker(), Role.LEDGER) is None
    wanted = [f"O:ledger.L:T{number}.{place}" for number in (1, 2) for place in range(3)]
    assert list(dict.fromkeys(bench.sent())) == wanted


def test_the_largest_batch_fits_its_documents_and_a_watermark_stays_small() -> None:  # D07
    bench = Bench(batch_messages=500)
    bench.send(Role.LEDGER, batch(1, count=2000))
    bench.dies("replace ledgers", behind=True)
    assert isinstance(bench.deliver(bench.worker(), Role.LEDGER), DiedError)
    sizes = {key[2]: len(json.dumps(row.document)) for key, row in bench.store.rows.items()}
    assert sizes["~outbox.L:B1"] < 2_000_000
    assert sizes["L:B1"] < 2_000
    bench.faults.clear()
    assert bench.deliver(bench.worker(), Role.LEDGER) is None
    assert len(set(bench.sent())) == 2000


def test_an_outage_while_the_earlier_batch_is_resumed_is_no_death_of_its_attempt() -> None:  # D31 R23
    """Else a few minutes without the broker would hold the ledger for an hour."""
    bench = with_one_unfinished()
    outage = bench.fails("send ledger-entries")
    for _ in range(8):
        assert isinstance(bench.deliver(bench.worker(), Role.LEDGER), TransientError)
        assert sweeps(bench) == 0
    outage.times = 0
    assert bench.deliver(bench.worker(), Role.LEDGER) is None
    assert bench.document(Container.LEDGERS, "L", "L:B2")["record"]["status"] == "completed"


def test_a_state_that_names_a_record_that_is_not_there_is_reported_and_paced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = with_one_unfinished()
    del bench.store.rows[Container.LEDGERS, "L", "L:B1"]
    before = bench.clock.seconds
    assert isinstance(bench.deliver(bench.worker(), Role.LEDGER), TransientError)
    assert 40 < bench.clock.seconds - before <= 61
    assert len(bench.labels) < 60
    stuck = [record for record in caplog.records if record.message == "outbox.stuck"]
    assert {vars(record)["record"] for record in stuck} == {"L:B1"}


def test_a_claim_that_was_taken_is_not_taken_back_at_once() -> None:  # D32 D43
    bench = with_one_unfinished()

    def taken() -> None:
        claim = bench.document(Container.LEDGERS, "L", "L:B1")["record"]["claim"]
        bench.change(Container.LEDGERS, "L", "L:B1", record={"claim": {**claim, "token": "f" * 32}})

    bench.before("send ledger-entries", taken)
    assert bench.deliver(bench.worker(), Role.LEDGER) is None
    assert bench.waits, "it waited before it looked again"
