"""What people and programs see: progress while it runs, a table and a verdict at the end, and the JSON report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from local.demo.verify import Verdict

SECONDS_BETWEEN_LINES = 3.0
MOST_SHOWN = 20


@dataclass(slots=True)
class Tally:
    """What was counted on the way."""

    sent: int = 0
    received: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)  # of `orders`, handled at least once
    worker_kills: int = 0
    refused: dict[int, str] = field(default_factory=dict)  # line number -> what the broker said

    def handled(self, consumer: str, outcome: str, session: str | None) -> None:
        """Count one delivery."""
        self.received += 1
        self.outcomes.setdefault(consumer, Counter())[outcome] += 1
        if consumer == "process_order" and session is not None:
            self.sessions.add(session)


def as_json(tally: Tally, verdict: Verdict, seconds: float) -> dict[str, object]:
    """Build the report of `--json` (contracts 15)."""
    return {
        "sent": tally.sent,
        "received": tally.received,
        "outcomes": {consumer: dict(sorted(counts.items())) for consumer, counts in sorted(tally.outcomes.items())},
        "applied": verdict.applied,
        "held": verdict.held,
        "quarantined": dict(sorted(verdict.quarantined.items())),
        "deadLettered": verdict.dead_lettered,
        "workerKills": tally.worker_kills,
        "ordersChecked": verdict.orders_checked,
        "violations": [
            {"rule": violation.rule, "orderId": violation.order_id, "detail": violation.detail}
            for violation in verdict.violations
        ],
        "seconds": round(seconds, 3),
        "proven": verdict.is_proven,
    }


def show(console: Console, tally: Tally, verdict: Verdict, seconds: float) -> None:
    """Print the table and the verdict."""
    table = Table(title="What became of the messages", title_justify="left")
    table.add_column("consumer")
    table.add_column("outcomes", overflow="fold")
    table.add_column("deliveries", justify="right")
    for consumer, counts in sorted(tally.outcomes.items()):
        table.add_row(consumer, _listed(counts), str(counts.total()))
    console.print(table)

    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("messages sent", str(tally.sent))
    facts.add_row("deliveries handled", str(tally.received))
    facts.add_row("workers killed", str(tally.worker_kills))
    facts.add_row("entries applied", str(verdict.applied))
    facts.add_row("entries held", str(verdict.held))
    facts.add_row("quarantined", _listed(verdict.quarantined) or "none")
    facts.add_row("dead-lettered", str(verdict.dead_lettered))
    facts.add_row("orders checked", str(verdict.orders_checked))
    facts.add_row("balances", _amounts(verdict.totals) or "none")
    facts.add_row("several ends allowed", str(verdict.alternatives))
    if verdict.unpredicted:
        facts.add_row("checked by invariants only", str(verdict.unpredicted))
    if tally.refused:
        facts.add_row("refused by the broker", str(len(tally.refused)))
    facts.add_row("seconds", f"{seconds:.1f}")
    console.print(facts)

    for number, reason in list(tally.refused.items())[:MOST_SHOWN]:
        console.print(f"line {number}: refused by the broker: {reason}", markup=False)
    _say_verdict(console, verdict)


def _say_verdict(console: Console, verdict: Verdict) -> None:
    for violation in verdict.violations[:MOST_SHOWN]:
        where = "" if violation.order_id is None else f" {violation.order_id}"
        console.print(f"violation [{violation.rule}]{where}: {violation.detail}", markup=False, style="red")
    if len(verdict.violations) > MOST_SHOWN:
        console.print(f"... and {len(verdict.violations) - MOST_SHOWN} more violations")
    if verdict.is_proven:
        console.print("PROVEN: each message applied once and in order, held, or parked with a reason", style="green")
    else:
        console.print(f"NOT PROVEN: {len(verdict.violations)} violations", style="red")


def _listed(counts: Mapping[str, int]) -> str:
    return "  ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _amounts(totals: Mapping[str, Decimal]) -> str:
    return "  ".join(f"{currency} {amount:f}" for currency, amount in sorted(totals.items()))


class Watch:
    """Progress bars on a terminal, now and then a line elsewhere."""

    def __init__(self, console: Console, tally: Tally, *, sent: int, handled: int, orders: int) -> None:
        self._console, self._tally = console, tally
        self._totals = {"sent": sent, "handled": handled, "orders": orders}
        self._bars: dict[str, TaskID] = {}
        self._progress: Progress | None = None
        self._said = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                console=self._console,
            )
            self._bars = {name: self._progress.add_task(name, total=total) for name, total in self._totals.items()}
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.update(last=True)
        if self._progress is not None:
            self._progress.stop()

    def update(self, *, last: bool = False) -> None:
        """Show the counts as they are."""
        now = {"sent": self._tally.sent, "handled": self._tally.received, "orders": len(self._tally.sessions)}
        if self._progress is not None:
            for name, bar in self._bars.items():
                total = max(now[name], 0 if last else self._totals[name])  # redeliveries come on top of the estimate
                self._progress.update(bar, completed=now[name], total=total)
        elif last or time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self._console.print(
                f"sent {now['sent']} of {self._totals['sent']}, handled {now['handled']}, "
                f"orders {now['orders']} of {self._totals['orders']}",
                markup=False,
            )

    def note(self, text: str) -> None:
        """Say something between the bars."""
        self._console.print(text, markup=False)
