"""Documents: CosmosDocuments on the embedded Cosmos DB."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from local.cosmos.containers import read_containers
from local.cosmos.http import Exchange, Response
from local.cosmos.server import EMULATOR_KEY, CosmosServer
from shared.adapters import cosmos
from shared.adapters.cosmos import CosmosDocuments
from shared.adapters.credentials import CosmosAccount
from shared.errors import PermanentError, Reason, TransientError, UnknownCommitError
from shared.ports import Committed, Conflict, Container, Create, Documents, Found, Page, Rejected, Stale, Written
from tests.unit.handlers.ports_in_memory import Io, SimulatedDocuments, Store

from .documents_contract import ORDERS, DocumentsContract, order
from .silent import silent

T = TypeVar("T")

NAMES = {container: container.value for container in Container}
SPECS = read_containers(Path(__file__).parents[2] / "local" / "containers.json")


@pytest.fixture
async def server() -> AsyncIterator[CosmosServer]:
    made = CosmosServer()
    made.ensure(SPECS)
    await made.start()
    yield made
    await made.stop()


def adapter(port: int, **changes: Any) -> CosmosDocuments:
    account = CosmosAccount(f"http://127.0.0.1:{port}/", changes.get("key", EMULATOR_KEY))
    on_charge = changes.get("on_charge", lambda *_: None)
    return CosmosDocuments(account, changes.get("database", "convoy"), changes.get("names", NAMES), on_charge)


@pytest.fixture
async def documents(server: CosmosServer) -> AsyncIterator[CosmosDocuments]:
    made = adapter(server.port)
    yield made
    await made.close()


class TestCosmosDocuments(DocumentsContract):
    """The contract, on the real SDK."""


class TestSimulatedDocuments(DocumentsContract):
    """The contract, on what the simulation and the crash matrix run on: what they prove holds as far as this."""

    @pytest.fixture
    def documents(self) -> Documents:
        return Driven(SimulatedDocuments(Store(time.time), time.time))


class Driven:
    """Lets each call of the simulated documents happen at once."""

    def __init__(self, documents: SimulatedDocuments) -> None:
        self._documents = documents

    async def read(self, *arguments: Any) -> Found | None:
        return driven(self._documents.read(*arguments))

    async def create(self, *arguments: Any) -> Written | Conflict:
        return driven(self._documents.create(*arguments))

    async def replace(self, *arguments: Any) -> Written | Stale:
        return driven(self._documents.replace(*arguments))

    async def delete(self, *arguments: Any) -> Written | Stale:
        return driven(self._documents.delete(*arguments))

    async def batch(self, *arguments: Any) -> Committed | Rejected:
        return driven(self._documents.batch(*arguments))

    async def query(self, *arguments: Any) -> AsyncIterator[Page]:
        async def pages() -> list[Page]:
            return [page async for page in self._documents.query(*arguments)]

        for page in driven(pages()):
            yield page


def driven(call: Coroutine[Io[Any], Any, T]) -> T:
    """Run a call whose I/O happens as it comes."""
    answer = None
    while True:
        try:
            step = call.send(answer)
        except StopIteration as done:
            return cast("T", done.value)
        answer = step.perform()


CALLS: dict[str, Callable[[Documents, str], Awaitable[object]]] = {
    "read": lambda documents, _: documents.read(ORDERS, "ORD-1", "ORD-1"),
    "query": lambda documents, _: rows(documents),
    "create": lambda documents, _: documents.create(ORDERS, order("new")),
    "batch": lambda documents, _: documents.batch(ORDERS, "ORD-1", [Create(order("new"))]),
    "replace": lambda documents, etag: documents.replace(ORDERS, order(n=2), etag),
    "delete": lambda documents, etag: documents.delete(ORDERS, "ORD-1", "ORD-1", etag),
}
WRITES = ("create", "batch", "replace", "delete")


async def rows(documents: Documents) -> list[object]:
    return [row async for page in documents.query(ORDERS, "SELECT c.id FROM c", {}) for row in page.items]


class Faulty:
    """Answers the next requests for documents in a way of its own, and counts them."""

    def __init__(self, server: CosmosServer, act: Callable[[Exchange, Callable[[], Response]], None]) -> None:
        self.seen = 0
        self._act = act
        server.intercept = self._intercept

    def _intercept(self, exchange: Exchange, execute: Callable[[], Response]) -> None:
        if "/docs" in exchange.request.target:
            self.seen += 1
            self._act(exchange, execute)
        else:
            exchange.answer(execute())


async def prepared(documents: CosmosDocuments) -> str:
    """Open the client, warm its caches, and leave a document."""
    answer = await documents.create(ORDERS, order(n=1))
    assert isinstance(answer, Written)
    await rows(documents)
    return answer.etag


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
@pytest.mark.parametrize("ending", ["reset", "hang_up", "truncate"])
@pytest.mark.parametrize("call", CALLS)
async def test_lost_answer_is_one_request_and_unknown_for_a_write(
    server: CosmosServer, documents: CosmosDocuments, call: str, ending: str, committed: bool
) -> None:
    """C44 C45 D38 D39: the client repeats nothing by itself; that a write may be committed is said by the error."""

    def act(exchange: Exchange, execute: Callable[[], Response]) -> None:
        response = execute() if committed or ending == "truncate" else Response(500)
        if ending == "truncate":
            exchange.truncate(Response(response.status, response.headers, response.body or b"{}"), 1)
        else:
            getattr(exchange, ending)()

    etag = await prepared(documents)
    faulty = Faulty(server, act)
    with pytest.raises(TransientError) as caught:
        await CALLS[call](documents, etag)
    assert isinstance(caught.value, UnknownCommitError) == (call in WRITES)
    assert faulty.seen == 1


# "Too many requests" is the one answer that the SDK can't be kept from repeating; nothing was committed.
ATTEMPTS = {429: dict.fromkeys(CALLS, 2) | {"query": 4}}


@pytest.mark.parametrize("status", [400, 401, 403, 408, 410, 413, 429, 449, 500, 502, 503, 504])
@pytest.mark.parametrize("call", CALLS)
async def test_status_becomes_the_error_that_the_table_names(
    server: CosmosServer, documents: CosmosDocuments, call: str, status: int
) -> None:
    """D40 R25: only 409 on a create is a question of duplicates; everything else has its row."""
    etag = await prepared(documents)
    body = b'{"code":"x","message":"trouble"}'
    faulty = Faulty(server, lambda exchange, _: exchange.answer(Response(status, {"x-ms-retry-after-ms": "1"}, body)))
    with pytest.raises((TransientError, PermanentError)) as caught:
        await CALLS[call](documents, etag)
    error = caught.value
    if status in (400, 413):
        assert isinstance(error, PermanentError)
        assert error.reason is (Reason.INVALID_MESSAGE if status == 400 else Reason.ITEM_TOO_LARGE)
    else:
        assert isinstance(error, TransientError)
        unknown = status in (408, 410, 500, 502, 503, 504) and call in WRITES
        assert isinstance(error, UnknownCommitError) == unknown
        assert error.event == ("configuration" if status in (401, 403) else None)
    assert faulty.seen == ATTEMPTS.get(status, {}).get(call, 1)


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_document_that_is_too_large_is_permanent(documents: CosmosDocuments) -> None:
    """What handlers check before the first write, the database would say as well."""
    with pytest.raises(PermanentError) as caught:
        await documents.create(ORDERS, order(text="x" * 2_200_000))
    assert caught.value.reason is Reason.ITEM_TOO_LARGE


async def test_full_partition_has_an_alert_of_its_own(server: CosmosServer, documents: CosmosDocuments) -> None:
    """Waiting alone does not heal it, but nothing is wrong with the message."""
    await prepared(documents)
    Faulty(server, lambda exchange, _: exchange.answer(Response(403, {"x-ms-substatus": "1014"}, b"{}")))
    with pytest.raises(TransientError) as caught:
        await documents.create(ORDERS, order("new"))
    assert caught.value.event == "partition.full"
    assert not isinstance(caught.value, UnknownCommitError)


@pytest.mark.parametrize("call", CALLS)
async def test_database_that_is_away_is_transient_and_is_found_again(
    server: CosmosServer, documents: CosmosDocuments, call: str
) -> None:
    """C54 R65: the client recovers by itself when the server is back on its port."""
    etag = await prepared(documents)
    port = server.port
    await server._http.stop()
    with pytest.raises(TransientError) as caught:
        await CALLS[call](documents, etag)
    assert isinstance(caught.value, UnknownCommitError) == (call in WRITES)
    await server.start(port=port)
    answer = await CALLS[call](documents, etag)
    assert not isinstance(answer, Conflict | Stale)


async def test_database_that_was_never_there_is_transient() -> None:
    documents = adapter(1)
    try:
        with pytest.raises(TransientError) as caught:
            await documents.create(ORDERS, order())
        assert not isinstance(caught.value, UnknownCommitError)
    finally:
        await documents.close()


@pytest.mark.parametrize("call", ["create", "read"])
async def test_call_is_bounded_as_a_whole(
    server: CosmosServer, documents: CosmosDocuments, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the SDK does inside: a write that is cut off is unknown."""
    etag = await prepared(documents)
    monkeypatch.setattr(cosmos, "CALL_SECONDS", 0.2)
    held: list[Exchange] = []
    Faulty(server, lambda exchange, _: held.append(exchange))
    start = time.monotonic()
    with pytest.raises(TransientError) as caught:
        await CALLS[call](documents, etag)
    assert time.monotonic() - start < 2
    assert isinstance(caught.value, UnknownCommitError) == (call in WRITES)
    assert len(held) == 1


async def test_calls_that_wait_for_one_container_wait_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that says nothing holds up the last of many no longer than the first."""
    monkeypatch.setattr(cosmos, "CALL_SECONDS", 0.3)
    async with silent(hangs_up=False) as nobody:
        documents = adapter(nobody.port)
        try:
            start = time.monotonic()
            calls = [documents.read(ORDERS, "ORD-1", f"d-{n}") for n in range(30)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in errors} == {TransientError}
            assert time.monotonic() - start < 3
        finally:
            await documents.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "no base64!"},
        {"database": "missing"},
        {"names": {**NAMES, Container.ORDERS: "missing"}},
        {"key": "d3Jvbmc="},
    ],
    ids=["damaged key", "no database", "no container", "wrong key"],
)
@pytest.mark.parametrize("call", ["read", "create"])
async def test_wrong_deployment_is_never_taken_for_a_missing_document(
    server: CosmosServer, changes: dict[str, Any], call: str
) -> None:
    """No message is to blame, so none is parked for it."""
    documents = adapter(server.port, **changes)
    try:
        with pytest.raises(TransientError) as caught:
            await CALLS[call](documents, "")
        assert caught.value.event == "configuration"
        assert not isinstance(caught.value, UnknownCommitError)
    finally:
        await documents.close()


async def test_container_that_is_deleted_later_is_configuration_too(
    server: CosmosServer, documents: CosmosDocuments
) -> None:
    etag = await prepared(documents)
    answer = Response(404, {"x-ms-substatus": "1003"}, b'{"code":"NotFound","message":"Owner resource does not exist"}')
    Faulty(server, lambda exchange, _: exchange.answer(answer))
    for call in ("read", "create", "replace"):
        with pytest.raises(TransientError) as caught:
            await CALLS[call](documents, etag)
        assert caught.value.event == "configuration"


@pytest.mark.parametrize("document_id", ["a/b", "a\\b", "a?b", "a#b", "", 7, None])
async def test_id_that_the_client_refuses_is_permanent(documents: CosmosDocuments, document_id: Any) -> None:
    """R25: a ValueError of the SDK is no outage."""
    with pytest.raises(PermanentError) as caught:
        await documents.create(ORDERS, order(document_id))
    assert caught.value.reason is Reason.INVALID_MESSAGE


async def test_every_call_reports_its_charge(server: CosmosServer) -> None:
    """C30: request units are counted by operation."""
    charges: list[tuple[str, float]] = []
    documents = adapter(server.port, on_charge=lambda operation, charge: charges.append((operation, charge)))
    try:
        etag = await prepared(documents)
        for call in ("read", "replace", "batch"):
            await CALLS[call](documents, etag)
    finally:
        await documents.close()
    spent = {operation for operation, charge in charges if charge > 0}
    assert {"create", "read", "replace", "batch"} <= spent


async def test_each_call_is_one_request(server: CosmosServer, documents: CosmosDocuments) -> None:
    """D54 C61: no look-ups beside it, once the client is open."""
    etag = await prepared(documents)
    records: list[Any] = []
    server.observers.append(records.append)
    for call in ("read", "create", "replace"):
        await CALLS[call](documents, etag)
    assert isinstance(await documents.batch(ORDERS, "ORD-1", [Create(order("b"))]), Committed)
    assert len(records) == 4


async def test_first_calls_at_once_open_one_client(server: CosmosServer, documents: CosmosDocuments) -> None:
    """R65: one client a process, however many messages come first."""
    records: list[Any] = []
    server.observers.append(records.append)
    await asyncio.gather(*(documents.read(ORDERS, f"ORD-{n}", f"ORD-{n}") for n in range(16)))
    assert sum(record.resource_type == "docs" for record in records) == 16
    assert sum(record.resource_type != "docs" for record in records) <= 4


async def test_writes_are_answered_without_the_document(server: CosmosServer, documents: CosmosDocuments) -> None:
    """What the caller knows already need not travel back."""
    prefer: list[str | None] = []

    def act(exchange: Exchange, execute: Callable[[], Response]) -> None:
        prefer.append(exchange.request.headers.get("prefer"))
        exchange.answer(execute())

    etag = await prepared(documents)
    Faulty(server, act)
    await CALLS["create"](documents, etag)
    await CALLS["replace"](documents, etag)
    assert prefer == ["return=minimal"] * 2
