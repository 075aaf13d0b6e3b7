"""One request to one response: routing, headers, and what every operation has in common."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from urllib.parse import unquote

from local.cosmos import auth, charge, feed
from local.cosmos.errors import COLLECTION_RID_MISMATCH, READ_SESSION_NOT_AVAILABLE, CosmosError
from local.cosmos.http import Request, Response
from local.cosmos.items import MAX_BODY_BYTES, Items, Outcome, Precondition
from local.cosmos.partition import PartitionKey, Range, key_from_header, range_by_id
from local.cosmos.patch import Patch
from local.cosmos.query import run
from local.cosmos.resources import Resources, checked_throughput
from local.cosmos.store import Container, Store
from local.cosmos.values import Document, dump, parse, parse_object

_LOG = logging.getLogger(__name__)
_VERSION = "2020-07-15"
_PARTITION_KEY = "x-ms-documentdb-partitionkey"
_WHOLE = Range("", "", "FF")


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One answered request, for those who count. `operation` is the SDK's name for it, else the HTTP method."""

    operation: str
    resource_type: str
    container: str | None
    item_id: str | None
    partition_key: str | None
    status: int
    sub_status: int
    charge: float
    batch_operations: int


@dataclass(slots=True)
class _Call:
    """A request on its way, with what becomes known about it."""

    request: Request
    segments: list[str]
    container: Container | None = None
    key: PartitionKey | None = None
    item_id: str | None = None
    batch_operations: int = 0
    extra: dict[str, str] = field(default_factory=dict)  # headers of success and refusal alike

    def header(self, name: str) -> str | None:
        return self.request.headers.get(name)

    def is_set(self, name: str) -> bool:
        # The Python SDK writes booleans as True, others as true.
        return self.request.headers.get(name, "").lower() == "true"

    @property
    def is_query(self) -> bool:
        return self.is_set("x-ms-documentdb-isquery") or "query+json" in (self.header("content-type") or "")

    def condition(self) -> Precondition:
        return Precondition(self.header("if-match"), self.header("if-none-match"))

    def page_size(self, default: int, largest: int) -> int:
        text = self.header("x-ms-max-item-count") or str(default)
        if not text.lstrip("-").isdecimal() or (size := int(text)) == 0 or size < -1:
            raise CosmosError(400, f"The header x-ms-max-item-count is invalid: {text}.")
        return largest if size == -1 else size


class Gateway:
    """Answers every request; what goes wrong in here becomes a 500 and a log record, never a closed connection."""

    def __init__(
        self, store: Store, *, key: str, consistency: str, clock: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        if consistency not in feed.CONSISTENCY_LEVELS:
            raise ValueError(f"the consistency is one of {', '.join(feed.CONSISTENCY_LEVELS)}, not {consistency}")
        self.resources = Resources(store)
        self.observers: list[Callable[[RequestRecord], None]] = []
        self._store = store
        self._key = auth.decoded_key(key)
        self._consistency = consistency
        self._clock = clock
        self._wall_clock = wall_clock
        self._date = (-1, "")

    def answer(self, request: Request) -> Response:
        path = request.target.partition("?")[0]
        call = _Call(request, list(_segments(path)))
        sub_status = 0
        try:
            auth.check(self._key, request.method, call.segments, request.headers, self._wall_clock())
            if len(request.body) > MAX_BODY_BYTES:
                raise CosmosError(413, "Request size is too large.")
            response = self._route(call)
        except CosmosError as exc:
            sub_status = exc.sub_status
            response = self._refusal(exc)
        except Exception:
            _LOG.exception("request failed", extra={"method": request.method, "path": path})
            response = self._refusal(CosmosError(500, "The server failed; its log says why."))
        self._complete(call, response)
        if self.observers:
            self._observe(call, response, sub_status)
        return response

    def _complete(self, call: _Call, response: Response) -> None:
        now = int(self._clock())
        if self._date[0] != now:
            self._date = (now, formatdate(now, usegmt=True))
        headers = response.headers
        headers |= call.extra
        headers["Date"] = self._date[1]
        headers["Content-Type"] = "application/json"
        headers.setdefault("x-ms-request-charge", "1")
        headers["x-ms-activity-id"] = call.header("x-ms-activity-id") or str(uuid.uuid4())
        headers["x-ms-version"] = _VERSION

    def _observe(self, call: _Call, response: Response, sub_status: int) -> None:
        record = RequestRecord(
            operation=call.header("x-ms-thinclient-proxy-operation-type") or call.request.method,
            resource_type=auth.signed_link(call.segments)[0],
            container=call.container.id if call.container else None,
            item_id=call.item_id,
            partition_key=call.key.text if call.key else None,
            status=response.status,
            sub_status=sub_status,
            charge=float(response.headers["x-ms-request-charge"]),
            batch_operations=call.batch_operations,
        )
        for observer in self.observers:
            observer(record)

    def _refusal(self, error: CosmosError) -> Response:
        body = dump({"code": error.code, "message": error.message})
        return Response(error.status, {"x-ms-substatus": str(error.sub_status)}, body)

    def _check_consistency(self, call: _Call) -> None:
        wanted = call.header("x-ms-consistency-level")
        levels = feed.CONSISTENCY_LEVELS
        if wanted and (wanted not in levels or levels.index(wanted) < levels.index(self._consistency)):
            raise CosmosError(
                400,
                f"ConsistencyLevel {wanted} specified in the request is invalid when service is configured with "
                f"consistency level {self._consistency}. Ensure the request consistency level is not stronger than the "
                "service consistency level.",
            )

    def _route(self, call: _Call) -> Response:
        method = call.request.method
        match call.segments:
            case [] if method == "GET":
                host = call.header("host") or "127.0.0.1"
                return _json(200, feed.account(host, self._consistency))
            case ["dbs"]:
                return self._databases(call)
            case ["dbs", database]:
                return self._database(call, database)
            case ["dbs", database, "colls"]:
                return self._containers(call, database)
            case ["dbs", database, "colls", container]:
                call.container = self.resources.container(database, container)
                return self._container(call, call.container)
            case ["dbs", database, "colls", container, *rest] if rest[0] in {"docs", "pkranges", "operations"}:
                call.container = self.resources.container(database, container)
                return self._in_container(call, call.container, rest)
            case ["offers", *rest] if len(rest) < 2:
                return self._offers(call, rest)
        raise CosmosError(404, f"This server does not serve {method} /{'/'.join(call.segments)}.")

    def _databases(self, call: _Call) -> Response:
        match call.request.method:
            case "GET":
                return _feed("", "Databases", self.resources.databases())
            case "POST" if call.is_query:
                return self._query_documents(call, "", "Databases", self.resources.databases())
            case "POST":
                return _json(201, self.resources.database_document(self.resources.create_database(call.request.body)))
        raise _not_allowed(call)

    def _database(self, call: _Call, name: str) -> Response:
        database = self.resources.database(name)
        match call.request.method:
            case "GET":
                return _json(200, self.resources.database_document(database))
            case "DELETE":
                self.resources.delete_database(database)
                return Response(204)
        raise _not_allowed(call)

    def _containers(self, call: _Call, name: str) -> Response:
        database = self.resources.database(name)
        match call.request.method:
            case "GET":
                return _feed(database.rid, "DocumentCollections", self.resources.containers(database))
            case "POST" if call.is_query:
                documents = self.resources.containers(database)
                return self._query_documents(call, database.rid, "DocumentCollections", documents)
            case "POST":
                throughput = _throughput(call)
                container = self.resources.create_container(database, call.request.body, throughput)
                return _json(201, self.resources.container_document(container))
        raise _not_allowed(call)

    def _container(self, call: _Call, container: Container) -> Response:
        match call.request.method:
            case "GET":
                return _json(200, self.resources.container_document(container))
            case "PUT":
                self.resources.replace_container(container, call.request.body)
                return _json(200, self.resources.container_document(container))
            case "DELETE":
                self.resources.delete_container(container)
                return Response(204)
        raise _not_allowed(call)

    def _offers(self, call: _Call, rest: list[str]) -> Response:
        match call.request.method, rest:
            case "GET", []:
                return _feed("", "Offers", self.resources.offers())
            case "POST", [] if call.is_query:
                return self._query_documents(call, "", "Offers", self.resources.offers())
            case "GET", [rid]:
                return _json(200, self.resources.offer(rid))
            case "PUT", [rid]:
                return _json(200, self.resources.replace_offer(rid, call.request.body))
        raise _not_allowed(call)

    def _in_container(self, call: _Call, container: Container, rest: list[str]) -> Response:
        intended = call.header("x-ms-cosmos-intended-collection-rid")
        if intended and intended != container.rid:
            raise CosmosError(
                400, "Collection rid is mismatched: the container was created anew.", COLLECTION_RID_MISMATCH
            )
        self._check_consistency(call)
        call.extra["x-ms-alt-content-path"] = container.path
        self._check_session(call, container)
        if (text := call.header(_PARTITION_KEY)) is not None:
            call.key = key_from_header(text)
        match call.request.method, rest:
            case "GET", ["pkranges"]:
                return self._ranges(call, container)
            case "POST", ["operations", "partitionkeydelete"]:
                self._items(call, container).delete_all()
                return self._with_session(call, container, Response(200))
            case "POST", ["docs"] if call.is_set("x-ms-cosmos-is-query-plan-request"):
                raise CosmosError(
                    400, "Query plans are not served: this server answers cross-partition queries itself."
                )
            case "POST", ["docs"] if call.is_query:
                return self._query(call, container)
            case "POST", ["docs"] if call.is_set("x-ms-cosmos-is-batch-request"):
                return self._batch(call, container)
            case "POST", ["docs"]:
                return self._create(call, container)
            case "GET", ["docs"] if (call.header("a-im") or "").lower() == "incremental feed":
                return self._changes(call, container)
            case "GET", ["docs"] if call.header("a-im"):
                raise CosmosError(400, f"The change feed mode {call.header('a-im')} is not served.")
            case "GET", ["docs"]:
                return self._read_all(call, container)
            case _, ["docs", item_id]:
                if call.segments[1] != container.database.id:  # addressed by resource ids
                    item_id = self._store.id_of(container, item_id) or item_id
                call.item_id = item_id
                return self._item(call, container, item_id)
        raise _not_allowed(call)

    def _items(self, call: _Call, container: Container) -> Items:
        if call.key is None:
            raise CosmosError(400, "PartitionKey value must be supplied for this operation.")
        return Items(self._store, self._consistency, container, call.key)

    def _create(self, call: _Call, container: Container) -> Response:
        items = self._items(call, container)
        document = parse_object(call.request.body, "item")
        item_id = document.get("id")
        call.item_id = item_id if isinstance(item_id, str) else None
        if call.is_set("x-ms-documentdb-is-upsert"):
            return self._written(call, container, items.upsert(document, call.condition()))
        return self._written(call, container, items.create(document))

    def _item(self, call: _Call, container: Container, item_id: str) -> Response:
        items, condition, body = self._items(call, container), call.condition(), call.request.body
        match call.request.method:
            case "GET":
                outcome = items.read(item_id, condition)
            case "PUT":
                outcome = items.replace(item_id, parse_object(body, "item"), condition)
            case "PATCH":
                outcome = items.patch(item_id, Patch.read(parse(body, "patch")), condition)
            case "DELETE":
                outcome = items.delete(item_id, condition)
            case _:
                raise _not_allowed(call)
        return self._written(call, container, outcome)

    def _written(self, call: _Call, container: Container, outcome: Outcome) -> Response:
        headers = {"x-ms-request-charge": str(outcome.charge)}
        if outcome.etag is not None:
            headers["etag"] = outcome.etag
        is_minimal = call.request.method != "GET" and "return=minimal" in (call.header("prefer") or "").lower()
        response = Response(outcome.status, headers, b"" if is_minimal else outcome.body)
        return self._with_session(call, container, response)

    def _batch(self, call: _Call, container: Container) -> Response:
        operations = parse(call.request.body, "batch")
        call.batch_operations = len(operations) if isinstance(operations, list) else 0
        outcome = self._items(call, container).batch(operations)
        body = b"[" + b",".join(map(_batch_entry, outcome.results)) + b"]"
        headers = {"x-ms-request-charge": str(outcome.charge)}
        return self._with_session(call, container, Response(207 if outcome.failed else 200, headers, body))

    def _query(self, call: _Call, container: Container) -> Response:
        where = self._feed_range(call, container)
        is_cross_partition = call.key is None and where is None
        if is_cross_partition and not call.is_set("x-ms-documentdb-query-enablecrosspartition"):
            raise CosmosError(
                400,
                "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition "
                "to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
            )
        plan = run.Plan(
            run.Query.read(call.request.body), container.spec.indexing, is_cross_partition=is_cross_partition
        )
        return self._page(call, container, plan, where or _WHOLE)

    def _read_all(self, call: _Call, container: Container) -> Response:
        plan = run.Plan(run.Query("SELECT * FROM c", {}), None, is_cross_partition=True)
        return self._page(call, container, plan, self._feed_range(call, container) or _WHOLE)

    def _page(self, call: _Call, container: Container, plan: run.Plan, where: Range) -> Response:
        pk = call.key.text if call.key else None

        def candidates(sequence: int) -> Iterator[run.Candidate]:
            rows = self._store.scan(container, start=where.start, end=where.end, pk=pk, sequence=sequence)
            return (run.Candidate(row.sequence, row.body) for row in rows)

        size = call.page_size(run.DEFAULT_PAGE, run.LARGEST_PAGE)
        page = plan.page(candidates, size, call.header("x-ms-continuation"))
        response = _raw_feed(container.rid, "Documents", page.rows)
        if page.continuation:
            response.headers["x-ms-continuation"] = page.continuation
        cost = charge.query(page.looked_at, len(response.body), self._consistency)
        response.headers["x-ms-request-charge"] = str(cost)
        return self._with_session(call, container, response)

    def _changes(self, call: _Call, container: Container) -> Response:
        where = self._feed_range(call, container) or _WHOLE
        if call.key is not None:
            where = Range("", call.key.epk, f"{call.key.epk}0")
        changes = feed.read_changes(
            self._store,
            container,
            where,
            size=call.page_size(feed.DEFAULT_PAGE, run.LARGEST_PAGE),
            if_none_match=call.header("if-none-match"),
            if_modified_since=call.header("if-modified-since"),
        )
        response = _raw_feed(container.rid, "Documents", changes.items) if changes.items else Response(304)
        response.headers["etag"] = changes.etag
        cost = charge.query(len(changes.items), len(response.body), self._consistency)
        response.headers["x-ms-request-charge"] = str(cost)
        return self._with_session(call, container, response)

    def _ranges(self, call: _Call, container: Container) -> Response:
        etag = feed.ranges_etag(container)
        if call.header("if-none-match") == etag:
            return Response(304, {"etag": etag})
        response = _feed(container.rid, "PartitionKeyRanges", feed.ranges(container))
        response.headers["etag"] = etag
        return response

    def _feed_range(self, call: _Call, container: Container) -> Range | None:
        """The part of the EPK space that the request names, by range id or bounds; None = all of it."""
        range_id = call.header("x-ms-documentdb-partitionkeyrangeid")
        start, end = call.header("x-ms-start-epk"), call.header("x-ms-end-epk")
        named = range_by_id(container.ranges, range_id) if range_id else None
        if start is None and end is None:
            return named
        whole = named or _WHOLE
        return Range(whole.id, max(start or "", whole.start), min(end or "FF", whole.end))

    def _query_documents(self, call: _Call, rid: str, name: str, documents: list[Document]) -> Response:
        plan = run.Plan(run.Query.read(call.request.body), None, is_cross_partition=False)
        known = [run.Candidate(at, dump(each)) for at, each in enumerate(documents, 1)]
        size = call.page_size(run.DEFAULT_PAGE, run.LARGEST_PAGE)
        page = plan.page(lambda start: known[max(start - 1, 0) :], size, call.header("x-ms-continuation"))
        response = _raw_feed(rid, name, page.rows)
        if page.continuation:
            response.headers["x-ms-continuation"] = page.continuation
        return response

    def _check_session(self, call: _Call, container: Container) -> None:
        """A token from the future: this server has never had what the client has seen."""
        known = {each.id for each in container.ranges}
        for token in (call.header("x-ms-session-token") or "").split(","):
            range_id, _, version = token.partition(":")
            lsn = version.split("#")[1] if "#" in version else version
            if range_id in known and lsn.isdecimal() and int(lsn) > self._store.lsn:
                raise CosmosError(
                    404, "The read session is not available for the input session token.", READ_SESSION_NOT_AVAILABLE
                )

    def _with_session(self, call: _Call, container: Container, response: Response) -> Response:
        ranges = container.ranges if call.key is None else (container.range_of(call.key.epk),)
        response.headers["x-ms-session-token"] = ",".join(f"{each.id}:-1#{self._store.lsn}" for each in ranges)
        response.headers["x-ms-documentdb-partitionkeyrangeid"] = ranges[0].id
        return response


@lru_cache(maxsize=1024)
def _segments(path: str) -> tuple[str, ...]:
    # Split first: an id may hold an escaped slash's neighbours, a % or a +.
    return tuple(unquote(part) for part in path.strip("/").split("/")) if path != "/" else ()


def _throughput(call: _Call) -> int | None:
    text = call.header("x-ms-offer-throughput")
    if text is not None and text.isdecimal():
        return checked_throughput(int(text))
    if text is not None:
        raise CosmosError(400, f"The header x-ms-offer-throughput is invalid: {text}.")
    autoscale = call.header("x-ms-cosmos-offer-autopilot-settings")
    if autoscale is None:
        return None
    most = parse_object(autoscale, "header x-ms-cosmos-offer-autopilot-settings").get("maxThroughput")
    if not isinstance(most, int) or isinstance(most, bool):
        raise CosmosError(400, "The autoscale setting needs a whole number in maxThroughput.")
    return checked_throughput(most)


def _batch_entry(outcome: Outcome) -> bytes:
    entry: Document = {"statusCode": outcome.status, "requestCharge": outcome.charge}
    if outcome.etag is not None:
        entry["eTag"] = outcome.etag
    head = dump(entry)
    return head[:-1] + b',"resourceBody":' + outcome.body + b"}" if outcome.body else head


def _json(status: int, document: Document) -> Response:
    etag = document.get("_etag")
    return Response(status, {"etag": etag} if isinstance(etag, str) else {}, dump(document))


def _feed(rid: str, name: str, documents: list[Document]) -> Response:
    return _raw_feed(rid, name, [dump(document) for document in documents])


def _raw_feed(rid: str, name: str, documents: list[bytes]) -> Response:
    body = b'{"_rid":"%s","%s":[%s],"_count":%d}' % (rid.encode(), name.encode(), b",".join(documents), len(documents))
    return Response(200, {"x-ms-item-count": str(len(documents))}, body)


def _not_allowed(call: _Call) -> CosmosError:
    return CosmosError(405, f"{call.request.method} is not served on /{'/'.join(call.segments)}.")
