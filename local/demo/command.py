"""What the commands have in common that run the app and prove an outcome: their options, their end, their exit code."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from azure.core.exceptions import AzureError

from local.config_errors import ConfigError
from local.cosmos.store import StoreError
from local.host.errors import HostError
from local.interrupt import INTERRUPTED, run_to_the_end
from local.stack import PortError

Result = TypeVar("Result")

PROVEN: Final = 0
NOT_PROVEN: Final = 1
USAGE: Final = 2
ENVIRONMENT: Final = 3


def report_file(text: str) -> Path:
    """Read the option of a report file; one that can't be written is refused before work has gone into it."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: not a file in an existing folder")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path}: can't be written")
    return path


def conclude(
    name: str,
    work: Coroutine[Any, Any, Result],
    tell: Callable[[Result], tuple[dict[str, Any], bool]],
    report: Path | None,
) -> int:
    """Do the work, tell its result and write the report; gives the exit code.

    Args: tell shows a result, and gives the report's members and whether the outcome is proven.
    Raises: KeyboardInterrupt.
    """
    try:
        result = run_to_the_end(work)
    except (ConfigError, HostError) as problem:
        return fail(name, str(problem), USAGE)
    except (PortError, StoreError, OSError, AzureError) as problem:
        return fail(name, str(problem), ENVIRONMENT)
    members, is_proven = tell(result)
    if report is not None:
        try:
            report.write_text(json.dumps(members, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as problem:
            return fail(name, f"--json {report}: {problem.strerror}", ENVIRONMENT)
    return PROVEN if is_proven else NOT_PROVEN


def fail(name: str, text: str, code: int) -> int:
    """Say what is wrong; gives the exit code."""
    sys.stderr.write(f"{name}: {text}\n")
    return code


def leave(name: str, main: Callable[[], int]) -> NoReturn:
    """Run a command and end the process with its exit code: 130 when it was interrupted."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(fail(name, "interrupted", INTERRUPTED))
