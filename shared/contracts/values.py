"""The values that messages and documents are made of (docs/contracts.md, "Values")."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

_EDGE = (
    r"[!-9;-~\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\ud7ff"
    r"\ue000-\ufefe\uff00-\uffff]"
)
_INNER = r"[ -9;-~\u00a0-\ud7ff\ue000-\uffff]"
_ID = rf"{_EDGE}({_INNER}{{0,61}}{_EDGE})?"

# No look-around and no \s, so that every JSON Schema engine reads the patterns as pydantic's does.
ID_PATTERN = rf"^{_ID}$"
STREAM_PATTERN = rf"^(order|ledger\.{_ID})$"
AMOUNT_PATTERN = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?$"
PRICE_PATTERN = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?$"
CURRENCY_PATTERN = r"^[A-Z]{3}$"
LARGEST_POSITION = 2147483647
LARGEST_QUANTITY = 999_999

T = TypeVar("T")


def _integral(value: object) -> object:
    """Let a number with an integral value pass as an integer, and nothing else: no text, no boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("integer", "must be an integer")
    if isinstance(value, float):
        if not value.is_integer():
            raise PydanticCustomError("integer", "must be an integer")
        return int(value)
    return value


def _as_tuple(value: object) -> object:
    """JSON has lists; what is read stays unchanged, so it is kept as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def listed(at_most: int) -> BeforeValidator:
    """A list whose length is checked before its items: pydantic would look at each of a million first, and note each
    fault."""

    def checked(value: object) -> object:
        if isinstance(value, list) and len(value) > at_most:
            raise PydanticCustomError("too_long", "too long", {"max_length": at_most})
        return _as_tuple(value)

    return BeforeValidator(checked)


class _NeverNull:
    """Takes `null` out of an optional member: absent is the one way to leave it out, so that hashes agree."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        inner: CoreSchema = schema["schema"] if schema["type"] == "nullable" else schema
        return inner


Listed = BeforeValidator(_as_tuple)
Integral = BeforeValidator(_integral)
Maybe = Annotated[T | None, _NeverNull()]  # may be absent, then None; an explicit null is refused

# A limit stands before `Integral` or `Listed`: only there it reaches the JSON Schema.
Id = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=ID_PATTERN)]
Stream = Annotated[str, StringConstraints(pattern=STREAM_PATTERN)]
Amount = Annotated[str, StringConstraints(pattern=AMOUNT_PATTERN)]
Price = Annotated[str, StringConstraints(pattern=PRICE_PATTERN)]
Currency = Annotated[str, StringConstraints(pattern=CURRENCY_PATTERN)]
Position = Annotated[int, Field(ge=1, le=LARGEST_POSITION), Integral]
Following = Annotated[int, Field(ge=2, le=LARGEST_POSITION), Integral]
Count = Annotated[int, Field(ge=0, le=LARGEST_POSITION), Integral]
Quantity = Annotated[int, Field(ge=0, le=LARGEST_QUANTITY), Integral]
One = Annotated[Literal[1], Integral]
Meta = dict[str, object]  # the producer's own: neither interpreted nor hashed


class Part(BaseModel):
    """Base of all that is read from a message: immutable, camelCase outside, unknown members refused by name.

    Code builds one by attribute names; what comes from outside goes through `shared.domain.validation`, which reads
    camelCase alone.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,  # a payload value must not reach a log
    )


class Stored(BaseModel):
    """Base of all that is read from a document.

    Members that this release does not know are kept: a newer release may have added them under the same `v`, and a
    rolled-back worker must not drop them.
    """

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )
