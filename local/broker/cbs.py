"""`$cbs`: clients put tokens here, and links are granted by what the tokens claim."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

from local.broker import codec
from local.broker.codec import Symbol
from local.broker.messages import ReceivedMessage, encode_reply


class TokenError(Exception):
    """The token is not good; says why."""


@dataclass(frozen=True, slots=True)
class SasKey:
    """The namespace's shared access key. Token life is measured on the wall clock, whatever clock the queues go by."""

    name: str
    value: str
    wall_clock: Callable[[], float] = time.time

    def check(self, token: str, resource: str) -> None:
        """Check a token's signature and life, and that what it is for covers the resource.

        The signature is over the token's own text of its resource, so scheme, port and case of it are free: the
        Python and JavaScript clients sign the entity, .NET the whole namespace under another scheme and no port.

        Raises:
            TokenError: naming what is wrong.
        """
        head, _, query = token.partition(" ")
        fields = dict(part.partition("=")[::2] for part in query.split("&"))
        if head != "SharedAccessSignature" or not {"sr", "sig", "se", "skn"} <= fields.keys():
            raise TokenError("The token is no shared access signature with sr, sig, se and skn.")
        signed = hmac.new(self.value.encode(), f"{fields['sr']}\n{fields['se']}".encode(), hashlib.sha256).digest()
        given = unquote(fields["sig"]).encode()
        if unquote(fields["skn"]) != self.name or not hmac.compare_digest(base64.b64encode(signed), given):
            raise TokenError("InvalidSignature: The token has an invalid signature.")
        if not fields["se"].isdecimal() or int(fields["se"]) <= self.wall_clock():
            raise TokenError("ExpiredToken: The token is expired.")
        host, path = _host_and_path(resource)
        signed_host, signed_path = _host_and_path(unquote(fields["sr"]))
        if host != signed_host or not _is_under(path, signed_path):
            raise TokenError(f"The token is for '{unquote(fields['sr'])}' and does not cover '{resource}'.")

    def check_plain(self, response: bytes) -> bool:
        """Whether a SASL PLAIN response carries this key."""
        parts = response.split(b"\x00")
        return len(parts) == 3 and hmac.compare_digest(
            b"\x00".join(parts[1:]), self.name.encode() + b"\x00" + self.value.encode()
        )


@dataclass(slots=True)
class Claims:
    """The entities that one connection may use."""

    _paths: set[str] = field(default_factory=set)

    def add(self, path: str) -> None:
        """Grant an entity and all below it; the empty path is the whole namespace."""
        self._paths.add(path.lower().strip("/"))

    def cover(self, path: str) -> bool:
        """Whether the entity, or something above it, was granted."""
        return any(_is_under(path.lower().strip("/"), granted) for granted in self._paths)


def put_token(request: ReceivedMessage, key: SasKey, claims: Claims) -> bytes:
    """Answer a put-token request.

    The token's text decides what it is: the Python client calls a shared access signature `jwt`. An entity that does
    not exist is found out at attach, where clients expect it.
    """
    properties = request.application_properties
    name = properties.get("name")
    try:
        if properties.get("operation") != "put-token":
            return _answer(request, 400, f"Operation {properties.get('operation')!r} is not known.", "amqp:not-allowed")
        token = codec.decode_one(request.value or codec.NULL)
        if not isinstance(token, str) or not isinstance(name, str):
            raise TokenError("The request holds no token, or no name of what it is for.")
        key.check(token, name)
    except TokenError as exc:
        return _answer(request, 401, str(exc), "amqp:unauthorized-access")
    claims.add(_host_and_path(name)[1])
    return _answer(request, 202, "Accepted", None)


def _answer(request: ReceivedMessage, status: int, description: str, condition: str | None) -> bytes:
    properties: dict[str, object] = {"status-code": status, "status-description": description}
    if condition is not None:
        properties["error-condition"] = Symbol(condition)
    return encode_reply(request.encoded_message_id, properties, None)


def _host_and_path(resource: str) -> tuple[str, str]:
    found = re.fullmatch(r"(?:[A-Za-z][\w+.-]*://)?([^/:]*)(?::\d+)?(?:/(.*))?", resource, re.DOTALL)
    return (found[1].lower(), (found[2] or "").lower().strip("/")) if found else ("", resource)


def _is_under(path: str, top: str) -> bool:
    return top in ("", path) or path.startswith(top + "/")
