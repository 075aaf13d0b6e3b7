"""shared/domain/ledger.py: the order of a ledger's batches, and the entries they cause (contracts 4.5 and 6)."""

from __future__ import annotations

import itertools

import pytest

from shared.contracts.documents import LedgerSequence
from shared.contracts.ledger import LedgerBatch
from shared.domain import ledger
from shared.domain.ledger import Accept, Known, Refuse, ResumeFirst, ThisOne, decide_batch, entries_of, skip_batches
from shared.domain.streams import SkipRefused
from shared.errors import Reason

THIS, OTHER = "L-7:b", "L-7:a"


def batch(number: int | None = None) -> LedgerBatch:
    body: dict[str, object] = {
        "ledgerId": "L-7",
        "batchId": "b",
        "currency": "EUR",
        "transactions": [
            {"transactionId": "T-1", "orderId": "ORD-1", "kind": "add", "amount": "19.00", "sequence": 1},
            {"transactionId": "T-2", "orderId": "ORD-2", "kind": "add", "amount": "7.5"},
            {
                "transactionId": "T-3",
                "orderId": "ORD-1",
                "kind": "amend",
                "amount": "-1.50",
                "refersTo": "T-1",
                "sequence": 2,
            },
            {"transactionId": "T-4", "orderId": "ORD-1", "kind": "close", "entryCount": 2, "sequence": 3},
            {"transactionId": "T-5", "orderId": "ORD-2", "kind": "void", "amount": "-7.50", "refersTo": "T-2"},
        ],
    }
    return LedgerBatch.model_validate(body | ({} if number is None else {"batchSequence": number}))


def test_each_transaction_becomes_one_entry_in_order_with_all_its_members() -> None:
    """C74, C75: the walk of a ledger; texts of amounts stay the producer's."""
    dumped = [
        entry.model_dump(by_alias=True, exclude_none=True, exclude={"schema_version"}) for entry in entries_of(batch())
    ]
    common = {"type": "ledger.entry", "stream": "ledger.L-7", "currency": "EUR"}

    assert dumped == [
        {**transaction, **common}
        for transaction in (one.model_dump(by_alias=True, exclude_none=True) for one in batch().transactions)
    ]
    assert [one["amount"] for one in dumped if "amount" in one] == ["19.00", "7.5", "-1.50", "-7.50"]


def oracle(next_batch: int | None, unfinished: str | None, number: int | None, *, is_first: bool) -> str:
    """Contracts 6, "Ledger batches"."""
    if unfinished is not None:
        return "ThisOne" if unfinished == THIS else "ResumeFirst"
    if is_first:
        next_batch = None if number is None else 1
    if (next_batch is None) != (number is None):
        return "SequenceConflict"
    if next_batch is None or number is None or number == next_batch:
        return "Accept"
    return "SequenceGap" if number > next_batch else "Known"


def test_every_batch_on_every_state_is_the_contracts() -> None:
    states = [
        None,
        *(
            LedgerSequence(ledger_id="L-7", next_batch=number, unfinished=unfinished)
            for number, unfinished in itertools.product((None, 1, 3), (None, THIS, OTHER))
        ),
    ]
    for state, number in itertools.product(states, (None, 1, 2, 3, 4)):
        verdict = decide_batch(state, batch(number), THIS)
        said = verdict.reason.value if isinstance(verdict, Refuse) else type(verdict).__name__
        expected = oracle(
            state.next_batch if state else None, state.unfinished if state else None, number, is_first=state is None
        )
        assert said == expected, (state, number)
        if isinstance(verdict, Accept):
            assert verdict.state.unfinished == THIS
            assert verdict.state.next_batch == (None if number is None else number + 1)


def test_the_unfinished_predecessor_is_named() -> None:
    state = LedgerSequence(ledger_id="L-7", next_batch=2, unfinished=OTHER)

    assert decide_batch(state, batch(2), THIS) == ResumeFirst(OTHER)
    assert decide_batch(state, batch(1), OTHER) == ThisOne()


def test_a_lower_number_without_a_record_is_a_conflict() -> None:
    verdict = decide_batch(LedgerSequence(ledger_id="L-7", next_batch=5), batch(2), THIS)

    assert isinstance(verdict, Known)
    assert verdict.reason is Reason.SEQUENCE_CONFLICT
    assert "expected 5" in verdict.description


@pytest.mark.parametrize(
    ("next_batch", "number", "description"),
    [
        (3, 5, "batchSequence: expected 3, found 5"),
        (3, None, "batchSequence: expected a number, as in the ledger's other batches"),
        (None, 5, "batchSequence: expected none, as in the ledger's other batches"),
    ],
)
def test_refusals_name_expected_and_found(next_batch: int | None, number: int | None, description: str) -> None:
    verdict = decide_batch(LedgerSequence(ledger_id="L-7", next_batch=next_batch), batch(number), THIS)

    assert isinstance(verdict, Refuse)
    assert verdict.description == description


def test_accepting_keeps_members_of_a_newer_release() -> None:
    state = LedgerSequence.model_validate(
        {
            "id": "~state",
            "type": "ledgerSequence",
            "v": 1,
            "ledgerId": "L-7",
            "nextBatch": 1,
            "unfinished": None,
            "x": 1,
        }
    )
    verdict = decide_batch(state, batch(1), THIS)

    assert isinstance(verdict, Accept)
    assert verdict.state.model_dump(by_alias=True)["x"] == 1


def test_a_ledger_that_starts_in_the_middle_is_skipped_up_to_its_first_number() -> None:
    skipped = skip_batches(None, ledger_id="L-7", first=1, last=6)

    assert isinstance(skipped, LedgerSequence)
    assert isinstance(decide_batch(skipped, batch(7), THIS), Accept)


def test_a_skip_leaves_the_unfinished_batch_alone() -> None:
    state = LedgerSequence(ledger_id="L-7", next_batch=3, unfinished=OTHER)

    assert skip_batches(state, ledger_id="L-7", first=3, last=3) == LedgerSequence(
        ledger_id="L-7", next_batch=4, unfinished=OTHER
    )


@pytest.mark.parametrize(
    ("next_batch", "first", "last", "names"),
    [(3, 4, 4, "expected number, 3, not with 4"), (3, 3, 2, "2, is below the first, 3"), (None, 1, 1, "no numbers")],
)
def test_a_skip_is_refused_by_name(next_batch: int | None, first: int, last: int, names: str) -> None:
    refused = skip_batches(
        LedgerSequence(ledger_id="L-7", next_batch=next_batch), ledger_id="L-7", first=first, last=last
    )

    assert isinstance(refused, SkipRefused)
    assert names in refused.description


def test_a_stream_is_named_after_its_ledger() -> None:
    assert ledger.stream_of("L-7") == "ledger.L-7"
