"""The messages of the queue `orders` (docs/contracts.md, "Messages")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.values import (
    Currency,
    Following,
    Id,
    Maybe,
    Meta,
    One,
    Part,
    Position,
    Price,
    Quantity,
    listed,
)

LARGEST_ORDER_LINES = 2000
LARGEST_REASON = 200  # characters


class Line(Part):
    """One line as a producer states it."""

    line_id: Id
    sku: Id
    quantity: Quantity
    unit_price: Price


Lines = Annotated[tuple[Line, ...], Field(min_length=1, max_length=LARGEST_ORDER_LINES), listed(LARGEST_ORDER_LINES)]


class OrderPlaced(Part):
    """A new order. With `sequence` 1 the order is sequenced."""

    type: Literal["order.placed"]
    schema_version: One = 1
    order_id: Id
    sequence: Maybe[One] = None
    customer_id: Maybe[Id] = None
    currency: Currency
    lines: Lines
    meta: Maybe[Meta] = None


class OrderAmended(Part):
    """New absolute content of some lines of an order."""

    type: Literal["order.amended"]
    schema_version: One = 1
    order_id: Id
    operation_id: Id
    sequence: Maybe[Following] = None
    lines: Lines
    meta: Maybe[Meta] = None


class OrderCancelled(Part):
    """The end of an order that was not shipped."""

    type: Literal["order.cancelled"]
    schema_version: One = 1
    order_id: Id
    operation_id: Id
    sequence: Maybe[Following] = None
    reason: Maybe[Annotated[str, Field(max_length=LARGEST_REASON)]] = None
    meta: Maybe[Meta] = None


class OrderStatus(Part):
    """An absolute fulfilment state with a version."""

    type: Literal["order.status"]
    schema_version: One = 1
    order_id: Id
    status: Literal["confirmed", "shipped", "delivered", "returned"]
    version: Position
    meta: Maybe[Meta] = None


OrderMessage = OrderPlaced | OrderAmended | OrderCancelled | OrderStatus
OrderCommand = OrderAmended | OrderCancelled
