"""Documents over azure-cosmos (aio): one attempt a call, bounded in time, statuses translated as data.

The SDK repeats a write whose answer was lost, although write retries are off; what can be switched off is switched off
here (per-call connection and read retries, endpoint discovery, aiohttp's own repetition of PUT and DELETE), and the
protocol above is right for the repeats that remain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar

import aiohttp
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosBatchOperationError

from shared.adapters.credentials import CosmosAccount
from shared.errors import (
    EVENT_CONFIGURATION,
    EVENT_PARTITION_FULL,
    AppError,
    PermanentError,
    Reason,
    TransientError,
    UnknownCommitError,
)
from shared.ports import (
    Committed,
    Conflict,
    Container,
    Create,
    Delete,
    Found,
    Json,
    Operation,
    Page,
    PatchSet,
    Rejected,
    Replace,
    Stale,
    Written,
)

T = TypeVar("T")
V = TypeVar("V")

CALL_SECONDS = 10
CONNECT_SECONDS = 3
READ_SECONDS = 7
PAGE_ITEMS = 1000
BATCH = "batch"

NOT_COMMITTED_STATUSES = frozenset({429, 449})
CONFIGURATION_STATUSES = frozenset({401, 403, 404})
_PARTITION_FULL = (403, 1014)
CONTAINER_REPLACED = (400, 1024)
SESSION_NOT_AVAILABLE = (404, 1002)
OWNER_GONE = (404, 1003)
ONE_ATTEMPT: Mapping[str, Any] = {"retry_connect": 0, "retry_read": 0, "read_timeout": READ_SECONDS}

Charge = Callable[[str, float], None]


class _Answered(Protocol):
    """What the SDK's answers have in common."""

    def get_response_headers(self) -> Mapping[str, str]:
        """The headers of the answer."""
        ...


class CosmosDocuments:
    """The database of this app."""

    def __init__(
        self, account: CosmosAccount, database: str, names: Mapping[Container, str], on_charge: Charge
    ) -> None:
        self._account = account
        self._database = database
        self._names = names
        self._on_charge = on_charge
        self._session: aiohttp.ClientSession | None = None
        self._client: CosmosClient | None = None
        self._containers: dict[Container, asyncio.Task[ContainerProxy]] = {}

    async def read(self, container: Container, partition: str, document_id: str) -> Found | None:
        """Read a document; None if there is none."""

        async def call(proxy: ContainerProxy) -> Found:
            item = await proxy.read_item(document_id, partition_key=partition, **ONE_ATTEMPT)
            headers = self._charged("read", item)
            return Found(item, item["_etag"], int(item["_ts"]), _server_time(headers))

        return await self._call("read", container, call, {404: lambda _: None}, write=False)

    async def create(self, container: Container, document: Json) -> Written | Conflict:
        """Create a document unless its id is taken."""

        async def call(proxy: ContainerProxy) -> Written | Conflict:
            answer = await proxy.create_item(dict(document), no_response=True, **ONE_ATTEMPT)
            return Written(self._charged("create", answer)["etag"])

        return await self._call("create", container, call, {409: lambda _: Conflict()}, write=True)

    async def replace(self, container: Container, document: Json, etag: str) -> Written | Stale:
        """Replace a document whose ETag is still `etag`."""

        async def call(proxy: ContainerProxy) -> Written | Stale:
            answer = await proxy.replace_item(
                str(document["id"]),
                dict(document),
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
                no_response=True,
                **ONE_ATTEMPT,
            )
            return Written(self._charged("replace", answer)["etag"])

        return await self._call("replace", container, call, _STALE, write=True)

    async def delete(self, container: Container, partition: str, document_id: str, etag: str) -> Written | Stale:
        """Delete a document whose ETag is still `etag`."""

        async def call(proxy: ContainerProxy) -> Written | Stale:
            await proxy.delete_item(
                document_id,
                partition_key=partition,
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
                **ONE_ATTEMPT,
            )
            return Written("")

        return await self._call("delete", container, call, _STALE, write=True)

    async def batch(
        self, container: Container, partition: str, operations: Sequence[Operation]
    ) -> Committed | Rejected:
        """Commit all operations or none."""

        async def call(proxy: ContainerProxy) -> Committed | Rejected:
            answer = await proxy.execute_item_batch(
                [_sdk_operation(operation) for operation in operations], partition_key=partition, **ONE_ATTEMPT
            )
            self._charged(BATCH, answer)
            return Committed(tuple(str(result.get("eTag") or "") for result in answer))

        return await self._call(BATCH, container, call, _REJECTED, write=True)

    async def query(self, container: Container, text: str, parameters: Json) -> AsyncIterator[Page]:
        """Run a query over all partitions, page by page; there is at least one page."""
        headers: dict[str, str] = {}
        pages: AsyncIterator[Any] | None = None

        async def call(proxy: ContainerProxy) -> list[Any] | None:
            nonlocal pages
            if pages is None:
                pages = proxy.query_items(
                    query=text,
                    parameters=[{"name": name, "value": value} for name, value in parameters.items()],
                    max_item_count=PAGE_ITEMS,
                    response_hook=lambda answered, _: headers.update(answered),
                    **ONE_ATTEMPT,
                ).by_page()
            page = await _next_page(pages)
            self._on_charge("query", _charge(headers))
            return page

        page = await self._call("query", container, call, {}, write=False)
        yield Page(tuple(page or ()), _server_time(headers))  # the SDK has no page where nothing is found
        while page is not None:
            page = await self._call("query", container, call, {}, write=False)
            if page is not None:
                yield Page(tuple(page), _server_time(headers))

    async def close(self) -> None:
        """Close the client and its connections."""
        for opening in self._containers.values():
            opening.cancel()
        if self._client is not None:
            await self._client.close()
        if self._session is not None:
            await self._session.close()

    async def _call(
        self,
        operation: str,
        container: Container,
        call: Callable[[ContainerProxy], Awaitable[T]],
        values: Mapping[int, Callable[[int], T | V]],
        *,
        write: bool,
    ) -> T | V:
        """Make one call, bounded as a whole; `values` turns the statuses that are answers into them, by the index of
        the operation."""
        try:
            with translated_errors(operation, frozenset(values), write=write):
                async with asyncio.timeout(CALL_SECONDS):
                    return await call(await self._container(container))
        except _AnswerError as answer:
            self._on_charge(operation, answer.charge)
            return values[answer.status](answer.index)

    async def _container(self, container: Container) -> ContainerProxy:
        """The container's proxy. Its properties are read first, once for all who wait for them, so that a missing
        container is never mistaken for a missing document."""
        opening = self._containers.get(container)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = asyncio.get_running_loop().create_task(self._opened(container))
            opening.add_done_callback(_look_at)
            self._containers[container] = opening
        return await asyncio.shield(opening)

    async def _opened(self, container: Container) -> ContainerProxy:
        """Whatever goes wrong here is no message's fault."""
        name = self._names[container]
        try:
            async with asyncio.timeout(CALL_SECONDS):
                proxy = self._open().get_database_client(self._database).get_container_client(name)
                await proxy.read(**ONE_ATTEMPT)
        except ClientAuthenticationError as exc:
            raise TransientError(f"container {name}: no token", event=EVENT_CONFIGURATION) from exc
        except HttpResponseError as exc:
            event = EVENT_CONFIGURATION if exc.status_code in {400, *CONFIGURATION_STATUSES} else None
            raise TransientError(f"container {name}: HTTP {exc.status_code}", event=event) from exc
        except (AzureError, OSError) as exc:
            raise TransientError(f"container {name}: no answer ({type(exc).__name__})") from exc
        except (ValueError, TypeError) as exc:  # such as a key that is no base64
            raise TransientError(
                f"container {name}: the client refuses its settings", event=EVENT_CONFIGURATION
            ) from exc
        return proxy

    def _open(self) -> CosmosClient:
        if self._client is None:
            self._session = aiohttp.ClientSession(auto_decompress=False, trust_env=False)
            # aiohttp repeats idempotent methods once on a reused connection, below the SDK; a repeated PUT or DELETE
            # meets its own ETag. There is no public switch.
            self._session._retry_connection = False
            self._client = CosmosClient(
                self._account.endpoint,
                self._account.credential,
                transport=AioHttpTransport(session=self._session, session_owner=False, use_env_settings=False),
                enable_endpoint_discovery=False,
                connection_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retry_throttle_total=1,
            )
        return self._client

    def _charged(self, operation: str, answer: _Answered) -> Mapping[str, str]:
        headers = answer.get_response_headers()
        self._on_charge(operation, _charge(headers))
        return headers


def _look_at(opening: asyncio.Task[ContainerProxy]) -> None:
    """Whoever waited may have gone; an error that nobody sees is no surprise then."""
    if not opening.cancelled():
        opening.exception()


class _AnswerError(Exception):
    """A status that the caller takes as an answer, with the index of the operation in its batch."""

    def __init__(self, status: int, charge: float, index: int = 0) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.charge = charge
        self.index = index


_STALE: Mapping[int, Callable[[int], Stale]] = {404: lambda _: Stale(), 412: lambda _: Stale()}
_REJECTED: Mapping[int, Callable[[int], Rejected]] = {
    404: lambda index: Rejected(index, 404),
    409: lambda index: Rejected(index, 409),
    412: lambda index: Rejected(index, 412),
}


@contextmanager
def translated_errors(doing: str, values: frozenset[int] = frozenset(), *, write: bool) -> Iterator[None]:
    """Turn the SDK's errors into ours, keeping the cause; statuses among `values` are answers."""
    try:
        yield
    except CosmosBatchOperationError as exc:
        index, status = _cause(exc)
        if status in values:
            raise _AnswerError(status, _charge(exc.headers or {}), index) from exc
        raise _error(status, None, f"{doing}: operation {index}: HTTP {status}", write=write) from exc
    except ClientAuthenticationError as exc:
        raise TransientError(f"{doing}: no token", event=EVENT_CONFIGURATION) from exc
    except HttpResponseError as exc:
        status, sub_status = exc.status_code or 0, getattr(exc, "sub_status", None)
        # A batch's answers are its operations' statuses; one of the whole request is no answer of any.
        is_answer = doing != BATCH and (status, sub_status) not in (SESSION_NOT_AVAILABLE, OWNER_GONE)
        if status in values and is_answer:
            raise _AnswerError(status, _charge(getattr(exc, "headers", None) or {})) from exc
        what = f"{doing}: HTTP {status}" + (f"/{sub_status}" if sub_status else "")
        raise _error(status, sub_status, what, write=write) from exc
    except (AzureError, OSError) as exc:  # no answer, a truncated one, a time-out
        kind = UnknownCommitError if write else TransientError
        raise kind(f"{doing}: no answer ({type(exc).__name__})") from exc
    except (ValueError, TypeError) as exc:  # the SDK refuses an argument before any request
        raise PermanentError(Reason.INVALID_MESSAGE, f"{doing}: the database client refuses the document") from exc


def _error(status: int, sub_status: int | None, what: str, *, write: bool) -> AppError:
    """What a status that is no answer means (docs/contracts.md, section 10)."""
    if status == 413:
        return PermanentError(Reason.ITEM_TOO_LARGE, what)
    if (status, sub_status) == _PARTITION_FULL:
        return TransientError(what, event=EVENT_PARTITION_FULL, of_record=True)
    if (status, sub_status) == SESSION_NOT_AVAILABLE or status in NOT_COMMITTED_STATUSES:
        return TransientError(what)
    if (status, sub_status) == CONTAINER_REPLACED or status in CONFIGURATION_STATUSES:
        return TransientError(what, event=EVENT_CONFIGURATION)
    if status == 400:
        return PermanentError(Reason.INVALID_MESSAGE, what)
    return UnknownCommitError(what) if write else TransientError(what)


def _cause(exc: CosmosBatchOperationError) -> tuple[int, int]:
    """The first status of a failed batch that is not 424 is the cause, and its index says which document."""
    statuses = [int(result.get("statusCode", 0)) for result in exc.operation_responses or []]
    index = next((place for place, status in enumerate(statuses) if status >= 400 and status != 424), 0)
    return index, statuses[index] if statuses else exc.status_code or 0


def _charge(headers: Mapping[str, str]) -> float:
    found = next((value for name, value in headers.items() if name.lower() == "x-ms-request-charge"), 0)
    return float(found)


def _sdk_operation(operation: Operation) -> tuple[Any, ...]:
    match operation:
        case Create(document=document):
            return ("create", (dict(document),))
        case Replace(document=document, etag=etag):
            return ("replace", (str(document["id"]), dict(document)), {"if_match_etag": etag})
        case Delete(id=document_id):
            return ("delete", (document_id,))
        case PatchSet(id=document_id, members=members):
            changes = [{"op": "set", "path": f"/{name}", "value": value} for name, value in members.items()]
            return ("patch", (document_id, changes))


async def _next_page(pages: AsyncIterator[Any]) -> list[Any] | None:
    try:
        page = await anext(pages)
    except StopAsyncIteration:
        return None
    return [item async for item in page]


def _server_time(headers: Mapping[str, str]) -> int:
    """The server's clock, in Unix seconds, from the answer's Date."""
    date = next((value for name, value in headers.items() if name.lower() == "date"), None)
    if date is None:
        raise TransientError("the database's answer has no Date", event=EVENT_CONFIGURATION)
    return int(parsedate_to_datetime(date).timestamp())
