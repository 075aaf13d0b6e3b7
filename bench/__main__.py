"""`python -m bench`: what the embedded stack costs, measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
from azure.core.exceptions import AzureError
from rich.console import Console
from rich.table import Table

from bench import broker, cosmos, idle, memory
from bench.process import ServerError
from local.demo.command import ENVIRONMENT, fail, leave
from local.interrupt import LastingConsole, run_to_the_end

Measure = Callable[[], Coroutine[Any, Any, Mapping[str, float]]]
BENCHES: Final[Mapping[str, tuple[Measure, str]]] = {
    "broker": (broker.measure, "processor time of the broker beside the client's: 10,000 messages in 100 sessions"),
    "cosmos": (cosmos.measure, "creates a second beside a server that answers a constant"),
    "idle": (idle.measure, "processor share of 10,000 idle sessions"),
    "memory": (memory.measure, "memory after 1,000,000 messages beside that after 100,000 (a quarter of an hour)"),
}
NAME = "bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; gives the exit code."""
    lines = [f"  {name:8} {what}" for name, (_, what) in BENCHES.items()]
    parser = argparse.ArgumentParser(
        prog="dev.py bench",
        description=__doc__,
        epilog="\n".join(lines),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", type=_name, metavar="NAME", help="which (all)")
    console = LastingConsole()
    for name in parser.parse_args(arguments).names or BENCHES:
        measure, what = BENCHES[name]
        console.print(f"{name}: {what}", markup=False, highlight=False)
        try:
            show(console, run_to_the_end(measure()))
        except (ServerError, OSError, AzureError, psutil.Error) as problem:
            return fail(NAME, f"{name}: {problem}", ENVIRONMENT)
    return 0


def _name(text: str) -> str:
    if text not in BENCHES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(BENCHES)}")
    return text


def show(console: Console, result: Mapping[str, float]) -> None:
    """Print a measurement as a table."""
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, value in result.items():
        table.add_row(name, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}")
    console.print(table)


if __name__ == "__main__":
    leave(NAME, main)
