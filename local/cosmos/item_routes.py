"""Requests to a container's items: single ones, batches, queries, feeds and partition key ranges."""

from __future__ import annotations

from collections.abc import Iterator

from local.cosmos import charge, feed
from local.cosmos.call import Call, feed_response, not_allowed, raw_feed
from local.cosmos.catalogue import Container
from local.cosmos.errors import COLLECTION_RID_MISMATCH, READ_SESSION_NOT_AVAILABLE, CosmosError
from local.cosmos.http import Response
from local.cosmos.items import Items, Outcome
from local.cosmos.partition import Range, key_from_header, overlapping, range_by_id
from local.cosmos.patch import Patch
from local.cosmos.query import run
from local.cosmos.query.metrics import Metrics
from local.cosmos.query.target import key_of_filter
from local.cosmos.store import Store
from local.cosmos.values import Document, dump, parse, parse_object

_PARTITION_KEY = "x-ms-documentdb-partitionkey"
_WHOLE = Range("", "", "FF")
_RANGE = 1 << 44  # items come range by range, in each in their order: one number for both, exact in a double


class ItemRoutes:
    """Everything below /dbs/<id>/colls/<id>."""

    def __init__(self, store: Store, consistency: str) -> None:
        self._store = store
        self._consistency = consistency

    def answer(self, call: Call, container: Container, rest: list[str]) -> Response:
        intended = call.header("x-ms-cosmos-intended-collection-rid")
        if intended and intended != container.rid:
            raise CosmosError(
                400, "Collection rid is mismatched: the container was created anew.", COLLECTION_RID_MISMATCH
            )
        self._check_consistency(call)
        call.extra["x-ms-alt-content-path"] = container.path
        self._check_session(call, container)
        if (text := call.header(_PARTITION_KEY)) is not None:
            call.key = key_from_header(text, container.spec.key_version)
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
        raise not_allowed(call)

    def _items(self, call: Call, container: Container) -> Items:
        if call.key is None:
            raise CosmosError(400, "PartitionKey value must be supplied for this operation.")
        return Items(self._store, self._consistency, container, call.key)

    def _create(self, call: Call, container: Container) -> Response:
        items = self._items(call, container)
        document = parse_object(call.request.body, "item")
        item_id = document.get("id")
        call.item_id = item_id if isinstance(item_id, str) else None
        if call.is_set("x-ms-documentdb-is-upsert"):
            return self._written(call, container, items.upsert(document, call.condition()))
        return self._written(call, container, items.create(document))

    def _item(self, call: Call, container: Container, item_id: str) -> Response:
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
                raise not_allowed(call)
        return self._written(call, container, outcome)

    def _written(self, call: Call, container: Container, outcome: Outcome) -> Response:
        headers = {"x-ms-request-charge": str(outcome.charge)}
        if outcome.etag is not None:
            headers["etag"] = outcome.etag
        is_minimal = call.request.method != "GET" and "return=minimal" in (call.header("prefer") or "").lower()
        response = Response(outcome.status, headers, b"" if is_minimal else outcome.body)
        return self._with_session(call, container, response)

    def _batch(self, call: Call, container: Container) -> Response:
        operations = parse(call.request.body, "batch")
        call.batch_operations = len(operations) if isinstance(operations, list) else 0
        outcome = self._items(call, container).batch(operations)
        body = b"[" + b",".join(map(_batch_entry, outcome.results)) + b"]"
        headers = {"x-ms-request-charge": str(outcome.charge)}
        return self._with_session(call, container, Response(207 if outcome.failed else 200, headers, body))

    def _query(self, call: Call, container: Container) -> Response:
        where = self._feed_range(call, container)
        query = run.Query.read(call.request.body)
        if call.key is None and where is None and not call.is_set("x-ms-documentdb-query-enablecrosspartition"):
            call.key = key_of_filter(query.text, query.parameters, container.spec)
        if call.key is None and where is None:
            refuse_unasked_crossing(call)
        return self._page(call, container, query, where)

    def _read_all(self, call: Call, container: Container) -> Response:
        return self._page(call, container, run.Query("SELECT * FROM c", {}), self._feed_range(call, container))

    def _page(self, call: Call, container: Container, query: run.Query, part: Range | None) -> Response:
        where, pk = part or _WHOLE, call.key.text if call.key else None
        plan = run.Plan(
            query,
            container.spec.indexing,
            is_cross_partition=pk is None and part is None,
            scope=f"{container.rid} {pk} {where.start} {where.end}",
        )

        parts = (where,) if pk is not None else overlapping(container.ranges, where)

        def candidates(start: int) -> Iterator[run.Candidate]:
            first, sequence = divmod(start, _RANGE)
            for at, each in enumerate(parts[first:], first):
                rows = self._store.scan(container, start=each.start, end=each.end, pk=pk, sequence=sequence)
                yield from (run.Candidate(at * _RANGE + row.sequence, row.body) for row in rows)
                sequence = 0

        size = call.page_size(run.DEFAULT_PAGE, run.LARGEST_PAGE)
        metrics = Metrics()
        page = plan.page(candidates, size, call.header("x-ms-continuation"), metrics)
        response = raw_feed(container.rid, "Documents", page.rows)
        if page.continuation:
            response.headers["x-ms-continuation"] = page.continuation
        if call.is_set("x-ms-documentdb-populatequerymetrics"):
            response.headers["x-ms-documentdb-query-metrics"] = metrics.header(page.rows)
        cost = charge.query(page.looked_at, len(response.body), self._consistency)
        response.headers["x-ms-request-charge"] = str(cost)
        return self._with_session(call, container, response)

    def _changes(self, call: Call, container: Container) -> Response:
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
        response = raw_feed(container.rid, "Documents", changes.items) if changes.items else Response(304)
        response.headers["etag"] = changes.etag
        cost = charge.query(len(changes.items), len(response.body), self._consistency)
        response.headers["x-ms-request-charge"] = str(cost)
        return self._with_session(call, container, response)

    def _ranges(self, call: Call, container: Container) -> Response:
        etag = feed.ranges_etag(container)
        if call.header("if-none-match") == etag:
            return Response(304, {"etag": etag})
        response = feed_response(container.rid, "PartitionKeyRanges", feed.ranges(container))
        response.headers["etag"] = etag
        return response

    def _feed_range(self, call: Call, container: Container) -> Range | None:
        """The part of the EPK space that the request names, by range id or bounds; None = all of it."""
        range_id = call.header("x-ms-documentdb-partitionkeyrangeid")
        start, end = call.header("x-ms-start-epk"), call.header("x-ms-end-epk")
        named = range_by_id(container.ranges, range_id) if range_id else None
        if start is None and end is None:
            return named
        whole = named or _WHOLE
        return Range(whole.id, max(start or "", whole.start), min(end or "FF", whole.end))

    def _check_consistency(self, call: Call) -> None:
        wanted = call.header("x-ms-consistency-level")
        levels = feed.CONSISTENCY_LEVELS
        if wanted and (wanted not in levels or levels.index(wanted) < levels.index(self._consistency)):
            raise CosmosError(
                400,
                f"ConsistencyLevel {wanted} specified in the request is invalid when service is configured with "
                f"consistency level {self._consistency}. Ensure the request consistency level is not stronger than the "
                "service consistency level.",
            )

    def _check_session(self, call: Call, container: Container) -> None:
        """A token from the future: this server has never had what the client has seen."""
        known = {each.id for each in container.ranges}
        for token in (call.header("x-ms-session-token") or "").split(","):
            range_id, _, version = token.partition(":")
            lsn = version.split("#")[1] if "#" in version else version
            if range_id in known and lsn.isdecimal() and int(lsn) > self._store.lsn:
                raise CosmosError(
                    404, "The read session is not available for the input session token.", READ_SESSION_NOT_AVAILABLE
                )

    def _with_session(self, call: Call, container: Container, response: Response) -> Response:
        ranges = container.ranges if call.key is None else (container.range_of(call.key.epk),)
        response.headers["lsn"] = str(self._store.lsn)
        response.headers["x-ms-session-token"] = ",".join(f"{each.id}:-1#{self._store.lsn}" for each in ranges)
        response.headers["x-ms-documentdb-partitionkeyrangeid"] = ranges[0].id
        return response


def refuse_unasked_crossing(call: Call) -> None:
    """Refuse a query that names no partition key and does not ask to cross partitions either."""
    if call.header(_PARTITION_KEY) is None and not call.is_set("x-ms-documentdb-query-enablecrosspartition"):
        raise CosmosError(
            400,
            "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition "
            "to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
        )


def _batch_entry(outcome: Outcome) -> bytes:
    entry: Document = {"statusCode": outcome.status, "requestCharge": outcome.charge}
    if outcome.etag is not None:
        entry["eTag"] = outcome.etag
    head = dump(entry)
    return head[:-1] + b',"resourceBody":' + outcome.body + b"}" if outcome.body else head
