"""Why a command can't do what it was asked for; each kind has its exit code."""

from __future__ import annotations

DONE = 0
LEFT_OVER = 1
USAGE = 2
ENVIRONMENT = 3
INTERRUPTED = 130


class OpsError(Exception):
    """A command stops here; `code` is its exit code."""

    code = LEFT_OVER


class UsageError(OpsError):
    """The call is wrong, or a file or setting that it names."""

    code = USAGE


class EnvironmentProblemError(OpsError):
    """Something outside is missing: a running stack, a program, a right."""

    code = ENVIRONMENT
