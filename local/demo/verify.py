"""Compares what came out with what the input demands, and says of every difference which rule it breaks.

`EndState` is plain data: what the database and the queues hold at the end. So a test can take a good one, drop, double,
swap or change something, and see it found.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Generic, TypeVar

from local.demo.expect import CopyKey, Ending, Expectation, Item, Park
from local.demo.jsontext import url_text
from local.demo.model import Command, Entry, Ledger, Order, Posting, Stream
from local.demo.readings import Message, Reading, entry_id, fold

Document = Mapping[str, object]
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


def document_id(key: str, *, may_be_event: bool = True) -> str:
    """Make the id of a key's document: itself where that is safe, else encoded (contracts 3)."""
    safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    if key and key[0] in safe and all(character in safe + "._:@+=-" for character in key):
        return key
    return f"~{'c' if may_be_event and key.startswith('[') and _is_event_key(key) else 'x'}~{url_text(key.encode())}"


def _is_event_key(key: str) -> bool:
    try:
        value = json.loads(key)
    except ValueError:
        return False
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None


def _at(document: object, *path: str) -> object:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


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
        choice = self._choose(endings, lambda state: _order_differences(order, state, documents))
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
        choice = self._choose(endings, lambda state: _ledger_differences(ledger, state, documents))
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
        stored = {_at(document, "record", "key"): _at(document, "record", "payloadHash") for document in documents}
        messages = [option for item in items for option in item.options if isinstance(option, Message)]
        known = {(message.key, message.digest) for message in messages}
        for document in documents:
            key = (_at(document, "record", "key"), _at(document, "record", "payloadHash"))
            if key[0] is not None and key not in known:
                self.report(what, owner, f"{document.get('id')!r} comes from no message of the input")
            if key[0] is not None:
                for rule, detail in _record_differences(document, str(key[0]), str(key[1]), None):
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
        amounts = [_decimal(_at(line, "amount")) or Decimal(0) for line in lines] if isinstance(lines, list) else []
        if sum(amounts) != _decimal(document.get("total")):
            self.report("total", order, f"total {document.get('total')!r}, the lines have {sum(amounts)}")
        if order in self.expectation.entries:  # the input adds to the stream on its own
            return
        posted = sum(
            _decimal(entry.get("amount")) or Decimal(0)
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
        for rule, detail in _invariants(documents, state):
            self.report(rule, order, detail)
        self.verdict.applied += sum(entry.get("status") == "applied" for entry in documents)
        self.verdict.held += sum(entry.get("status") == "held" for entry in documents)
        for currency, amount in _balances(documents).items():
            self.verdict.totals[currency] = self.verdict.totals.get(currency, Decimal(0)) + amount
        streams = self.expectation.streams(order, caused)
        stored = _at(state, "streams")
        names = streams.keys() | rows.keys() | (stored.keys() if isinstance(stored, Mapping) else set())
        for name in sorted(str(name) for name in names):
            is_open = name in self.open_ledgers or (name == "order" and order in self.unknown)
            endings = None if is_open else streams.get(name, [Ending(Stream(), frozenset())])
            if endings is None:
                self._loose_stream(order, name, rows[name], caused, is_open)
                continue
            choice = self._choose(endings, partial(_stream_differences, rows[name], _at(state, "streams", name)))
            for rule, detail in choice.differences:
                self.report(rule, order, f"stream {name}: {detail}")
            self.parked += choice.ending.parked
            for rule, detail in self._arrival(order, name, rows[name], caused):
                self.report(rule, order, detail)

    def _arrival(
        self, order: str, name: str, rows: Sequence[Document], caused: Sequence[Sequence[Posting]]
    ) -> Iterator[tuple[str, str]]:
        """Of an unnumbered stream, what one sender sent was applied in the order it was sent in."""
        position = {_at(row, "record", "key"): _integer(row.get("position")) for row in rows}
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
        stored = {_at(row, "record", "key"): str(_at(row, "record", "payloadHash")) for row in rows}
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


def _order_differences(order: str, state: Order, documents: Sequence[Document]) -> Iterator[tuple[str, str]]:
    rest = {str(document.get("id")): document for document in documents}
    if len(rest) != len(documents):
        yield "order", "a document stands twice"
    if state.state:
        document = rest.pop(document_id(order, may_be_event=False), None)
        if document is None:
            yield "lost", "the order is not there"
        else:
            first = len(state.postings) - sum(command.caused for command in state.commands)
            yield from _content_differences(state, document)
            yield from _record_differences(document, state.key, state.digest, state.postings[:first])
        at = len(state.postings) - sum(command.caused for command in state.commands)
        for command in state.commands:
            stored = rest.pop(document_id(command.key), None)
            mine = state.postings[at : at + command.caused]
            at += command.caused
            if stored is None:
                yield "lost", f"the command {command.key!r} left no record"
            else:
                yield from _command_differences(command, stored, mine)
    for name in rest:
        yield "order", f"unexpected document {name!r}"


def _content_differences(state: Order, document: Document) -> Iterator[tuple[str, str]]:
    lines = document.get("lines")
    stored = [
        (
            _at(line, "lineId"),
            _at(line, "sku"),
            _integer(_at(line, "quantity")),
            _decimal(_at(line, "unitPrice")),
            _decimal(_at(line, "amount")),
            _at(line, "entry"),
        )
        for line in (lines if isinstance(lines, list) else [])
    ]
    fulfilment = document.get("fulfilment")
    pairs: list[tuple[str, object, object]] = [
        ("type", document.get("type"), "order"),
        ("customerId", document.get("customerId"), state.customer),
        ("currency", document.get("currency"), state.currency),
        ("state", document.get("state"), state.state),
        (
            "fulfilment",
            None if fulfilment is None else (_at(fulfilment, "status"), _integer(_at(fulfilment, "version"))),
            state.fulfilment,
        ),
        ("lines", stored, [tuple(line) for line in state.lines]),
        ("total", _decimal(document.get("total")), state.total),
        ("sequenced", document.get("sequenced"), state.sequenced),
        ("nextCommand", _integer(document.get("nextCommand")), state.next_command),
        ("nextEntry", _integer(document.get("nextEntry")), len(state.postings) + 1),
    ]
    if not any(command.rejected for command in state.commands):
        pairs.append(("revision", _integer(document.get("revision")), state.revision))
    for name, found, wanted in pairs:
        if found != wanted:
            yield "total" if name == "total" else "order", f"{name}: {_short(found)}, expected {_short(wanted)}"
    if "ttl" in document:
        yield "order", "an order must not expire, but has a ttl"


def _command_differences(
    command: Command, document: Document, postings: Sequence[Posting]
) -> Iterator[tuple[str, str]]:
    for name, found, wanted in (
        ("type", document.get("type"), "command"),
        ("kind", document.get("kind"), command.kind),
        ("operationId", document.get("operationId"), command.operation),
        ("sequence", _integer(document.get("sequence")), command.sequence),
    ):
        if found != wanted:
            yield "command", f"{command.key!r}: {name} {found!r}, expected {wanted!r}"
    outcome, reason = _at(document, "record", "result", "outcome"), _at(document, "record", "result", "reason")
    is_told = reason in command.rejected if command.rejected else reason is None
    if outcome != ("rejected" if command.rejected else "applied") or not is_told:
        yield "command", f"{command.key!r}: {outcome} {reason or ''}, expected {sorted(command.rejected) or 'applied'}"
    yield from _record_differences(document, command.key, command.digest, postings)
    if "ttl" not in document:
        yield "command", f"{command.key!r}: a completed command expires, but has no ttl"


def _record_differences(
    document: Document, key: str, digest: str, postings: Sequence[Posting] | None
) -> Iterator[tuple[str, str]]:
    """Check the protocol's part: the right message, completed, and the proof of what it sent."""
    if _at(document, "record", "key") != key:
        yield "record", f"{document.get('id')!r} has the key {_at(document, 'record', 'key')!r}, expected {key!r}"
    if _at(document, "record", "payloadHash") != digest:
        yield "record", f"{key!r}: payload hash {_at(document, 'record', 'payloadHash')!r}, expected {digest!r}"
    if _at(document, "record", "status") != "completed":
        yield "unfinished", f"{key!r} is {_at(document, 'record', 'status')!r}"
    outbox = _at(document, "record", "outbox")
    if postings is None or (outbox is None and not postings):
        return
    total, sent = _integer(_at(outbox, "total")), _integer(_at(outbox, "sent"))
    if (total, sent) != (len(postings), len(postings)):
        yield "outbox", f"{key!r}: sent {sent} of {total}, expected {len(postings)}"
    proof = _proof(_at(outbox, "proof"))
    if len(proof) != len(postings):
        yield "outbox", f"{key!r}: the proof has {len(proof)} messages, expected {len(postings)}"
        return
    for posting, mark in zip(postings, proof, strict=True):
        marks = {hashlib.sha256(f"{posting.key}\n{one}".encode()).digest()[:8] for one in posting.digests}
        if mark not in marks:
            yield "outbox", f"{key!r}: what it sent as {posting.key!r} has another content"


def _proof(value: object) -> list[bytes]:
    try:
        data = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)) if isinstance(value, str) else b""
    except ValueError:
        return []
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def _ledger_differences(ledger: str, state: Ledger, documents: Sequence[Document]) -> Iterator[tuple[str, str]]:
    rest = {str(document.get("id")): document for document in documents}
    if len(rest) != len(documents):
        yield "ledger", "a document stands twice"
    at = 0
    for batch in state.batches:
        document = rest.pop(document_id(batch.key), None)
        mine = state.postings[at : at + batch.caused]
        at += batch.caused
        if document is None:
            yield "lost", f"the batch {batch.key!r} left no record"
            continue
        for name, found, wanted in (
            ("batchId", document.get("batchId"), batch.batch_id),
            ("batchSequence", _integer(document.get("batchSequence")), batch.sequence),
            ("currency", document.get("currency"), batch.currency),
            ("ttl", "ttl" in document, True),
        ):
            if found != wanted:
                yield "ledger", f"{batch.key!r}: {name} {found!r}, expected {wanted!r}"
        yield from _record_differences(document, batch.key, batch.digest, mine)
    order = rest.pop("~state", None)
    if state.batches and order is None:
        yield "ledger", f"{ledger!r} has no `~state`"
    elif order is not None:
        found_next, unfinished = _integer(order.get("nextBatch")), order.get("unfinished")
        if found_next != state.next_batch:
            yield "ledger", f"nextBatch {found_next}, expected {state.next_batch}"
        if unfinished is not None:
            yield "unfinished", f"the ledger names {unfinished!r} as unfinished"
    for name in rest:
        yield "unfinished" if name.startswith("~outbox.") else "ledger", f"unexpected document {name!r}"


def _stream_differences(rows: Sequence[Document], stored: object, end: Stream) -> Iterator[tuple[str, str]]:
    by_key: dict[object, list[Document]] = defaultdict(list)
    for row in rows:
        by_key[_at(row, "record", "key")].append(row)
    for entry in end.entries:
        found = by_key.pop(entry.posting.key, [])
        if not found:
            yield "lost", f"the entry {entry.posting.key!r} is not there"
        elif len(found) > 1:
            yield "double", f"the entry {entry.posting.key!r} stands {len(found)} times"
        else:
            yield from _entry_differences(entry, found[0])
    for key, extra in by_key.items():
        yield "double", f"unexpected entry {key!r} ({len(extra)} times)"
    if not end.entries:
        return
    closed = _at(stored, "closed")
    held = _at(stored, "held")
    for name, was, wanted in (
        ("sequenced", _at(stored, "sequenced"), end.sequenced),
        ("next", _integer(_at(stored, "next")), end.next if end.sequenced else None),
        ("applied", _integer(_at(stored, "applied")), end.applied),
        (
            "closed",
            None if closed is None else (_integer(_at(closed, "entryCount")), _at(closed, "complete")),
            end.closed,
        ),
        (
            "held",
            sorted(_integer(_at(one, "sequence")) or 0 for one in held) if isinstance(held, list) else [],
            sorted(end.held()),
        ),
    ):
        if was != wanted:
            yield "state", f"{name} {_short(was)}, expected {_short(wanted)}"


def _entry_differences(entry: Entry, row: Document) -> Iterator[tuple[str, str]]:
    posting = entry.posting
    own = entry_id(posting.order, posting.stream, posting.transaction)
    if row.get("id") not in (document_id(posting.key), document_id(own)):
        yield "entry", f"{posting.key!r} has the id {row.get('id')!r}"
    for name, found, wanted in (
        ("orderId", row.get("orderId"), posting.order),
        ("transactionId", row.get("transactionId"), posting.transaction),
        ("sequence", _integer(row.get("sequence")), posting.sequence),
        ("kind", row.get("kind"), posting.kind),
        ("amount", _decimal(row.get("amount")), posting.amount),
        ("currency", row.get("currency"), posting.currency),
        ("refersTo", row.get("refersTo"), posting.refers_to),
        ("entryCount", _integer(row.get("entryCount")), posting.entry_count),
        ("status", row.get("status"), entry.status),
    ):
        if found != wanted:
            rule = "amount" if name == "amount" else "entry"
            yield rule, f"{posting.key!r}: {name} {_short(found)}, expected {_short(wanted)}"
    if _at(row, "record", "payloadHash") not in posting.digests:
        yield "entry", f"{posting.key!r}: its payload hash is that of another content"
    if posting.source is not None:
        source = tuple(_at(row, "record", "source", name) for name in ("consumer", "key"))
        if source != posting.source[:2] and posting.stream == "order":
            yield "entry", f"{posting.key!r}: caused by {source!r}, expected {posting.source[:2]!r}"
    if "ttl" in row:
        yield "entry", f"{posting.key!r}: an entry must not expire, but has a ttl"


def _invariants(documents: Sequence[Document], state: Document) -> Iterator[tuple[str, str]]:
    """Contracts 7: balances are sums, positions run from 1 without hole or repeat, streams keep their order."""
    rows = [document for document in documents if document.get("type") == "ledgerEntry"]
    applied = [row for row in rows if row.get("status") == "applied"]
    places = sorted(_integer(row.get("position")) or 0 for row in applied)
    if places != list(range(1, len(applied) + 1)):
        yield "position", f"positions {_short(places)}, expected 1 to {len(applied)}"
    for row in rows:
        if row.get("status") != "applied" and row.get("position") is not None:
            yield "position", f"{row.get('id')!r} is {row.get('status')} and has a position"
    if applied and _integer(state.get("applied")) != len(applied):
        yield "state", f"applied {state.get('applied')!r}, expected {len(applied)}"
    stored = state.get("balances")
    balances = {name: _decimal(value) for name, value in stored.items()} if isinstance(stored, Mapping) else {}
    sums = _balances(documents)
    for currency in balances.keys() | sums.keys():
        if (balances.get(currency, Decimal(0))) != sums.get(currency, Decimal(0)):
            yield "balance", f"{currency} {balances.get(currency)}, the entries sum up to {sums.get(currency)}"
    streams: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for row in applied:
        sequence = _integer(row.get("sequence"))
        if sequence is not None:
            streams[row.get("stream")].append((_integer(row.get("position")) or 0, sequence))
    for name, found in streams.items():
        numbers = [sequence for _, sequence in sorted(found)]
        if numbers != list(range(1, len(numbers) + 1)):
            yield "order", f"stream {name}: applied in the order {_short(numbers)}"


def _balances(documents: Iterable[Document]) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for document in documents:
        amount = _decimal(document.get("amount"))
        if document.get("type") == "ledgerEntry" and document.get("status") == "applied" and amount is not None:
            currency = str(document.get("currency"))
            sums[currency] = sums.get(currency, Decimal(0)) + amount
    return sums


def _short(value: object) -> str:
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
