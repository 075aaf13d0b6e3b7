"""Orders: states, commands, and the entries that they cause (docs/contracts.md, section 5).

    (placed) --> open ----------------------------------------> cancelled
       |          ^                                                ^
       +--> pending_payment --approved / declined--> open | declined
                  +---- a parked effect only ----------------------+

`fulfilment` stands beside the state and has a version of its own. An order that was placed with `sequence: 1` numbers
its commands (`next_command`); the entries of its stream `order` are always numbered (`next_entry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, assert_never

from shared.contracts.documents import Fulfilment, Order, OrderLine, Record, Result
from shared.contracts.ledger import LedgerEntry
from shared.contracts.orders import (
    LARGEST_ORDER_LINES,
    Line,
    OrderAmended,
    OrderCancelled,
    OrderCommand,
    OrderPlaced,
    OrderStatus,
)
from shared.domain import amounts
from shared.domain.identity import document_id
from shared.domain.streams import SkipRefused, unskippable
from shared.errors import PermanentError, Reason

STREAM: Final = "order"


@dataclass(frozen=True, slots=True)
class Placement:
    """What an order is made of, and the entries that placing it causes."""

    lines: tuple[OrderLine, ...]
    total: str
    entries: tuple[LedgerEntry, ...]
    next_entry: int


class Rejection(StrEnum):
    """Why a command is answered with a business "no"."""

    ORDER_SHIPPED = "OrderShipped"
    ORDER_CANCELLED = "OrderCancelled"
    ORDER_DECLINED = "OrderDeclined"
    LINE_UNKNOWN = "LineUnknown"
    TOO_MANY_LINES = "TooManyLines"


@dataclass(frozen=True, slots=True)
class Apply:
    """The command takes effect: the order as it is then, and the entries to send."""

    order: Order
    entries: tuple[LedgerEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Reject:
    """The command's answer is no. It uses up its number, so the order changes where it is sequenced."""

    order: Order
    reason: Rejection


@dataclass(frozen=True, slots=True)
class Park:
    """The command is parked."""

    reason: Reason
    description: str


@dataclass(frozen=True, slots=True)
class StatusSet:
    """The order with its new fulfilment."""

    order: Order


@dataclass(frozen=True, slots=True)
class StatusStale:
    """A later version is stored."""


@dataclass(frozen=True, slots=True)
class StatusDuplicate:
    """This version is stored already."""


@dataclass(frozen=True, slots=True)
class StatusConflict:
    """This version is stored with another status."""


CommandVerdict = Apply | Reject | Park
StatusVerdict = StatusSet | StatusStale | StatusDuplicate | StatusConflict


class Situation(StrEnum):
    """The columns of the states table."""

    NONE = "none"
    PENDING = "`pending_payment`"
    PENDING_PARKED = "`pending_payment`, effect parked"
    OPEN = "`open`, not shipped"
    SHIPPED = "`open`, shipped"
    CANCELLED = "`cancelled`"
    DECLINED = "`declined`"


class Ruling(StrEnum):
    """What the states table says about a message."""

    CREATE = "create"
    RECORD = "the record's table"
    UNKNOWN = "quarantine `OrderUnknown`"
    NOT_READY = "quarantine `OrderNotReady`"
    APPLY = "apply"
    CANCEL_UNPAID = "apply, no entries"
    VERSION = "version rule"
    SHIPPED = "rejected `OrderShipped`"
    CANCELLED = "rejected `OrderCancelled`"
    DECLINED = "rejected `OrderDeclined`"


_REJECTED: Final[Mapping[Situation, Ruling]] = {
    Situation.SHIPPED: Ruling.SHIPPED,
    Situation.CANCELLED: Ruling.CANCELLED,
    Situation.DECLINED: Ruling.DECLINED,
}

# order.placed: with another dedup key the first row of the record's table parks it (`OrderExists`).
TABLE: Final[Mapping[str, Mapping[Situation, Ruling]]] = {
    "order.placed": dict.fromkeys(Situation, Ruling.RECORD) | {Situation.NONE: Ruling.CREATE},
    "order.amended": {
        Situation.NONE: Ruling.UNKNOWN,
        Situation.PENDING: Ruling.NOT_READY,
        Situation.PENDING_PARKED: Ruling.NOT_READY,
        Situation.OPEN: Ruling.APPLY,
        **_REJECTED,
    },
    "order.cancelled": {
        Situation.NONE: Ruling.UNKNOWN,
        Situation.PENDING: Ruling.NOT_READY,
        Situation.PENDING_PARKED: Ruling.CANCEL_UNPAID,
        Situation.OPEN: Ruling.APPLY,
        **_REJECTED,
    },
    "order.status": dict.fromkeys(Situation, Ruling.VERSION) | {Situation.NONE: Ruling.UNKNOWN},
}

_REJECTIONS: Final[Mapping[Ruling, Rejection]] = {
    Ruling.SHIPPED: Rejection.ORDER_SHIPPED,
    Ruling.CANCELLED: Rejection.ORDER_CANCELLED,
    Ruling.DECLINED: Rejection.ORDER_DECLINED,
}


def situation(order: Order | None) -> Situation:
    """The column of the states table that an order is in; None is an order that is not there."""
    if order is None:
        return Situation.NONE
    match order.state:
        case "pending_payment":
            return Situation.PENDING_PARKED if _has_parked_effect(order) else Situation.PENDING
        case "open":
            is_shipped = order.fulfilment is not None and order.fulfilment.status != "confirmed"
            return Situation.SHIPPED if is_shipped else Situation.OPEN
        case "cancelled":
            return Situation.CANCELLED
        case "declined":
            return Situation.DECLINED


def place(body: OrderPlaced) -> Placement:
    """Say what a new order is made of: one `add` a line.

    Raises: PermanentError when a line's amount does not fit into a message.
    """
    fault = _amount_fault(body.lines)
    if fault is not None:
        raise PermanentError(Reason.INVALID_MESSAGE, fault)
    posting = _Posting(body.order_id, body.currency, next_entry=1)
    lines = tuple(posting.add(_stored(line)) for line in body.lines)
    return Placement(lines, _total(lines), tuple(posting.entries), posting.next_entry)


def new_order(body: OrderPlaced, placement: Placement, record: Record, *, pending_payment: bool) -> Order:
    """The order as it is created. One that waits for its payment has posted nothing yet."""
    lines = placement.lines
    if pending_payment:
        lines = tuple(line.model_copy(update={"entry": None}) for line in lines)
    return Order(
        id=document_id(body.order_id),
        order_id=body.order_id,
        customer_id=body.customer_id,
        currency=body.currency,
        state="pending_payment" if pending_payment else "open",
        lines=lines,
        total=placement.total,
        sequenced=body.sequence is not None,
        next_command=None if body.sequence is None else body.sequence + 1,
        next_entry=1 if pending_payment else placement.next_entry,
        revision=1,
        record=record,
    )


def open_order(order: Order) -> tuple[Order, tuple[LedgerEntry, ...]]:
    """The order once its payment is approved, and the entries of its lines."""
    _expect_pending(order)
    posting = _Posting(order.order_id, order.currency, order.next_entry)
    lines = tuple(posting.add(line) for line in order.lines)
    return _changed(order, state="open", lines=lines, next_entry=posting.next_entry), tuple(posting.entries)


def decline_order(order: Order) -> Order:
    """The order once its payment is declined: nothing was posted and nothing will be."""
    _expect_pending(order)
    return _changed(order, state="declined")


def decide_command(order: Order, body: OrderCommand) -> CommandVerdict:
    """Say what an amendment or a cancellation does to an order: the command sequence first, then the states table.

    Every answer but Apply presumes that no record of the command is there: an applied command may be illegal in
    today's state, and its number is used up.
    """
    fault = _amount_fault(body.lines) if isinstance(body, OrderAmended) else None
    if fault is not None:
        return Park(Reason.INVALID_MESSAGE, fault)
    out_of_turn = _out_of_turn(order, body)
    if out_of_turn is not None:
        return out_of_turn
    ruling = TABLE[body.type][situation(order)]
    if ruling is Ruling.NOT_READY:
        return Park(Reason.ORDER_NOT_READY, "orderId: the order still waits for its payment")
    in_turn = _numbered(order)
    if ruling in _REJECTIONS:
        return Reject(in_turn, _REJECTIONS[ruling])
    if ruling is Ruling.CANCEL_UNPAID:
        return Apply(_cancelled_unpaid(in_turn))
    match body:
        case OrderAmended():
            return _amended(in_turn, body.lines)
        case OrderCancelled():
            return _cancelled(in_turn)
        case _:
            assert_never(body)


def decide_status(order: Order, body: OrderStatus) -> StatusVerdict:
    """Say what a fulfilment status does to an order in any state: the higher version wins.

    The fulfilment has its own version, so the order's revision, which counts changes of its state and its lines, stays.
    """
    stored = order.fulfilment
    if stored is None or stored.version < body.version:
        return StatusSet(order.model_copy(update={"fulfilment": Fulfilment(status=body.status, version=body.version)}))
    if stored.version > body.version:
        return StatusStale()
    return StatusDuplicate() if stored.status == body.status else StatusConflict()


def skip_commands(order: Order, *, first: int, last: int) -> Order | SkipRefused:
    """Pass over commands that will never come: the order then expects the number behind `last`."""
    if order.next_command is None:
        return SkipRefused("command: the order's commands have no numbers")
    refused = unskippable("command", order.next_command, first, last)
    return refused or order.model_copy(update={"next_command": last + 1})


@dataclass(slots=True)
class _Posting:
    """Makes the entries of one decision: numbered without holes from the order's next one on."""

    order_id: str
    currency: str
    next_entry: int
    entries: list[LedgerEntry] = field(default_factory=list)

    def add(self, line: OrderLine) -> OrderLine:
        """Post a line; the line then knows its entry."""
        return line.model_copy(update={"entry": self._post("add", amount=line.amount)})

    def amend(self, line: OrderLine, change: str) -> None:
        """Post the change of a line's amount."""
        self._post("amend", amount=change, refersTo=_entry_of(line))

    def void(self, line: OrderLine) -> None:
        """Take a line's amount back."""
        self._post("void", amount=amounts.negated(line.amount), refersTo=_entry_of(line))

    def close(self) -> None:
        """End the stream behind all entries so far."""
        self._post("close", entryCount=self.next_entry - 1)

    def _post(self, kind: str, **members: object) -> str:
        sequence, self.next_entry = self.next_entry, self.next_entry + 1
        entry = {
            "orderId": self.order_id,
            "stream": STREAM,
            "transactionId": str(sequence),
            "sequence": sequence,
            "kind": kind,
            "currency": self.currency,
            **members,
        }
        self.entries.append(LedgerEntry.model_validate(entry))
        return str(sequence)


def _out_of_turn(order: Order, body: OrderCommand) -> Park | None:
    if (body.sequence is not None) != order.sequenced:
        needs = "a number: the order is sequenced" if order.sequenced else "none: the order is not sequenced"
        return Park(Reason.INVALID_MESSAGE, f"sequence: expected {needs}")
    if body.sequence is None or order.next_command is None or body.sequence == order.next_command:
        return None
    found = f"sequence: expected {order.next_command}, found {body.sequence}"
    if body.sequence > order.next_command:
        return Park(Reason.SEQUENCE_GAP, found)
    return Park(Reason.SEQUENCE_CONFLICT, f"{found}; another command had this number, or it was skipped")


def _amended(order: Order, named: Iterable[Line]) -> Apply | Reject:
    lines = {line.line_id: line for line in order.lines}
    posting = _Posting(order.order_id, order.currency, order.next_entry)
    for line in named:
        old = lines.get(line.line_id)
        if line.quantity == 0:
            if old is None:
                return Reject(order, Rejection.LINE_UNKNOWN)
            posting.void(old)
            del lines[line.line_id]
        elif old is None:
            lines[line.line_id] = posting.add(_stored(line))
        else:
            new = _stored(line, old.entry)
            if not amounts.is_equal(new.amount, old.amount):
                posting.amend(new, amounts.difference(new.amount, old.amount))
            lines[line.line_id] = new
    if len(lines) > LARGEST_ORDER_LINES:
        return Reject(order, Rejection.TOO_MANY_LINES)
    after = tuple(lines.values())
    changed = _changed(order, lines=after, total=_total(after), next_entry=posting.next_entry)
    return Apply(changed, tuple(posting.entries))


def _cancelled(order: Order) -> Apply:
    posting = _Posting(order.order_id, order.currency, order.next_entry)
    for line in order.lines:
        posting.void(line)
    posting.close()
    # Lines and total stay: they say what was cancelled.
    return Apply(_changed(order, state="cancelled", next_entry=posting.next_entry), tuple(posting.entries))


def _cancelled_unpaid(order: Order) -> Order:
    # The effect stays parked: money that a person has to look at.
    result = order.record.result or Result(outcome="created")
    record = order.record.model_copy(update={"status": "completed", "result": result})
    return _changed(order, state="cancelled", record=record)


def _numbered(order: Order) -> Order:
    if order.next_command is None:
        return order
    return order.model_copy(update={"next_command": order.next_command + 1})


def _changed(order: Order, **members: object) -> Order:
    return order.model_copy(update={"revision": order.revision + 1, **members})


def _stored(line: Line, entry: str | None = None) -> OrderLine:
    return OrderLine(
        line_id=line.line_id,
        sku=line.sku,
        quantity=line.quantity,
        unit_price=line.unit_price,
        amount=amounts.times(line.quantity, line.unit_price),
        entry=entry,
    )


def _total(lines: Iterable[OrderLine]) -> str:
    return amounts.total(line.amount for line in lines)


def _amount_fault(lines: Iterable[Line]) -> str | None:
    for index, line in enumerate(lines):
        if not amounts.fits(amounts.times(line.quantity, line.unit_price)):
            return f"/lines/{index}: quantity times unitPrice has more than 15 digits before the point"
    return None


def _entry_of(line: OrderLine) -> str:
    if line.entry is None:
        raise ValueError("order: a line of an open order was never posted")
    return line.entry


def _has_parked_effect(order: Order) -> bool:
    effect = order.record.effect
    return effect is not None and effect.status == "parked"


def _expect_pending(order: Order) -> None:
    if order.state != "pending_payment":
        raise ValueError(f"order: the answer of a payment meets an order that is {order.state}")
