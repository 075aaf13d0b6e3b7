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
from typing import Any, Protocol, TypeVar, cast

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

CALL_SECONDS = 10
CONNECT_SECONDS = 3
READ_SECONDS = 7
PAGE_ITEMS = 100
PARTITION_FULL_SUBSTATUS = 1014
OWNER_GONE_SUBSTATUS = 1003

# Committed or not: unknown. https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb
UNKNOWN_STATUSES = frozenset({408, 410, 500, 502, 503, 504})
NOT_COMMITTED_STATUSES = frozenset({429, 449})
CONFIGURATION_STATUSES = frozenset({401, 403, 404})
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
        self._containers: dict[Container, ContainerProxy] = {}
        self._opening = asyncio.Lock()

    async def read(self, container: Container, partition: str, document_id: str) -> Found | None:
        """Read a document; None if there is none."""
        proxy = await self._container(container)
        try:
            item = await self._call(
                "read", proxy.read_item(document_id, partition_key=partition, **ONE_ATTEMPT), write=False
            )
        except _MissingError:
            return None
        headers = item.get_response_headers()
        return Found(item, item["_etag"], int(item["_ts"]), _server_time(headers))

    async def create(self, container: Container, document: Json) -> Written | Conflict:
        """Create a document unless its id is taken."""
        proxy = await self._container(container)
        try:
            answer = await self._call(
                "create", proxy.create_item(dict(document), no_response=True, **ONE_ATTEMPT), write=True
            )
        except _ConflictError:
            return Conflict()
        return Written(_etag(answer))

    async def replace(self, container: Container, document: Json, etag: str) -> Written | Stale:
        """Replace a document whose ETag is still `etag`."""
        proxy = await self._container(container)
        call = proxy.replace_item(
            str(document["id"]),
            dict(document),
            etag=etag,
            match_condition=MatchConditions.IfNotModified,
            no_response=True,
            **ONE_ATTEMPT,
        )
        try:
            answer = await self._call("replace", call, write=True)
        except (_StaleError, _MissingError):
            return Stale()
        return Written(_etag(answer))

    async def delete(self, container: Container, partition: str, document_id: str, etag: str) -> Written | Stale:
        """Delete a document whose ETag is still `etag`."""
        proxy = await self._container(container)
        call = proxy.delete_item(
            document_id,
            partition_key=partition,
            etag=etag,
            match_condition=MatchConditions.IfNotModified,
            **ONE_ATTEMPT,
        )
        try:
            await self._call("delete", call, write=True)
        except (_StaleError, _MissingError):
            return Stale()
        return Written("")

    async def batch(
        self, container: Container, partition: str, operations: Sequence[Operation]
    ) -> Committed | Rejected:
        """Commit all operations or none."""
        proxy = await self._container(container)
        call = proxy.execute_item_batch(
            [_sdk_operation(operation) for operation in operations], partition_key=partition, **ONE_ATTEMPT
        )
        try:
            answer = await self._call("batch", call, write=True)
        except _BatchError as refused:
            return Rejected(refused.index, refused.status)
        return Committed(tuple(str(result.get("eTag") or "") for result in answer))

    async def query(self, container: Container, text: str, parameters: Json) -> AsyncIterator[Page]:
        """Run a query over all partitions, page by page; there is at least one page."""
        proxy = await self._container(container)
        headers: dict[str, str] = {}
        pages = proxy.query_items(
            query=text,
            parameters=[{"name": name, "value": value} for name, value in parameters.items()],
            max_item_count=PAGE_ITEMS,
            response_hook=lambda answered, _: headers.update(answered),
            **ONE_ATTEMPT,
        ).by_page()
        page = await self._call("query", _next_page(pages), write=False)
        yield Page(tuple(page or ()), _server_time(headers))  # the SDK has no page where nothing is found
        while page is not None:
            page = await self._call("query", _next_page(pages), write=False)
            if page is not None:
                yield Page(tuple(page), _server_time(headers))

    async def close(self) -> None:
        """Close the client and its connections."""
        if self._client is not None:
            await self._client.close()
        if self._session is not None:
            await self._session.close()

    async def _container(self, container: Container) -> ContainerProxy:
        """The container's proxy. Its properties are read here, once, so that a missing container is never mistaken
        for a missing document."""
        if container in self._containers:
            return self._containers[container]
        async with self._opening:
            if container not in self._containers:
                proxy = self._open().get_database_client(self._database).get_container_client(self._names[container])
                try:
                    await self._call("container", proxy.read(**ONE_ATTEMPT), write=False)
                except _MissingError as missing:
                    raise TransientError(
                        f"container {self._names[container]} of database {self._database} does not exist",
                        event=EVENT_CONFIGURATION,
                    ) from missing
                self._containers[container] = proxy
        return self._containers[container]

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

    async def _call(self, operation: str, call: Awaitable[T], *, write: bool) -> T:
        with translated_errors(operation, write=write):
            async with asyncio.timeout(CALL_SECONDS):
                answer = await call
        if hasattr(answer, "get_response_headers"):
            charge = cast(_Answered, answer).get_response_headers().get("x-ms-request-charge")
            self._on_charge(operation, float(charge or 0))
        return answer


class _MissingError(Exception):
    """404 for a document."""


class _ConflictError(Exception):
    """409."""


class _StaleError(Exception):
    """412."""


class _BatchError(Exception):
    """A transactional batch was refused at one of its operations."""

    def __init__(self, index: int, status: int) -> None:
        super().__init__(f"operation {index}: HTTP {status}")
        self.index = index
        self.status = status


@contextmanager
def translated_errors(doing: str, *, write: bool) -> Iterator[None]:
    """Turn the SDK's errors into ours, keeping the cause."""
    try:
        yield
    except CosmosBatchOperationError as exc:
        raise _batch_error(exc, doing) from exc
    except ClientAuthenticationError as exc:
        raise TransientError(f"{doing}: no token", event=EVENT_CONFIGURATION) from exc
    except HttpResponseError as exc:
        raise _status_error(exc.status_code, getattr(exc, "sub_status", None), doing, write=write) from exc
    except (AzureError, OSError) as exc:  # no answer, a truncated one, a time-out
        kind = UnknownCommitError if write else TransientError
        raise kind(f"{doing}: no answer ({type(exc).__name__})") from exc
    except (ValueError, TypeError) as exc:  # the SDK refuses an argument before any request
        raise PermanentError(Reason.INVALID_MESSAGE, f"{doing}: the database client refuses the document") from exc


def _status_error(status: int | None, sub_status: int | None, doing: str, *, write: bool) -> Exception:
    what = f"{doing}: HTTP {status}" + (f"/{sub_status}" if sub_status else "")
    if status == 404 and sub_status != OWNER_GONE_SUBSTATUS:
        return _MissingError(what)
    if status == 409:
        return _ConflictError(what)
    if status == 412:
        return _StaleError(what)
    return _error(status, sub_status, what, write=write)


def _error(status: int | None, sub_status: int | None, what: str, *, write: bool) -> AppError:
    if status == 413:
        return PermanentError(Reason.ITEM_TOO_LARGE, what)
    if status == 400:
        return PermanentError(Reason.INVALID_MESSAGE, what)
    if status in NOT_COMMITTED_STATUSES:
        return TransientError(what)
    if status == 403 and sub_status == PARTITION_FULL_SUBSTATUS:
        return TransientError(what, event=EVENT_PARTITION_FULL)
    if status in CONFIGURATION_STATUSES:
        return TransientError(what, event=EVENT_CONFIGURATION)
    return UnknownCommitError(what) if write else TransientError(what)


def _batch_error(exc: CosmosBatchOperationError, doing: str) -> Exception:
    """The first status of a failed batch that is not 424 is the cause, and its index says which document."""
    statuses = [int(result.get("statusCode", 0)) for result in exc.operation_responses or []]
    index = next((place for place, status in enumerate(statuses) if status >= 400 and status != 424), 0)
    status = statuses[index] if statuses else exc.status_code
    if status in (404, 409, 412):
        return _BatchError(index, status)
    return _error(status, None, f"{doing}: operation {index}: HTTP {status}", write=True)


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


def _etag(answer: _Answered) -> str:
    return answer.get_response_headers()["etag"]


def _server_time(headers: Mapping[str, str]) -> int:
    """The server's clock, in Unix seconds, from the answer's Date."""
    date = next((value for name, value in headers.items() if name.lower() == "date"), None)
    if date is None:
        raise TransientError("the database's answer has no Date", event=EVENT_CONFIGURATION)
    return int(parsedate_to_datetime(date).timestamp())
