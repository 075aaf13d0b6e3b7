"""What the address of a link means."""

from __future__ import annotations

CBS = "$cbs"
_MANAGEMENT_SUFFIX = "/$management"


def entity_path(address: str) -> str:
    """The entity's path: `amqps://HOST:PORT/NAME` (Python), `NAME` (JavaScript) and `/NAME` (.NET) are the same."""
    _, scheme, rest = address.partition("://")
    path = rest.partition("/")[2] if scheme else address
    return path.strip("/")


def managed_path(path: str) -> str | None:
    """The entity behind a management node; None when the path is no such node."""
    if path.lower().endswith(_MANAGEMENT_SUFFIX):
        return path[: -len(_MANAGEMENT_SUFFIX)]
    return None
