"""Log lines on their way to an exporter."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider

from shared.adapters.exporters import FieldsHandler


@pytest.fixture
def exported() -> InMemoryLogRecordExporter:
    return InMemoryLogRecordExporter()


@pytest.fixture
def logger(exported: InMemoryLogRecordExporter) -> logging.Logger:
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exported))
    own = logging.Logger("convoy.test")
    own.addHandler(FieldsHandler(provider, own.name))
    return own


def test_a_line_keeps_its_event_its_fields_and_its_trace(  # C29 R68
    logger: logging.Logger, exported: InMemoryLogRecordExporter
) -> None:
    with TracerProvider().get_tracer("test").start_as_current_span("process orders") as span:
        logger.info("message.handled", extra={"dedup_key": "O", "delivery_count": 2, "reason": None, "held": {1}})
    (line,) = (data.log_record for data in exported.get_finished_logs())
    assert line.body == "message.handled"
    assert dict(line.attributes or {}) == {"dedup_key": "O", "delivery_count": 2, "held": "{1}"}
    assert line.severity_text == "INFO"
    assert line.trace_id == span.get_span_context().trace_id


def test_an_error_keeps_its_exception(logger: logging.Logger, exported: InMemoryLogRecordExporter) -> None:
    try:
        raise KeyError("x")
    except KeyError:
        logger.exception("outbox.stuck", extra={"record": "L:B"})
    (line,) = (data.log_record for data in exported.get_finished_logs())
    attributes = dict(line.attributes or {})
    assert attributes["exception.type"] == "KeyError"
    assert "Traceback" in str(attributes["exception.stacktrace"])
    assert attributes["record"] == "L:B"


def test_a_line_that_can_not_be_exported_is_no_error_of_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = FieldsHandler(LoggerProvider(), "convoy.test")
    reported: list[logging.LogRecord] = []
    monkeypatch.setattr(handler, "handleError", reported.append)
    monkeypatch.setattr(handler, "_emit", lambda _: 1 / 0)
    own = logging.Logger("convoy.test")
    own.addHandler(handler)
    own.info("message.handled")
    assert [record.getMessage() for record in reported] == ["message.handled"]
