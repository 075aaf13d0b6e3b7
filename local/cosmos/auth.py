"""Master key authorization: an HMAC over verb, resource type, resource link and date."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import unquote

from local.cosmos.errors import CosmosError

CLOCK_TOLERANCE_SECONDS = 900
_CONTAINER_OPERATIONS = "operations"


def signed_link(segments: list[str]) -> tuple[str, str]:
    """Resource type and link of a path: a feed has an odd number of segments, a resource an even one."""
    if len(segments) == 6 and segments[4] == _CONTAINER_OPERATIONS:
        return "colls", "/".join(segments[:4])
    if len(segments) % 2:
        return segments[-1], "/".join(segments[:-1])
    return (segments[-2], "/".join(segments)) if segments else ("", "")


def signature(key: bytes, verb: str, resource_type: str, link: str, date: str, http_date: str = "") -> str:
    text = f"{verb.lower()}\n{resource_type.lower()}\n{link}\n{date.lower()}\n{http_date.lower()}\n"
    return base64.b64encode(hmac.digest(key, text.encode(), hashlib.sha256)).decode()


def check(key: bytes, verb: str, segments: list[str], headers: dict[str, str], now: float) -> None:
    """Refuse a request that is not signed with the key, or whose date is too far from `now`."""
    token = unquote(headers.get("authorization", ""))
    kind, _, rest = token.partition("&ver=1.0&sig=")
    if kind != "type=master" or not rest:
        raise CosmosError(401, "Required Header authorization is missing, or it is no master key token.")
    date, http_date = headers.get("x-ms-date", ""), headers.get("date", "")
    resource_type, link = signed_link(segments)
    # Signed is the link as named; with resource ids in the path it is the last one alone, in lower case.
    last = link.rpartition("/")[2].lower()
    if not any(
        hmac.compare_digest(signature(key, verb, resource_type, text, date, http_date), rest) for text in (link, last)
    ):
        raise CosmosError(
            401,
            "The input authorization token can't serve the request. The wrong key is being used or the expected "
            f"payload is not built as per the protocol. Server used the following payload to sign: "
            f"'{verb.lower()}\n{resource_type}\n{link}\n{date.lower()}\n{http_date.lower()}\n'",
        )
    if abs(_seconds(date or http_date) - now) > CLOCK_TOLERANCE_SECONDS:
        raise CosmosError(
            403,
            "The authorization token is not valid at the current time. Please create another token and retry (token "
            f"time: {date or http_date}, server time: {datetime.fromtimestamp(now, UTC):%a, %d %b %Y %H:%M:%S} GMT).",
        )


@lru_cache(maxsize=16)
def _seconds(date: str) -> float:
    try:
        sent = parsedate_to_datetime(date)
    except ValueError as exc:
        raise CosmosError(401, "The header x-ms-date is missing or no RFC 1123 date.") from exc
    return (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()


def decoded_key(text: str) -> bytes:
    """The bytes of a master key. Raises ValueError when it is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise ValueError(f"the account key is no base64: {exc}") from exc
