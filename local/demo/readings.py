"""What a message means, read from the contracts alone: identity, content, and the faults that park it at once.

This is the demo's own reading of contracts 1 to 4, so that it can disagree with the handlers. Where the contracts leave
a choice, a message has several readings, and each of them is right.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

from local.demo.jsontext import MOST_LEVELS, Json, JsonTextError, canonical, depth, parse, payload_hash, url_text
from local.demo.lines import Line

INVALID, NO_ID, WRONG_ID, WRONG_SESSION = (
    "InvalidMessage",
    "MessageIdMissing",
    "MessageKeyMismatch",
    "SessionKeyMismatch",
)
MOST_INFLATED = 4 * 1024 * 1024
MOST_MEMBERS = 64
MOST_META = 8 * 1024
RECORD_TTL_SECONDS = 5_184_000
MAYBE_TOO_LARGE = 1_200_000  # estimated bytes of documents; the limit is 2,000,000 of what the app makes of it

_EDGE = (
    "!-9;-~\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\ud7ff"
    "\ue000-\ufefe\uff00-\uffff"
)
ID = re.compile(f"[{_EDGE}](?:[ -9;-~\u00a0-\ud7ff\ue000-\uffff]{{0,61}}[{_EDGE}])?")
AMOUNT = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,4})?")
CURRENCY = re.compile("[A-Z]{3}")
SOURCE = re.compile(r"[ !#-\[\]-~]{1,255}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")

Body = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Message:
    """A message that reaches its handler's decisions."""

    kind: str
    owner: str  # the order, on `ledger` the ledger: the partition key
    key: str  # the dedup key
    digest: str  # the payload hash
    body: Mapping[str, Json]

    def text(self, name: str) -> str:
        """Return a required text member."""
        return cast("str", self.body[name])

    def number(self, name: str) -> int | None:
        """Return a whole number, if the member is there."""
        value = self.body.get(name)
        return int(value) if isinstance(value, Decimal) else None

    def rows(self, name: str) -> list[Mapping[str, Json]]:
        """Return a list of objects."""
        return cast("list[Mapping[str, Json]]", self.body[name])


@dataclass(frozen=True, slots=True)
class Fault:
    """A message that is parked before anything is written, with one of these reasons."""

    reasons: frozenset[str]


Reading = Message | Fault


def readings(line: Line, now: datetime) -> tuple[Reading, ...]:
    """Say how the app may take a message; nearly always there is one way."""
    original = original_id(line)
    if original == "":
        return (Fault(frozenset({NO_ID})),)
    if original is None:  # a broker may have made up an id, which then fits nothing but a CloudEvent
        others = _by_content(line, "\0", now)
        named = frozenset({NO_ID}).union(*(one.reasons for one in others if isinstance(one, Fault)))
        return (Fault(named), *(one for one in others if isinstance(one, Message)))
    return _by_content(line, original, now)


def original_id(line: Line) -> str | None:
    """Return the id that a message goes by: the broker's, or on a replay the first one."""
    count, first = line.properties.get("replay-count"), line.properties.get("dedup-id")
    if isinstance(count, str) and re.fullmatch("[1-9][0-9]{0,8}", count) and isinstance(first, str):
        return first
    return line.message_id


def _by_content(line: Line, original: str, now: datetime) -> tuple[Reading, ...]:
    encoding = line.properties.get("content-encoding")
    if encoding is not None and encoding != "gzip":
        return (Fault(frozenset({"UnsupportedEncoding"})),)
    data = line.body
    if encoding == "gzip":
        inflated = _inflate(data)
        if inflated is None:
            return (Fault(frozenset({INVALID, "UnsupportedEncoding", "ItemTooLarge"})),)
        data = inflated
    try:
        body = parse(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8"))
    except (UnicodeDecodeError, JsonTextError):
        return (Fault(frozenset({INVALID})),)
    if not isinstance(body, dict) or depth(body) > MOST_LEVELS + 1:
        return (Fault(frozenset({INVALID})),)
    found: tuple[Reading, ...] = _by_envelope(line, body, original, now)
    if depth(body) == MOST_LEVELS + 1:  # does the outermost object count as a level?
        found += (Fault(frozenset({INVALID})),)
    return found


def _by_envelope(line: Line, body: Body, original: str, now: datetime) -> tuple[Reading, ...]:
    media, _, parameters = (line.content_type or "").partition(";")
    prefix = next((p for p in ("cloudEvents:", "cloudEvents_") if f"{p}specversion" in line.properties), None)
    if media.strip().lower() == "application/cloudevents+json":
        event = _structured(line, body, now)
        if parameters or media != "application/cloudevents+json":  # compared as a media type or as a text
            return event, _plain(line, body, original, original, now)
        return (event,)
    if prefix is not None:
        attributes = {name.removeprefix(prefix): value for name, value in line.properties.items()}
        return (_event(line, attributes, body, now),)
    return (_plain(line, body, original, original, now),)


def _structured(line: Line, event: Body, now: datetime) -> Reading:
    data = event.get("data")
    if not isinstance(data, dict):
        return Fault(frozenset({INVALID}))
    return _event(line, event, data, now)


def _event(line: Line, attributes: Mapping[str, object], data: Body, now: datetime) -> Reading:
    source, event_id, kind = attributes.get("source"), attributes.get("id"), attributes.get("type")
    if event_id is None or event_id == "":
        return Fault(frozenset({NO_ID, INVALID}))
    if not isinstance(source, str) or not SOURCE.fullmatch(source) or attributes.get("specversion") != "1.0":
        return Fault(frozenset({INVALID}))
    if not isinstance(event_id, str) or not isinstance(kind, str):
        return Fault(frozenset({INVALID}))
    return _plain(line, {**data, "type": kind}, event_id, canonical([source, event_id]), now)


def _plain(line: Line, body: Body, original: str, key: str, now: datetime) -> Reading:
    kind = body.get("type", {"ledger": "ledger.batch", "ledger-entries": "ledger.entry"}.get(line.role))
    rules = RULES[line.role].get(kind) if isinstance(kind, str) else None
    owner = body.get("ledgerId" if line.role == "ledger" else "orderId")
    sound = rules is not None and isinstance(kind, str) and rules(body)
    reasons = set() if sound else {INVALID}
    if isinstance(owner, str) and isinstance(kind, str) and rules is not None:
        if not _id_fits(original, kind, body):
            reasons.add(WRONG_ID)
        if fold(owner) != fold(line.session_id):
            reasons.add(WRONG_SESSION)
    if sound and WRONG_ID in reasons:
        reasons = {WRONG_ID}  # of two faults the earlier step names the reason
    if not reasons and kind in ("ledger.batch", "order.amended", "order.cancelled") and _is_too_old(line, now):
        reasons = {"DedupExpired"}
    if reasons:
        return Fault(frozenset(reasons))
    return Message(cast("str", kind), cast("str", owner), key, payload_hash(body), body)


def fold(text: str) -> str:
    """Lower-case the ASCII letters only, as session ids are compared."""
    return "".join(character.lower() if character.isascii() else character for character in text)


def entry_id(order: str, stream: str, transaction: str) -> str:
    """Make the MessageId of a ledger entry, bounded to the broker's 128 characters."""
    plain = f"{order}:{stream}:{transaction}"
    if len(plain.encode("utf-16-le")) // 2 <= 128:
        return plain
    return f"{order}:~{url_text(hashlib.sha256(f'{stream}:{transaction}'.encode()).digest())}"


def may_be_too_large(message: Message) -> bool:
    """Tell whether the documents of a message come near the limit of an item."""
    if message.kind not in ("order.placed", "order.amended", "ledger.batch"):
        return False
    rows = len(message.rows("transactions" if message.kind == "ledger.batch" else "lines"))
    each = 300 + 3 * len(message.owner.encode())
    return 3 * len(canonical(dict(message.body)).encode()) + rows * each > MAYBE_TOO_LARGE


def _id_fits(original: str, kind: str, body: Body) -> bool:
    def text(name: str) -> str:
        value = body.get(name)
        return value if isinstance(value, str) else "\0"

    if kind == "order.placed":
        return original == text("orderId")
    if kind == "order.status":
        return original.startswith(f"{text('orderId')}:")
    if kind == "ledger.batch":
        return original == f"{text('ledgerId')}:{text('batchId')}"
    if kind == "ledger.entry":
        return original == entry_id(text("orderId"), text("stream"), text("transactionId"))
    return original == f"{text('orderId')}:{text('operationId')}"


def _is_too_old(line: Line, now: datetime) -> bool:
    stamp = line.properties.get("original-enqueued-at")
    if not isinstance(stamp, str) or not TIME.fullmatch(stamp):
        return False
    try:
        first = datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return False
    return (now - first).total_seconds() > RECORD_TTL_SECONDS - 86_400


def _inflate(data: bytes) -> bytes | None:
    """Undo gzip, members one after the other; nothing when it is damaged, followed by something, or beyond a limit."""
    whole = b""
    for _ in range(MOST_MEMBERS):
        engine = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            whole += engine.decompress(data, MOST_INFLATED + 1 - len(whole))
        except (zlib.error, gzip.BadGzipFile):
            return None
        if not engine.eof or len(whole) > MOST_INFLATED:
            return None
        data = engine.unused_data
        if not data:
            return whole
    return None


# Section 4, type by type: each rule says whether a member, or a whole body, is sound.

Rule = Callable[[Json], bool]


def _id(value: Json) -> bool:
    return isinstance(value, str) and ID.fullmatch(value) is not None


def _amount(value: Json) -> bool:
    return isinstance(value, str) and AMOUNT.fullmatch(value) is not None


def _price(value: Json) -> bool:
    return _amount(value) and not cast("str", value).startswith("-")


def _currency(value: Json) -> bool:
    return isinstance(value, str) and CURRENCY.fullmatch(value) is not None


def _stream(value: Json) -> bool:
    return value == "order" or (isinstance(value, str) and value.startswith("ledger.") and _id(value[len("ledger.") :]))


def _whole(least: int, most: int = 2_147_483_647) -> Rule:
    return lambda value: isinstance(value, Decimal) and value == value.to_integral_value() and least <= value <= most


def _one_of(*texts: str) -> Rule:
    return lambda value: isinstance(value, str) and value in texts


def _meta(value: Json) -> bool:
    return isinstance(value, dict) and len(canonical(value).encode()) <= MOST_META


def _list_of(rule: Callable[[Body], bool]) -> Rule:
    def holds(value: Json) -> bool:
        rows = value if isinstance(value, list) else []
        return 1 <= len(rows) <= 2000 and all(isinstance(row, dict) and rule(row) for row in rows)

    return holds


def _has(body: Body, required: Mapping[str, Rule], optional: Mapping[str, Rule]) -> bool:
    known = {**required, **optional}
    return all(name in body for name in required) and all(
        name in known and known[name](value) for name, value in body.items()
    )


_COMMON: Mapping[str, Rule] = {"schemaVersion": _whole(1, 1), "meta": _meta}


def _line(row: Body) -> bool:
    return _has(row, {"lineId": _id, "sku": _id, "quantity": _whole(0, 999_999), "unitPrice": _price}, {}) and (
        line_amount(row) < 10**15
    )


def line_amount(row: Mapping[str, Json]) -> Decimal:
    """Multiply a line out."""
    return Decimal(int(cast("Decimal", row["quantity"]))) * Decimal(cast("str", row["unitPrice"]))


def _lines_differ(body: Body) -> bool:
    return _differ(body, "lines", "lineId")


def _differ(body: Body, rows: str, name: str) -> bool:
    ids = [row[name] for row in cast("list[Body]", body[rows])]
    return len(set(cast("list[str]", ids))) == len(ids)


def _placed(body: Body) -> bool:
    required = {"type": _one_of("order.placed"), "orderId": _id, "currency": _currency, "lines": _list_of(_line)}
    optional = {**_COMMON, "sequence": _whole(1, 1), "customerId": _id}
    return (
        _has(body, required, optional)
        and _lines_differ(body)
        and all(row["quantity"] != 0 for row in cast("list[Body]", body["lines"]))
    )


def _amended(body: Body) -> bool:
    required = {"type": _one_of("order.amended"), "orderId": _id, "operationId": _id, "lines": _list_of(_line)}
    return _has(body, required, {**_COMMON, "sequence": _whole(2)}) and _lines_differ(body) and _operation(body)


def _cancelled(body: Body) -> bool:
    required: dict[str, Rule] = {"type": _one_of("order.cancelled"), "orderId": _id, "operationId": _id}
    optional = {**_COMMON, "sequence": _whole(2), "reason": lambda value: isinstance(value, str) and len(value) <= 200}
    return _has(body, required, optional) and _operation(body)


def _operation(body: Body) -> bool:
    return not cast("str", body["operationId"]).startswith("status.")


def _status(body: Body) -> bool:
    required = {
        "type": _one_of("order.status"),
        "orderId": _id,
        "status": _one_of("confirmed", "shipped", "delivered", "returned"),
        "version": _whole(1),
    }
    return _has(body, required, _COMMON)


_POSTING: Mapping[str, Rule] = {
    "sequence": _whole(1),
    "amount": _amount,
    "refersTo": _id,
    "entryCount": _whole(0),
}


def _kind_fits(body: Mapping[str, Json]) -> bool:
    """The table of contracts 4.5: which members a kind needs, and which it must not have."""
    kind = body["kind"]
    if kind == "close":
        counted = {"entryCount"} == {"amount", "refersTo", "entryCount"} & body.keys()
        sequence, entries = body.get("sequence"), body.get("entryCount")
        return counted and (sequence is None or sequence == cast("Decimal", entries) + 1)
    wanted = {"amount"} if kind == "add" else {"amount", "refersTo"}
    return {"amount", "refersTo", "entryCount"} & body.keys() == wanted


_KIND = _one_of("add", "amend", "void", "close")


def _transaction(row: Body) -> bool:
    return _has(row, {"transactionId": _id, "orderId": _id, "kind": _KIND}, _POSTING) and _kind_fits(row)


def _batch(body: Body) -> bool:
    required = {"ledgerId": _id, "batchId": _id, "currency": _currency, "transactions": _list_of(_transaction)}
    optional = {**_COMMON, "type": _one_of("ledger.batch"), "batchSequence": _whole(1)}
    if not _has(body, required, optional) or not _differ(body, "transactions", "transactionId"):
        return False
    numbered: dict[str, bool] = {}
    for row in cast("list[Body]", body["transactions"]):
        has = "sequence" in row
        if numbered.setdefault(cast("str", row["orderId"]), has) != has:
            return False
    return True


def _entry(body: Body) -> bool:
    required = {"orderId": _id, "stream": _stream, "transactionId": _id, "kind": _KIND, "currency": _currency}
    optional = {**_COMMON, **_POSTING, "type": _one_of("ledger.entry")}
    return _has(body, required, optional) and _kind_fits(body)


RULES: Mapping[str, Mapping[str, Callable[[Body], bool]]] = {
    "orders": {
        "order.placed": _placed,
        "order.amended": _amended,
        "order.cancelled": _cancelled,
        "order.status": _status,
    },
    "ledger": {"ledger.batch": _batch},
    "ledger-entries": {"ledger.entry": _entry},
}
