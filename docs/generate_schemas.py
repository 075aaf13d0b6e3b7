"""Write the JSON Schemas of all messages to docs/schemas/: `python docs/generate_schemas.py`.

The models in shared/contracts/ are the source, so schema and code can't differ. What a schema can't say (unique line
ids, amounts that must fit, what each kind of entry has) is in docs/contracts.md and in shared/domain/validation.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from shared.contracts import ledger, orders, values  # noqa: E402 - found by the line above when run as a script

FOLDER = ROOT / "docs" / "schemas"

MESSAGES: dict[str, type[BaseModel]] = {
    "order.placed": orders.OrderPlaced,
    "order.amended": orders.OrderAmended,
    "order.cancelled": orders.OrderCancelled,
    "order.status": orders.OrderStatus,
    "ledger.batch": ledger.LedgerBatch,
    "ledger.entry": ledger.LedgerEntry,
}
VALUES: dict[str, Any] = {
    "id": values.Id,
    "stream": values.Stream,
    "amount": values.Amount,
    "price": values.Price,
    "currency": values.Currency,
    "position": values.Position,
    "meta": values.Meta,
}

Schema = dict[str, Any]


def schemas() -> dict[str, Schema]:
    """The schema of each message, by its type."""
    return {name: _schema(name, model) for name, model in MESSAGES.items()}


def text_of(schema: Schema) -> str:
    """A schema as its file holds it: ASCII, so that patterns stay readable in any editor."""
    return json.dumps(schema, indent=2) + "\n"


def path_of(name: str) -> Path:
    """The file of a message's schema."""
    return FOLDER / f"{name}.schema.json"


def _schema(name: str, model: type[BaseModel]) -> Schema:
    generated = model.model_json_schema(by_alias=True)
    known = {value: _plain(TypeAdapter(kind).json_schema()) for value, kind in VALUES.items()}
    parts = {part.lower(): _plain(definition) for part, definition in generated.pop("$defs", {}).items()}
    body = _named(_plain(generated), known)
    definitions = {part: _named(definition, known) for part, definition in parts.items()}
    used = json.dumps([body, definitions])
    definitions |= {value: schema for value, schema in known.items() if f'"#/$defs/{value}"' in used}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def _plain(schema: Any) -> Any:
    """Leave out what says nothing about which bodies are accepted, and what is true anyway."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain: Schema = {}
    for word, value in schema.items():
        if word == "properties":
            plain[word] = {member: _plain(definition) for member, definition in value.items()}
        elif word == "$ref":
            plain[word] = value.lower()
        elif word not in {"title", "default"} and (word, value) != ("additionalProperties", True):
            plain[word] = _plain(value)
    if "const" in plain:
        plain.pop("type", None)
    return plain


def _named(schema: Any, known: dict[str, Schema]) -> Any:
    """Say `id` or `amount` where a value has a name."""
    if isinstance(schema, list):
        return [_named(item, known) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name, definition in known.items():
        if schema == definition:
            return {"$ref": f"#/$defs/{name}"}
    return {word: _named(value, known) for word, value in schema.items()}


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        path_of(name).write_text(text_of(schema), encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
