"""From settings to what opens an account (R69)."""

from __future__ import annotations

import pytest
from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

from shared.adapters.credentials import cosmos_account, identity, service_token
from shared.errors import ConfigurationError
from shared.settings import CosmosConnection


def connection(text: str | None, **identity_of: str | None) -> CosmosConnection:
    return CosmosConnection(
        text, "https://a.documents.azure.com/", identity_of.get("credential"), identity_of.get("client_id")
    )


@pytest.mark.parametrize(
    "text",
    [
        "AccountEndpoint=http://localhost:8081/;AccountKey=abc==;",
        "AccountKey=abc==;AccountEndpoint=http://localhost:8081/",
    ],
)
def test_connection_string_has_address_and_key(text: str) -> None:
    """A key may end with signs of equality."""
    account = cosmos_account(connection(text))
    assert (account.endpoint, account.credential) == ("http://localhost:8081/", "abc==")


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("AccountEndpoint=http://x/;Key=AccountKey=", "AccountKey"),
        ("AccountKey=x;My=AccountEndpoint=", "AccountEndpoint"),
    ],
)
def test_part_that_is_missing_is_named(text: str, missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"CosmosConnection: {missing} is missing") as caught:
        cosmos_account(connection(text))
    assert caught.value.names == ("CosmosConnection",)


async def test_managed_identity_is_the_apps_own() -> None:
    found = identity("managedidentity", "id-1")
    assert isinstance(found, ManagedIdentityCredential)
    await found.close()


async def test_address_alone_takes_a_developers_identity() -> None:
    found = identity(None, None)
    assert isinstance(found, DefaultAzureCredential)
    await found.close()


def test_no_scope_means_no_token() -> None:
    assert service_token(connection(None), None) is None
