"""Makes `orders.jsonl`, the demo's data set: `python -m local.demo.generate`.

Seeded, so the file is what this makes; a test compares them. Most of it is what a shop sends in a day. The rest is
what makes such a system fail: doubles, second bodies under one id, gaps, late entries, ids that no URL likes, numbers
in other spellings, CloudEvents, gzip, and messages that are wrong in many ways.
"""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

SEED = 20261130
ORDERS = 330
LEDGERS = 9
FILE = Path(__file__).with_name("orders.jsonl")

CURRENCIES = {"EUR": 2, "USD": 2, "GBP": 2, "CHF": 2, "JPY": 0, "KWD": 3}
GOODS = ("TEA", "CUP", "POT", "SPOON", "SUGAR", "TRAY", "FILTER", "KETTLE", "HONEY", "BISCUIT")
ODD_IDS = (
    "A/2026/17",
    "B\\17",
    "Was ist? #3",
    "50 % off",
    "größe-é",  # é as one code point
    "größe-e\u0301",  # and as two: another order
    "注文-42",
    "'quoted' \"id\"",
    "x" * 63,
    "~state",
    ".hidden",
    "a+b=c@d",
)

Members = dict[str, Any]


class _Raw(str):
    """JSON text that goes into the file as it is."""

    __slots__ = ()


def generate(seed: int = SEED) -> str:
    """Make the text of the file."""
    maker = Maker(random.Random(seed))  # noqa: S311 (a data set, no secret)
    return "".join(f"{text}\n" for text in maker.lines())


class Maker:
    """Makes sessions of messages. `prefix` keeps the ids of several makers apart.

    Without `with_gaps` no command comes before its turn: what becomes of such a one depends on whether it is delivered
    again behind the one that was missing.
    """

    def __init__(self, random_: random.Random, *, prefix: str = "", with_gaps: bool = True) -> None:
        self.random = random_
        self.prefix = prefix
        self.with_gaps = with_gaps
        self.sessions: list[list[Members]] = []
        self.orders: list[tuple[str, str]] = []  # id, currency

    def lines(self) -> Iterable[str]:
        for number in range(1, ORDERS + 1):
            self.sessions.append(self.order(f"ORD-{number:04}", is_plain=number % 10 != 0))
        for odd in ODD_IDS:
            self.sessions.append(self.order(odd, is_plain=True))
        self.sessions += [self.ledger(f"L-{number}") for number in range(1, LEDGERS + 1)]
        self.sessions += self.entries()
        self.sessions += self.second_bodies()
        self.sessions += self.special()
        self.sessions += [[line] for line in self.wrong()]
        return self.mixed()

    def mixed(self) -> list[str]:
        """Mix the sessions, keeping the order of each; gives a line of the file for each message."""
        return [_text(line) for line in self._shuffled()]

    def _shuffled(self) -> Iterable[Members]:
        waiting = [list(reversed(session)) for session in self.sessions if session]
        while waiting:
            at = self.random.randrange(len(waiting))
            yield waiting[at].pop()
            if not waiting[at]:
                waiting[at] = waiting[-1]
                waiting.pop()

    # Orders

    def order(self, order: str, *, is_plain: bool) -> list[Members]:
        """One order's day: placed, amended, shipped, cancelled; some of it twice."""
        currency = self.random.choice(list(CURRENCIES))
        self.orders.append((order, currency))
        sequenced = self.random.random() < 0.4
        count = self.random.choice((1, 1, 2, 3, 5))
        lines = {str(number): self.line(str(number), currency) for number in range(1, count + 1)}
        placed: Members = {"type": "order.placed", "orderId": order, "currency": currency, "lines": [*lines.values()]}
        if self.random.random() < 0.8:
            placed["customerId"] = f"C-{self.random.randrange(1, 90)}"
        if sequenced:
            placed["sequence"] = 1
        if self.random.random() < 0.1:
            placed["meta"] = {"sentAt": "2026-11-30T12:00:00Z", "build": self.random.randrange(100)}
        messages = [self.message("orders", order, order, placed)]
        sequence, version, statuses = 2, 1, ["confirmed", "shipped", "delivered"]
        weights = (5, 6, 1.2, 0.25 if sequenced and self.with_gaps else 0)
        for step in range(self.random.choice((0, 0, 1, 2, 3))):
            kind = self.random.choices(("amend", "status", "cancel", "gap"), weights)[0]
            operation = f"op-{step + 1}"
            if kind == "status":
                status = statuses.pop(0) if statuses else "returned"
                body: Members = {"type": "order.status", "orderId": order, "status": status, "version": version}
                messages.append(self.message("orders", f"{order}:status.{version}", order, body))
                version += 1
                continue
            body = {"type": "order.cancelled", "orderId": order, "operationId": operation}
            if kind == "cancel":
                body["reason"] = "customer changed their mind"
            else:
                body = {**body, "type": "order.amended", "lines": self.amendment(lines, currency)}
            if sequenced:
                body["sequence"] = sequence + (kind == "gap")
                sequence += kind != "gap"
            messages.append(self.message("orders", f"{order}:{operation}", order, body))
        return messages if is_plain else [self.twice(message) for message in messages]

    def line(self, line_id: str, currency: str) -> Members:
        digits = CURRENCIES[currency]
        price = Decimal(self.random.randrange(1, 20_000)).scaleb(-digits)
        return {
            "lineId": line_id,
            "sku": self.random.choice(GOODS),
            "quantity": self.random.randrange(1, 12),
            "unitPrice": f"{price:f}",
        }

    def amendment(self, lines: dict[str, Members], currency: str) -> list[Members]:
        """Change, add or remove a line or two; now and then remove one that isn't there."""
        changed: dict[str, Members] = {}
        for _ in range(self.random.choice((1, 1, 2))):
            kind = self.random.choices(("change", "add", "remove", "unknown"), (5, 3, 2, 0.4))[0]
            line_id = self.random.choice(list(lines)) if lines and kind in ("change", "remove") else str(len(lines) + 7)
            changed[line_id] = self.line(line_id, currency)
            if kind in ("remove", "unknown"):
                changed[line_id] |= {"quantity": 0, "unitPrice": "0"}
        for line_id, line in changed.items():
            if line["quantity"]:
                lines[line_id] = line
            else:
                lines.pop(line_id, None)
        return [*changed.values()]

    def message(self, queue: str, message_id: str, session: str, body: Any, **more: Any) -> Members:
        line = {"queue": queue, "messageId": message_id, "sessionId": session, "body": body, **more}
        if isinstance(body, dict) and "type" in body:
            line["subject"] = body["type"]
        return line

    def twice(self, line: Members) -> Members:
        return {**line, "repeat": self.random.choice((2, 2, 3))}

    # Ledgers

    def ledger(self, ledger: str) -> list[Members]:
        """A ledger's batches, with the transactions of one order partly out of order."""
        sequenced_batches = self.random.random() < 0.5
        orders = self.random.sample(self.orders, 14)
        numbered = {order: self.random.random() < 0.6 for order, _ in orders}
        counts = dict.fromkeys(numbered, 0)
        posted: dict[str, list[str]] = {order: [] for order in numbered}
        currency, number = self.random.choice(list(CURRENCIES)), 0
        batches: list[Members] = []
        rows: list[Members] = []
        for order, _ in self.random.choices(orders, k=90):
            number += 1
            rows.append(self.transaction(f"T-{number}", order, numbered[order], counts, posted, currency))
        for order, _ in orders[:5]:
            number += 1
            close: Members = {"transactionId": f"T-{number}", "orderId": order, "kind": "close"}
            close["entryCount"] = counts[order]
            if numbered[order]:
                close["sequence"] = counts[order] + 1
            rows.append(close)
        for at in self.random.sample(range(len(rows) - 6), 12):  # neighbours change places: some must be held
            rows[at], rows[at + 1] = rows[at + 1], rows[at]
        while rows:
            size = self.random.randrange(4, 24)
            batch_id = f"2026-11-{len(batches) + 1:02}"
            body: Members = {"ledgerId": ledger, "batchId": batch_id, "currency": currency, "transactions": rows[:size]}
            if sequenced_batches:
                body["batchSequence"] = len(batches) + 1
            if self.random.random() < 0.5:
                body = {"type": "ledger.batch", **body}
            rows = rows[size:]
            line = self.message("ledger", f"{ledger}:{batch_id}", ledger, body)
            batches.append(self.twice(line) if self.random.random() < 0.15 else line)
        return batches

    def transaction(
        self, transaction: str, order: str, is_numbered: bool, counts: dict[str, int], posted: dict[str, list[str]],
        currency: str,
    ) -> Members:  # fmt: skip
        counts[order] += 1
        amount = Decimal(self.random.randrange(-50_000, 100_000)).scaleb(-CURRENCIES[currency])
        row: Members = {"transactionId": transaction, "orderId": order, "kind": "add", "amount": f"{amount:f}"}
        if posted[order] and self.random.random() < 0.3:
            row |= {"kind": self.random.choice(("amend", "void")), "refersTo": self.random.choice(posted[order])}
        posted[order].append(transaction)
        if is_numbered:
            row["sequence"] = counts[order]
        return row

    # Entries that come straight to their queue

    def entries(self) -> list[list[Members]]:
        """Streams of a ledger of their own: out of order, with a gap that stays, closed too early."""

        def entry(order: str, stream: str, number: int, sequence: int | None, **more: Any) -> Members:
            order = f"{self.prefix}{order}"
            body: Members = {"orderId": order, "stream": stream, "transactionId": f"D-{number}", "kind": "add"}
            if sequence is not None:
                body["sequence"] = sequence
            body |= {"amount": f"{number}.25", "currency": "EUR", **more}
            if body["kind"] == "close":
                del body["amount"]
            return self.message("ledger-entries", f"{order}:{stream}:D-{number}", order, body)

        shuffled = list(range(1, 21))
        self.random.shuffle(shuffled)
        close = {"kind": "close", "entryCount": 20}
        mixed = [entry("ORD-0001", "ledger.D1", 21, 21, **close)]
        mixed += [entry("ORD-0001", "ledger.D1", number, number) for number in shuffled]
        gap = [entry("ORD-0002", "ledger.D1", number, number) for number in (1, 2, 4, 5, 7)]
        late = [entry("ORD-0003", "ledger.D1", number, number) for number in (1, 2)]
        late.append(entry("ORD-0003", "ledger.D1", 9, 3, kind="close", entryCount=2))
        late.append(entry("ORD-0003", "ledger.D1", 4, 4))
        plain = [entry("ORD-0004", "ledger.D2", number, None) for number in (3, 1, 2)]
        plain.append(entry("ORD-0004", "ledger.D2", 9, None, kind="close", entryCount=3))
        plain.append(entry("ORD-0004", "ledger.D2", 4, None))
        doubled = [self.twice(entry("ORD-0005", "ledger.D2", number, number)) for number in (2, 1, 3)]
        unlike = [entry("ORD-0006", "ledger.D2", 1, 1), entry("ORD-0006", "ledger.D2", 2, None)]
        unlike.append(entry("ORD-0006", "ledger.D2", 3, 1))
        above = [entry("ORD-0007", "ledger.D2", 5, 5), entry("ORD-0007", "ledger.D2", 1, 1)]
        above.append(entry("ORD-0007", "ledger.D2", 2, 2, kind="close", entryCount=1))
        return [mixed, gap, late, plain, doubled, unlike, above]

    # Other content under an id that is known

    def second_bodies(self) -> list[list[Members]]:
        """Sent at once, the second body vanishes in the broker's window; sent behind it, it is a conflict."""
        sessions = []
        for number in range(1, 5):
            order = f"{self.prefix}TWO-{number}"
            line = self.line("1", "EUR")
            body: Members = {"type": "order.placed", "orderId": order, "currency": "EUR", "lines": [line]}
            other = {**body, "lines": [{**line, "quantity": line["quantity"] + 1}]}
            first, second = (self.message("orders", order, order, one) for one in (body, other))
            sessions.append([first, {**second, "repeat": 3}])
        for number in range(1, 3):
            ledger = f"{self.prefix}LX-{number}"
            row: Members = {"transactionId": "T-1", "orderId": f"{self.prefix}TWO-1", "kind": "add", "amount": "1"}
            batch: Members = {"ledgerId": ledger, "batchId": "1", "currency": "EUR", "transactions": [row]}
            other = {**batch, "transactions": [{**row, "amount": "2"}]}
            first, second = (self.message("ledger", f"{ledger}:1", ledger, one) for one in (batch, other))
            sessions.append([first, {**second, "repeat": 3}])
        return sessions

    # Good messages in unusual clothes

    def special(self) -> list[list[Members]]:
        """CloudEvents in both modes, gzip, a byte-order mark, numbers in other spellings, a session in another case."""
        tea = '{"lineId":"1","sku":"TEA","quantity":2,"unitPrice":"3.50"}'

        def placed(order: str, line: str = tea) -> str:
            return f'{{"type":"order.placed","orderId":"{order}","currency":"EUR","lines":[{line}]}}'

        content = json.loads(placed("EVT-1"))
        del content["type"]
        event: Members = {"specversion": "1.0", "id": "EVT-1", "source": "/shop", "type": "order.placed"}
        event["data"] = content
        cancel: Members = {"orderId": "EVT-2", "operationId": "op-1"}
        binary: Members = {"cloudEvents:specversion": "1.0", "cloudEvents:source": "/shop"}
        structured = self.message("orders", "9f2c-1", "EVT-1", event, contentType="application/cloudevents+json")
        two = [
            self.message("orders", "EVT-2", "EVT-2", _Raw(placed("EVT-2"))),
            self.message(
                "orders", "9f2c-2", "EVT-2", cancel,
                properties={**binary, "cloudEvents:id": "EVT-2:op-1", "cloudEvents:type": "order.cancelled"},
            ),
        ]  # fmt: skip
        zipped = [
            _bytes("orders", f"ZIP-{number}", _zipped(placed(f"ZIP-{number}").encode()),
                   properties={"content-encoding": "gzip"})
            for number in (1, 2, 3)
        ]  # fmt: skip
        marked = _bytes("orders", "BOM-1", b"\xef\xbb\xbf" + placed("BOM-1").encode())
        spelt = []
        for number, text in enumerate(("2", "2.0", "2e0", "20e-1", "0.2e1"), start=1):
            line = tea.replace('"quantity":2', f'"quantity":{text}')
            order = f"NUM-{number}"
            spelt.append([self.message("orders", order, order, _Raw(placed(order, line)))])
        upper = self.message("orders", "Case-1", "case-1", _Raw(placed("Case-1")))
        escaped = self.message("orders", "ESC/1", "ESC/1", _Raw(placed("ESC\\/1")))
        return [[structured], two, *([line] for line in zipped), [marked], *spelt, [upper], [escaped]]

    # Messages that must be parked

    def wrong(self) -> Iterable[Members]:
        """One of each fault, each in a session of its own or behind a good order."""
        line: Members = {"lineId": "1", "sku": "TEA", "quantity": 1, "unitPrice": "1.00"}
        good: Members = {"type": "order.placed", "orderId": "BAD", "currency": "EUR", "lines": [line]}
        number = 0

        def bad(**changes: Any) -> Members:
            nonlocal number
            number += 1
            order = f"BAD-{number}"
            return self.message("orders", order, order, {**good, "orderId": order, **changes})

        yield _bytes("orders", "TXT-1", b"not JSON at all")
        yield _bytes("orders", "TXT-2", b"")
        yield _bytes("orders", "TXT-3", b'{"type":"order.placed"')
        yield _bytes("orders", "TXT-4", json.dumps(good).encode("utf-16"))
        yield _bytes("orders", "TXT-5", b"\xff\xfe\x00")
        yield _bytes("orders", "TXT-6", b"plain text", properties={"content-encoding": "gzip"})
        yield _bytes("orders", "TXT-7", b"{}", properties={"content-encoding": "br"})
        for text in ("[]", "7", '"text"', "null", '{"type":"order.placed","type":"order.placed"}', '{"a":NaN}'):
            number += 1
            if "NaN" in text:
                yield _bytes("orders", f"BAD-{number}", text.encode())
            else:
                yield self.message("orders", f"BAD-{number}", f"BAD-{number}", _Raw(text))
        yield bad(colour="red")
        yield bad(currency="eur")
        yield bad(lines=[])
        yield bad(lines=[line, line])
        yield bad(lines=[{**line, "quantity": 0}])
        yield bad(lines=[{**line, "quantity": "1"}])
        yield bad(lines=[{**line, "unitPrice": "1,00"}])
        yield bad(lines=[{**line, "unitPrice": "-1"}])
        yield bad(lines=[{**line, "unitPrice": "1.00001"}])
        yield bad(lines=[{**line, "quantity": 999999, "unitPrice": "999999999999999"}])
        yield bad(lines=[{**line, "quantity": _Raw("9007199254740993")}])
        yield bad(schemaVersion=2)
        yield bad(sequence=2)
        yield bad(type="order.imagined")
        yield bad(customerId=None)
        yield bad(meta="text")
        yield bad(lines=[{**line, "sku": "y" * 64}])
        yield {**bad(), "messageId": None}
        yield {**bad(), "messageId": ""}
        yield {**bad(), "messageId": "BAD-other"}
        yield {**bad(), "sessionId": ""}
        yield {**bad(), "sessionId": "somebody-else", "repeat": 2}
        yield self.message(
            "orders", "NONE-1:op-1", "NONE-1", {"type": "order.cancelled", "orderId": "NONE-1", "operationId": "op-1"}
        )
        status: Members = {"type": "order.status", "orderId": "NONE-2", "status": "shipped", "version": 1}
        yield self.message("orders", "NONE-2:status.1", "NONE-2", status)
        row: Members = {"transactionId": "T-1", "orderId": "ORD-0001", "kind": "add", "amount": "1"}
        batch: Members = {"ledgerId": "BL", "batchId": "1", "currency": "EUR"}
        for at, rows in enumerate(
            (
                [{**row, "orderIds": ["ORD-0001", "ORD-0002"]}],
                [{**row, "kind": "void"}],
                [{**row, "kind": "close"}],
                [row, row],
                [row, {**row, "transactionId": "T-2", "sequence": 1}],
                [{**row, "amount": "1e3"}],
            ),
            start=1,
        ):
            ledger = f"BL-{at}"
            yield self.message("ledger", f"{ledger}:1", ledger, {**batch, "ledgerId": ledger, "transactions": rows})
        early = {**batch, "ledgerId": "EARLY", "batchSequence": 3, "transactions": [row]}
        yield self.message("ledger", "EARLY:1", "EARLY", early)
        yield self.message("ledger", "EARLY:2", "LATE", {**early, "batchId": "2"})
        entry: Members = {"orderId": "ORD-0008", "stream": "ledger.D9", "transactionId": "E-1", "kind": "add"}
        entry |= {"amount": "1", "currency": "EUR"}
        yield self.message("ledger-entries", "ORD-0008:ledger.D9:E-2", "ORD-0008", entry)
        yield self.message("ledger-entries", "ORD-0008:books:E-1", "ORD-0008", {**entry, "stream": "books"})
        yield self.message("ledger-entries", "ORD-0008:ledger.D9:E-1", "ORD-0009", entry)


def _bytes(queue: str, name: str, data: bytes, **more: Any) -> Members:
    body = base64.b64encode(data).decode()
    return {"queue": queue, "messageId": name, "sessionId": name, "bodyBase64": body, **more}


def _zipped(data: bytes) -> bytes:
    """Pack bytes as gzip by one stored block, which every version of zlib would write alike."""
    header = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    block = b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data
    return header + block + struct.pack("<II", zlib.crc32(data), len(data))


def _text(value: Any) -> str:
    """Write compact JSON, with raw parts as they are."""
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(name)}:{_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_text(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    FILE.write_text(generate(), encoding="utf-8", newline="\n")
