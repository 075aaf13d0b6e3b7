"""Lists the functions of function_app.py through the library's own objects, with the platform worker's checks."""

from __future__ import annotations

import importlib
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from azure.functions import Context
from azure.functions.decorators.function_app import Function, FunctionRegister
from azure.functions.meta import get_binding_registry

SCRIPT: Final = "function_app"
RETURN: Final = "$return"


class IndexingError(Exception):
    """The app's functions can't be listed as the platform's worker would list them."""


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """A function as the worker calls it, and as it describes it to the host."""

    name: str
    call: Callable[..., Any]
    is_async: bool
    parameter: str
    trigger_type: str
    takes_raw_value: bool  # annotated str or bytes: gets the value as it came, without the trigger's converter
    wants_context: bool
    return_type: str | None
    description: dict[str, object]


def index(project: Path) -> dict[str, LoadedFunction]:
    """Import the app and describe its functions; the import needs the project's folder in sys.path."""
    if not (project / f"{SCRIPT}.py").is_file():
        raise IndexingError(f"there is no {SCRIPT}.py in {project}")
    module = importlib.import_module(SCRIPT)
    apps = {id(value): value for value in vars(module).values() if isinstance(value, FunctionRegister)}
    if len(apps) != 1:
        found = "no FunctionApp" if not apps else "more than one FunctionApp"
        raise IndexingError(f"{SCRIPT}.py defines {found} at its top level")
    (app,) = apps.values()
    return {function.name: function for function in map(_load, app.get_functions())}


def _load(function: Function) -> LoadedFunction:
    name = function.get_function_name() or ""
    call = function.get_user_function()
    bindings: list[dict[str, Any]] = [json.loads(text) for text in function.get_raw_bindings()]
    trigger = next(binding for binding in bindings if str(binding["type"]).endswith("Trigger"))
    returned = next((binding for binding in bindings if binding["name"] == RETURN), None)
    parameters = dict(inspect.signature(call).parameters)
    bound = {str(binding["name"]) for binding in bindings} - {RETURN}
    wants_context = "context" in parameters and "context" not in bound
    declared = set(parameters) - ({"context"} if wants_context else set())
    if declared - bound:
        raise IndexingError(f"function {name}: parameters without a binding: {', '.join(sorted(declared - bound))}")
    if bound - declared:
        raise IndexingError(f"function {name}: bindings without a parameter: {', '.join(sorted(bound - declared))}")
    hints = typing.get_type_hints(call)
    if wants_context and "context" in hints and not _is_context(hints["context"]):
        raise IndexingError(f"function {name}: parameter context must be annotated azure.functions.Context")
    annotation = hints.get(str(trigger["name"]))
    raw = annotation in (str, bytes)
    if annotation is not None and not raw:
        _check_annotation(name, trigger, annotation)
    return LoadedFunction(
        name=name,
        call=call,
        is_async=inspect.iscoroutinefunction(call),
        parameter=str(trigger["name"]),
        trigger_type=str(trigger["type"]),
        takes_raw_value=raw,
        wants_context=wants_context,
        return_type=None if returned is None else str(returned["type"]),
        description={
            "name": name,
            "bindings": bindings,
            "retry": function.get_settings_dict("retry_policy") is not None,
            "takesList": annotation is not None and not isinstance(annotation, type),
        },
    )


def converter_of(binding: str) -> Any:
    """The library's converter for a type of binding; None if it has none."""
    return get_binding_registry().get(binding)  # type: ignore[no-untyped-call]  # untyped there


def _check_annotation(name: str, trigger: Mapping[str, Any], annotation: object) -> None:
    converter = converter_of(trigger["type"])
    if converter is None:
        return  # the host refuses the trigger by name
    try:
        fits = converter.check_input_type_annotation(annotation)
    except TypeError:
        fits = False
    if not fits:
        raise IndexingError(
            f"function {name}: {trigger['type']} doesn't fit the annotation {annotation!r} of {trigger['name']}"
        )


def _is_context(annotation: object) -> bool:
    return isinstance(annotation, type) and (issubclass(annotation, Context) or annotation.__name__ == "Context")
