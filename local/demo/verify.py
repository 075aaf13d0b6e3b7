"""Compares what came out with what the input demands, and says of every difference which rule it breaks.

`EndState` is plain data: what the database and the queues hold at the end. So a test can take a good one, drop, double,
swap or change something, and see it found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Generic, TypeVar

from local.demo.differences import (
    Document,
    balances,
    decimal_of,
    integer_of,
    invariants,
    ledger_differences,
    member,
    order_differences,
    record_differences,
    stream_differences,
)
from local.demo.expect import CopyKey, Ending, Expectation, Item, Park
from local.demo.model import Ledger, Order, Posting, Stream
from local.demo.readings import Message, Reading, fold

S = TypeVar("S")

MOST_VIOLATIONS = 1000


@dataclass(frozen=True, slots=True)
class Copy:
    """A message in the quarantine, or in a queue's own dead-letter queue."""

    copy_id: str
    role: str
    session: str
    message_id: str | None
    body: str  # its SHA-256
    reason: str


@dataclass(slots=True)
class EndState:
    """Everything that is left when the queues are quiet."""

    orders: list[dict[str, object]] = field(default_factory=list)
    ledgers: list[dict[str, object]] = field(default_factory=list)
    entries: list[dict[str, object]] = field(default_factory=list)
    quarantine: list[Copy] = field(default_factory=list)
    dead_letters: list[Copy] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)  # messages still in a queue, by role


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that the outcome breaks; `order_id` is the order, on `ledger` the ledger."""

    rule: str
    order_id: str | None
    detail: str


@dataclass(slots=True)
class Verdict:
    """What was found."""

    violations: list[Violation] = field(default_factory=list)
    orders_checked: int = 0
    applied: int = 0
    held: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)
    dead_lettered: int = 0
    alternatives: int = 0  # orders, ledgers and streams with more than one allowed end
    unpredicted: int = 0  # those with too many to try: checked by the invariants only
    totals: dict[str, Decimal] = field(default_factory=dict)  # balances by currency

    @property
    def is_proven(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.violations


def verify(expectation: Expectation, end: EndState) -> Verdict:
    """Check the end state against the expectation and against the invariants of contracts 7."""
    return _Check(expectation, end).run()


class _Copies:
    """The parked copies, each once, sorted by what they are copies of."""

    def __init__(self, expectation: Expectation, copies: Iterable[Copy]) -> None:
        self.found: dict[CopyKey, Counter[str]] = defaultdict(Counter)
        for copy in {copy.copy_id: copy for copy in copies}.values():
            exact = CopyKey(copy.role, fold(copy.session), copy.message_id, copy.body)
            choices = (exact, exact._replace(message_id=None))
            key = next((one for one in choices if one in expectation.copies), exact._replace(body=None))
            self.found[key][copy.reason] += 1

    def differences(self, parked: Iterable[Park]) -> Iterator[tuple[CopyKey, str]]:
        """Compare with what should be parked, key by key."""
        wanted: dict[CopyKey, list[Park]] = defaultdict(list)
        for park in parked:
            wanted[park.key].append(park)
        for key, parks in wanted.items():
            yield from ((key, detail) for detail in _compare(self.found.get(key, Counter()), parks))


def _compare(found: Counter[str], parks: Sequence[Park]) -> Iterator[str]:
    allowed = frozenset[str]().union(*(park.reasons for park in parks))
    for reason in found.keys() - allowed:
        yield f"parked as {reason}, expected {' or '.join(sorted(allowed))}"
    least = sum(park.certain for park in parks)
    most = None if any(park.is_caused for park in parks) else len(parks)
    if found.total() < least:
        yield f"{found.total()} parked copies, at least {least} expected ({' or '.join(sorted(allowed))})"
    elif most is not None and found.total() > most:
        yield f"{found.total()} parked copies, at most {most} expected ({' or '.join(sorted(allowed))})"
    for reason in allowed:
        certain = sum(park.certain and park.reasons == {reason} for park in parks)
        if found[reason] < certain <= found.total():
            yield f"{found[reason]} parked as {reason}, at least {certain} expected"


@dataclass(slots=True)
class _Choice(Generic[S]):
    """The allowed end that fits best, and what doesn't fit even so."""

    ending: Ending[S]
    differences: list[tuple[str, str]]


class _Check:
    def __init__(self, expectation: Expectation, end: EndState) -> None:
        self.expectation, self.end = expectation, end
        self.copies = _Copies(expectation, [*end.quarantine, *self._left_to_broker()])
        self.verdict = Verdict()
        self.parked: list[Park] = list(expectation.parked)
        self.loose_copies: set[CopyKey] = set()
        self.unknown: set[str] = set()  # orders whose own postings could not be predicted
        self.open_ledgers: set[str] = set()  # the same of ledgers, as streams
        self.orders = self._by_owner(end.orders, "orderId")
        self.ledgers = self._by_owner(end.ledgers, "ledgerId")
        self.entries = self._by_owner(end.entries, "orderId")

    def run(self) -> Verdict:
        """Check everything."""
        self._refusals()
        caused: dict[str, list[Sequence[Posting]]] = defaultdict(list)
        for order in self.expectation.orders.keys() | self.orders.keys():
            chosen = self._order(order)
            if chosen is None:
                self.unknown.add(order)
            elif chosen.postings:
                caused[order].append(chosen.postings)
        for ledger in self.expectation.ledgers.keys() | self.ledgers.keys():
            chosen_ledger = self._ledger(ledger)
            if chosen_ledger is None:
                self.open_ledgers.add(f"ledger.{ledger}")
                continue
            by_order: dict[str, list[Posting]] = defaultdict(list)
            for posting in chosen_ledger.postings:
                by_order[posting.order].append(posting)
            for order, postings in by_order.items():
                caused[order].append(postings)
        for order in caused.keys() | self.expectation.entries.keys() | self.entries.keys():
            self._entries(order, caused.get(order, []))
        self._parked()
        self._queues()
        self.verdict.orders_checked = len(
            self.expectation.orders.keys() | self.orders.keys() | self.entries.keys() | caused.keys()
        )
        return self.verdict

    def report(self, rule: str, owner: str | None, detail: str) -> None:
        """Note a violation; beyond a thousand more of them say nothing."""
        if len(self.verdict.violations) < MOST_VIOLATIONS:
            self.verdict.violations.append(Violation(rule, owner, detail))

    # What the broker took

    def _refusals(self) -> None:
        for number in self.expectation.wrongly_refused:
            self.report("refused", None, f"line {number}: the broker refused a message within its limits")
        for number in self.expectation.wrongly_accepted:
            self.report("refused", None, f"line {number}: the broker took a message beyond its limits")

    def _queues(self) -> None:
        for role, count in self.end.waiting.items():
            if count:
                self.report("left-over", None, f"{count} messages still wait in {role}")

    def _left_to_broker(self) -> Iterator[Copy]:
        """A bad message near the broker's limit may have no room for a copy and stay with the broker."""
        for copy in self.end.dead_letters:
            keys = [
                key
                for key in self.expectation.large
                if key[:3] == (copy.role, fold(copy.session), copy.message_id) and key.body == copy.body
            ]
            reasons = [park.reasons for park in self._every_park() if park.key in keys]
            if reasons:
                yield Copy(copy.copy_id, copy.role, copy.session, copy.message_id, copy.body, min(reasons[0]))

    def _every_park(self) -> Iterator[Park]:
        """Everything that any allowed end parks, but for entries."""
        yield from self.expectation.parked
        for endings in (*self.expectation.orders.values(), *self.expectation.ledgers.values()):
            for ending in endings or ():
                yield from ending.parked

    def _parked(self) -> None:
        for key, detail in self.copies.differences(self.parked):
            self.report("quarantine", None, f"{key.role} {key.message_id!r} of session {key.session!r}: {detail}")
        wanted = {park.key for park in self.parked} | self.loose_copies
        for key, reasons in self.copies.found.items():
            self.verdict.quarantined = dict(Counter(self.verdict.quarantined) + reasons)
            if key not in wanted and not self._is_of_open_stream(key):
                what = f"{key.role} {key.message_id!r} of session {key.session!r}"
                self.report("quarantine", None, f"{what}: parked as {', '.join(sorted(reasons))}, expected not to be")
        allowed = {copy.copy_id for copy in self._left_to_broker()}
        self.verdict.dead_lettered = len(self.end.dead_letters)
        for copy in self.end.dead_letters:
            if copy.copy_id not in allowed:
                self.report("dead-letter", copy.session, f"{copy.role} {copy.message_id!r}: {copy.reason}")

    def _is_of_open_stream(self, key: CopyKey) -> bool:
        """Whether a parked entry may come from an order or a ledger whose postings could not be predicted."""
        entry = key.message_id or ""
        if key.role != "ledger-entries":
            return False
        return any(entry.startswith(f"{order}:order:") for order in self.unknown) or any(
            f":{stream}:" in entry or ":~" in entry for stream in self.open_ledgers
        )

    # Orders and ledgers

    def _by_owner(self, documents: Iterable[dict[str, object]], name: str) -> dict[str, list[Document]]:
        found: dict[str, list[Document]] = defaultdict(list)
        for document in documents:
            owner = document.get(name)
            if isinstance(owner, str):
                found[owner].append(document)
            else:
                self.report("document", None, f"{document.get('id')!r} has no {name}")
        return found

    def _order(self, order: str) -> Order | None:
        documents = self.orders.get(order, [])
        endings = self.expectation.orders.get(order, [Ending(Order(), frozenset())])
        if endings is None:
            self._loose(order, documents, self.expectation.order_items[order], "order")
            for document in documents:
                if document.get("type") == "order":
                    self._sums(order, document)
            return None
        choice = self._choose(endings, lambda state: order_differences(order, state, documents))
        for rule, detail in choice.differences:
            self.report(rule, order, detail)
        self.parked += choice.ending.parked
        return choice.ending.state

    def _ledger(self, ledger: str) -> Ledger | None:
        documents = self.ledgers.get(ledger, [])
        endings = self.expectation.ledgers.get(ledger, [Ending(Ledger(), frozenset())])
        if endings is None:
            self._loose(ledger, documents, self.expectation.ledger_items[ledger], "ledger")
            return None
        choice = self._choose(endings, lambda state: ledger_differences(ledger, state, documents))
        for rule, detail in choice.differences:
            self.report(rule, ledger, detail)
        self.parked += choice.ending.parked
        return choice.ending.state

    def _choose(
        self, endings: Sequence[Ending[S]], differences: Callable[[S], Iterable[tuple[str, str]]]
    ) -> _Choice[S]:
        """Find the allowed end that fits; of several that don't, the one with the fewest differences."""
        self.verdict.alternatives += len(endings) > 1
        best: _Choice[S] | None = None
        least = 0
        seen = {park.key for ending in endings for park in ending.parked if park.key in self.copies.found}
        for ending in endings:
            found = list(differences(ending.state))
            unfit = len(found) + sum(1 for _ in self.copies.differences(ending.parked))
            unfit += len(seen - {park.key for park in ending.parked})  # parked in fact, but not by this end
            if best is None or unfit < least:
                best, least = _Choice(ending, found), unfit
            if unfit == 0:
                break
        if best is None:
            raise AssertionError("an empty set of ends")
        return best

    def _loose(self, owner: str, documents: Sequence[Document], items: Sequence[Item[Reading]], what: str) -> None:
        """Too many orders of delivery: each message that surely came is accounted for, and nothing else is there."""
        self.verdict.unpredicted += 1
        stored = {member(each, "record", "key"): member(each, "record", "payloadHash") for each in documents}
        messages = [option for item in items for option in item.options if isinstance(option, Message)]
        known = {(message.key, message.digest) for message in messages}
        for document in documents:
            key = (member(document, "record", "key"), member(document, "record", "payloadHash"))
            if key[0] is not None and key not in known:
                self.report(what, owner, f"{document.get('id')!r} comes from no message of the input")
            if key[0] is not None:
                for rule, detail in record_differences(document, str(key[0]), str(key[1]), None):
                    self.report(rule, owner, detail)
        for item in items:
            self.loose_copies.add(item.key)
            is_status = any(isinstance(one, Message) and one.kind == "order.status" for one in item.options)
            is_there = any(isinstance(one, Message) and one.key in stored for one in item.options)
            if item.certain and not is_status and not is_there and item.key not in self.copies.found:
                self.report("lost", owner, f"{item.key.message_id!r} left no record and no parked copy")

    def _sums(self, order: str, document: Document) -> None:
        """An order's total is the sum of its lines, and of the postings it caused."""
        lines = document.get("lines")
        lines = lines if isinstance(lines, list) else []
        amounts = [decimal_of(member(line, "amount")) or Decimal(0) for line in lines]
        if sum(amounts) != decimal_of(document.get("total")):
            self.report("total", order, f"total {document.get('total')!r}, the lines have {sum(amounts)}")
        if order in self.expectation.entries:  # the input adds to the stream on its own
            return
        posted = sum(
            decimal_of(entry.get("amount")) or Decimal(0)
            for entry in self.entries.get(order, [])
            if entry.get("stream") == "order" and entry.get("status") == "applied"
        )
        wanted = Decimal(0) if document.get("state") == "cancelled" else sum(amounts)
        if posted != wanted:
            self.report("total", order, f"the stream `order` sums up to {posted}, the order to {wanted}")

    # Entries

    def _entries(self, order: str, caused: Sequence[Sequence[Posting]]) -> None:
        documents = self.entries.get(order, [])
        states = [document for document in documents if document.get("type") == "ledgerState"]
        rows: dict[object, list[Document]] = defaultdict(list)
        for document in documents:
            if document.get("type") == "ledgerEntry":
                rows[document.get("stream")].append(document)
            elif document.get("type") != "ledgerState":
                self.report("entry", order, f"unexpected document {document.get('id')!r}")
        if len(states) > 1:
            self.report("state", order, f"{len(states)} documents `~state`")
        state: Document = states[0] if states else {}
        for rule, detail in invariants(documents, state):
            self.report(rule, order, detail)
        self.verdict.applied += sum(entry.get("status") == "applied" for entry in documents)
        self.verdict.held += sum(entry.get("status") == "held" for entry in documents)
        for currency, amount in balances(documents).items():
            self.verdict.totals[currency] = self.verdict.totals.get(currency, Decimal(0)) + amount
        streams = self.expectation.streams(order, caused)
        stored = member(state, "streams")
        names = streams.keys() | rows.keys() | (stored.keys() if isinstance(stored, Mapping) else set())
        for name in sorted(str(name) for name in names):
            is_open = name in self.open_ledgers or (name == "order" and order in self.unknown)
            endings = None if is_open else streams.get(name, [Ending(Stream(), frozenset())])
            if endings is None:
                self._loose_stream(order, name, rows[name], caused, is_open)
                continue
            choice = self._choose(endings, partial(stream_differences, rows[name], member(state, "streams", name)))
            for rule, detail in choice.differences:
                self.report(rule, order, f"stream {name}: {detail}")
            self.parked += choice.ending.parked
            for rule, detail in self._arrival(order, name, rows[name], caused):
                self.report(rule, order, detail)

    def _arrival(
        self, order: str, name: str, rows: Sequence[Document], caused: Sequence[Sequence[Posting]]
    ) -> Iterator[tuple[str, str]]:
        """Of an unnumbered stream, what one sender sent was applied in the order it was sent in."""
        position = {member(row, "record", "key"): integer_of(row.get("position")) for row in rows}
        senders = [[posting.key for posting in postings if posting.stream == name] for postings in caused]
        for items in self.expectation.entries.get(order, {}).get(name, []):
            senders.append([option.key for item in items for option in item.options if isinstance(option, Posting)])
        if any(row.get("sequence") is not None for row in rows):
            return
        seen = Counter(key for keys in senders for key in keys)  # of an id sent twice either may be the one applied
        for keys in senders:
            mine = [position[key] for key in keys if seen[key] == 1 and position.get(key) is not None]
            if mine != sorted(mine, key=lambda place: place or 0):
                yield "order", f"stream {name}: applied at {mine[:20]}, sent in another order"

    def _loose_stream(
        self, order: str, name: str, rows: Sequence[Document], caused: Sequence[Sequence[Posting]], is_open: bool
    ) -> None:
        self.verdict.unpredicted += 1
        stored = {member(row, "record", "key"): str(member(row, "record", "payloadHash")) for row in rows}
        sent: dict[str, set[str]] = defaultdict(set)
        for posting in (posting for postings in caused for posting in postings if posting.stream == name):
            sent[posting.key] |= posting.digests
            self.loose_copies.add(CopyKey("ledger-entries", fold(order), posting.key, None))
        for item in (i for items in self.expectation.entries.get(order, {}).get(name, []) for i in items):
            self.loose_copies.add(item.key)
            for option in item.options:
                if isinstance(option, Posting):
                    sent[option.key] |= option.digests
        for key, digest in stored.items():
            if not is_open and digest not in sent.get(str(key), set()):
                self.report("entry", order, f"stream {name}: {key!r} comes from no message of the input")
        for key in sent:
            copies = CopyKey("ledger-entries", fold(order), key, None)
            if key not in stored and copies not in self.copies.found and key not in self.expectation.entry_places:
                self.report("lost", order, f"stream {name}: {key!r} is neither stored nor parked")
