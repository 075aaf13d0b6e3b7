"""`python -m tests.chaos`: the app under load while a seeded plan of faults goes on, and the proof of the outcome."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from azure.core.exceptions import AzureError
from rich.console import Console

from local.config_errors import ConfigError
from local.cosmos.store import StoreError
from local.host.errors import HostError
from local.stack import StackError
from tests.chaos.plan import make_plan
from tests.chaos.report import Watch, as_json, show
from tests.chaos.run import run

PROVEN, NOT_PROVEN, USAGE, ENVIRONMENT, INTERRUPTED = 0, 1, 2, 3, 130
LEAST_MINUTES, MOST_MINUTES = 0.25, 1440.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; gives the exit code: 0 proven, 1 not, 2 option, 3 environment, 130 interrupted."""
    options = _options(arguments)
    os.environ.pop("PAYMENTS_URL", None)
    for name in ("azure", "asyncio"):  # they log each connection that is cut, some with a traceback
        logging.getLogger(name).setLevel(logging.CRITICAL)
    console = Console()
    plan = make_plan(options.seed, options.minutes * 60)
    acts = sum(len(track) for track in plan.tracks)
    console.print(f"seed {options.seed}: {acts} acts in {plan.seconds:.0f} seconds", markup=False, highlight=False)
    try:
        with Watch(console, plan.seconds) as watch:
            result = asyncio.run(run(plan, note=watch.note, progress=watch.update))
    except ConfigError as problem:
        return _fail(str(problem), USAGE)
    except (StackError, HostError, StoreError, OSError, AzureError) as problem:
        return _fail(str(problem), ENVIRONMENT)
    show(console, result)
    if options.json is not None:
        text = json.dumps(as_json(result), indent=2, ensure_ascii=False)
        try:
            options.json.write_text(text + "\n", encoding="utf-8")
        except OSError as problem:
            return _fail(f"--json {options.json}: {problem.strerror}", ENVIRONMENT)
    return PROVEN if result.verdict.is_proven else NOT_PROVEN


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py chaos", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--minutes", type=_minutes, default=1.0, metavar="N", help="how long the faults go on (1)")
    add("--seed", type=int, default=1, metavar="S", help="decides what is done and when (1)")
    add("--json", type=_writable, metavar="FILE", help="write the report here as JSON")
    return parser.parse_args(arguments)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"{LEAST_MINUTES:g} to {MOST_MINUTES:g} minutes expected, not {text!r}")
    return minutes


def _writable(text: str) -> Path:
    """Refuse a report file that can't be written before the work has gone into it."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: not a file in an existing folder")
    return path


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"chaos: {text}\n")
    return code


def _interrupt(_number: int, _frame: object) -> None:
    """End as on Ctrl-C: asyncio then leaves the stack in order."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("chaos: interrupted\n")
        sys.exit(INTERRUPTED)
