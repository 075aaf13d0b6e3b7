"""`python -m tests.chaos`: the app under load while a seeded plan of faults goes on, and the proof of the outcome."""

from __future__ import annotations

import argparse
import logging
import math
import os
from collections.abc import Sequence
from typing import Any

from local.demo.command import conclude, leave, report_file
from local.interrupt import LastingConsole
from tests.chaos.plan import make_plan
from tests.chaos.report import Watch, as_json, show
from tests.chaos.run import Result, run

NAME = "chaos"
LEAST_MINUTES, MOST_MINUTES = 0.25, 1440.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; gives the exit code: 0 proven, 1 not, 2 option, 3 environment, 130 interrupted."""
    options = _options(arguments)
    os.environ.pop("PAYMENTS_URL", None)
    for name in ("azure", "asyncio"):  # they log each connection that is cut, some with a traceback
        logging.getLogger(name).setLevel(logging.CRITICAL)
    console = LastingConsole()
    plan = make_plan(options.seed, options.minutes * 60)
    acts = sum(len(track) for track in plan.tracks)
    console.print(f"seed {options.seed}: {acts} acts in {plan.seconds:.0f} seconds", markup=False, highlight=False)

    async def watched() -> Result:
        with Watch(console, plan.seconds) as watch:
            return await run(plan, note=watch.note, progress=watch.update)

    def tell(result: Result) -> tuple[dict[str, Any], bool]:
        show(console, result)
        return as_json(result), result.verdict.is_proven

    return conclude(NAME, watched(), tell, options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py chaos", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--minutes", type=_minutes, default=1.0, metavar="N", help="how long the faults go on (1)")
    add("--seed", type=int, default=1, metavar="S", help="decides what is done and when (1)")
    add("--json", type=report_file, metavar="FILE", help="write the report here as JSON")
    return parser.parse_args(arguments)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"{LEAST_MINUTES:g} to {MOST_MINUTES:g} minutes expected, not {text!r}")
    return minutes


if __name__ == "__main__":
    leave(NAME, main)
