"""What happens in the host, as one compact line for people."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from local.host.events import HostEvent, InvocationEnded, LogLine, Outcome, WorkerDied, WorkerStarted

_QUIET_LOGGERS: Final = ("azure", "uamqp", "urllib3", "opentelemetry")
_QUIET_LEVELS: Final = ("DEBUG", "INFO")
_SHOWN_FIELDS: Final = 8


def line_of(event: HostEvent) -> str | None:
    """A line, or None for what nobody wants to read: SDK chatter below a warning."""
    match event:
        case InvocationEnded():
            return _invocation(event)
        case WorkerStarted():
            return f"worker {event.instance} ready (pid {event.pid}): {', '.join(event.functions)}"
        case WorkerDied(expected=True):
            return None
        case WorkerDied():
            return f"worker {event.instance} died (pid {event.pid}, exit code {event.exit_code}); starting another"
        case LogLine():
            return _log_line(event)


def stamped(line: str) -> str:
    """The line behind the time of day."""
    return f"{datetime.now().strftime('%H:%M:%S.%f')[:-3]}  {line}"  # noqa: DTZ005  # for people, in their own time


def _invocation(event: InvocationEnded) -> str | None:
    took = f"{event.seconds * 1000:.0f} ms"
    if event.queue is None:
        if event.outcome is Outcome.COMPLETED:
            return f"{event.function}: {event.status or 'done'} in {took}"
        return f"{event.function}: {event.outcome} after {took}\n{event.error or ''}".rstrip()
    where = f"{event.queue} session {event.session_id} message {event.message_id} delivery {event.delivery_count}"
    line = f"{event.function}: {event.outcome} in {took}: {where}"
    return line if event.error is None else f"{line}\n{event.error}"


def _log_line(event: LogLine) -> str | None:
    if event.level in _QUIET_LEVELS and event.logger.partition(".")[0] in _QUIET_LOGGERS:
        return None
    shown = [f"{name}={value}" for name, value in event.fields.items() if value not in (None, "")]
    level = "" if event.level == "INFO" else f"{event.level} "
    source = event.function or event.logger
    line = f"{source}: {level}{event.message}" + "".join(f" {field}" for field in shown[:_SHOWN_FIELDS])
    return line if event.exception is None else f"{line}\n{event.exception.rstrip()}"
