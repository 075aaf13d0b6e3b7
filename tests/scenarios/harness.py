"""A stack with the app, and what the tests ask of it.

Messages go in through the real azure-servicebus client, documents are read through the real azure-cosmos client. What
the app said and what it asked of broker and database is watched where it arrives: log lines at the host, requests and
sends at the servers.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from yarl import URL

from local.broker.service import BrokerEvent, Sent
from local.cosmos.gateway import RequestRecord
from local.cosmos.http import Exchange, Response
from local.host.events import HostEvent, InvocationEnded, LogLine, WorkerStarted
from local.stack import Stack

from .messages import Body, message_id_of, role_of, session_of

PROJECT = Path(__file__).parents[2]
WAIT_SECONDS = 30.0
WORKING_QUEUES = ("orders", "ledger", "ledger-entries")
CONTAINERS = ("orders", "ledgers", "ledger-entries", "operations")
SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]*")
NEVER = "0 0 0 1 1 *"

# Quiet timers, and waits that suit a test. What is in no setting stays as it ships.
SETTINGS = {"SWEEP_SCHEDULE": NEVER}


class Clock:
    """The stack's clock: the machine's, plus what a test has added."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked copy, as peeked."""

    message_id: object
    session_id: str | None
    body: bytes
    content_type: str | None
    correlation_id: object
    subject: str | None
    properties: Mapping[str, object]

    @property
    def reason(self) -> object:
        return self.properties["quarantine-reason"]


class App:
    """The function app, running."""

    def __init__(self, stack: Stack, clock: Clock) -> None:
        self.stack = stack
        self.clock = clock
        self.handled: list[Mapping[str, Any]] = []
        self.ended: list[InvocationEnded] = []
        self.spans: list[tuple[float, float, InvocationEnded]] = []
        self.logs: list[LogLine] = []
        self.requests: list[RequestRecord] = []
        self.sends: list[Sent] = []
        self.starts = 0
        self.own_sends: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._bus = ServiceBusClient.from_connection_string(stack.service_bus_connection)
        self._senders: dict[str, ServiceBusSender] = {}
        self._cosmos = CosmosClient.from_connection_string(stack.cosmos_connection)
        self._http = aiohttp.ClientSession()
        stack.broker.observers.append(self._on_broker)
        stack.cosmos.observers.append(self.on_request)

    # ------------------------------------------------------------------------------------------------------ going in

    async def send(self, body: Body | bytes | str, **options: Any) -> str:
        """Send one message, under the identity of its body unless told otherwise; returns its MessageId."""
        return (await self.send_all([body], **options))[0]

    async def send_all(self, bodies: list[Body] | list[Any], *, role: str | None = None, **options: Any) -> list[str]:
        """Send messages of one queue in one AMQP batch, in this order."""
        queue = role or role_of(bodies[0])
        messages = [message(body, **options) for body in bodies]
        if queue not in self._senders:
            self._senders[queue] = self._bus.get_queue_sender(queue)
        self.own_sends[queue] += 1
        await self._senders[queue].send_messages(messages)
        return [str(each.message_id) for each in messages]

    async def request(
        self, method: str, path: str, *, body: object = None, key: bool = True, **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Ask the app over HTTP; `path` is sent as it is. Gives status, body and headers."""
        assert self.stack.host is not None
        url = URL(f"{self.stack.http_url}{path}", encoded=True)
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if sent is not None:
            named.setdefault("content-type", "application/json")
        if key:
            named["x-functions-key"] = self.stack.host.keys.function
        data = None if sent is None else io.BytesIO(sent)
        async with self._http.request(method, url, data=data, headers=named) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else None, response.headers

    # --------------------------------------------------------------------------------------------------- coming out

    async def until(self, holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the news makes something true."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._news.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), 0.05)
        except TimeoutError:
            told = "\n".join(str(each) for each in [*self.handled[-8:], *self.logs[-8:]])
            raise AssertionError(f"did not happen in {seconds:g} s: {what}\n{told}") from None

    def outcomes_of(self, message_id: str) -> list[str]:
        """The outcomes of a message's deliveries, in order."""
        return [str(each["outcome"]) for each in self.handled if each["message_id"] == message_id]

    def ends_of(self, message_id: str) -> list[InvocationEnded]:
        return [each for each in self.ended if each.message_id == message_id]

    async def outcomes(self, message_id: str, count: int = 1) -> list[str]:
        """Wait for so many completed deliveries under a MessageId; gives the outcomes of all of its deliveries."""

        def done() -> bool:
            return sum(each.outcome.value == "completed" for each in self.ends_of(message_id)) >= count

        await self.until(done, f"{count} x {message_id} completed; outcomes {self.outcomes_of(message_id)}")
        return self.outcomes_of(message_id)

    async def outcome(self, body: Body, **options: Any) -> str:
        """Send a message and wait for its one more completion; gives the outcome of that."""
        before = sum(each.outcome.value == "completed" for each in self.ends_of(message_id_of(body)))
        message_id = await self.send(body, **options)
        return (await self.outcomes(message_id, before + 1))[-1]

    async def quiet(self) -> None:
        """Wait until the working queues are empty."""

        def empty() -> bool:
            return not any(self.stack.service.counts(queue).active for queue in WORKING_QUEUES)

        await self.until(empty, "the working queues are empty")

    def fields_of(self, message_id: str) -> Mapping[str, Any]:
        """The fields of the last log line about a message."""
        return [each for each in self.handled if each["message_id"] == message_id][-1]

    def told(self, event: str) -> list[LogLine]:
        return [each for each in self.logs if each.message == event]

    def parked(self, session_id: str) -> list[Parked]:
        """The parked copies of a session. Peeked in process: a receiver of the SDK costs a second per session."""
        return self.peek("quarantine", session_id)

    def peek(self, queue: str, session_id: str | None = None) -> list[Parked]:
        entity = self.stack.service.broker.queue(queue)
        found = entity.peek(0, 100_000, self.clock(), session_id=session_id)
        return [
            Parked(
                message_id=stored.message.message_id,
                session_id=stored.message.session_id,
                body=stored.message.body,
                content_type=stored.message.content_type,
                correlation_id=stored.message.correlation_id,
                subject=stored.message.subject,
                properties=dict(stored.message.application_properties),
            )
            for stored in found
        ]

    async def only_parked(self, session_id: str) -> Parked:
        """The one parked copy of a session."""
        await self.until(lambda: len(self.parked(session_id)) > 0, f"something is parked in session {session_id}")
        await self.quiet()
        (copy,) = self.parked(session_id)
        return copy

    # ----------------------------------------------------------------------------------------------------- documents

    def container(self, name: str) -> Any:
        return self._cosmos.get_database_client("convoy").get_container_client(name)

    async def document(self, container: str, partition: str, document_id: str) -> dict[str, Any] | None:
        """A document as it is stored."""
        try:
            return dict(await self.container(container).read_item(document_id, partition_key=partition))
        except CosmosResourceNotFoundError:
            return None

    async def order(self, order_id: str) -> dict[str, Any] | None:
        return await self.document("orders", order_id, enc(order_id))

    async def documents(self, container: str, partition: str) -> list[dict[str, Any]]:
        """All documents of a partition."""
        query = self.container(container).query_items("SELECT * FROM c", partition_key=partition)
        return [dict(item) async for item in query]

    async def entries(self, order_id: str) -> list[dict[str, Any]]:
        """The entries of an order, applied ones in the order of application, then the others."""
        found = [item for item in await self.documents("ledger-entries", order_id) if item["type"] == "ledgerEntry"]
        return sorted(found, key=lambda item: (item["position"] is None, item["position"] or item["sequence"]))

    async def state(self, order_id: str) -> dict[str, Any]:
        found = await self.document("ledger-entries", order_id, "~state")
        assert found is not None, f"{order_id} has no ledger state"
        return found

    # ------------------------------------------------------------------------------------------------------- counting

    @contextlib.contextmanager
    def counting(self, partition: str, container: str) -> Iterator[Cost]:
        """Count the app's requests for documents of one partition, and its sends; both while nothing else is done."""
        cost = Cost()
        first_request, first_send, own = len(self.requests), len(self.sends), Counter(self.own_sends)
        yield cost
        key = json.dumps([partition], ensure_ascii=False)
        cost.requests = sum(
            each.resource_type == "docs" and each.container == container and _same_key(each.partition_key, key)
            for each in self.requests[first_request:]
        )
        cost.sends = len(self.sends) - first_send - sum((self.own_sends - own).values())

    # --------------------------------------------------------------------------------------------------------- faults

    @contextlib.contextmanager
    def crashing_when_all_are_at(
        self, points: Mapping[tuple[str, str], tuple[int, bool]], *, then: Callable[[], None] = lambda: None
    ) -> Iterator[Crash]:
        """kill -9 the worker when each of these partitions is at its nth write, committed or not, and not answered.

        Points by (container, partition). Who is there first waits for the others. `then` runs at the death.
        """
        crash, held = Crash(), list[Exchange]()
        writes: Counter[tuple[str, str]] = Counter()

        def intercept(exchange: Exchange, execute: Callable[[], Response]) -> None:
            place = place_of_write(exchange)
            if crash.happened or place is None or place not in points:
                exchange.answer(execute())
                return
            writes[place] += 1
            nth, committed = points[place]
            if writes[place] < nth:
                exchange.answer(execute())
                return
            if committed:
                execute()
            held.append(exchange)
            crash.seen = len(held)
            if crash.seen == len(points):
                crash.happened = True
                assert self.stack.host is not None
                self.stack.host.kill_worker()
                then()
                for each in held:
                    each.reset()

        self.stack.cosmos.intercept = intercept
        try:
            yield crash
        finally:
            self.stack.cosmos.intercept = None

    @contextlib.contextmanager
    def crashing_after_send(self, nth: int) -> Iterator[Crash]:
        """kill -9 the worker when the broker has accepted its nth AMQP batch for `ledger-entries`, before it hears."""
        crash = Crash()

        def observe(event: BrokerEvent) -> None:
            if isinstance(event, Sent) and event.queue == "ledger-entries" and not crash.happened:
                crash.seen += 1
                if crash.seen == nth:
                    crash.happened = True
                    assert self.stack.host is not None
                    self.stack.host.kill_worker()

        self.stack.broker.observers.append(observe)
        try:
            yield crash
        finally:
            self.stack.broker.observers.remove(observe)

    @contextlib.contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        """Answer every database request later, so that work takes time."""
        loop = asyncio.get_running_loop()

        def intercept(exchange: Exchange, execute: Callable[[], Response]) -> None:
            loop.call_later(seconds, lambda: exchange.answer(execute()))

        self.stack.cosmos.intercept = intercept
        try:
            yield
        finally:
            self.stack.cosmos.intercept = None

    async def close(self) -> None:
        await asyncio.gather(*(sender.close() for sender in self._senders.values()))
        await self._bus.close()
        await self._cosmos.close()
        await self._http.close()

    def on_host(self, event: HostEvent) -> None:
        match event:
            case LogLine(message="message.handled", fields=fields):
                self.handled.append(fields)
            case LogLine():
                self.logs.append(event)
            case InvocationEnded():
                self.ended.append(event)
                now = time.monotonic()
                self.spans.append((now - event.seconds, now, event))
            case WorkerStarted():
                self.starts += 1
        self._news.set()

    def on_request(self, record: RequestRecord) -> None:
        self.requests.append(record)
        self._news.set()

    def _on_broker(self, event: BrokerEvent) -> None:
        if isinstance(event, Sent):
            self.sends.append(event)
        self._news.set()


@dataclass(slots=True)
class Cost:
    """What one thing cost."""

    requests: int = -1
    sends: int = -1


@dataclass(slots=True)
class Crash:
    """A crash that was asked for, and what came of it."""

    seen: int = 0
    happened: bool = False


def place_of_write(exchange: Exchange) -> tuple[str, str] | None:
    """Container and partition, if a request writes documents."""
    request = exchange.request
    found = re.search(r"/colls/([^/]+)/docs", request.target)
    key = request.headers.get("x-ms-documentdb-partitionkey")
    is_query = request.headers.get("x-ms-documentdb-isquery", "").lower() == "true"
    if found is None or key is None or is_query or request.method == "GET":
        return None
    return found[1], str(json.loads(key)[0])


def _same_key(found: str | None, wanted: str) -> bool:
    return found is not None and bool(json.loads(found) == json.loads(wanted))


def message(
    body: Body | bytes | str,
    *,
    message_id: str | None = None,
    session: str | None = None,
    raw_id: bool = False,
    properties: Mapping[str, Any] | None = None,
    content_type: str | None = "application/json",
    correlation_id: str | None = None,
    subject: str | None = None,
) -> ServiceBusMessage:
    """A message under the identity of its body, or another one. `raw_id`: with exactly this id, also none or empty
    (the client invents one for both)."""
    data = body if isinstance(body, bytes | str) else json.dumps(body, ensure_ascii=False)
    if isinstance(body, dict):
        message_id = message_id if message_id is not None or raw_id else message_id_of(body)
        session = session if session is not None else session_of(body)
    made = ServiceBusMessage(
        data,
        message_id=message_id,
        session_id=session,
        application_properties=dict(properties) if properties else None,
        content_type=content_type,
        correlation_id=correlation_id,
        subject=subject,
    )
    if raw_id and made.raw_amqp_message.properties is not None:
        made.raw_amqp_message.properties.message_id = message_id
    return made


def enc(key: str) -> str:
    """The document id of a key (docs/contracts.md, section 3)."""
    if SAFE_ID.fullmatch(key):
        return key
    return "~x~" + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def without_duplicate_detection(folder: Path) -> Path:
    """The project's queues, without the broker's first line of defence, so that every copy reaches the app."""
    config = json.loads((PROJECT / "local" / "Config.json").read_text())
    for queue in config["UserConfig"]["Namespaces"][0]["Queues"]:
        queue["Properties"]["RequiresDuplicateDetection"] = False
        queue["Properties"].pop("DuplicateDetectionHistoryTimeWindow", None)
    path = folder / "Config.json"
    path.write_text(json.dumps(config))
    return path


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    *,
    instances: int = 1,
    duplicate_detection: bool = False,
    settings: Mapping[str, str] | None = None,
    data: Path | None = None,
    largest_entry: int | None = None,
) -> AsyncIterator[App]:
    """The app on a stack of its own. `largest_entry`: the message limit of `ledger-entries`, so that few fit into one
    AMQP batch."""
    clock = Clock()
    early: list[HostEvent] = []
    stack = Stack(
        PROJECT,
        app=True,
        ports="free",
        config=None if duplicate_detection else without_duplicate_detection(folder),
        data=data,
        settings={**SETTINGS, **(settings or {})},
        instances=instances,
        observers=[early.append],
        clock=clock,
    )
    async with stack:
        assert stack.host is not None
        if largest_entry is not None:  # senders learn the limit when they attach, with the first message
            entity = stack.service.broker.queue("ledger-entries")
            entity.options = replace(entity.options, max_message_bytes=largest_entry)
        app = App(stack, clock)
        for event in early:
            app.on_host(event)
        stack.host.observers.append(app.on_host)
        try:
            yield app
        finally:
            await app.close()
