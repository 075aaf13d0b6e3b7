"""A payment provider on loopback that knows `Idempotency-Key`, counts the calls of each key, and fails as it is told.

    async with PaymentProvider() as provider:
        provider.script(ANSWER_LOST, key="ORD-1")       # the first call of this key; from then on it approves
        ...                                             # PAYMENTS_URL = provider.url
        assert provider.count("ORD-1") == 2

It decides once for each key: whoever calls again under a key gets the first decision. Another body under a known key is
refused (422), as providers do. What it is told goes by turns: what was scripted for the key, then what was scripted for
any key, then `usually`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal, Self

from local.cosmos.http import Exchange, HttpServer, Response

PATH: Final = "/authorizations"
MEMBERS: Final = ("orderId", "amount", "currency")

Decision = Literal["approved", "declined"]


class Ending(StrEnum):
    """How an exchange ends when it is not answered."""

    RESET = "reset"
    HANG_UP = "hang_up"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What becomes of one call.

    `decides`: the decision, unless the key has one already; None decides nothing. `status`: what is answered instead of
    a decision. `ends`: no answer, but this.
    """

    decides: Decision | None = "approved"
    status: int | None = None
    ends: Ending | None = None
    delay_seconds: float = 0.0

    def after(self, seconds: float) -> Behaviour:
        """The same, later."""
        return replace(self, delay_seconds=seconds)


APPROVE: Final = Behaviour()
DECLINE: Final = Behaviour(decides="declined")
NO_ANSWER: Final = Behaviour(decides=None, ends=Ending.RESET)
SILENT: Final = Behaviour(decides=None, ends=Ending.SILENCE)
ANSWER_LOST: Final = Behaviour(ends=Ending.RESET)
"""It decides, and nobody hears of it."""


def answers(status: int) -> Behaviour:
    """An answer without a decision: 400 and 422 refuse, 401 knows nobody, 5xx is trouble."""
    return Behaviour(decides=None, status=status)


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it came in."""

    key: str
    order_id: str
    amount: str
    currency: str


@dataclass(frozen=True, slots=True)
class _Decided:
    call: Call
    authorization_id: str
    status: Decision


class PaymentProvider:
    """Serves until it is stopped; `observers` are told of each call before it is answered."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.usually = APPROVE
        self.observers: list[Callable[[Call], None]] = []
        self.port = 0
        self._decided: dict[str, _Decided] = {}
        self._of_key: defaultdict[str, deque[Behaviour]] = defaultdict(deque)
        self._of_any: deque[Behaviour] = deque()
        self._delayed: set[asyncio.TimerHandle] = set()
        self._http = HttpServer(self._handle)

    @property
    def url(self) -> str:
        """What `PAYMENTS_URL` is to be."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def counts(self) -> Counter[str]:
        """Calls per idempotency key."""
        return Counter(call.key for call in self.calls)

    def count(self, key: str) -> int:
        """Calls under one idempotency key."""
        return self.counts[key]

    def decision(self, key: str) -> Decision | None:
        """What was decided under a key, whether or not the caller has heard of it."""
        decided = self._decided.get(key)
        return decided.status if decided else None

    def script(self, *behaviours: Behaviour, key: str | None = None) -> None:
        """What becomes of the next calls, one each: those under a key, or any."""
        (self._of_any if key is None else self._of_key[key]).extend(behaviours)

    async def start(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises OSError when the port is in use."""
        self.port = await self._http.start(host, port)

    async def stop(self) -> None:
        """Close the port; what is delayed is never answered. What was decided is kept for the next start."""
        for handle in self._delayed:
            handle.cancel()
        self._delayed.clear()
        await self._http.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _handle(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.target != PATH:
            exchange.answer(_problem(404, f"the only path is {PATH}"))
        elif request.method != "POST":
            exchange.answer(_problem(405, "the only method is POST"))
        else:
            call = _call_of(request.headers.get("idempotency-key"), request.body)
            if isinstance(call, str):
                exchange.answer(_problem(400, call))
            else:
                self._serve(exchange, call)

    def _serve(self, exchange: Exchange, call: Call) -> None:
        self.calls.append(call)
        for observer in self.observers:
            observer(call)
        behaviour = self._next(call.key)
        if behaviour.delay_seconds <= 0:
            self._end(exchange, call, behaviour)
            return

        def later() -> None:
            self._delayed.discard(handle)
            self._end(exchange, call, behaviour)

        handle = asyncio.get_running_loop().call_later(behaviour.delay_seconds, later)
        self._delayed.add(handle)

    def _next(self, key: str) -> Behaviour:
        for scripted in (self._of_key.get(key), self._of_any):
            if scripted:
                return scripted.popleft()
        return self.usually

    def _end(self, exchange: Exchange, call: Call, behaviour: Behaviour) -> None:
        response = self._response(call, behaviour)
        match behaviour.ends:
            case Ending.RESET:
                exchange.reset()
            case Ending.HANG_UP:
                exchange.hang_up()
            case Ending.SILENCE:
                pass
            case None:
                exchange.answer(response)

    def _response(self, call: Call, behaviour: Behaviour) -> Response:
        """Decide, where that is still to be done, and say so."""
        decided = self._decided.get(call.key)
        if decided is not None and decided.call != call:
            return _problem(422, "the idempotency key is known with another body")
        if decided is None and behaviour.decides is not None:
            decided = _Decided(call, f"A-{len(self._decided) + 1}", behaviour.decides)
            self._decided[call.key] = decided
        if behaviour.status is not None:
            return _problem(behaviour.status, "as scripted")
        if decided is None:
            return _problem(503, "nothing is decided")
        return _json(201, {"authorizationId": decided.authorization_id, "status": decided.status})


def _call_of(key: str | None, body: bytes) -> Call | str:
    """The call, or what is wrong with it."""
    if not key:
        return "Idempotency-Key: missing"
    try:
        value = json.loads(body)
    except ValueError:
        return "the body is no JSON"
    members = [value.get(name) for name in MEMBERS] if isinstance(value, dict) else []
    texts = [member for member in members if isinstance(member, str) and member]
    if len(texts) != len(MEMBERS):
        return f"the body must have {', '.join(MEMBERS)} as texts"
    return Call(key, *texts)


def _problem(status: int, detail: str) -> Response:
    return _json(status, {"status": status, "detail": detail})


def _json(status: int, body: dict[str, object]) -> Response:
    return Response(status, {"Content-Type": "application/json"}, json.dumps(body).encode())
