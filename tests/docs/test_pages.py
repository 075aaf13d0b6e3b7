"""Whatever a page names exists: commands, options, files, tests, settings, metrics, Python names, links."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import io
import pkgutil
import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import dev
from shared import errors, telemetry
from tests.docs.pages import ROOT, SKIPPED, Page, page, pages

TOP = {
    *("shared", "local", "tests", "docs", "infra", "checks", "ops", "bench"),
    *(".github", ".vscode", ".ci", ".devcontainer"),
}
AT_THE_ROOT = re.compile(
    r"[\w.-]+\.(py|toml|yaml|md|bicep)|(host|local\.settings|Config)\.json|requirements[\w-]*\.\w+"
)
SOURCES = ("*.py", "*.json", "*.bicep", "*.yml", "*.yaml", "*.toml", "*.kql", "*.in")
READERS_FILES = {
    *("order.json", "report.json", "my-orders.jsonl", ".stack.json"),
    *("one-session.jsonl", "many-sessions.jsonl"),
}
MADE_BY_TOOLS = (".azure/", ".venv/", ".azurite")
MESSAGE_TYPES = {path.name.removesuffix(".schema.json") for path in (ROOT / "docs" / "schemas").iterdir()}
FORBIDDEN = (
    r"\bTODO\b",
    r"\bFIXME\b",
    r"\bXXX\b",
    r"(?i)exactly-once delivery",
    r"(?i)sessions? of (the )?work\b",
    r"(?i)\blanguage model\b",
    r"(?i)\bassistant\b",
    r"(?<![\w.])/(?:tmp|home|root|Users)/",
    r"(?i)\bwork in progress\b",
    r"(?i)\bcoming soon\b",
    r"(?i)lorem ipsum",
)

every_page = pytest.mark.parametrize("each", pages(), ids=lambda each: each.name)


# -- links -----------------------------------------------------------------------------------------------------------


@every_page
def test_links_lead_somewhere(each: Page) -> None:
    assert [link for link in each.links() if not leads_somewhere(each, link)] == []


def leads_somewhere(each: Page, link: str) -> bool:
    if urlsplit(link).scheme:
        return link.startswith("https://")
    target, _, anchor = link.partition("#")
    path = (each.path.parent / target).resolve() if target else each.path
    if not path.is_relative_to(ROOT) or not path.exists():
        return False
    return not anchor or (path.suffix == ".md" and anchor in Page(path).anchors())


# -- commands --------------------------------------------------------------------------------------------------------


@every_page
def test_commands_exist_with_their_options(each: Page) -> None:
    wrong = [f"{line}: {fault}" for line in each.command_lines() for fault in faults_of(line)]
    assert wrong == []


def faults_of(line: str) -> Iterator[str]:
    """What is wrong with one command line; nothing for what is none of ours."""
    words = line.split()
    if line.startswith("dev.py  "):  # a line of the tree
        return
    if words and words[0] in ("python", "python3", "py", ".venv/bin/python"):
        words = words[1:]
    if words[:1] == ["dev.py"] and len(words) > 1 and not words[1].isupper():
        name, rest = words[1], words[2:]
        if name not in (*dev.COMMANDS, "check"):
            yield f"dev.py has no command {name}"
        elif name in dev.COMMANDS and dev.COMMANDS[name].module != "pytest":
            yield from unknown_options(dev.COMMANDS[name].module, rest)
        else:
            yield from (f"{word} is not there" for word in rest if "/" in word and not exists(word))
    elif words[:1] == ["-m"] and len(words) > 1:
        if not is_module(words[1]):
            yield f"there is no module {words[1]}"
        elif words[1] not in ("pytest", "venv", "pip"):
            yield from unknown_options(words[1], words[2:])
    elif words and words[0].endswith(".py") and "/" in words[0] and len(words) > 1 and not exists(words[0]):
        yield f"{words[0]} is not there"


def unknown_options(module: str, words: list[str]) -> Iterator[str]:
    known = options_of(module)
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    yield from (f"{module} has no option {option}" for option in options if option not in known)


@functools.cache
def options_of(module: str) -> frozenset[str]:
    """The options that a module's own help names, those of its commands included."""
    told = help_of(module)
    for command in commands_in(told):
        more = help_of(module, command)
        told += more + "".join(help_of(module, command, below) for below in commands_in(more))
    return frozenset(re.findall(r"--[a-z][a-z-]*", told))


def commands_in(told: str) -> list[str]:
    found = re.search(r"\{([\w,-]+)\}", told)
    return found[1].split(",") if found else []


def help_of(module: str, *words: str) -> str:
    """What `python -m module words --help` says; in this process, since there are dozens."""
    told = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(told),
        contextlib.suppress(SystemExit),
        warnings.catch_warnings(action="ignore", category=RuntimeWarning),  # a test may have imported it already
    ):
        patch.setattr(sys, "argv", [module, *words, "--help"])
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    return told.getvalue()


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(
    "line",
    [
        "python3 dev.py deploy",
        "python3 dev.py demo --fast",
        "python -m local.nothing",
        "python3 dev.py test tests/nowhere",
        "python docs/render_nothing.py now",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    assert list(faults_of(line))


# -- files and tests -------------------------------------------------------------------------------------------------


@every_page
def test_files_and_tests_exist(each: Page) -> None:
    named = {word for span in each.spans() for word in span.split() if is_path(word)}
    assert sorted(word for word in named if not exists(word)) == []


def is_path(word: str) -> bool:
    """Whether a word of a code span can only be a file or a folder of this project."""
    if re.search(r"[<>…%$\\]", word) or word.startswith(("http", "--", "/", *MADE_BY_TOOLS)) or word in READERS_FILES:
        return False
    if word.partition("/")[0] in TOP:
        return "/" in word
    return AT_THE_ROOT.fullmatch(word) is not None


def exists(word: str) -> bool:
    file, _, test = word.partition("::")
    return all(is_there(one.rstrip("/,."), test) for one in braced(file))


def braced(word: str) -> list[str]:
    """`a/{b,c}` is two words."""
    found = re.search(r"\{([^}]*)\}", word)
    if found is None:
        return [word]
    return [each for part in found.group(1).split(",") for each in braced(word.replace(found.group(0), part, 1))]


def is_there(file: str, test: str) -> bool:
    if "/" in file:
        matching = list(ROOT.glob(file))
    else:
        matching = [path for path in ROOT.rglob(file) if not SKIPPED & set(path.parts) and ".venv" not in path.parts]
    if not test:
        return bool(matching)
    defined = re.compile(rf"^\s*(async )?def {re.escape(test)}\(", re.MULTILINE)
    return any(defined.search(path.read_text("utf-8")) for path in matching)


def test_a_missing_file_or_test_is_found() -> None:
    assert is_path("shared/nothing.py")
    assert not exists("shared/nothing.py")
    assert not exists("tests/docs/test_pages.py::test_that_nobody_wrote")
    assert exists("tests/docs/test_pages.py::test_a_missing_file_or_test_is_found")
    assert exists("shared/handlers/{guard,claim}.py")
    assert not exists("shared/handlers/{guard,nothing}.py")


# -- names -----------------------------------------------------------------------------------------------------------


@functools.cache
def code() -> str:
    """All sources, but for the tests of these pages."""
    files = [path for pattern in SOURCES for path in ROOT.rglob(pattern)]
    return "\n".join(
        path.read_text("utf-8", "replace")
        for path in files
        if not SKIPPED & set(path.parts)
        and not any(part.startswith(".venv") for part in path.parts)
        and ROOT / "tests" / "docs" not in path.parents
    )


@every_page
def test_settings_and_constants_are_those_of_the_code(each: Page) -> None:
    shouted = re.compile(r"(?<![\w.])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?!\w)")
    named = {name for span in each.spans() for name in shouted.findall(span)}
    assert sorted(name for name in named if not re.search(rf"\b{name}\b", code())) == []


@every_page
def test_metrics_and_events_are_those_of_the_code(each: Page) -> None:
    instruments = (ROOT / "shared" / "telemetry.py").read_text("utf-8")
    events = {value for value in (*vars(telemetry).values(), *vars(errors).values()) if isinstance(value, str)}
    spans = {span for span in each.spans() if re.fullmatch(r"[a-z]+(\.[a-z_]+)+", span)}
    metrics = {span for span in spans if span.startswith("convoy.")}
    told = {span for span in spans if span.split(".")[0] in ("gap", "outbox", "effect", "stream", "partition", "sweep")}
    assert sorted(metric for metric in metrics if f'"{metric}"' not in instruments) == []
    assert sorted(event for event in told if event not in events and not is_member(event)) == []


def is_member(name: str) -> bool:
    """`outbox.sent` is a member of a document."""
    member = name.rpartition(".")[2]
    attribute = re.sub(r"([A-Z])", lambda found: f"_{found.group(1).lower()}", member)
    return re.search(rf"\b{attribute}: ", documents()) is not None


@functools.cache
def documents() -> str:
    return (ROOT / "shared" / "contracts" / "documents.py").read_text("utf-8")


@every_page
def test_message_types_have_a_schema(each: Page) -> None:
    named = {span for span in each.spans() if re.fullmatch(r"(order|ledger)\.[a-z]+", span)}
    example = {"order.note"}  # of docs/fork.md
    assert sorted(named - MESSAGE_TYPES - READERS_FILES - example) == []


@every_page
def test_python_names_can_be_imported(each: Page) -> None:
    named = {span for span in each.spans() if re.fullmatch(r"(shared|local|checks|ops)(\.\w+)+", span)}
    named -= {span for span in named if is_path(span)}
    assert sorted(name for name in named if not can_be_imported(name)) == []


def can_be_imported(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


# -- code and words --------------------------------------------------------------------------------------------------


@every_page
def test_python_blocks_are_python(each: Page) -> None:
    for kind, content in each.blocks():
        if kind.split(" ")[0] == "python":
            ast.parse(content)


def test_the_producer_of_the_docs_addresses_every_message() -> None:
    """C69: the code that docs/producers.md shows, as it stands there, on the examples of the contracts."""
    (source,) = [content for kind, content in page("docs/producers.md").blocks() if kind == "python"]
    namespace: dict[str, object] = {}
    exec(compile(source, "docs/producers.md", "exec"), namespace)  # noqa: S102 - the project's own page
    message_of = namespace["message_of"]
    assert callable(message_of)

    sent = message_of({"type": "order.cancelled", "orderId": "ORD-1", "operationId": "op-8"})
    assert (sent.message_id, sent.session_id, sent.subject) == ("ORD-1:op-8", "ORD-1", "order.cancelled")
    with pytest.raises(errors.PermanentError, match="operationId"):
        message_of({"type": "order.cancelled", "orderId": "ORD-1"})


@every_page
def test_pages_speak_of_the_product_alone(each: Page) -> None:
    assert [word for word in FORBIDDEN if re.search(word, each.text)] == []


def test_there_are_pages_to_look_at() -> None:
    names = {each.name for each in pages()}
    assert {"README.md", "CHANGELOG.md", "docs/guarantees.md", "docs/architecture.md", "docs/fork.md"} <= names
    assert sum(len(each.spans()) for each in pages()) > 500
    assert Path(ROOT / "docs" / "img" / "flow.png").read_bytes().startswith(b"\x89PNG")
