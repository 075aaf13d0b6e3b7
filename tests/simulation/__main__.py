"""`python -m tests.simulation`: seeded schedules over the pure machines; prints the history of a seed that fails."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from rich.progress import track

from local.demo.command import leave
from tests.simulation.engine import ROUGH
from tests.simulation.run import run_seed


def main() -> int:
    """Run seeds until one fails."""
    parser = argparse.ArgumentParser(prog="dev.py simulate", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--rough", action="store_true", help="more faults per run")
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.start < 0:
        parser.error("--seeds must be 1 or more, --start 0 or more")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    for seed in track(range(arguments.start, arguments.start + arguments.seeds), "schedules"):
        report = run_seed(seed, ROUGH if arguments.rough else None)
        if report.violations:
            sys.stdout.write(f"{report}\n")
            return 1
    sys.stdout.write(f"{arguments.seeds} schedules, none with a violation, {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    leave("simulate", main)
