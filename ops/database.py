"""The database: single documents by the app's own adapter, and queries that a person's questions need."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy, CosmosClient

from ops.errors import EnvironmentProblemError, OpsError
from shared.adapters.cosmos import CosmosDocuments
from shared.adapters.credentials import cosmos_account
from shared.errors import AppError
from shared.ports import Container
from shared.settings import Settings

Json = dict[str, Any]

PAGE_ITEMS: Final = 200


class Database:
    """One client for a command's life."""

    def __init__(self, settings: Settings) -> None:
        account = cosmos_account(settings.cosmos)
        self.documents = CosmosDocuments(account, settings.database, settings.containers, lambda *_: None)
        self._client = CosmosClient(account.endpoint, account.credential, enable_endpoint_discovery=False)
        self._database = settings.database
        self._names = settings.containers

    def partition(self, container: Container, key: str, text: str = "SELECT * FROM c") -> AsyncIterator[Json]:
        """What a query finds in one partition."""
        return self._query(container, text, {}, partition_key=key)

    def everywhere(
        self, container: Container, text: str, parameters: Mapping[str, object] | None = None
    ) -> AsyncIterator[Json]:
        """What a query finds in all partitions, page by page."""
        return self._query(container, text, parameters or {})

    async def close(self) -> None:
        """Close the clients."""
        await self.documents.close()
        await self._client.close()

    async def _query(
        self, container: Container, text: str, parameters: Mapping[str, object], **options: Any
    ) -> AsyncIterator[Json]:
        named = [{"name": name, "value": value} for name, value in parameters.items()]
        items = self._proxy(container).query_items(text, parameters=named, max_item_count=PAGE_ITEMS, **options)
        with translated(f"query {self._names[container]}"):
            async for item in items:
                yield dict(item)

    def _proxy(self, container: Container) -> ContainerProxy:
        return self._client.get_database_client(self._database).get_container_client(self._names[container])


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Say in a line what the database or the way to it has.

    Raises: EnvironmentProblemError.
    """
    try:
        yield
    except OpsError:
        raise
    except AppError as exc:
        raise EnvironmentProblemError(f"{doing}: {exc}") from exc
    except (AzureError, OSError) as exc:
        first = str(exc).strip().splitlines()
        raise EnvironmentProblemError(f"{doing}: {type(exc).__name__}: {first[0] if first else 'no answer'}") from exc
