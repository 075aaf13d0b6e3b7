"""The messages of the queue `orders` (docs/contracts.md, sections 4.1 to 4.4)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.values import Currency, Id, Listed, Part, Position, Price, Quantity

LARGEST_ORDER_LINES = 2000


class Line(Part):
    """One line as a producer states it."""

    line_id: Id
    sku: Id
    quantity: Quantity
    unit_price: Price


Lines = Annotated[tuple[Line, ...], Listed, Field(min_length=1, max_length=LARGEST_ORDER_LINES)]
Sequence = Annotated[Position, Field(ge=2)]


class OrderPlaced(Part):
    """A new order. With `sequence` 1 the order is sequenced."""

    type: Literal["order.placed"]
    schema_version: Literal[1] = 1
    order_id: Id
    sequence: Literal[1] | None = None
    customer_id: Id | None = None
    currency: Currency
    lines: Lines
    meta: dict[str, object] | None = None


class OrderAmended(Part):
    """New absolute content of some lines of an order."""

    type: Literal["order.amended"]
    schema_version: Literal[1] = 1
    order_id: Id
    operation_id: Id
    sequence: Sequence | None = None
    lines: Lines
    meta: dict[str, object] | None = None


class OrderCancelled(Part):
    """The end of an order that was not shipped."""

    type: Literal["order.cancelled"]
    schema_version: Literal[1] = 1
    order_id: Id
    operation_id: Id
    sequence: Sequence | None = None
    reason: Annotated[str, Field(max_length=200)] | None = None
    meta: dict[str, object] | None = None


class OrderStatus(Part):
    """An absolute fulfilment state with a version."""

    type: Literal["order.status"]
    schema_version: Literal[1] = 1
    order_id: Id
    status: Literal["confirmed", "shipped", "delivered", "returned"]
    version: Position
    meta: dict[str, object] | None = None


OrderMessage = OrderPlaced | OrderAmended | OrderCancelled | OrderStatus
OrderCommand = OrderAmended | OrderCancelled
