"""Tracebacks as the app's people want them: from their own first line on."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

_WORKER: Final = str(Path(__file__).resolve().parent)


def trace_of(error: BaseException) -> str:
    """The traceback without this worker's frames, and without those of Python's import of the app."""
    told = traceback.TracebackException.from_exception(error)
    own = [frame for frame in told.stack if not _is_machinery(frame.filename)]
    told.stack = traceback.StackSummary.from_list(own)
    return "".join(told.format())


def _is_machinery(file: str) -> bool:
    return file.startswith((_WORKER, "<frozen importlib")) or Path(file).parent.name == "importlib"
