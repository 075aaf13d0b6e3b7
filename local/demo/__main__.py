"""`python -m local.demo`: runs orders and ledgers through the app on the embedded stack and proves the outcome."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from local.demo.command import USAGE, conclude, fail, leave, report_file
from local.demo.lines import InputError, read_lines
from local.demo.report import as_json, show
from local.demo.run import Result, run
from local.interrupt import LastingConsole

NAME = "demo"
SHIPPED = Path(__file__).with_name("orders.jsonl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; gives the exit code: 0 proven, 1 not, 2 input or option, 3 environment, 130 interrupted."""
    options = _options(arguments)
    try:
        lines = read_lines(options.input)
    except InputError as problem:
        return fail(NAME, str(problem), USAGE)
    os.environ.pop("PAYMENTS_URL", None)  # the expectation is that of an app without a payment provider
    console = LastingConsole()

    def tell(result: Result) -> tuple[dict[str, Any], bool]:
        show(console, result.tally, result.verdict, result.seconds)
        return as_json(result.tally, result.verdict, result.seconds), result.verdict.is_proven

    return conclude(NAME, run(lines, options.seed, console), tell, options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py demo", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--input", type=Path, default=SHIPPED, metavar="FILE", help="messages, one JSON object a line (orders.jsonl)")
    add("--json", type=report_file, metavar="FILE", help="write the report here as JSON")
    add("--seed", type=int, default=1, metavar="N", help="decides when the worker is killed (1)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    leave(NAME, main)
