"""From settings to what the SDKs' clients are built with: a connection string, or an address and an identity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

from shared.errors import ConfigurationError
from shared.settings import CosmosConnection, ServiceBusConnection

Credential = DefaultAzureCredential | ManagedIdentityCredential


@dataclass(frozen=True, slots=True)
class CosmosAccount:
    """An account's address and what opens it: a key or an identity."""

    endpoint: str
    credential: Any


def cosmos_account(connection: CosmosConnection) -> CosmosAccount:
    """The account that the settings name."""
    if connection.connection_string is None:
        return CosmosAccount(connection.endpoint, identity(connection.credential, connection.client_id))
    parts = dict(part.split("=", 1) for part in connection.connection_string.split(";") if "=" in part)
    try:
        return CosmosAccount(parts["AccountEndpoint"], parts["AccountKey"])
    except KeyError as missing:
        raise ConfigurationError(f"CosmosConnection: {missing.args[0]} is missing") from None


def identity(kind: str | None, client_id: str | None) -> Credential:
    """`managedidentity`: the app's own identity. Nothing: a developer's, against Azure."""
    if kind == "managedidentity":
        return ManagedIdentityCredential(client_id=client_id)
    return DefaultAzureCredential()


def service_bus_credential(connection: ServiceBusConnection) -> Credential:
    """The identity for the namespace that the settings name."""
    return identity(connection.credential, connection.client_id)


def service_token(connection: CosmosConnection, scope: str | None) -> Callable[[], Awaitable[str]] | None:
    """Tokens of the app's identity for another service; None where no scope is set."""
    if scope is None:
        return None
    credential = identity(connection.credential, connection.client_id)

    async def token() -> str:
        return (await credential.get_token(scope)).token

    return token
