"""Where the document of a dedup key is, from the key alone: an id holds no colon, so the partition is what is before
the first one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from shared.domain.identity import document_id
from shared.domain.validation import STATUS_PREFIX
from shared.envelope import Role
from shared.ports import Container

CONTAINERS = {
    Role.ORDERS: Container.ORDERS,
    Role.LEDGER: Container.LEDGERS,
    Role.LEDGER_ENTRIES: Container.LEDGER_ENTRIES,
}


@dataclass(frozen=True, slots=True)
class Location:
    """A document's place."""

    container: Container
    partition: str
    document_id: str


def locate(role: Role, key: str) -> Location | None:
    """The place of a key's document; None for an order.status, which leaves none."""
    event = _event_id(key)
    text = key if event is None else event
    owner, colon, rest = text.partition(":")
    if role is Role.ORDERS and not colon:
        return Location(Container.ORDERS, owner, document_id(owner))
    if role is Role.ORDERS and rest.startswith(STATUS_PREFIX):
        return None
    return Location(CONTAINERS[role], owner, document_id(key, cloud_event=event is not None))


def _event_id(key: str) -> str | None:
    """The id of a CloudEvent's key, which is a JSON list of source and id."""
    try:
        value = json.loads(key) if key.startswith("[") else None
    except ValueError:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(each, str) for each in value):
        return None
    return str(value[1])
