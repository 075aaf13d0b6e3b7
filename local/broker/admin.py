"""The emulator's HTTP port: health, and the administration API as far as it only reads.

One GET at a time over plain HTTP/1.1 is all that the .NET administration client needs, so a server of thirty lines
stands where a web framework would.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from local.broker.cbs import SasKey, TokenError
from local.broker.durations import format_duration
from local.broker.machine import Queue
from local.broker.model import BrokerError, Counts
from local.broker.service import BrokerService
from local.tcp import Listener

_ATOM = "http://www.w3.org/2005/Atom"
_SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_COUNT_DETAILS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_UNLIMITED = "P10675199DT2H48M5.4775807S"  # the greatest TimeSpan, by which .NET says "never"
_MAX_HEAD_BYTES = 64 * 1024
_REQUEST_SECONDS = 30.0
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    body: str
    content_type: str = "application/atom+xml;type=entry;charset=utf-8"


class AdminServer:
    """Answers on the administration port."""

    def __init__(self, service: BrokerService, key: SasKey) -> None:
        self._service = service
        self._key = key
        self._started = dt.datetime.fromtimestamp(service.clock(), dt.UTC).isoformat().replace("+00:00", "Z")
        self._listener = Listener(self._protocol)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the port in fact."""
        return await self._listener.start(host, port)

    def suspend(self) -> None:
        """Refuse connections and drop what is under way."""
        self._listener.suspend()
        for task in list(self._tasks):
            task.cancel()

    def resume(self) -> None:
        """Take connections again."""
        self._listener.resume()

    async def stop(self) -> None:
        """Stop listening and drop what is under way."""
        self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.stop()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MAX_HEAD_BYTES, loop=loop)
        return asyncio.StreamReaderProtocol(reader, self._serve, loop=loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine always runs in one
        self._tasks.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.CancelledError):
            pass  # the client left, or the server stops: nobody is there to tell
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; gives whether the connection lives on."""
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            request = _parse(head)
        except (asyncio.IncompleteReadError, TimeoutError):
            return False
        except (asyncio.LimitOverrunError, ValueError):
            request = None
        response = _Response(400, "", "text/plain") if request is None else self._answer(request)
        # A request with a body is none that this port serves; closing spares reading it.
        lives_on = request is not None and request.method == "GET" and request.headers.get("connection") != "close"
        body = response.body.encode()
        lines = [
            f"HTTP/1.1 {response.status} {_REASONS[response.status]}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(body)}",
            f"Connection: {'keep-alive' if lives_on else 'close'}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        return lives_on

    def _answer(self, request: _Request) -> _Response:
        if request.method != "GET":
            return _error(405, f"{request.method} is not available: entities come from Config.json.")
        if request.path == "/health":
            text = json.dumps({"status": "healthy", "message": "Service is healthy."})
            return _Response(200, text, "application/json")
        try:
            # Clients sign https://HOST/ though they speak plain HTTP, so the host is the token's and the path counts.
            host = request.headers.get("host", "").partition(":")[0]
            self._key.check(request.headers.get("authorization", ""), f"https://{host}{request.path}")
        except TokenError as exc:
            return _error(401, str(exc))
        if request.path.lower() in ("/$resources/queues", "/$resources/topics"):
            return self._list(request)
        try:
            queue = self._service.broker.queue(request.path.strip("/"))
        except BrokerError as exc:
            return _error(404, exc.description)
        return _Response(200, '<?xml version="1.0" encoding="utf-8"?>' + self._entry(queue))

    def _list(self, request: _Request) -> _Response:
        skip, top = (request.query.get(name, default) for name, default in (("$skip", "0"), ("$top", "100")))
        if not (skip.isdecimal() and top.isdecimal()):
            return _error(400, "$skip and $top must be whole numbers.")
        queues = self._service.broker.queues if request.path.lower().endswith("queues") else []
        entries = "".join(self._entry(queue) for queue in queues[int(skip) :][: int(top)])
        title = f'<title type="text">{escape(request.path[1:])}</title><updated>{self._started}</updated>'
        feed = f'<?xml version="1.0" encoding="utf-8"?><feed xmlns="{_ATOM}">{title}{entries}</feed>'
        return _Response(200, feed, "application/atom+xml;type=feed;charset=utf-8")

    def _entry(self, queue: Queue) -> str:
        fields = _description(queue, self._service.counts(queue.name), self._started)
        times = f"<published>{self._started}</published><updated>{self._started}</updated>"
        return (
            f'<entry xmlns="{_ATOM}"><title type="text">{escape(queue.name)}</title>{times}'
            f'<content type="application/xml"><QueueDescription xmlns="{_SERVICE_BUS}">{fields}</QueueDescription>'
            "</content></entry>"
        )


def _description(queue: Queue, counts: Counts, started: str) -> str:
    """The elements in the order in which the service writes them: its schema is a sequence."""
    options = queue.options
    ttl = _UNLIMITED if options.default_ttl_seconds is None else format_duration(options.default_ttl_seconds)
    details = {
        "ActiveMessageCount": counts.active,
        "DeadLetterMessageCount": counts.dead_letter,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": 0,
    }
    total = counts.active + counts.dead_letter + counts.scheduled + counts.deferred
    fields: dict[str, object] = {
        "LockDuration": format_duration(options.lock_seconds),
        "MaxSizeInMegabytes": 100,
        "RequiresDuplicateDetection": options.duplicate_detection,
        "RequiresSession": options.requires_session,
        "DefaultMessageTimeToLive": ttl,
        "DeadLetteringOnMessageExpiration": options.dead_letter_on_expiration,
        "DuplicateDetectionHistoryTimeWindow": format_duration(options.duplicate_window_seconds),
        "MaxDeliveryCount": options.max_delivery_count,
        "EnableBatchedOperations": True,
        "SizeInBytes": 0,
        "MessageCount": total,
        "Status": "Active",
        "CreatedAt": started,
        "UpdatedAt": started,
        "AccessedAt": started,
        "CountDetails": "".join(f'<{k} xmlns="{_COUNT_DETAILS}">{v}</{k}>' for k, v in details.items()),
        "AutoDeleteOnIdle": _UNLIMITED,
        "EnablePartitioning": False,
        "EntityAvailabilityStatus": "Available",
        "EnableExpress": False,
    }
    return "".join(f"<{name}>{str(v).lower() if isinstance(v, bool) else v}</{name}>" for name, v in fields.items())


def _error(status: int, detail: str) -> _Response:
    body = f"<Error><Code>{status}</Code><Detail>{escape(detail)}</Detail></Error>"
    return _Response(status, body, "application/xml")


def _parse(head: bytes) -> _Request:
    """Read a request's head; refuses with ValueError what is none."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(line)
        headers[name.strip().lower()] = value.strip()
    url = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
    return _Request(method, unquote(url.path), query, headers)
