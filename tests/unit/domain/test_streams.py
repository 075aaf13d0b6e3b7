"""shared/domain/streams.py: the table of contracts 6 over its input space, and the resequencer's properties.

Oracles here are written from the contract's text. The stateful test plays the database: it keeps one document an entry,
delivers in any order, again and again, skips, and checks the invariants of contracts 7 after each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shared.contracts.documents import Closed, HeldEntry, LedgerState, StreamState
from shared.contracts.ledger import LedgerEntry
from shared.domain.streams import (
    TABLE,
    Action,
    Apply,
    Hold,
    Refuse,
    Release,
    Skipped,
    SkipRefused,
    decide_entry,
    decide_known,
    skip,
)
from shared.domain.verdicts import Outcome
from shared.errors import Reason

MANY = 97


def entry(  # one argument a member: the tests name what they vary
    sequence: int | None = None,
    *,
    kind: str = "add",
    amount: str = "1",
    stream: str = "order",
    transaction_id: str = "",
    currency: str = "EUR",
    entry_count: int | None = None,
) -> LedgerEntry:
    body: dict[str, object] = {
        "orderId": "ORD-1",
        "stream": stream,
        "transactionId": transaction_id or f"T{sequence}",
        "kind": kind,
        "currency": currency,
    }
    if sequence is not None:
        body["sequence"] = sequence
    if kind == "close":
        body["entryCount"] = entry_count if entry_count is not None else (sequence or 1) - 1
    else:
        body["amount"] = amount
    if kind in ("amend", "void"):
        body["refersTo"] = "T1"
    return LedgerEntry.model_validate(body)


def doc_id(one: LedgerEntry) -> str:
    return f"{one.order_id}:{one.stream}:{one.transaction_id}"


def held(sequence: int) -> HeldEntry:
    return HeldEntry(sequence=sequence, id=f"held-{sequence}", kind="add", amount="1", currency="EUR")


def state_with(stream: StreamState | None) -> LedgerState | None:
    return None if stream is None else LedgerState(order_id="ORD-1", applied=stream.applied, streams={"order": stream})


# --- The table, row by row, over its whole (small) input space -------------------------------------------------------

STREAMS: Sequence[StreamState | None] = [
    None,
    *(
        StreamState(sequenced=False, next=None, applied=2, closed=closed)
        for closed in (None, Closed(entry_count=3, complete=False), Closed(entry_count=2, complete=True))
    ),
    *(
        StreamState(sequenced=True, next=3, applied=2, held=tuple(held(number) for number in numbers))
        for numbers in ((), (4,), (5,), (4, 5), (5, 7))
    ),
    *(
        StreamState(sequenced=True, next=3, applied=applied, closed=Closed(entry_count=1, complete=applied == 1))
        for applied in (0, 1)
    ),
]


def table_inputs() -> Iterator[tuple[StreamState | None, LedgerEntry, int]]:
    for stream, sequence, kind, held_max in itertools.product(
        STREAMS, (None, 1, 2, 3, 4, 5, 6, 2147483647), ("add", "close"), (0, 1, 2, 97)
    ):
        yield stream, entry(sequence, kind=kind), held_max


def oracle(stream: StreamState | None, one: LedgerEntry, held_max: int) -> str:
    """Contracts 6: the rows "not there", as text."""
    number = one.sequence
    expected = 1 if stream is None else stream.next
    holding = [] if stream is None else [waiting.sequence for waiting in stream.held]
    closed = None if stream is None else stream.closed
    if stream is not None and stream.sequenced != (number is not None):
        return "SequenceConflict"
    if number is None:
        if closed is not None and closed.complete:
            return "SequenceClosed"
        return "SequenceClosed" if closed is not None and one.kind == "close" else "apply"
    assert expected is not None
    if number < expected:
        return "SequenceConflict"
    if closed is not None:
        return "SequenceClosed"
    if number == expected:
        return "apply"
    if number in holding:
        return "SequenceConflict"
    return "hold" if len(holding) < held_max else "HeldLimitExceeded"


def test_the_whole_table_is_the_contracts() -> None:
    seen = set()
    for stream, one, held_max in table_inputs():
        verdict = decide_entry(state_with(stream), one, "new", held_max)
        said = verdict.reason.value if isinstance(verdict, Refuse) else type(verdict).__name__.lower()
        assert said == oracle(stream, one, held_max), (stream, one.sequence, one.kind, held_max)
        seen.add(said)
    assert seen == {"apply", "hold", "SequenceConflict", "SequenceClosed", "HeldLimitExceeded"}


@pytest.mark.parametrize("left_out", range(len(TABLE) - 1), ids=[row.when for row in TABLE[:-1]])
def test_each_row_is_needed(left_out: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [_attempt(*case) for case in table_inputs()]
    monkeypatch.setattr("shared.domain.streams.TABLE", TABLE[:left_out] + TABLE[left_out + 1 :])

    assert [_attempt(*case) for case in table_inputs()] != before


def _attempt(stream: StreamState | None, one: LedgerEntry, held_max: int) -> object:
    try:
        return decide_entry(state_with(stream), one, "new", held_max)
    except (ValueError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize(
    ("same_hash", "mine", "outcome"),
    [
        (True, True, Outcome.MINE),
        (True, False, Outcome.DUPLICATE),
        (False, True, Outcome.CONFLICT),
        (False, False, Outcome.CONFLICT),
    ],
)
def test_a_document_that_is_there_is_judged_by_its_hash(same_hash: bool, mine: bool, outcome: Outcome) -> None:
    """D47: a number below the watermark is a duplicate only with an equal hash."""
    assert decide_known(same_hash=same_hash, mine=mine) is outcome


def test_refusals_name_the_numbers() -> None:
    stream = StreamState(sequenced=True, next=3, applied=2)
    verdict = decide_entry(state_with(stream), entry(2), "new", MANY)

    assert verdict == Refuse(
        Reason.SEQUENCE_CONFLICT, "sequence: expected 3, found 2; another entry has this number, or it was skipped"
    )


def test_the_last_row_takes_what_is_left() -> None:
    assert TABLE[-1].action is Action.REFUSE
    assert TABLE[-1].reason is Reason.HELD_LIMIT_EXCEEDED


# --- Applying, holding, releasing -------------------------------------------------------------------------------------


def test_the_first_entry_of_an_order_makes_its_state() -> None:
    assert decide_entry(None, entry(1, amount="7.00"), "new", MANY) == Apply(
        LedgerState(
            order_id="ORD-1",
            applied=1,
            balances={"EUR": "7.00"},
            streams={"order": StreamState(sequenced=True, next=2, applied=1)},
        ),
        position=1,
    )


def test_an_entry_beyond_the_next_is_held_with_all_that_its_release_needs() -> None:
    verdict = decide_entry(None, entry(3, kind="void", amount="-12"), "ORD-1:order:T3", MANY)

    waiting = HeldEntry(sequence=3, id="ORD-1:order:T3", kind="void", amount="-12", currency="EUR")
    assert verdict == Hold(
        LedgerState(order_id="ORD-1", streams={"order": StreamState(sequenced=True, next=1, held=(waiting,))})
    )


def test_the_entry_that_closes_a_gap_releases_the_whole_run_and_no_more() -> None:
    """R22: 1, 3, 4, 6, then 2."""
    state = played(None, entry(1), entry(4, amount="40"), entry(3, amount="30"), entry(6, amount="60"))
    verdict = decide_entry(state, entry(2, amount="20"), "two", MANY)

    assert isinstance(verdict, Apply)
    assert verdict.position == 2
    assert verdict.releases == (
        Release("ORD-1:order:T3", "applied", 3),
        Release("ORD-1:order:T4", "applied", 4),
    )
    stream = verdict.state.streams["order"]
    assert (stream.next, stream.applied, [one.sequence for one in stream.held]) == (5, 4, [6])
    assert verdict.state.balances == {"EUR": "91"}


def test_numbers_are_compared_as_numbers() -> None:
    """R22: 10 after 9."""
    state = None
    for number in (10, 9, 2, 1, 3, 8, 7, 6, 5, 4):
        state = played(state, entry(number))

    assert state is not None
    assert state.streams["order"].next == 11


def test_a_close_has_a_position_but_is_no_posting() -> None:
    state = played(None, entry(1), entry(2), entry(3, kind="close"))

    assert state.applied == 3
    assert state.streams["order"] == StreamState(
        sequenced=True, next=4, applied=2, closed=Closed(entry_count=2, complete=True)
    )
    assert state.balances == {"EUR": "2"}


def test_a_close_alone_makes_no_balance() -> None:
    assert played(None, entry(1, kind="close")).balances == {}


def test_entries_held_above_a_close_are_refused_with_it() -> None:
    state = played(None, entry(1), entry(3), entry(5))
    verdict = decide_entry(state, entry(2, kind="close"), "close", MANY)

    assert isinstance(verdict, Apply)
    assert verdict.releases == (
        Release("ORD-1:order:T3", "refused", None),
        Release("ORD-1:order:T5", "refused", None),
    )
    assert verdict.state.streams["order"].held == ()
    assert verdict.state.applied == 2


def test_a_held_close_that_is_released_refuses_what_is_above_it() -> None:
    state = played(None, entry(2), entry(3, kind="close"), entry(4))
    verdict = decide_entry(state, entry(1), "one", MANY)

    assert isinstance(verdict, Apply)
    assert [(one.id, one.status, one.position) for one in verdict.releases] == [
        ("ORD-1:order:T2", "applied", 2),
        ("ORD-1:order:T3", "applied", 3),
        ("ORD-1:order:T4", "refused", None),
    ]
    assert verdict.state.streams["order"].closed == Closed(entry_count=2, complete=True)


def test_streams_of_one_order_do_not_wait_for_each_other() -> None:
    """D49."""
    state = played(
        None,
        entry(1, amount="5"),
        entry(2, amount="1", stream="ledger.L-1"),
        entry(amount="2.5", stream="ledger.L-2", currency="USD"),
        entry(2, amount="-1"),
    )

    assert state.applied == 3
    assert state.balances == {"EUR": "4", "USD": "2.5"}
    assert [one.sequence for one in state.streams["ledger.L-1"].held] == [2]


def test_an_unsequenced_stream_recounts_its_completeness() -> None:
    """C66, D51: the close came first, the items after it."""
    states = [played(None, entry(kind="close", entry_count=2, stream="ledger.L"))]
    for number in ("a", "b"):
        states.append(played(states[-1], entry(stream="ledger.L", transaction_id=number)))

    closed = [state.streams["ledger.L"].closed for state in states]
    assert [one and one.complete for one in closed] == [False, False, True]
    assert states[-1].streams["ledger.L"].next is None
    third = decide_entry(states[-1], entry(stream="ledger.L", transaction_id="c"), "c", MANY)
    assert isinstance(third, Refuse)
    assert third.reason is Reason.SEQUENCE_CLOSED


def test_an_unsequenced_stream_with_more_entries_than_promised_stays_incomplete() -> None:
    state = played(
        None,
        *(entry(stream="ledger.L", transaction_id=name) for name in "abc"),
        entry(kind="close", entry_count=2, stream="ledger.L"),
        entry(stream="ledger.L", transaction_id="d"),
    )

    assert state.streams["ledger.L"].closed == Closed(entry_count=2, complete=False)
    assert state.streams["ledger.L"].applied == 4


def test_members_of_a_newer_release_survive() -> None:
    """A rolled-back worker must not drop what a newer one added under the same version."""
    state = LedgerState.model_validate(
        {
            "id": "~state", "type": "ledgerState", "v": 1, "orderId": "ORD-1", "applied": 1, "balances": {"EUR": "1"},
            "added": 1,
            "streams": {"order": {"sequenced": True, "next": 2, "applied": 1, "closed": None, "held": [], "added": 2}},
        }
    )  # fmt: skip
    for one in (entry(2), entry(3)):
        verdict = decide_entry(state, one, "new", MANY)
        assert isinstance(verdict, Apply | Hold)
        document = verdict.state.model_dump(mode="json", by_alias=True)
        assert document["added"] == 1
        assert document["streams"]["order"]["added"] == 2


def test_a_posting_without_an_amount_is_a_fault_not_a_zero() -> None:
    broken = entry(1).model_copy(update={"amount": None})

    with pytest.raises(ValueError, match="has an amount"):
        decide_entry(None, broken, "new", MANY)


def played(state: LedgerState | None, *entries: LedgerEntry) -> LedgerState:
    for one in entries:
        verdict = decide_entry(state, one, doc_id(one), MANY)
        assert not isinstance(verdict, Refuse), verdict
        state = verdict.state
    assert state is not None
    return state


# --- Skips ------------------------------------------------------------------------------------------------------------


def test_a_skip_releases_what_waited_and_marks_the_end_incomplete() -> None:
    state = played(None, entry(1), entry(3), entry(4, kind="close"), entry(5))
    skipped = skip(state, order_id="ORD-1", stream="order", first=2, last=2)

    assert isinstance(skipped, Skipped)
    assert [(one.id, one.status, one.position) for one in skipped.releases] == [
        ("ORD-1:order:T3", "applied", 2),
        ("ORD-1:order:T4", "applied", 3),
        ("ORD-1:order:T5", "refused", None),
    ]
    assert skipped.state.streams["order"] == StreamState(
        sequenced=True, next=5, applied=2, closed=Closed(entry_count=3, complete=False)
    )


def test_a_stream_that_starts_in_the_middle_is_skipped_up_to_its_first_number() -> None:
    """R22: a stream that starts at 7."""
    state = played(None, entry(7))
    skipped = skip(state, order_id="ORD-1", stream="order", first=1, last=6)

    assert isinstance(skipped, Skipped)
    assert skipped.releases == (Release("ORD-1:order:T7", "applied", 1),)
    assert skipped.state.streams["order"].next == 8


def test_a_stream_not_seen_yet_can_be_skipped() -> None:
    skipped = skip(None, order_id="ORD-1", stream="ledger.L", first=1, last=3)

    assert skipped == Skipped(
        LedgerState(order_id="ORD-1", streams={"ledger.L": StreamState(sequenced=True, next=4)}), ()
    )


def test_the_skipped_entry_is_refused_should_it_come_after_all() -> None:
    skipped = skip(played(None, entry(2)), order_id="ORD-1", stream="order", first=1, last=1)
    assert isinstance(skipped, Skipped)
    verdict = decide_entry(skipped.state, entry(1), "late", MANY)

    assert isinstance(verdict, Refuse)
    assert verdict.reason is Reason.SEQUENCE_CONFLICT


@pytest.mark.parametrize(
    ("stream", "first", "last", "names"),
    [
        ("order", 1, 1, "begins with the expected number, 3, not with 1"),
        ("order", 4, 4, "begins with the expected number, 3, not with 4"),
        ("order", 3, 2, "the last number, 2, is below the first, 3"),
        ("order", 3, 6, "6 is held, so a skip ends below it, not with 6"),
        ("order", 3, 9, "6 is held, so a skip ends below it, not with 9"),
        ("ledger.closed", 2, 2, "it is closed"),
        ("ledger.plain", 1, 1, "its entries have no numbers"),
    ],
)
def test_a_skip_is_refused_by_name(stream: str, first: int, last: int, names: str) -> None:
    state = played(
        None,
        entry(1),
        entry(2),
        entry(6),
        entry(1, kind="close", stream="ledger.closed"),
        entry(stream="ledger.plain"),
    )
    refused = skip(state, order_id="ORD-1", stream=stream, first=first, last=last)

    assert isinstance(refused, SkipRefused)
    assert refused.description.startswith(f"{stream}: ")
    assert refused.description.endswith(names)


# --- Properties -------------------------------------------------------------------------------------------------------

AMOUNT_TEXTS = st.sampled_from(["0", "1", "-1", "2.50", "-0.0001", "999999999999999.9999", "10.0", "-0"])


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[LedgerEntry], list[LedgerEntry]]:
    """A whole stream in its order, and the same in an order of arrival."""
    amounts = draw(st.lists(AMOUNT_TEXTS, min_size=1, max_size=12))
    stream = [entry(number, amount=amount) for number, amount in enumerate(amounts, start=1)]
    if draw(st.booleans()):
        stream.append(entry(len(stream) + 1, kind="close"))
    return stream, draw(st.permutations(stream))


@given(arrivals())
@settings(max_examples=300)
def test_any_order_of_arrival_ends_in_the_same_state(case: tuple[list[LedgerEntry], list[LedgerEntry]]) -> None:
    """C65, D47, D51: same balance, same positions, same completeness; nothing is left held."""
    in_order, arrived = case
    positions: dict[str, int] = {}
    state: LedgerState | None = None
    for one in arrived:
        verdict = decide_entry(state, one, doc_id(one), MANY)
        assert isinstance(verdict, Apply | Hold)
        state = verdict.state
        if isinstance(verdict, Apply):
            positions[doc_id(one)] = verdict.position
            positions |= {release.id: release.position or 0 for release in verdict.releases}

    assert state == played(None, *in_order)
    assert positions == {doc_id(one): place for place, one in enumerate(in_order, start=1)}
    closed = state.streams["order"].closed
    assert (closed is not None and closed.complete) == (in_order[-1].kind == "close")
    assert state.streams["order"].held == ()


@given(arrivals(), st.integers(0, 3))
@settings(max_examples=200)
def test_what_does_not_fit_comes_back_and_ends_the_same(
    case: tuple[list[LedgerEntry], list[LedgerEntry]], held_max: int
) -> None:
    """D47: held is bounded; whatever is parked for it and replayed in order finds its place."""
    in_order, waiting = case
    state: LedgerState | None = None
    for _ in range(len(in_order) + 1):
        parked = []
        for one in waiting:
            verdict = decide_entry(state, one, doc_id(one), held_max)
            if isinstance(verdict, Refuse):
                assert verdict.reason is Reason.HELD_LIMIT_EXCEEDED
                parked.append(one)
            else:
                state = verdict.state
            assert state is None or len(state.streams["order"].held) <= held_max
        waiting = sorted(parked, key=lambda one: one.sequence or 0)

    assert not waiting
    assert state == played(None, *in_order)


@given(st.permutations([*"abcd", "close"]), st.integers(0, 6))
@settings(max_examples=100)
def test_an_unsequenced_stream_is_complete_exactly_when_the_count_is_reached(names: list[str], promised: int) -> None:
    state: LedgerState | None = None
    applied, closed = 0, False
    for name in names:
        one = entry(
            stream="ledger.L", transaction_id=name, kind="close" if name == "close" else "add", entry_count=promised
        )
        verdict = decide_entry(state, one, name, MANY)
        if closed and applied == promised:
            assert isinstance(verdict, Refuse)
            assert verdict.reason is Reason.SEQUENCE_CLOSED
            continue
        assert isinstance(verdict, Apply)
        state = verdict.state
        closed, applied = closed or name == "close", applied + (name != "close")
        stream = state.streams["ledger.L"]
        assert stream.applied == applied
        assert (stream.closed is not None) == closed
        assert stream.closed is None or stream.closed.complete == (applied == promised)


Status = Literal["held", "applied", "refused"]
SEQUENCED = ("order", "ledger.A")
PLAIN = "ledger.B"
HELD_MAX = 3


class Ledger(RuleBasedStateMachine):
    """One order's container: documents by id, the state, and what was skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.state: LedgerState | None = None
        self.entries: dict[str, LedgerEntry] = {}
        self.statuses: dict[str, Status] = {}
        self.positions: dict[str, int] = {}
        self.skipped: dict[str, set[int]] = {name: set() for name in SEQUENCED}

    @rule(name=st.sampled_from(SEQUENCED), number=st.integers(1, 9), amount=AMOUNT_TEXTS, is_close=st.integers(0, 5))
    def deliver_numbered(self, name: str, number: int, amount: str, is_close: int) -> None:
        kind = "close" if is_close == 0 else "add"
        self._deliver(entry(number, stream=name, kind=kind, amount=amount, transaction_id=f"{number}{kind}"))

    @rule(number=st.integers(1, 6), amount=AMOUNT_TEXTS, promised=st.integers(0, 4), is_close=st.integers(0, 4))
    def deliver_plain(self, number: int, amount: str, promised: int, is_close: int) -> None:
        kind = "close" if is_close == 0 else "add"
        self._deliver(
            entry(stream=PLAIN, kind=kind, amount=amount, entry_count=promised, transaction_id=f"{number}{kind}")
        )

    @precondition(lambda self: self.state is not None)
    @rule(name=st.sampled_from(SEQUENCED), length=st.integers(1, 3))
    def skip_numbers(self, name: str, length: int) -> None:
        stream = self.state.streams.get(name) if self.state else None
        first = (stream.next if stream else 1) or 1
        result = skip(self.state, order_id="ORD-1", stream=name, first=first, last=first + length - 1)
        allowed = stream is None or (
            stream.closed is None and all(one.sequence > first + length - 1 for one in stream.held)
        )
        assert isinstance(result, Skipped) == allowed
        if isinstance(result, Skipped):
            self.skipped[name] |= set(range(first, first + length))
            self.state = result.state
            self._release(result.releases)

    def _deliver(self, one: LedgerEntry) -> None:
        if doc_id(one) in self.statuses:
            return  # its document is there: a duplicate or a conflict, whatever the state
        before = self.state
        verdict = decide_entry(self.state, one, doc_id(one), HELD_MAX)
        if isinstance(verdict, Refuse):
            assert self.state == before
            return
        self.state, self.entries[doc_id(one)] = verdict.state, one
        if isinstance(verdict, Hold):
            self.statuses[doc_id(one)] = "held"
            return
        self.statuses[doc_id(one)], self.positions[doc_id(one)] = "applied", verdict.position
        self._release(verdict.releases)

    def _release(self, releases: Sequence[Release]) -> None:
        assert len(releases) <= HELD_MAX
        for release in releases:
            assert self.statuses[release.id] == "held"
            self.statuses[release.id] = release.status
            assert (release.position is None) == (release.status == "refused")
            if release.position is not None:
                self.positions[release.id] = release.position

    def _applied(self, name: str) -> list[LedgerEntry]:
        ids = [key for key, status in self.statuses.items() if status == "applied" and self.entries[key].stream == name]
        return [self.entries[key] for key in sorted(ids, key=self.positions.__getitem__)]

    @invariant()
    def balances_are_sums(self) -> None:
        sums: dict[str, Decimal] = {}
        for key, status in self.statuses.items():
            one = self.entries[key]
            if status == "applied" and one.amount is not None:
                sums[one.currency] = sums.get(one.currency, Decimal(0)) + Decimal(one.amount)
        found = self.state.balances if self.state else {}
        assert {currency: Decimal(text) for currency, text in found.items()} == sums

    @invariant()
    def positions_have_no_hole_and_no_repeat(self) -> None:
        count = self.state.applied if self.state else 0
        assert sorted(self.positions.values()) == list(range(1, count + 1))

    @invariant()
    def numbers_are_applied_or_skipped_in_order(self) -> None:
        for name in SEQUENCED:
            stream = self.state.streams.get(name) if self.state else None
            numbers = [one.sequence or 0 for one in self._applied(name)]
            assert numbers == sorted(numbers)
            assert sorted({*numbers, *self.skipped[name]}) == list(range(1, (stream.next or 1) if stream else 1))
            assert not set(numbers) & self.skipped[name]

    @invariant()
    def what_is_held_is_what_the_state_says(self) -> None:
        for name in SEQUENCED:
            stream = self.state.streams.get(name) if self.state else None
            waiting = [
                (self.entries[key].sequence, key)
                for key, status in self.statuses.items()
                if status == "held" and self.entries[key].stream == name
            ]
            found = [(one.sequence, one.id) for one in stream.held] if stream else []
            assert found == sorted(waiting)
            assert len(found) <= HELD_MAX
            assert not (stream and stream.closed and found)
            assert not stream or all(number > (stream.next or 0) for number, _ in found)

    @invariant()
    def an_end_is_complete_when_nothing_is_missing(self) -> None:
        for name in (*SEQUENCED, PLAIN):
            stream = self.state.streams.get(name) if self.state else None
            postings = [one for one in self._applied(name) if one.kind != "close"]
            closes = [one for one in self._applied(name) if one.kind == "close"]
            assert (stream.applied if stream else 0) == len(postings)
            assert len(closes) <= 1
            if stream is None or not closes:
                assert stream is None or stream.closed is None
                continue
            expected = len(postings) == closes[0].entry_count if name == PLAIN else not self.skipped[name]
            assert stream.closed == Closed(entry_count=closes[0].entry_count or 0, complete=expected)


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=120, stateful_step_count=40)
