"""The SDKs' clients, as this machine's own servers want them."""

from __future__ import annotations

from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import CosmosClient


def local_cosmos(endpoint: str, key: str) -> CosmosClient:
    """A client of this machine's own server, past any proxy that the environment names for the world outside."""
    return CosmosClient(endpoint, key, transport=AioHttpTransport(use_env_settings=False))
