"""From a parsed body to a message: the schema, and the rules that a schema can't say (docs/contracts.md, "Messages").

Violations name the place and what is expected there, never what was found: a payload's values belong in no log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Final, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from shared.contracts.ledger import LARGEST_BATCH_TRANSACTIONS, EntryKind, LedgerBatch, LedgerEntry, Transaction
from shared.contracts.orders import (
    LARGEST_ORDER_LINES,
    Line,
    OrderAmended,
    OrderCommand,
    OrderMessage,
    OrderPlaced,
)
from shared.contracts.values import (
    AMOUNT_PATTERN,
    CURRENCY_PATTERN,
    ID_PATTERN,
    PRICE_PATTERN,
    STREAM_PATTERN,
    Part,
)
from shared.domain.payload import canonical, pointer

MAX_META_BYTES = 8 * 1024
MAX_VIOLATIONS = 20
LARGEST_LIST = max(LARGEST_ORDER_LINES, LARGEST_BATCH_TRANSACTIONS)
STATUS_PREFIX = "status."  # reserved: `<orderId>:status.<version>` is the MessageId of an order.status

_AMOUNT_END: Final = Decimal(10) ** 15  # AMOUNT has at most 15 digits before the point
_DESCRIBED = 3

_ORDERS: Final[Mapping[str, type[OrderMessage]]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(OrderMessage)
}
"""The models of the union, by their `type`."""

_PATTERNS: Final = {
    ID_PATTERN: "must be an id: 1 to 63 characters of the Basic Multilingual Plane, without ':' and control "
    "characters, no white space at either end",
    STREAM_PATTERN: "must be 'order' or 'ledger.' and a ledger id",
    AMOUNT_PATTERN: "must be an amount: at most 15 digits before and 4 behind the point",
    PRICE_PATTERN: "must be an amount without sign: at most 15 digits before and 4 behind the point",
    CURRENCY_PATTERN: "must be three capital letters",
}

_REASONS: Final = {
    "missing": "required",
    "extra_forbidden": "unknown member",
    "string_type": "must be a string",
    "string_unicode": "must hold no lone surrogate",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} item(s)",
    "too_long": "must have at most {max_length} items",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "integer": "must be an integer",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "tuple_type": "must be an array",
}

P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong: where (JSON pointer), and what is expected there."""

    pointer: str
    reason: str


class InvalidBody(Exception):  # noqa: N818 - a verdict on the producer's body, not a fault of ours
    """A body breaks the schema or a rule; `violations` names the first of them."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations[:MAX_VIOLATIONS])
        super().__init__(describe(self.violations))


def describe(violations: Sequence[Violation]) -> str:
    """Violations in one bounded line."""
    named = [f"{violation.pointer or 'body'}: {violation.reason}" for violation in violations[:_DESCRIBED]]
    more = len(violations) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")


def order_message(value: Mapping[str, object]) -> OrderMessage:
    """Check a body of the queue `orders`.

    Raises:
        InvalidBody: it breaks the schema of its type, or a rule.
    """
    if "type" not in value:
        raise InvalidBody([Violation("/type", "required")])
    named = value["type"]
    model = _ORDERS.get(named) if isinstance(named, str) else None
    if model is None:
        raise InvalidBody([Violation("/type", f"must be one of {', '.join(_ORDERS)}")])
    message = _modelled(model, value)
    _refuse(_order_rules(message))
    return message


def ledger_batch(value: Mapping[str, object]) -> LedgerBatch:
    """Check a body of the queue `ledger`.

    Raises:
        InvalidBody: it breaks the schema, or a rule.
    """
    batch = _modelled(LedgerBatch, value)
    _refuse(_batch_rules(batch))
    return batch


def ledger_entry(value: Mapping[str, object]) -> LedgerEntry:
    """Check a body of the queue `ledger-entries`.

    Raises:
        InvalidBody: it breaks the schema, or a rule.
    """
    entry = _modelled(LedgerEntry, value)
    _refuse([*_meta_rule(entry.meta), *_posting_rules(entry, ())])
    return entry


def _modelled(model: type[P], value: Mapping[str, object]) -> P:
    _refuse(list(islice(_surplus(model, value), MAX_VIOLATIONS)))
    try:
        return model.model_validate(dict(value), by_alias=True, by_name=False)
    except ValidationError as exc:
        errors = _apart(exc.errors(include_url=False, include_input=False))
        raise InvalidBody([_violation(error) for error in errors[:MAX_VIOLATIONS]]) from None  # it holds the payload


def _surplus(model: type[Part], value: Mapping[str, object]) -> Iterator[Violation]:
    """The unknown members where there are more members than known names: pydantic would note a million of them."""
    parts: dict[str, type[Part]] = {"lines": Line, "transactions": Transaction}
    places: list[tuple[tuple[str | int, ...], type[Part], object]] = [((), model, value)]
    for name, part in parts.items():
        items = value.get(name)
        if isinstance(items, list):
            places.extend(((name, at), part, item) for at, item in enumerate(items[:LARGEST_LIST]))
    for place, part, members in places:
        if isinstance(members, Mapping) and len(members) > len(part.model_fields):
            known = {field.alias for field in part.model_fields.values()}
            unknown = (name for name in members if name not in known)
            yield from (Violation(pointer((*place, name)), _REASONS["extra_forbidden"]) for name in unknown)


def _apart(errors: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Without those that only follow from others: pydantic calls a list too short when its items are faulty."""
    faulty = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    return [error for error in errors if error["type"] != "too_short" or error["loc"] not in faulty]


def _violation(error: ErrorDetails) -> Violation:
    context = error.get("ctx", {})
    if error["loc"] == ("schemaVersion",):
        reason = "a version that this release does not know; it knows 1"
    elif error["type"] == "string_pattern_mismatch":
        reason = _PATTERNS.get(str(context.get("pattern")), "must match the pattern of its schema")
    else:
        reason = _REASONS.get(error["type"], "does not match its schema").format(**context)
    return Violation(pointer(error["loc"]), reason)


def _refuse(violations: Sequence[Violation]) -> None:
    if violations:
        raise InvalidBody(violations)


def _order_rules(message: OrderMessage) -> list[Violation]:
    violations = _meta_rule(message.meta)
    if isinstance(message, OrderPlaced | OrderAmended):
        violations += _line_rules(message.lines, least=1 if isinstance(message, OrderPlaced) else 0)
    if isinstance(message, OrderCommand) and message.operation_id.startswith(STATUS_PREFIX):
        violations.append(Violation("/operationId", f"must not begin with '{STATUS_PREFIX}'"))
    return violations


def _meta_rule(meta: Mapping[str, object] | None) -> list[Violation]:
    if not meta or len(canonical(meta)) <= MAX_META_BYTES:
        return []
    return [Violation("/meta", f"must have at most {MAX_META_BYTES} bytes")]


def _line_rules(lines: Sequence[Line], *, least: int) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, line in enumerate(lines):
        if line.line_id in seen:
            yield Violation(pointer(("lines", index, "lineId")), "names a line of this message twice")
        seen.add(line.line_id)
        if line.quantity < least:
            yield Violation(pointer(("lines", index, "quantity")), f"must be at least {least}")
        if line.quantity * Decimal(line.unit_price) >= _AMOUNT_END:
            yield Violation(pointer(("lines", index)), "quantity x unitPrice has more than 15 digits before the point")


def _batch_rules(batch: LedgerBatch) -> list[Violation]:
    violations = _meta_rule(batch.meta)
    seen: set[str] = set()
    is_sequenced: dict[str, bool] = {}
    for index, transaction in enumerate(batch.transactions):
        place = ("transactions", index)
        if transaction.transaction_id in seen:
            violations.append(Violation(pointer((*place, "transactionId")), "names a transaction of this batch twice"))
        seen.add(transaction.transaction_id)
        has_sequence = transaction.sequence is not None
        if is_sequenced.setdefault(transaction.order_id, has_sequence) != has_sequence:
            wrong = "of one order, all transactions carry a sequence or none does"
            violations.append(Violation(pointer((*place, "sequence")), wrong))
        violations += _posting_rules(transaction, place)
    return violations


_REQUIRED: Final[Mapping[EntryKind, tuple[str, ...]]] = {
    "add": ("amount",),
    "amend": ("amount", "refersTo"),
    "void": ("amount", "refersTo"),
    "close": ("entryCount",),
}


def _posting_rules(posting: Transaction | LedgerEntry, place: tuple[str | int, ...]) -> Iterator[Violation]:
    """What each kind has and has not."""
    required = _REQUIRED[posting.kind]
    members = {"amount": posting.amount, "refersTo": posting.refers_to, "entryCount": posting.entry_count}
    for name, value in members.items():
        if (value is not None) != (name in required):
            reason = "required" if name in required else "not allowed"
            yield Violation(pointer((*place, name)), f"{reason} with kind '{posting.kind}'")
    count, sequence = posting.entry_count, posting.sequence
    if posting.kind == "close" and count is not None and sequence is not None and sequence != count + 1:
        yield Violation(pointer((*place, "sequence")), "must be entryCount + 1 on a close")
