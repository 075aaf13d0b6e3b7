"""Where telemetry goes: nowhere, to an OpenTelemetry collector, or to Azure Monitor (setting TELEMETRY_EXPORTER)."""

from __future__ import annotations

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from shared.settings import Settings


def set_up_exporters(settings: Settings) -> None:
    """Install the providers of this process, once. Without an exporter spans have ids and metrics go nowhere."""
    resource = Resource.create({"service.name": "convoy"})
    tracers = TracerProvider(resource=resource)
    readers = []
    if settings.telemetry_exporter != "none":
        spans, values = _exporters(settings.telemetry_exporter)
        tracers.add_span_processor(BatchSpanProcessor(spans))
        readers.append(PeriodicExportingMetricReader(values))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider(readers, resource=resource))


def _exporters(name: str) -> tuple[SpanExporter, MetricExporter]:
    """Imported here, since each costs memory and start-up time that most processes never need."""
    if name == "otlp":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPSpanExporter(), OTLPMetricExporter()
    from azure.monitor.opentelemetry.exporter import (  # noqa: PLC0415
        AzureMonitorMetricExporter,
        AzureMonitorTraceExporter,
    )

    return AzureMonitorTraceExporter(), AzureMonitorMetricExporter()
