"""`python -m local.demo`: runs orders and ledgers through the app on the embedded stack and proves the outcome."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from azure.core.exceptions import AzureError
from rich.console import Console

from local.config_errors import ConfigError
from local.cosmos.store import StoreError
from local.demo.lines import InputError, read_lines
from local.demo.report import as_json, show
from local.demo.run import run
from local.host.errors import HostError
from local.stack import StackError

PROVEN, NOT_PROVEN, USAGE, ENVIRONMENT, INTERRUPTED = 0, 1, 2, 3, 130
SHIPPED = Path(__file__).with_name("orders.jsonl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; gives the exit code: 0 proven, 1 not, 2 input or option, 3 environment, 130 interrupted."""
    options = _options(arguments)
    try:
        lines = read_lines(options.input)
        report = _writable(options.json)
    except InputError as problem:
        return _fail(str(problem), USAGE)
    os.environ.pop("PAYMENTS_URL", None)  # the expectation is that of an app without a payment provider
    console = Console()
    try:
        result = asyncio.run(run(lines, options.seed, console))
    except ConfigError as problem:
        return _fail(str(problem), USAGE)
    except (StackError, HostError, StoreError, OSError, AzureError) as problem:
        return _fail(str(problem), ENVIRONMENT)
    show(console, result.tally, result.verdict, result.seconds)
    if report is not None:
        text = json.dumps(as_json(result.tally, result.verdict, result.seconds), indent=2, ensure_ascii=False)
        try:
            report.write_text(text + "\n", encoding="utf-8")
        except OSError as problem:
            return _fail(f"--json {report}: {problem.strerror}", ENVIRONMENT)
    return PROVEN if result.verdict.is_proven else NOT_PROVEN


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py demo", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--input", type=Path, default=SHIPPED, metavar="FILE", help="messages, one JSON object a line (orders.jsonl)")
    add("--json", type=Path, metavar="FILE", help="write the report here as JSON")
    add("--seed", type=int, default=1, metavar="N", help="decides when the worker is killed (1)")
    return parser.parse_args(arguments)


def _writable(path: Path | None) -> Path | None:
    """Refuse a report file that can't be written before a minute of work has gone into it."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InputError(f"--json {path}: not a file in an existing folder")
    return path


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"demo: {text}\n")
    return code


def _interrupt(_number: int, _frame: object) -> None:
    """End as on Ctrl-C: asyncio then leaves the stack in order."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("demo: interrupted\n")
        sys.exit(INTERRUPTED)
