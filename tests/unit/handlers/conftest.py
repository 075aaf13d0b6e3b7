"""What tests of the handlers leave behind, and what the handlers measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.metrics import Counter, Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

from shared import telemetry
from tests.unit.handlers.handler_bench import bury

Points = Callable[[str], list[tuple[dict[str, Any], float]]]
"""A metric's points by its name: attributes, and the value (of a histogram: how many)."""

INSTRUMENTS = (
    *("_duration", "_messages", "_lag", "_released", "_request_units"),
    *("_unfinished", "_oldest", "_held", "_gap", "_sweeps"),
)


@pytest.fixture(autouse=True)
def _dead_workers() -> Iterator[None]:
    yield
    bury()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Points]:
    """The app's instruments, read in memory. The process has one global provider, so they are made anew on another."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    meter = provider.get_meter("test")
    for attribute in INSTRUMENTS:
        found = getattr(telemetry, attribute)
        name = getattr(found, "name", None) or found._name
        make = (
            meter.create_counter
            if isinstance(found, Counter)
            else meter.create_histogram
            if isinstance(found, Histogram)
            else meter.create_gauge
        )
        monkeypatch.setattr(telemetry, attribute, make(name))

    def points(name: str) -> list[tuple[dict[str, Any], float]]:
        data = reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), point.count if isinstance(point, HistogramDataPoint) else point.value)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    yield points
    provider.shutdown()
