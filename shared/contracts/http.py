"""What the HTTP functions answer (docs/contracts.md, "HTTP")."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from shared.contracts.documents import RecordStatus

PROBLEM_CONTENT_TYPE = "application/problem+json"


class Answer(BaseModel):
    """Base of all answers: built by attribute names, written in camelCase."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class OrderAccepted(Answer):
    """The message is sent, or was sent before: the same body gets the same answer."""

    order_id: str
    message_id: str


class FulfilmentView(Answer):
    """How far an order has come, by a version that only grows."""

    status: Literal["confirmed", "shipped", "delivered", "returned"]
    version: int


class LineView(Answer):
    """One line of an order."""

    line_id: str
    sku: str
    quantity: int
    unit_price: str
    amount: str


class OrderView(Answer):
    """An order as a client sees it; `processing` is None where nothing is known of its message."""

    order_id: str
    state: Literal["pending_payment", "open", "declined", "cancelled"]
    fulfilment: FulfilmentView | None
    currency: str
    total: str
    lines: tuple[LineView, ...]
    revision: int
    processing: RecordStatus | None


class Healthy(Answer):
    """The app could read its settings; it asks nobody else."""

    status: Literal["ok"] = "ok"
    version: str
    functions: tuple[str, ...]


class Misconfigured(Answer):
    """Settings are missing or malformed: their names, never their values."""

    status: Literal["misconfigured"] = "misconfigured"
    missing: tuple[str, ...]


class ProblemKind(Enum):
    """The problems (RFC 9457) that the HTTP functions answer with: name, status, title."""

    NOT_JSON = ("not-json", 400, "The body can't be read")
    UNKNOWN_ORDER = ("unknown-order", 404, "There is no such order")
    OTHER_CONTENT = ("other-content", 409, "The id is known with other content")
    TOO_LARGE = ("too-large", 413, "The body is too large")
    CONTENT_TYPE = ("content-type", 415, "The content type is not supported")
    INVALID_MESSAGE = ("invalid-message", 422, "The message breaks the schema or a rule")
    UNAVAILABLE = ("unavailable", 503, "Broker or database are away; try again")

    def __init__(self, kebab: str, status: int, title: str) -> None:
        self.urn = f"urn:problem:{kebab}"
        self.status = status
        self.title = title


class ProblemError(Answer):
    """One thing that is wrong with a body: JSON pointer and reason, without payload values."""

    pointer: str
    reason: str


class Problem(Answer):
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[ProblemError, ...] = ()
    trace_id: str | None = None

    @classmethod
    def of(
        cls, kind: ProblemKind, detail: str, *, errors: tuple[ProblemError, ...] = (), trace_id: str | None = None
    ) -> Problem:
        """The problem document of one occurrence."""
        return cls(
            type=kind.urn, title=kind.title, status=kind.status, detail=detail, errors=errors, trace_id=trace_id
        )
