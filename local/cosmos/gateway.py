"""One request to one response: routing, headers, and what every operation has in common."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from urllib.parse import unquote

from local.cosmos import auth, feed, item_routes
from local.cosmos.call import Call, feed_response, json_response, not_allowed, raw_feed
from local.cosmos.catalogue import Container
from local.cosmos.errors import CosmosError
from local.cosmos.http import Request, Response
from local.cosmos.items import MAX_BODY_BYTES
from local.cosmos.query import run
from local.cosmos.resources import Resources, checked_throughput
from local.cosmos.store import Store
from local.cosmos.values import Document, dump, parse_object

_LOG = logging.getLogger(__name__)
_VERSION = "2020-07-15"
_NOT_SERVED = {
    "users": "users and permissions",
    "clientencryptionkeys": "client encryption keys",
    "sprocs": "stored procedures",
    "triggers": "triggers",
    "udfs": "user-defined functions",
}


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
        self._item_routes = item_routes.ItemRoutes(store, consistency)
        self._key = auth.decoded_key(key)
        self.consistency = consistency
        self._clock = clock
        self._wall_clock = wall_clock
        self._date = (-1, "")

    def answer(self, request: Request) -> Response:
        path = request.target.partition("?")[0]
        call = Call(request, list(_segments(path)))
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

    def _complete(self, call: Call, response: Response) -> None:
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

    def _observe(self, call: Call, response: Response, sub_status: int) -> None:
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

    def _route(self, call: Call) -> Response:
        method = call.request.method
        match call.segments:
            case [] if method == "GET":
                host = call.header("host") or "127.0.0.1"
                return json_response(200, feed.account(host, self.consistency))
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
                return self._item_routes.answer(call, call.container, rest)
            case ["dbs", database, "colls", container, "conflicts", *rest] if len(rest) < 2:
                return self._conflicts(call, self.resources.container(database, container), rest)
            case ["dbs", _, kind, *_] if kind in _NOT_SERVED:
                raise CosmosError(400, f"This server does not serve {_NOT_SERVED[kind]}.")
            case ["dbs", _, "colls", _, kind, *_] if kind in _NOT_SERVED:
                raise CosmosError(400, f"This server does not serve {_NOT_SERVED[kind]}.")
            case ["offers", *rest] if len(rest) < 2:
                return self._offers(call, rest)
        raise CosmosError(404, f"This server does not serve {method} /{'/'.join(call.segments)}.")

    def _databases(self, call: Call) -> Response:
        match call.request.method:
            case "GET":
                return feed_response("", "Databases", self.resources.databases())
            case "POST" if call.is_query:
                return self._query_documents(call, "", "Databases", self.resources.databases())
            case "POST":
                database = self.resources.create_database(call.request.body, _throughput(call))
                return json_response(201, self.resources.database_document(database))
        raise not_allowed(call)

    def _database(self, call: Call, name: str) -> Response:
        database = self.resources.database(name)
        match call.request.method:
            case "GET":
                return json_response(200, self.resources.database_document(database))
            case "DELETE":
                self.resources.delete_database(database)
                return Response(204)
        raise not_allowed(call)

    def _containers(self, call: Call, name: str) -> Response:
        database = self.resources.database(name)
        match call.request.method:
            case "GET":
                return feed_response(database.rid, "DocumentCollections", self.resources.containers(database))
            case "POST" if call.is_query:
                documents = self.resources.containers(database)
                return self._query_documents(call, database.rid, "DocumentCollections", documents)
            case "POST":
                throughput = _throughput(call)
                container = self.resources.create_container(database, call.request.body, throughput)
                return json_response(201, self.resources.container_document(container))
        raise not_allowed(call)

    def _container(self, call: Call, container: Container) -> Response:
        match call.request.method:
            case "GET":
                return self._container_read(call, container)
            case "PUT":
                self.resources.replace_container(container, call.request.body)
                return json_response(200, self.resources.container_document(container))
            case "DELETE":
                self.resources.delete_container(container)
                return Response(204)
        raise not_allowed(call)

    def _container_read(self, call: Call, container: Container) -> Response:
        document = self.resources.container_document(container)
        if call.is_set("x-ms-documentdb-populatepartitionstatistics"):
            document["statistics"] = self.resources.statistics(container)
        response = json_response(200, document)
        if call.is_set("x-ms-documentdb-populatequotainfo"):
            response.headers["x-ms-resource-usage"] = self.resources.usage(container)
            # A new indexing policy is in force at once here.
            response.headers["x-ms-documentdb-collection-index-transformation-progress"] = "100"
        return response

    def _conflicts(self, call: Call, container: Container, rest: list[str]) -> Response:
        """One region, one writer: there never is a conflict to resolve."""
        if rest:
            raise CosmosError(404, f"Conflict {rest[0]} does not exist.")
        if call.is_query:
            item_routes.refuse_unasked_crossing(call)
            return self._query_documents(call, container.rid, "Conflicts", [])
        if call.request.method != "GET":
            raise not_allowed(call)
        return feed_response(container.rid, "Conflicts", [])

    def _offers(self, call: Call, rest: list[str]) -> Response:
        match call.request.method, rest:
            case "GET", []:
                return feed_response("", "Offers", self.resources.offers())
            case "POST", [] if call.is_query:
                return self._query_documents(call, "", "Offers", self.resources.offers())
            case "GET", [rid]:
                return json_response(200, self.resources.offer(rid))
            case "PUT", [rid]:
                return json_response(200, self.resources.replace_offer(rid, call.request.body))
        raise not_allowed(call)

    def _query_documents(self, call: Call, rid: str, name: str, documents: list[Document]) -> Response:
        plan = run.Plan(run.Query.read(call.request.body), None, is_cross_partition=False)
        known = [run.Candidate(at, dump(each)) for at, each in enumerate(documents, 1)]
        size = call.page_size(run.DEFAULT_PAGE, run.LARGEST_PAGE)
        page = plan.page(lambda start: known[max(start - 1, 0) :], size, call.header("x-ms-continuation"))
        response = raw_feed(rid, name, page.rows)
        if page.continuation:
            response.headers["x-ms-continuation"] = page.continuation
        return response


@lru_cache(maxsize=1024)
def _segments(path: str) -> tuple[str, ...]:
    # Split first: an id may hold an escaped slash's neighbours, a % or a +.
    return tuple(unquote(part) for part in path.strip("/").split("/")) if path != "/" else ()


def _throughput(call: Call) -> int | None:
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
