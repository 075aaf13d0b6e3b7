"""What people and programs see of a chaos run."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from local.demo import report as demo
from tests.chaos.run import Now, Result

SECONDS_BETWEEN_LINES = 5.0


def as_json(result: Result) -> dict[str, object]:
    """Build the report: that of the demo, and what was done."""
    return {
        "seed": result.plan.seed,
        "minutes": result.plan.seconds / 60,
        **demo.as_json(result.watched.tally, result.verdict, result.seconds),
        "quietSeconds": round(result.quiet_seconds, 3),
        "rounds": result.traffic.rounds,
        "copies": result.traffic.copies,
        "sendsUnconfirmed": result.traffic.unconfirmed,
        "acts": dict(sorted(result.done.acts.items())),
        "hits": dict(sorted(result.done.hits.items())),
        "awaySeconds": dict(sorted(result.done.away_seconds.items())),
        "deaths": dict(sorted(result.done.deaths.items())),
        "settlements": dict(sorted(result.watched.outcomes.items())),
        "deliveryCounts": {str(count): messages for count, messages in result.watched.delivery_counts.items()},
    }


def show(console: Console, result: Result) -> None:
    """Print what was done, how often messages were delivered, and the demo's table and verdict."""
    done = result.done
    table = Table(title="What was done to it", title_justify="left")
    table.add_column("act", overflow="fold")
    table.add_column("times", justify="right")
    table.add_column("operations hit", justify="right")
    for title, times in sorted(done.acts.items()):
        away = done.away_seconds[title]
        table.add_row(f"{title}, {away} s in all" if away else title, str(times), str(done.hits[title] or ""))
    console.print(table)
    points = {title: hits for title, hits in done.hits.items() if title.startswith("point: ") and hits}
    if points:
        console.print(f"points of the protocol met: {len(points)}", markup=False, highlight=False)
    counts = "  ".join(f"{count} x {messages}" for count, messages in result.watched.delivery_counts.items())
    console.print(f"delivery counts (count x messages): {counts}", markup=False, highlight=False)
    settled = "  ".join(f"{name} {count}" for name, count in sorted(result.watched.outcomes.items()))
    console.print(f"deliveries, as the host settled them: {settled}", markup=False, highlight=False)
    console.print(
        f"{result.traffic.rounds} rounds, {result.traffic.copies} copies in storms, "
        f"{result.traffic.unconfirmed} sends without an answer; quiet after {result.quiet_seconds:.1f} s",
        markup=False, highlight=False,
    )  # fmt: skip
    demo.show(console, result.watched.tally, result.verdict, result.seconds)


class Watch:
    """A bar on a terminal, now and then a line elsewhere."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console, self._seconds = console, seconds
        self._progress: Progress | None = None
        self._bar: TaskID | None = None
        self._said = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=self._console
            )
            self._bar = self._progress.add_task("starting", total=self._seconds)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, now: Now) -> None:
        """Show how far it is."""
        text = f"sent {now.sent}, handled {now.handled}, waiting {now.waiting}"
        if self._progress is not None and self._bar is not None:
            self._progress.update(self._bar, completed=min(now.seconds, self._seconds), description=text)
        elif time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self._console.print(f"{now.seconds:5.0f} s  {text}", markup=False, highlight=False)

    def note(self, text: str) -> None:
        """Say something between the bars."""
        self._console.print(f"         {text}", markup=False, highlight=False)
