"""Faults of the Cosmos DB server: between the socket and the execution of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from local.cosmos.errors import CODES, CosmosError
from local.cosmos.http import Exchange, Request, Response
from local.cosmos.lag import Lag, Place
from local.cosmos.partition import key_from_header
from local.cosmos.server import CosmosServer
from local.faults.actions import (
    Action,
    Answer,
    Cut,
    Delay,
    FaultError,
    LoseReply,
    LoseRequest,
    Loss,
    Outage,
    Service,
    Stage,
    StaleRead,
    Stall,
    Throttle,
)
from local.faults.engine import Armed, Entry, Faults
from local.faults.rules import Key, Operation, Rule

_TOO_MANY_REQUESTS: Final = (429, 3200)  # the sub-status of "user request rate is too large"
_LARGEST_PARSED_BYTES: Final = 64 * 1024  # ids of larger bodies are read when a rule asks for ids
_PARTITION_KEY: Final = "x-ms-documentdb-partitionkey"

Execute = Callable[[], Response]


@dataclass(slots=True)
class _Turn:
    """One request on its way through the faults."""

    exchange: Exchange
    execute: Execute
    entry: Entry

    def do(self) -> Response:
        response = self.execute()
        self.entry.result = str(response.status)
        return response

    def do_and_answer(self) -> None:
        self.exchange.answer(self.do())

    def lose(self, response: Response, how: Loss) -> None:
        match how:
            case Loss.CLOSE:
                self.exchange.hang_up()
            case Loss.TRUNCATE:
                # Where there is no body, the end of the head is missing.
                self.exchange.truncate(response, len(response.body) // 2 or -2)
            case _:
                self.exchange.reset()


class CosmosPlug:
    """The engine's hold on a Cosmos DB server."""

    def __init__(self, faults: Faults, server: CosmosServer) -> None:
        self._faults = faults
        self._server = server
        self._wants_ids = False
        server.faults = self.intercept
        faults.plug_in(Service.COSMOS, self)

    def check(self, rule: Rule) -> None:
        """Refuse what the account can't do."""
        if isinstance(rule.action, StaleRead) and self._server.consistency == "Strong":
            raise FaultError("action", "stale-read: the account is Strong, so that no read is stale")

    def armed(self, rules: Sequence[Rule]) -> None:
        """Keep former versions while a rule wants them."""
        self._wants_ids = any(rule.id is not None for rule in rules)
        wants_lag = any(isinstance(rule.action, StaleRead) for rule in rules)
        if not wants_lag:
            self._server.lag = None
        elif self._server.lag is None:
            self._server.lag = Lag()

    def suspend(self) -> None:
        """Be gone."""
        self._server.suspend()

    def resume(self) -> None:
        """Be back."""
        self._server.resume()

    def intercept(self, exchange: Exchange, execute: Execute) -> None:
        """Let a request meet the rules."""
        operation = self._operation(exchange.request)
        entry, armed = self._faults.meet(operation, lambda action: self._can(action, exchange.request))
        turn = _Turn(exchange, lambda: self._charged(operation, execute()), entry)
        if armed is None:
            turn.do_and_answer()
        else:
            self._do(armed, turn)

    def _operation(self, request: Request) -> Operation:
        name, entity, item_id = _place(request.method, request.target.partition("?")[0])
        name = _document_operation(name, request)
        group = _group(request.headers.get(_PARTITION_KEY))
        ids: Sequence[str | None] = (item_id,)
        parses = name in ("Create", "Upsert", "Batch")
        if parses and (self._wants_ids or len(request.body) <= _LARGEST_PARSED_BYTES):
            ids = _ids_in(request.body)
        return Operation(Service.COSMOS, name, entity, [Key(group, each) for each in ids])

    def _can(self, action: Action, request: Request) -> bool:
        return not isinstance(action, StaleRead) or self._is_behind(request)

    def _charged(self, operation: Operation, response: Response) -> Response:
        for armed in self._faults.armed_for(Service.COSMOS):
            if armed.allowance is not None and armed.rule.matches(operation):
                armed.allowance.spend(float(response.headers.get("x-ms-request-charge", "0")))
        return response

    def _do(self, armed: Armed, turn: _Turn) -> None:
        exchange, action = turn.exchange, armed.rule.action
        match action:
            case Answer(status, sub_status, retry_after_ms, message):
                exchange.answer(_refusal(exchange.request, status, sub_status, message, retry_after_ms))
            case Throttle():
                assert armed.allowance is not None  # noqa: S101 - made with the rule
                wait_ms = armed.allowance.wait_ms()
                text = "Request rate is large. More Request Units may be needed, so no changes were made."
                exchange.answer(_refusal(exchange.request, *_TOO_MANY_REQUESTS, text, wait_ms))
            case Delay(seconds, Stage.BEFORE):
                armed.hold(turn.do_and_answer, exchange.reset, seconds=seconds)
            case Delay(seconds, Stage.AFTER):
                response = turn.do()
                armed.hold(lambda: exchange.answer(response), exchange.reset, seconds=seconds)
            case Stall(Stage.BEFORE):
                armed.hold(turn.do_and_answer, exchange.reset)
            case Stall(Stage.AFTER):
                response = turn.do()
                armed.hold(lambda: exchange.answer(response), exchange.reset)
            case LoseRequest():
                armed.hold(None, exchange.reset)
            case LoseReply(Loss.NEVER):
                turn.do()
                armed.hold(None, exchange.reset)
            case LoseReply(Loss.STATUS, status, sub_status):
                turn.do()
                exchange.answer(_refusal(exchange.request, status, sub_status, "The request was executed.", None))
            case LoseReply(how):
                turn.lose(turn.do(), how)
            case Cut(how):
                turn.lose(Response(503), how)
            case StaleRead():
                exchange.answer(self._former(turn))
            case Outage():
                exchange.reset()
                self._faults.begin_outage(armed)
            case _:
                raise TypeError(f"{action.kind} is not for Cosmos DB")

    # -------------------------------------------------------------------------------------------------- stale reads

    def _former(self, turn: _Turn) -> Response:
        """The answer of a replica that lags, which says so by its session token."""
        lag, request = self._server.lag, turn.exchange.request
        assert lag is not None  # noqa: S101 - kept while such a rule is armed
        lag.is_read = True
        try:
            response = turn.do()
        finally:
            lag.is_read = False
        token = response.headers.get("x-ms-session-token")
        if token is not None:
            response.headers["x-ms-session-token"] = re.sub(r"#\d+", f"#{self._lagging_lsn(request)}", token)
        return response

    def _is_behind(self, request: Request) -> bool:
        """Whether there is a former version that the client can't know to be old: its session token may have it."""
        lsn = self._lagging_lsn(request)
        return lsn is not None and _seen(request.headers.get("x-ms-session-token", "")) <= lsn

    def _lagging_lsn(self, request: Request) -> int | None:
        lag = self._server.lag
        segments = _segments(request.target.partition("?")[0])
        if lag is None or len(segments) != 6:
            return None
        try:
            container = self._server.container(segments[1], segments[3])
            pk = key_from_header(request.headers.get(_PARTITION_KEY, "")).text
        except CosmosError:
            return None
        return lag.lsn(Place(container.number, pk, segments[5]))


def _seen(session_token: str) -> int:
    """The last write that a client has seen, by its session token `RANGE:-1#LSN,...`."""
    numbers = [each.rpartition("#")[2] for each in session_token.split(",")]
    return max((int(each) for each in numbers if each.isdecimal()), default=0)


def _refusal(request: Request, status: int, sub_status: int, message: str, retry_after_ms: int | None) -> Response:
    headers = {
        "Content-Type": "application/json",
        "x-ms-substatus": str(sub_status),
        "x-ms-request-charge": "0",
        "x-ms-activity-id": request.headers.get("x-ms-activity-id", "00000000-0000-0000-0000-000000000000"),
    }
    if retry_after_ms is not None:
        headers["x-ms-retry-after-ms"] = str(retry_after_ms)
    body = json.dumps({"code": CODES.get(status, "Error"), "message": message}).encode()
    return Response(status, headers, body)


# ------------------------------------------------------------------------------------------- what a request is about

_VERBS: Final = {"POST": "Create", "GET": "Read", "PUT": "Replace", "PATCH": "Patch", "DELETE": "Delete"}
_KINDS: Final = {"dbs": "Database.", "colls": "Container.", "offers": "Offer.", "docs": ""}


@lru_cache(maxsize=1024)
def _segments(path: str) -> tuple[str, ...]:
    return tuple(unquote(part) for part in path.strip("/").split("/")) if path.strip("/") else ()


@lru_cache(maxsize=4096)
def _place(method: str, path: str) -> tuple[str, str, str | None]:
    """Operation, as far as method and path tell it; container; item."""
    segments = _segments(path)
    entity = segments[3] if len(segments) > 3 else ""
    verb = _VERBS.get(method, "")
    match segments:
        case []:
            return "Account.Read", "", None
        case [*_, "operations", "partitionkeydelete"]:
            return "DeletePartition", entity, None
        case [*_, "pkranges"]:
            return "PartitionKeyRanges.ReadFeed", entity, None
        case [*_, kind] if len(segments) % 2 and kind in _KINDS:
            return _KINDS[kind] + ("ReadFeed" if verb == "Read" else verb), entity, None
        case [*_, kind, name] if len(segments) % 2 == 0 and kind in _KINDS:
            return _KINDS[kind] + verb, entity, name if kind == "docs" else None
    return "Other", entity, None


def _document_operation(name: str, request: Request) -> str:
    """The operation, by the headers too: a POST to a feed may be five things."""
    headers = request.headers
    if name == "ReadFeed" and headers.get("a-im"):
        return "ChangeFeed"
    if request.method != "POST":
        return name
    if _is_set(headers, "x-ms-documentdb-isquery") or "query+json" in headers.get("content-type", ""):
        return name.replace("Create", "Query")
    if name == "Create" and _is_set(headers, "x-ms-cosmos-is-batch-request"):
        return "Batch"
    if name == "Create" and _is_set(headers, "x-ms-documentdb-is-upsert"):
        return "Upsert"
    return name


def _is_set(headers: dict[str, str], name: str) -> bool:
    return headers.get(name, "").lower() == "true"


@lru_cache(maxsize=4096)
def _group(header: str | None) -> str | None:
    """The partition key as rules name it: a string as it is, anything else as JSON."""
    if header is None:
        return None
    try:
        components = json.loads(header)
    except ValueError:
        return None
    if not isinstance(components, list) or len(components) != 1:
        return None
    return components[0] if isinstance(components[0], str) else json.dumps(components[0])


def _ids_in(body: bytes) -> list[str | None]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return [None]
    documents = content if isinstance(content, list) else [content]
    return [_id_of(each) for each in documents] or [None]


def _id_of(document: object) -> str | None:
    """The id of a document, or of a batch's operation: there it may be in the document."""
    if not isinstance(document, dict):
        return None
    found = document.get("id")
    if found is None and isinstance(document.get("resourceBody"), dict):
        found = document["resourceBody"].get("id")
    return found if isinstance(found, str) else None
