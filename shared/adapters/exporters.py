"""Where telemetry goes: nowhere, to an OpenTelemetry collector, or to Azure Monitor (setting TELEMETRY_EXPORTER).

With an exporter, the app's log lines are exported from here, with their fields: the host would pass on their text
alone. So they no longer go to the host, which would export each a second time.
"""

from __future__ import annotations

import logging

from opentelemetry import metrics, trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

_SEVERITIES = {
    logging.DEBUG: SeverityNumber.DEBUG,
    logging.INFO: SeverityNumber.INFO,
    logging.WARNING: SeverityNumber.WARN,
    logging.ERROR: SeverityNumber.ERROR,
    logging.CRITICAL: SeverityNumber.FATAL,
}
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_exporters(exporter: str, logger: logging.Logger) -> None:
    """Install the providers of this process, once, for its spans, metrics and this logger's lines.

    With `none`, spans have ids and nothing leaves the process but the log lines, through the host.
    """
    resource = Resource.create({"service.name": "convoy"})
    tracers = TracerProvider(resource=resource)
    readers = []
    if exporter != "none":
        spans, values, lines = _exporters(exporter)
        tracers.add_span_processor(BatchSpanProcessor(spans))
        readers.append(PeriodicExportingMetricReader(values))
        logs = LoggerProvider(resource=resource)
        logs.add_log_record_processor(BatchLogRecordProcessor(lines))
        logger.addHandler(FieldsHandler(logs, logger.name))
        logger.propagate = False
        logger.setLevel(logging.INFO)
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider(readers, resource=resource))


class FieldsHandler(logging.Handler):
    """Hands log lines to OpenTelemetry: the event as body, the fields as attributes."""

    def __init__(self, provider: LoggerProvider, name: str) -> None:
        super().__init__()
        self._logger = provider.get_logger(name)

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on one line; the span that is current gives it its trace. A line that fails is the logging module's to
        report: no message depends on it."""
        try:
            self._emit(record)
        except Exception:
            self.handleError(record)

    def _emit(self, record: logging.LogRecord) -> None:
        attributes = {
            name: value if isinstance(value, str | bool | int | float) else str(value)
            for name, value in vars(record).items()
            if name not in _OF_EVERY_RECORD and value is not None
        }
        if record.exc_info and record.exc_info[1] is not None:
            attributes["exception.type"] = type(record.exc_info[1]).__name__
            attributes["exception.stacktrace"] = logging.Formatter().formatException(record.exc_info)
        self._logger.emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                severity_number=_SEVERITIES.get(record.levelno, SeverityNumber.INFO),
                severity_text=record.levelname,
                body=record.getMessage(),
                attributes=attributes,
            )
        )


def _exporters(name: str) -> tuple[SpanExporter, MetricExporter, LogRecordExporter]:
    """Imported here, since each costs memory and start-up time that most processes never need."""
    if name == "otlp":
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPSpanExporter(), OTLPMetricExporter(), OTLPLogExporter()
    from azure.monitor.opentelemetry.exporter import (  # noqa: PLC0415
        AzureMonitorLogExporter,
        AzureMonitorMetricExporter,
        AzureMonitorTraceExporter,
    )

    return AzureMonitorTraceExporter(), AzureMonitorMetricExporter(), AzureMonitorLogExporter()
