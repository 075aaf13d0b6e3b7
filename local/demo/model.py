"""What orders, ledgers and streams become, message by message: contracts 5 and 6 as three small state machines.

Each step takes a state and a message and returns every state that the rules allow next, with the reasons for which the
message may be parked. States are plain values, so that orders of delivery that lead to the same end meet again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple, cast

from local.demo.jsontext import Json, payload_hash
from local.demo.readings import Fault, Message, Reading, entry_id, line_amount, may_be_too_large

MOST_HELD = 95
MOST_LINES = 2000
SHIPPED = ("shipped", "delivered", "returned")

Reasons = frozenset[str]
NOTHING: Reasons = frozenset()
MISMATCH: Reasons = frozenset({"PayloadMismatch"})


def because(*reasons: str) -> Reasons:
    """Name the reasons for which a message may be parked."""
    return frozenset(reasons)


# A posting, on its way to a stream


@dataclass(frozen=True)
class Posting:
    """An entry of a stream: one that an order or a ledger causes, or one that the input holds itself (`digest`)."""

    order: str
    stream: str
    transaction: str
    sequence: int | None
    kind: str
    amount: Decimal | None
    currency: str
    refers_to: str | None = None
    entry_count: int | None = None
    key: str = ""
    digest: str | None = None
    source: tuple[str, str, int] | None = None  # consumer, dedup key, place

    @cached_property
    def digests(self) -> frozenset[str]:
        """The payload hashes that its message may have: members may be spelt out or left out."""
        return frozenset({self.digest}) if self.digest is not None else frozenset(self._spellings())

    def is_same(self, other: Posting) -> tuple[bool, ...]:
        """Tell whether two messages of one id have equal content; both answers where it depends on the spelling."""
        if (self.digest is None) == (other.digest is None):
            return (bool(self.digests & other.digests),)
        return (True, False) if self.digests & other.digests else (False,)

    def _spellings(self) -> Iterator[str]:
        body: dict[str, Json] = {
            "orderId": self.order,
            "stream": self.stream,
            "transactionId": self.transaction,
            "kind": self.kind,
            "currency": self.currency,
        }
        optional: dict[str, Json] = {
            "refersTo": self.refers_to,
            "sequence": None if self.sequence is None else Decimal(self.sequence),
            "entryCount": None if self.entry_count is None else Decimal(self.entry_count),
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        for amount in _amount_texts(self.amount, exact=self.stream != "order"):
            for extra in ({"type": "ledger.entry"}, {}, {"type": "ledger.entry", "schemaVersion": Decimal(1)}):
                yield payload_hash({**body, **amount, **cast("dict[str, Json]", extra)})


def _amount_texts(amount: Decimal | None, *, exact: bool) -> list[dict[str, Json]]:
    if amount is None:
        return [{}]
    texts = {f"{amount:f}"}
    if not exact:  # a computed amount may be written with or without the zeros at its end
        short = f"{amount:f}".rstrip("0").rstrip(".") if "." in f"{amount:f}" else f"{amount:f}"
        texts.add(short)
        texts |= {text.removeprefix("-") for text in texts} if amount == 0 else set()
    return [{"amount": text} for text in sorted(texts)]


def posting_of(message: Message) -> Posting:
    """Read an entry that the input sends straight to its queue."""
    body = message.body
    amount, refers = body.get("amount"), body.get("refersTo")
    return Posting(
        order=message.owner,
        stream=message.text("stream"),
        transaction=message.text("transactionId"),
        sequence=message.number("sequence"),
        kind=message.text("kind"),
        amount=Decimal(amount) if isinstance(amount, str) else None,
        currency=message.text("currency"),
        refers_to=refers if isinstance(refers, str) else None,
        entry_count=message.number("entryCount"),
        key=message.key,
        digest=message.digest,
    )


# Orders


class OrderLine(NamedTuple):
    """A line of an order; `entry` is the transaction that added it."""

    line_id: str
    sku: str
    quantity: int
    unit_price: Decimal
    amount: Decimal
    entry: str


class Command(NamedTuple):
    """A recorded amendment or cancellation."""

    key: str
    digest: str
    kind: str
    operation: str
    sequence: int | None
    rejected: Reasons  # the reasons that its rejection may give; none: applied
    caused: int  # how many postings its outbox has


@dataclass(frozen=True, slots=True)
class Order:
    """An order and everything that its messages left behind."""

    owner: str = ""
    key: str = ""
    digest: str = ""
    currency: str = ""
    customer: str | None = None
    sequenced: bool = False
    state: str = ""  # empty: no such order
    fulfilment: tuple[str, int] | None = None
    lines: tuple[OrderLine, ...] = ()
    next_command: int | None = None
    revision: int = 0
    commands: tuple[Command, ...] = ()
    postings: tuple[Posting, ...] = ()

    @property
    def total(self) -> Decimal:
        """Sum the lines."""
        return sum((line.amount for line in self.lines), Decimal(0))


def order_step(order: Order, reading: Reading) -> Iterator[tuple[Order, Reasons]]:
    """Take one message of the queue `orders`."""
    if isinstance(reading, Fault):
        yield order, reading.reasons
        return
    yield _order_decided(order, reading)
    if may_be_too_large(reading):
        yield order, because("ItemTooLarge")


def _order_decided(order: Order, message: Message) -> tuple[Order, Reasons]:
    if message.kind == "order.placed":
        return _placed(order, message)
    if not order.state:
        return order, because("OrderUnknown")
    if message.kind == "order.status":
        return _status(order, message)
    known = next((command for command in order.commands if command.key == message.key), None)
    if known is not None:
        return order, NOTHING if known.digest == message.digest else MISMATCH
    return _command(order, message)


def _placed(order: Order, message: Message) -> tuple[Order, Reasons]:
    if order.state:
        if order.key != message.key:
            return order, because("OrderExists")
        return order, NOTHING if order.digest == message.digest else MISMATCH
    customer = message.body.get("customerId")
    placed = Order(
        owner=message.owner,
        key=message.key,
        digest=message.digest,
        currency=message.text("currency"),
        customer=customer if isinstance(customer, str) else None,
        sequenced="sequence" in message.body,
        state="open",
        next_command=2 if "sequence" in message.body else None,
        revision=1,
    )
    books = _Books(placed, "process_order", message.key)
    lines = tuple(books.added(row) for row in message.rows("lines"))
    return replace(placed, lines=lines, postings=tuple(books.postings)), NOTHING


def _status(order: Order, message: Message) -> tuple[Order, Reasons]:
    status, version = message.text("status"), message.number("version") or 0
    stored = order.fulfilment
    if stored is None or stored[1] < version:
        return replace(order, fulfilment=(status, version)), NOTHING
    if stored[1] == version and stored[0] != status:
        return order, MISMATCH
    return order, NOTHING


def _command(order: Order, message: Message) -> tuple[Order, Reasons]:
    sequence = message.number("sequence")
    if (sequence is not None) != order.sequenced:
        return order, because("InvalidMessage")
    if sequence is not None and order.next_command is not None and sequence != order.next_command:
        return order, because("SequenceGap" if sequence > order.next_command else "SequenceConflict")
    books = _Books(order, "process_order", message.key)
    rejected, lines, state = _answered(order, message, books)
    if rejected:
        books.postings.clear()
    changed = order if rejected else replace(order, lines=lines, state=state, revision=order.revision + 1)
    command = Command(
        key=message.key,
        digest=message.digest,
        kind=message.kind,
        operation=message.text("operationId"),
        sequence=sequence,
        rejected=rejected,
        caused=len(books.postings),
    )
    return (
        replace(
            changed,
            next_command=None if sequence is None else sequence + 1,
            commands=(*order.commands, command),
            postings=(*order.postings, *books.postings),
        ),
        NOTHING,
    )


def _answered(order: Order, message: Message, books: _Books) -> tuple[Reasons, tuple[OrderLine, ...], str]:
    if order.state == "cancelled":
        return because("OrderCancelled"), (), ""
    if order.fulfilment is not None and order.fulfilment[0] in SHIPPED:
        return because("OrderShipped"), (), ""
    if message.kind == "order.cancelled":
        for line in order.lines:
            books.post("void", -line.amount, refers_to=line.entry)
        books.post("close", None, entry_count=books.next - 1)
        return NOTHING, order.lines, "cancelled"
    lines = {line.line_id: line for line in order.lines}
    unknown = [row for row in message.rows("lines") if row["quantity"] == 0 and row["lineId"] not in lines]
    for row in message.rows("lines"):
        line_id = cast("str", row["lineId"])
        old = lines.get(line_id)
        if row["quantity"] == 0:
            if old is not None:
                books.post("void", -old.amount, refers_to=old.entry)
                del lines[line_id]
        elif old is None:
            lines[line_id] = books.added(row)
        else:
            lines[line_id] = books.amended(old, row)
    rejected = (because("LineUnknown") if unknown else NOTHING) | (
        because("TooManyLines") if len(lines) > MOST_LINES else NOTHING
    )
    return rejected, tuple(lines.values()), "open"


class _Books:
    """Writes the postings that one message causes."""

    def __init__(self, order: Order, consumer: str, key: str) -> None:
        self._order, self._consumer, self._key = order, consumer, key
        self.next = len(order.postings) + 1
        self.postings: list[Posting] = []

    def post(
        self, kind: str, amount: Decimal | None, *, refers_to: str | None = None, entry_count: int | None = None
    ) -> str:
        transaction = str(self.next)
        self.postings.append(
            Posting(
                order=self._order.owner,
                stream="order",
                transaction=transaction,
                sequence=self.next,
                kind=kind,
                amount=amount,
                currency=self._order.currency,
                refers_to=refers_to,
                entry_count=entry_count,
                key=entry_id(self._order.owner, "order", transaction),
                source=(self._consumer, self._key, len(self.postings)),
            )
        )
        self.next += 1
        return transaction

    def added(self, row: object) -> OrderLine:
        line = cast("dict[str, Json]", row)
        return _order_line(line, self.post("add", line_amount(line)))

    def amended(self, old: OrderLine, row: object) -> OrderLine:
        line = _order_line(cast("dict[str, Json]", row), old.entry)
        if line.amount != old.amount:
            self.post("amend", line.amount - old.amount, refers_to=old.entry)
        return line


def _order_line(row: dict[str, Json], entry: str) -> OrderLine:
    return OrderLine(
        line_id=cast("str", row["lineId"]),
        sku=cast("str", row["sku"]),
        quantity=int(cast("Decimal", row["quantity"])),
        unit_price=Decimal(cast("str", row["unitPrice"])),
        amount=line_amount(row),
        entry=entry,
    )


# Ledgers


class Batch(NamedTuple):
    """An accepted ledger batch."""

    key: str
    digest: str
    batch_id: str
    sequence: int | None
    currency: str
    caused: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger: its accepted batches, and the postings that they send, in order."""

    next_batch: int | None = None
    batches: tuple[Batch, ...] = ()
    postings: tuple[Posting, ...] = ()


def ledger_step(ledger: Ledger, reading: Reading) -> Iterator[tuple[Ledger, Reasons]]:
    """Take one message of the queue `ledger`."""
    if isinstance(reading, Fault):
        yield ledger, reading.reasons
        return
    yield _ledger_decided(ledger, reading)
    if may_be_too_large(reading):
        yield ledger, because("ItemTooLarge")


def _ledger_decided(ledger: Ledger, message: Message) -> tuple[Ledger, Reasons]:
    sequence = message.number("batchSequence")
    is_mixed = bool(ledger.batches) and (sequence is None) != (ledger.next_batch is None)
    expected = ledger.next_batch or 1
    known = next((batch for batch in ledger.batches if batch.key == message.key), None)
    if known is not None:
        if known.digest == message.digest:
            return ledger, NOTHING
        reasons = MISMATCH | (because("SequenceConflict") if is_mixed else NOTHING)
        return ledger, reasons | (because("SequenceGap") if sequence is not None and sequence > expected else NOTHING)
    if is_mixed or (sequence is not None and sequence < expected):
        return ledger, because("SequenceConflict")
    if sequence is not None and sequence > expected:
        return ledger, because("SequenceGap")
    rows = message.rows("transactions")
    postings = [_transaction(message, place, cast("dict[str, Json]", row)) for place, row in enumerate(rows)]
    batch = Batch(
        message.key, message.digest, message.text("batchId"), sequence, message.text("currency"), len(postings)
    )
    return (
        Ledger(
            next_batch=None if sequence is None else sequence + 1,
            batches=(*ledger.batches, batch),
            postings=(*ledger.postings, *postings),
        ),
        NOTHING,
    )


def _transaction(message: Message, place: int, row: dict[str, Json]) -> Posting:
    order, transaction = cast("str", row["orderId"]), cast("str", row["transactionId"])
    stream = f"ledger.{message.owner}"
    amount, refers = row.get("amount"), row.get("refersTo")
    sequence, count = row.get("sequence"), row.get("entryCount")
    return Posting(
        order=order,
        stream=stream,
        transaction=transaction,
        sequence=int(sequence) if isinstance(sequence, Decimal) else None,
        kind=cast("str", row["kind"]),
        amount=Decimal(amount) if isinstance(amount, str) else None,
        currency=message.text("currency"),
        refers_to=refers if isinstance(refers, str) else None,
        entry_count=int(count) if isinstance(count, Decimal) else None,
        key=entry_id(order, stream, transaction),
        source=("fan_out_ledger", message.key, place),
    )


# Streams


class Entry(NamedTuple):
    """An entry that is stored: `applied`, `held` or `refused`."""

    posting: Posting
    status: str


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of an order's entries."""

    sequenced: bool | None = None  # None: no entry yet
    next: int = 1
    applied: int = 0  # without the close
    closed: tuple[int, bool] | None = None  # entry count, complete
    entries: tuple[Entry, ...] = ()

    def known(self, key: str) -> Posting | None:
        """Return the stored entry of this id."""
        return next((entry.posting for entry in self.entries if entry.posting.key == key), None)

    def held(self) -> dict[int, Posting]:
        """Return what waits for its predecessor, by number."""
        return {
            entry.posting.sequence: entry.posting
            for entry in self.entries
            if entry.status == "held" and entry.posting.sequence is not None
        }


def stream_step(stream: Stream, posting: Posting) -> Iterator[tuple[Stream, Reasons]]:
    """Take one entry; the table of contracts 6, row by row."""
    known = stream.known(posting.key)
    if known is not None:
        for is_same in posting.is_same(known):
            yield stream, NOTHING if is_same else MISMATCH
    elif stream.sequenced is not None and stream.sequenced != (posting.sequence is not None):
        yield stream, because("SequenceConflict")
    elif posting.sequence is None:
        if stream.closed is not None and (stream.closed[1] or posting.kind == "close"):
            yield stream, because("SequenceClosed")
        else:
            yield _applied_unnumbered(stream, posting), NOTHING
    else:
        yield _numbered(stream, posting, posting.sequence)


def _numbered(stream: Stream, posting: Posting, sequence: int) -> tuple[Stream, Reasons]:
    held = stream.held()
    if sequence < stream.next:
        return stream, because("SequenceConflict")
    if stream.closed is not None:
        return stream, because("SequenceClosed")
    if sequence == stream.next:
        return _applied_with_successors(stream, posting, held), NOTHING
    if sequence in held:
        return stream, because("SequenceConflict")
    if len(held) >= MOST_HELD:
        return stream, because("HeldLimitExceeded")
    return replace(stream, sequenced=True, entries=(*stream.entries, Entry(posting, "held"))), NOTHING


def _applied_unnumbered(stream: Stream, posting: Posting) -> Stream:
    is_close = posting.kind == "close"
    applied = stream.applied + (not is_close)
    count = posting.entry_count if is_close else stream.closed[0] if stream.closed is not None else None
    return replace(
        stream,
        sequenced=False,
        applied=applied,
        closed=None if count is None else (count, applied == count),
        entries=(*stream.entries, Entry(posting, "applied")),
    )


def _applied_with_successors(stream: Stream, posting: Posting, held: dict[int, Posting]) -> Stream:
    run: list[Posting] = [posting]
    while run[-1].kind != "close" and (successor := held.pop(stream.next + len(run), None)) is not None:
        run.append(successor)
    closed = (run[-1].entry_count or 0, True) if run[-1].kind == "close" else None
    status = {one.key: "applied" for one in run}
    if closed is not None:
        status |= {one.key: "refused" for one in held.values()}
    stored = (*stream.entries, Entry(posting, "applied"))
    return replace(
        stream,
        sequenced=True,
        next=stream.next + len(run),
        applied=stream.applied + sum(one.kind != "close" for one in run),
        closed=closed,
        entries=tuple(Entry(entry.posting, status.get(entry.posting.key, entry.status)) for entry in stored),
    )


def in_order_of(postings: Sequence[Posting], order: str) -> list[Posting]:
    """Return the postings of one order, as they were sent."""
    return [posting for posting in postings if posting.order == order]
