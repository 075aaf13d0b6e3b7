"""A body passes a message's JSON Schema exactly if the model takes it: producers may rely on either."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema.validators import extend
from pydantic import BaseModel, ValidationError

from shared.contracts import ledger, orders

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schemas"

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    orders.OrderPlaced: {
        "type": "order.placed",
        "schemaVersion": 1,
        "orderId": "ORD-1",
        "sequence": 1,
        "customerId": "C-9",
        "currency": "EUR",
        "lines": [{"lineId": "1", "sku": "TEA", "quantity": 2, "unitPrice": "3.50"}],
        "meta": {"sentAt": "12:00"},
    },
    orders.OrderAmended: {
        "type": "order.amended",
        "orderId": "ORD-1",
        "operationId": "op-7",
        "sequence": 2,
        "lines": [{"lineId": "1", "sku": "TEA", "quantity": 0, "unitPrice": "0"}],
    },
    orders.OrderCancelled: {
        "type": "order.cancelled",
        "orderId": "ORD-1",
        "operationId": "op-8",
        "sequence": 3,
        "reason": "changed their mind",
    },
    orders.OrderStatus: {"type": "order.status", "orderId": "ORD-1", "status": "confirmed", "version": 1},
    ledger.LedgerBatch: {
        "type": "ledger.batch",
        "ledgerId": "L-7",
        "batchId": "b1",
        "batchSequence": 1,
        "currency": "EUR",
        "transactions": [
            {"transactionId": "T-1", "orderId": "ORD-1", "kind": "add", "amount": "19.00", "sequence": 1},
            {"transactionId": "T-2", "orderId": "ORD-1", "kind": "void", "amount": "-1", "refersTo": "T-1"},
            {"transactionId": "T-3", "orderId": "ORD-1", "kind": "close", "entryCount": 2},
        ],
    },
    ledger.LedgerEntry: {
        "type": "ledger.entry",
        "orderId": "ORD-1",
        "stream": "ledger.L-7",
        "transactionId": "T-1",
        "sequence": 1,
        "kind": "add",
        "amount": "19.00",
        "currency": "EUR",
        "refersTo": "T-0",
        "entryCount": 0,
        "meta": {"source": {"consumer": "fan_out_ledger", "key": "L-7:b1", "index": 0}},
    },
}

# Values at the borders of the rules, of every JSON type.
BORDERS: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 2, 2.0, -1, 1.5, 999_999, 1_000_000, 2147483647, 2147483648, 2147483647.0, 1e300),
    *("", " ", "a", "a ", " a", "a\n", "\na", "a:b", "a\tb", "é", "\u00a0", "a\u00a0", "\u00ad", "\u1680", "\u167f"),
    *("\u2028", "\u200b", "\u202f", "\u2030", "\u205f", "\u3000", "\u3001", "\ufeff", "\ufefe", "\uffff", "\ud7ff"),
    *("x" * 63, "x" * 64, "é" * 63, "é" * 64, "😀", "a😀", "x" * 200, "x" * 201, "😀" * 200, "😀" * 201),
    *(
        "0",
        "-0",
        "01",
        "10",
        "10.0",
        "1.2345",
        "1.23456",
        "9" * 15,
        "9" * 16,
        "-1",
        "+1",
        "1e3",
        "1\n",
        "١",
        ".5",
        "5.",
    ),
    *("EUR", "eur", "EUR\n", "EU", "ÉUR", "order", "ledger.L", "ledger.", "ledger.a:b", "ledger.a ", "order\n"),
    *("order.placed", "order.status", "ledger.batch", "ledger.entry", "add", "close", "shipped", "Shipped"),
    *([], {}, [1], {"a": None}, [{}], [[]]),
]

leaves = (
    st.sampled_from(BORDERS) | st.text(max_size=70) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)


def pattern(_validator: Any, wanted: str, instance: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """As ECMA-262 has it: `$` is the end. Python's lets a line feed follow."""
    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", wanted), instance):
        yield jsonschema.ValidationError("pattern")


Validator = extend(jsonschema.Draft202012Validator, {"pattern": pattern})


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    name = EXAMPLES[model]["type"]
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return schema


VALIDATORS = {model: Validator(schema_of(model)) for model in EXAMPLES}


def is_taken(model: type[BaseModel], body: object) -> bool:
    try:
        model.model_validate(body, by_alias=True, by_name=False)
    except ValidationError:
        return False
    return True


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """All places of a value, its own first."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for name, member in members for deeper in places(member, (*path, name)))]


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


@st.composite
def mutants(draw: st.DrawFn, model: type[BaseModel]) -> object:
    """The example with one to three things replaced, removed, added or repeated."""
    body: Any = copy.deepcopy(EXAMPLES[model])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(body)[1:] or [()]))
        if not path:
            break
        holder, last = at(body, path[:-1]), path[-1]
        action = draw(st.sampled_from(["replace", "replace", "remove", "add", "swap"]))
        if action == "replace":
            holder[last] = copy.deepcopy(draw(leaves))  # one that is drawn again must be as it was
        elif action == "remove":
            del holder[last]
        elif action == "add" and isinstance(holder, dict):
            known = {member for example in EXAMPLES.values() for member in example} | {"order_id", "other", ""}
            holder[draw(st.sampled_from(sorted(known)))] = copy.deepcopy(draw(leaves))
        elif action == "swap":
            holder[last] = copy.deepcopy(at(body, draw(st.sampled_from(places(body)))))
    return body


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_the_schema_is_one_and_takes_its_example(model: type[BaseModel]) -> None:
    Validator.check_schema(schema_of(model))
    VALIDATORS[model].validate(EXAMPLES[model])
    assert is_taken(model, EXAMPLES[model])


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_schema_and_model_agree_on_every_border_in_every_place(model: type[BaseModel]) -> None:
    taken = 0
    for path in places(EXAMPLES[model])[1:]:
        for value in BORDERS:
            body = copy.deepcopy(EXAMPLES[model])
            at(body, path[:-1])[path[-1]] = value
            is_valid = VALIDATORS[model].is_valid(body)
            assert is_taken(model, body) == is_valid, (path, value)
            taken += is_valid
    assert taken > len(BORDERS) / 4  # both verdicts occur


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_schema_and_model_agree(model: type[BaseModel], data: st.DataObject) -> None:
    body = data.draw(mutants(model))
    assert is_taken(model, body) == VALIDATORS[model].is_valid(body)


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_code_may_build_a_message_by_attribute_names(model: type[BaseModel]) -> None:
    read = model.model_validate(EXAMPLES[model])
    assert model(**{name: getattr(read, name) for name in read.model_fields_set}) == read
    assert read.model_dump(by_alias=True, exclude_unset=True, mode="json") == EXAMPLES[model]
