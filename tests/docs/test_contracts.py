"""docs/contracts.md and docs/schemas/ say what the code does."""

from __future__ import annotations

import importlib.util
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from shared import errors, settings, telemetry
from shared.contracts import documents, ledger, orders, values
from shared.contracts.http import OrderAccepted, OrderView, Problem, ProblemKind
from shared.domain import identity, payload, reserved, validation
from shared.domain.orders import Rejection
from shared.domain.verdicts import Outcome
from shared.envelope import Role
from shared.errors import Reason
from shared.handlers import intake
from shared.ports import Container

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
DESIGN = ROOT.parent / "shared" / "contracts.md"

MESSAGES: dict[str, type[BaseModel]] = {
    "order.placed": orders.OrderPlaced,
    "order.amended": orders.OrderAmended,
    "order.cancelled": orders.OrderCancelled,
    "order.status": orders.OrderStatus,
    "ledger.batch": ledger.LedgerBatch,
    "ledger.entry": ledger.LedgerEntry,
}


def section(number: int, subsection: int | None = None) -> str:
    """The text of a section, or of a subsection."""
    mark = f"## {number}. " if subsection is None else f"### {number}.{subsection} "
    level = "## " if subsection is None else "##"
    (text,) = re.findall(rf"^{re.escape(mark)}.*?(?=^{level}|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def rows(text: str, head: str) -> list[list[str]]:
    """The rows of the one table whose first heading is `head`."""
    (table,) = [found for found in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE) if found.startswith(f"| {head} |")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in row] for row in cells]


def codes(text: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", text)


def fences(kind: str) -> dict[str, str]:
    """The fenced blocks `kind:<name>`, by name."""
    found = re.findall(rf"^```\w+ {kind}:(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return {str(name): str(text) for name, text in found}


def generator() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("generate_schemas", ROOT / "docs" / "generate_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- schemas ---------------------------------------------------------------------------------------------------------


def test_the_schema_files_are_what_the_generator_makes() -> None:
    made = generator()
    assert {path.name for path in made.FOLDER.iterdir()} == {made.path_of(name).name for name in MESSAGES}
    for name, schema in made.schemas().items():
        assert made.path_of(name).read_text(encoding="ascii") == made.text_of(schema), "run docs/generate_schemas.py"


IRRELEVANT = {"title", "description", "$schema", "$defs", "default"}


def meaning(schema: Any, definitions: dict[str, Any]) -> Any:
    """A schema with its references resolved and without what decides nothing, so that equal means equal."""
    if isinstance(schema, list):
        return [meaning(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        assert len(schema) == 1
        return meaning(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    plain = {word: value for word, value in schema.items() if word not in IRRELEVANT}
    if "const" in plain or "enum" in plain:
        plain.pop("type", None)
    for word in ("required", "enum"):
        if word in plain:
            plain[word] = sorted(plain[word])
    if "properties" in plain:
        plain["properties"] = {name: meaning(value, definitions) for name, value in plain["properties"].items()}
    return {word: value if word == "properties" else meaning(value, definitions) for word, value in plain.items()}


@pytest.mark.skipif(not DESIGN.is_file(), reason="optional: beside the project lies no design to compare with")
@pytest.mark.parametrize("name", MESSAGES)
def test_the_schemas_mean_the_same_as_the_design_s(name: str) -> None:
    fenced = re.findall(r"^```json schema:(\S+)\n(.*?)^```", DESIGN.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    designed = {found: json.loads(text) for found, text in fenced}
    assert set(designed) == {"common", *MESSAGES}
    generated = generator().schemas()[name]
    expected = meaning(designed[name], designed["common"]["$defs"])
    assert meaning(generated, generated["$defs"]) == expected


def test_a_schema_that_differs_in_one_limit_means_something_else() -> None:
    schema = generator().schemas()["order.status"]
    looser = json.loads(json.dumps(schema).replace("2147483647", "2147483648"))
    assert meaning(schema, schema["$defs"]) != meaning(looser, looser["$defs"])


# -- values, messages ------------------------------------------------------------------------------------------------


def test_the_patterns_are_the_code_s() -> None:
    assert {name: text.strip() for name, text in fences("pattern").items()} == {
        "id": values.ID_PATTERN,
        "amount": values.AMOUNT_PATTERN,
        "currency": values.CURRENCY_PATTERN,
    }


@pytest.mark.parametrize(("place", "name"), list(enumerate(MESSAGES, start=1)))
def test_each_message_is_described_member_by_member(place: int, name: str) -> None:
    text = section(4, place)
    schema = generator().schemas()[name]
    described = {codes(member)[0]: required for member, required, _ in rows(text, "Member")}
    assert list(described) == list(schema["properties"])
    assert {member for member, required in described.items() if required == "yes"} == set(schema["required"])
    assert text.startswith(f"### 4.{place} `{name}`")
    assert f"(schemas/{name}.schema.json)" in text


def test_the_kinds_of_entries_have_what_the_table_says() -> None:
    described = rows(section(4, 5), "kind")
    assert [codes(kind)[0] for kind, *_ in described] == ["add", "amend", "void", "close"]
    for kind, *cells in described:
        body: dict[str, Any] = {
            "orderId": "ORD-1",
            "stream": "order",
            "transactionId": "1",
            "kind": codes(kind)[0],
            "currency": "EUR",
        }
        members: dict[str, Any] = {"amount": "1", "refersTo": "1", "entryCount": 0}
        required = {name for name, cell in zip(members, cells, strict=False) if cell.startswith("required")}
        right = {name: value for name, value in members.items() if name in required}
        assert validation.ledger_entry({**body, **right})
        for name, value in members.items():
            wrong = (
                {other: kept for other, kept in right.items() if other != name}
                if name in required
                else {
                    **right,
                    name: value,
                }
            )
            with pytest.raises(validation.InvalidBody):
                validation.ledger_entry({**body, **wrong})


EXAMPLES = fences("example")


def test_every_example_is_there() -> None:
    assert set(EXAMPLES) == {*MESSAGES, "record", "order", "ledgerEntry", "ledgerState"}


@pytest.mark.parametrize("name", MESSAGES)
def test_an_example_of_a_message_passes_schema_and_rules(name: str) -> None:
    example = json.loads(EXAMPLES[name])
    jsonschema.Draft202012Validator(generator().schemas()[name]).validate(example)
    assert identity.address(example).subject == name


def test_the_examples_of_documents_are_what_the_code_stores() -> None:
    documents.Record.model_validate_json(EXAMPLES["record"])
    entry = documents.LedgerEntryDocument.model_validate_json(EXAMPLES["ledgerEntry"])
    state = documents.LedgerState.model_validate_json(EXAMPLES["ledgerState"])
    order = json.loads(EXAMPLES["order"])
    order["record"] = json.loads(EXAMPLES["record"])
    read = documents.Order.model_validate_json(json.dumps(order))
    assert read.id == identity.document_id(read.order_id)
    assert entry.id == identity.document_id(identity.entry_id(entry.order_id, entry.stream, entry.transaction_id))
    assert state.id == documents.STATE_ID
    for model in (read, entry, state):
        assert not unknown(model)  # every member of an example is one of the model


def unknown(model: BaseModel) -> list[str]:
    """Members that the models don't know, at any depth, but for the ellipsis of an example."""
    inner = (value for value in vars(model).values())
    found = [name for name in (model.model_extra or {}) if name != "…"]
    for value in inner:
        parts: Any = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
        found += [name for part in parts if isinstance(part, BaseModel) for name in unknown(part)]
    return found


# -- names -----------------------------------------------------------------------------------------------------------


def test_roles_consumers_and_containers_are_the_code_s() -> None:
    described = rows(section(2), "Role")
    assert [codes(row[0])[0] for row in described] == [role.value for role in Role]
    assert {codes(row[4])[0] for row in described} == {container.value for container in Container}


def test_reasons_rejections_and_outcomes_are_the_code_s() -> None:
    text = section(10)
    assert [codes(row[0])[0] for row in rows(text, "Reason")] == [reason.value for reason in Reason]
    assert [codes(row[0])[0] for row in rows(text, "Outcome")] == [outcome.value for outcome in Outcome]
    (named,) = re.findall(r"^\*\*Rejections\*\*.*$", text, re.MULTILINE)
    assert codes(named) == [rejection.value for rejection in Rejection]


def test_each_reason_and_rejection_that_the_page_names_exists() -> None:
    known = {reason.value for reason in Reason} | {rejection.value for rejection in Rejection}
    pattern = r"(?:quarantine|rejected|rejected as|quarantined` as|`conflict`: quarantine) `([A-Z]\w+)`"
    named = set(re.findall(pattern, PAGE))
    assert named
    assert named <= known


def test_the_states_are_the_code_s() -> None:
    states = documents.Order.model_fields["state"].annotation
    moves = rows(section(5), "From")
    named = {code for row in moves for cell in row for code in codes(cell)}
    assert named == set(getattr(states, "__args__", ()))


def test_the_settings_are_the_code_s() -> None:
    described = {name for row in rows(section(11), "Setting") for name in codes(row[0])}
    source = Path(settings.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'"([A-Z][A-Z_]+_[A-Z_]+)"', source)) | {"ServiceBusConnection", "CosmosConnection"}
    platform = {"FUNCTIONS_WORKER_RUNTIME", "AzureWebJobsStorage", "AzureWebJobs.<function>.Disabled"}
    by_libraries = {
        "AZURE_CLIENT_ID",
        "APPLICATIONINSIGHTS_CONNECTION_STRING",
        "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
    }
    assert read - described == set()
    assert described - read <= platform | by_libraries


def test_each_setting_that_the_page_names_is_in_the_table() -> None:
    described = {name for row in rows(section(11), "Setting") for name in codes(row[0])}
    named = {name for name in codes(PAGE) if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", name)}
    assert named <= described


def test_events_and_metrics_are_the_code_s() -> None:
    text = section(14)
    events = {value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str)}
    events |= {value for name, value in vars(errors).items() if name.startswith("EVENT_")}
    assert {codes(row[0])[0] for row in rows(text, "Event")} == events - {telemetry.VERSION, telemetry.LOGGER}
    source = Path(telemetry.__file__).read_text(encoding="utf-8")
    created = set(re.findall(r'create_\w+\(\s*"([^"]+)"', source))
    assert {codes(row[0])[0] for row in rows(text, "Metric")} == created


def test_problems_and_answers_are_the_code_s() -> None:
    text = section(13)
    described = [(codes(kind)[0], int(status)) for kind, status, _ in rows(text, "`type`")]
    assert described == [(kind.urn, kind.status) for kind in ProblemKind]
    for model in (OrderAccepted, OrderView, Problem):
        for name, field in model.model_fields.items():
            assert f'"{field.serialization_alias or field.alias or name}"' in text


def test_the_properties_are_those_that_the_code_reads() -> None:
    named = {code for row in rows(section(3), "Property") for code in codes(row[0])}
    read = {
        reserved.DEDUP_ID,
        reserved.REPLAY_COUNT,
        reserved.ORIGINAL_ENQUEUED_AT,
        reserved.ORIGINAL_SEQUENCE_NUMBER,
        reserved.REPLAY_FAILURES,
        intake.CONTENT_ENCODING,
    }
    assert read <= named


def test_the_quarantine_s_properties_are_those_that_the_code_writes() -> None:
    named = {code for row in rows(section(8), "Property") for code in codes(row[0])}
    source = (ROOT / "shared" / "handlers" / "quarantine.py").read_text(encoding="utf-8")
    assert named == set(re.findall(r'"(quarantine-[a-z-]+)"', source))


# -- numbers ---------------------------------------------------------------------------------------------------------


def numbers() -> Iterator[tuple[str, str]]:
    yield section(1), f"up to {payload.MAX_DEPTH} levels"
    yield section(1), f"at most {validation.MAX_META_BYTES // 1024} KiB"
    yield section(1), f"from 1 to {values.LARGEST_POSITION}"
    yield section(1), f"`{payload.HASH_PREFIX}`"
    yield section(1), f"`{payload.RAW_PREFIX}`"
    yield section(2), f"at most {identity.MAX_MESSAGE_ID} UTF-16 code units"
    yield section(3), f"at most {payload.MAX_DECOMPRESSED_BYTES // 1024**2} MiB"
    yield section(4), f"1 to {orders.LARGEST_ORDER_LINES} lines"
    yield section(4), f"integer, 0 to {values.LARGEST_QUANTITY}"
    yield section(4), f"1 to {ledger.LARGEST_BATCH_TRANSACTIONS} transactions"
    yield section(4), f"at most {orders.LARGEST_REASON} characters"
    yield section(4), f"`{validation.STATUS_PREFIX}`"
    yield section(12), f"`HELD_MAX_PER_STREAM` ≤ {settings.LARGEST_HELD}"


@pytest.mark.parametrize(("text", "wanted"), list(numbers()), ids=lambda value: value[:40])
def test_a_limit_is_the_code_s(text: str, wanted: str) -> None:
    assert wanted in text


# -- the page itself -------------------------------------------------------------------------------------------------


def test_the_sections_are_numbered_without_hole_and_the_contents_lead_to_them() -> None:
    titles = re.findall(r"^## (\d+)\. (.+)$", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in titles] == list(range(1, 18))
    for number, title in titles:
        anchor = f"{number}-" + re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        assert f"{number} [{title}](#{anchor})" in PAGE


def test_links_lead_somewhere() -> None:
    prose = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\((?!#|https?:)([^)#]+)", prose)
    assert targets
    for target in targets:
        assert (ROOT / "docs" / target).exists(), target


def test_the_code_names_sections_that_exist() -> None:
    cited = {
        int(number)
        for path in [*(ROOT / "shared").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.py")]
        for number in re.findall(r"contracts\.md, section (\d+)", path.read_text(encoding="utf-8"))
    }
    assert cited
    assert cited <= set(range(1, 18))
