"""Names of events, fields and metrics, and the instruments behind them (docs/telemetry.md).

Log lines have a constant event text; data goes into fields. Metrics count outcomes and never carry a key, a session or
an order id.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.errors import EVENT_CONFIGURATION, Reason, TransientError

VERSION: Final = "0.1.0"
LOGGER: Final = "convoy"

MESSAGE_HANDLED: Final = "message.handled"
QUARANTINE_FAILED: Final = "message.quarantine_failed"
OUTBOX_STUCK: Final = "outbox.stuck"
OUTBOX_SWEPT: Final = "outbox.swept"
EFFECT_CALLED: Final = "effect.called"
EFFECT_PARKED: Final = "effect.parked"
GAP_OPEN: Final = "gap.open"
STREAM_INCOMPLETE: Final = "stream.incomplete"
ENTRY_REFUSED: Final = "entry.refused"
CONFIGURATION: Final = EVENT_CONFIGURATION
SWEEP_FINISHED: Final = "sweep.finished"

logger = logging.getLogger(LOGGER)

_consumer: ContextVar[str] = ContextVar("consumer", default="")
_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("convoy", VERSION)
_meter = metrics.get_meter("convoy", VERSION)

_duration = _meter.create_histogram("messaging.process.duration", "s", "Time that one attempt took")
_messages = _meter.create_counter("convoy.messages", "{message}", "Deliveries by outcome")
_lag = _meter.create_histogram("convoy.message.lag", "s", "From the broker's enqueued time to completion")
_released = _meter.create_counter("convoy.entries.released", "{entry}", "Held entries that were applied")
_request_units = _meter.create_counter("convoy.request_units", "{RU}", "Charge of database requests")
_unfinished = _meter.create_gauge("convoy.outbox.unfinished", "{record}", "Records that are not completed")
_oldest = _meter.create_gauge("convoy.outbox.oldest", "s", "Age of the oldest unfinished record")
_held = _meter.create_gauge("convoy.held", "{entry}", "Entries that wait for a predecessor")
_gap = _meter.create_gauge("convoy.gap.oldest", "s", "Age of the oldest held entry")
_sweeps = _meter.create_counter("convoy.sweeps", "{run}", "Runs of the sweep by result")

# What the SDKs say of each request is noise beside one line per message.
for _name in ("azure", "opentelemetry"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_fingerprinted = False


def use_fingerprints(on: bool) -> None:
    """Write keys and sessions as the first 16 hex digits of their SHA-256 (setting LOG_KEYS)."""
    global _fingerprinted  # noqa: PLW0603 - one setting of the process, made once at its start
    _fingerprinted = on


def key_text(key: str | None) -> str | None:
    """A key as it may stand in a log line."""
    if key is None or not _fingerprinted:
        return key
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def keyed(**fields: str | None) -> dict[str, str | None]:
    """Log fields that hold keys, sessions or ids."""
    return {name: key_text(value) for name, value in fields.items()}


@dataclass(frozen=True, slots=True)
class Handled:
    """What is said about each delivery, once."""

    consumer: str
    role: str
    outcome: str
    reason: str | None
    dedup_key: str | None
    message_id: str | None
    session_id: str | None
    correlation_id: str | None
    delivery_count: int
    attempt_seconds: float
    lag_seconds: float
    replay_count: int
    is_settled: bool
    error_type: str | None


def message_handled(handled: Handled, error: BaseException | None) -> None:
    """One log line and the metrics of one delivery."""
    logger.log(
        logging.ERROR if error is not None and handled.outcome == "failed" else logging.INFO,
        MESSAGE_HANDLED,
        extra={
            "consumer": handled.consumer,
            "role": handled.role,
            "outcome": handled.outcome,
            "reason": handled.reason,
            **keyed(
                dedup_key=handled.dedup_key,
                message_id=handled.message_id,
                session_id=handled.session_id,
                correlation_id=handled.correlation_id,
            ),
            "delivery_count": handled.delivery_count,
            "attempt_seconds": round(handled.attempt_seconds, 4),
            "lag_seconds": round(handled.lag_seconds, 3),
            "replay_count": handled.replay_count,
            "app_version": VERSION,
            **_trace_fields(),
        },
        exc_info=error if handled.outcome == "failed" else None,
    )
    _messages.add(
        1, {"consumer": handled.consumer, "outcome": handled.outcome, "reason": handled.reason or ""}
    )
    attributes = {"messaging.system": "servicebus", "messaging.destination.name": handled.role}
    if handled.error_type is not None:
        attributes["error.type"] = handled.error_type
    _duration.record(handled.attempt_seconds, attributes)
    if handled.is_settled:
        _lag.record(handled.lag_seconds, {"consumer": handled.consumer})


def _trace_fields() -> dict[str, str]:
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}


@contextmanager
def process_span(consumer: str, role: str, traceparent: str | None, tracestate: str | None) -> Iterator[None]:
    """The span of one delivery; its parent is the message's traceparent, and garbage there is ignored."""
    carrier = {"traceparent": traceparent or "", "tracestate": tracestate or ""}
    parent = _propagator.extract(carrier)
    _consumer.set(consumer)
    with _tracer.start_as_current_span(
        f"process {role}",
        context=parent,
        kind=trace.SpanKind.CONSUMER,
        attributes={"messaging.system": "servicebus", "messaging.destination.name": role},
    ):
        yield


@contextmanager
def span(name: str, *, producer: bool = False, consumer: str | None = None) -> Iterator[None]:
    """A span below the current one. `consumer`: whose work this is from here on."""
    if consumer is not None:
        _consumer.set(consumer)
    kind = trace.SpanKind.PRODUCER if producer else trace.SpanKind.INTERNAL
    with _tracer.start_as_current_span(name, kind=kind):
        yield


def current_traceparent() -> str | None:
    """The current span as a `traceparent`, to be stored or sent."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, otel_context.get_current())
    return carrier.get("traceparent")


def log_transient(error: TransientError) -> None:
    """Log an error that waiting alone will not heal under its event; others need no line of their own."""
    if error.event is not None:
        logger.error(error.event, extra={"description": str(error)})


def log_stuck(record: str, error: BaseException | None) -> None:
    """An unfinished record that could not be brought to its end."""
    logger.error(
        OUTBOX_STUCK,
        extra={**keyed(record=record), "error": type(error).__name__ if error else "sweeps"},
        exc_info=error,
    )


def effect_called(answer: str | None) -> None:
    """A call of another system, with the kind of its answer; None: it gave none."""
    logger.info(EFFECT_CALLED, extra={"effect": "payment", "answer": answer or "unknown"})


def effect_parked(reason: Reason) -> None:
    """An effect that nobody calls again without a person's word."""
    logger.error(EFFECT_PARKED, extra={"effect": "payment", "reason": reason.value})


def count_released(entries: int) -> None:
    """Held entries that the predecessor's arrival applied."""
    if entries:
        _released.add(entries)


def count_request_units(operation: str, charge: float) -> None:
    """The charge of one database request, by operation and by the consumer that made it."""
    _request_units.add(charge, {"consumer": _consumer.get(), "operation": operation})


def set_unfinished(container: str, records: int, oldest_seconds: float) -> None:
    """What a sweep found unfinished in a container."""
    _unfinished.set(records, {"container": container})
    _oldest.set(oldest_seconds, {"container": container})


def set_held(entries: int, oldest_seconds: float) -> None:
    """What a sweep found held."""
    _held.set(entries)
    _gap.set(oldest_seconds)


def count_sweep(result: str) -> None:
    """One run of the sweep."""
    _sweeps.add(1, {"result": result})
