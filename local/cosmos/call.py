"""A request on its way through the gateway, and the forms of responses."""

from __future__ import annotations

from dataclasses import dataclass, field

from local.cosmos.catalogue import Container
from local.cosmos.errors import CosmosError
from local.cosmos.http import Request, Response
from local.cosmos.items import Precondition
from local.cosmos.partition import PartitionKey
from local.cosmos.values import Document, dump


@dataclass(slots=True)
class Call:
    """A request on its way, with what becomes known about it."""

    request: Request
    segments: list[str]
    container: Container | None = None
    key: PartitionKey | None = None
    item_id: str | None = None
    batch_operations: int = 0
    extra: dict[str, str] = field(default_factory=dict)  # headers of success and refusal alike

    def header(self, name: str) -> str | None:
        return self.request.headers.get(name)

    def is_set(self, name: str) -> bool:
        # The Python SDK writes booleans as True, others as true.
        return self.request.headers.get(name, "").lower() == "true"

    @property
    def is_query(self) -> bool:
        return self.is_set("x-ms-documentdb-isquery") or "query+json" in (self.header("content-type") or "")

    def condition(self) -> Precondition:
        return Precondition(self.header("if-match"), self.header("if-none-match"))

    def page_size(self, default: int, largest: int) -> int:
        text = self.header("x-ms-max-item-count") or str(default)
        if not text.lstrip("-").isdecimal() or (size := int(text)) == 0 or size < -1:
            raise CosmosError(400, f"The header x-ms-max-item-count is invalid: {text}.")
        return largest if size == -1 else size


def json_response(status: int, document: Document) -> Response:
    etag = document.get("_etag")
    return Response(status, {"etag": etag} if isinstance(etag, str) else {}, dump(document))


def feed_response(rid: str, name: str, documents: list[Document]) -> Response:
    return raw_feed(rid, name, [dump(document) for document in documents])


def raw_feed(rid: str, name: str, documents: list[bytes]) -> Response:
    body = b'{"_rid":"%s","%s":[%s],"_count":%d}' % (rid.encode(), name.encode(), b",".join(documents), len(documents))
    return Response(200, {"x-ms-item-count": str(len(documents))}, body)


def not_allowed(call: Call) -> CosmosError:
    return CosmosError(405, f"{call.request.method} is not served on /{'/'.join(call.segments)}.")
