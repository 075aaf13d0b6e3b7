"""Turns an invocation of the host into arguments, and what a function returned into an answer.

Both go through the library's own converters, fed with the same data types as the platform's worker feeds them.
"""

from __future__ import annotations

import logging
import threading
import types
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any

from azure.functions import Context
from azure.functions.meta import Datum

from local.host.worker.indexing import LoadedFunction, converter_of

user_threads = threading.local()  # context.thread_local_storage: user threads name their invocation in it


@dataclass(frozen=True, slots=True)
class TraceContext:
    """`context.trace_context`, under the worker's old names and under the library's."""

    Traceparent: str
    Tracestate: str
    Attributes: Mapping[str, str]

    @property
    def trace_parent(self) -> str:
        return self.Traceparent

    @property
    def trace_state(self) -> str:
        return self.Tracestate

    @property
    def attributes(self) -> Mapping[str, str]:
        return self.Attributes


class InvocationContext(Context):
    """What a function's `context` parameter gets."""

    def __init__(self, invocation_id: str, function_name: str, directory: str, trace: Mapping[str, str]) -> None:
        self._invocation_id = invocation_id
        self._function_name = function_name
        self._directory = directory
        self._trace = TraceContext(trace.get("traceparent", ""), trace.get("tracestate", ""), {})

    @property
    def invocation_id(self) -> str:
        return self._invocation_id

    @property
    def thread_local_storage(self) -> Any:  # the library declares the class where it means the object
        return user_threads

    @property
    def function_name(self) -> str:
        return self._function_name

    @property
    def function_directory(self) -> str:
        return self._directory

    @property
    def trace_context(self) -> Any:  # the library's abstract class lacks the names that the worker has always had
        return self._trace

    @property
    def retry_context(self) -> Any:  # no function of ours is retried by the host
        return types.SimpleNamespace(retry_count=0, max_retry_count=0, exception=None)


def argument(function: LoadedFunction, header: Mapping[str, Any], body: bytes) -> object:
    """Make the trigger's argument; raises what the library's converter raises, before user code runs."""
    metadata = {name: Datum(value, kind) for name, (kind, value) in header.get("metadata", {}).items()}
    kind = header["kind"]
    if kind == "http":
        data = _http_datum(header["http"], body)
    else:
        data = Datum(body if kind == "bytes" else body.decode(), kind)
    if function.takes_raw_value:
        return data.value
    converter = converter_of(function.trigger_type)
    return converter.decode(data, trigger_metadata=metadata)


def answer(function: LoadedFunction, returned: object) -> tuple[dict[str, object], bytes]:
    """Make the answer's header and body; a value nobody asked for is an error, as in the platform's worker."""
    if function.return_type is None:
        if returned is not None:
            raise RuntimeError(f"function {function.name!r} without a $return binding returned a non-None value")
        return {}, b""
    converter = converter_of(function.return_type)
    try:
        datum = converter.encode(returned, expected_type=None)
    except NotImplementedError:
        kind = type(returned).__name__
        raise TypeError(f"function {function.name!r} returned {kind}: {function.return_type} can't carry it") from None
    if datum.type == "string":
        headers = [["content-type", "text/plain; charset=utf-8"]]
        return {"http": {"status": 200, "headers": headers, "cookies": []}}, datum.value.encode()
    value = datum.value
    return {
        "http": {
            "status": int(value["status_code"].value),
            "headers": [[name, header.value] for name, header in value["headers"].items()],
            "cookies": [text for cookie in value["cookies"] or () for text in _cookie_texts(cookie)],
        }
    }, value["body"].value


def _cookie_texts(cookie: SimpleCookie) -> list[str]:
    return [morsel.OutputString() for morsel in cookie.values()]


def _http_datum(http: Mapping[str, Any], body: bytes) -> Datum:
    def texts(values: Mapping[str, str]) -> dict[str, Datum]:
        return {name: Datum(value, "string") for name, value in values.items()}

    return Datum(
        {
            "method": Datum(http["method"], "string"),
            "url": Datum(http["url"], "string"),
            "headers": texts(http["headers"]),
            "query": texts(http["query"]),
            "params": texts(http["params"]),
            "body": Datum(body, "bytes"),
        },
        "http",
    )


_STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def log_fields(record: logging.LogRecord) -> dict[str, object]:
    """The `extra` fields of a log record, as values that JSON can carry."""
    return {key: _json_safe(value) for key, value in record.__dict__.items() if key not in _STANDARD_FIELDS}


def _json_safe(value: object) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case Mapping():
            return {str(key): _json_safe(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_json_safe(item) for item in value]
        case _:
            return str(value)
