"""Rules of azd and of its template gallery, and versions that must move together (R73)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import jsonschema  # type: ignore[import-untyped]
import yaml  # type: ignore[import-untyped]

from checks.bicep.evaluate import read
from checks.bicep.syntax import Array, Declaration, Text

_HOOK: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["run", "shell"],
    "properties": {
        "shell": {"enum": ["sh", "pwsh"]},
        "run": {"type": "string"},
        "interactive": {"type": "boolean"},
        "continueOnError": {"type": "boolean"},
    },
}
_HOOK_NAMES: Final = r"^(pre|post)(provision|deploy|package|publish|up|down|restore)$"

AZURE_YAML: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "metadata", "infra", "services", "requiredVersions"],
    "properties": {
        "name": {"type": "string", "minLength": 2, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        "metadata": {
            "type": "object",
            "additionalProperties": False,
            "required": ["template"],
            "properties": {"template": {"type": "string", "pattern": r"^[a-z0-9-]+@\d+\.\d+\.\d+"}},
        },
        "requiredVersions": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"azd": {"type": "string"}},
        },
        "infra": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"provider": {"const": "bicep"}, "path": {"type": "string"}, "module": {"type": "string"}},
        },
        "services": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["project", "host", "language"],
                "properties": {
                    "project": {"type": "string"},
                    "host": {"const": "function"},
                    "language": {"const": "python"},
                    "remoteBuild": {"const": True},  # the wheels must be those of the plan, not of this machine
                },
            },
        },
        "hooks": {
            "type": "object",
            "additionalProperties": False,
            "patternProperties": {
                _HOOK_NAMES: {
                    "oneOf": [
                        _HOOK,
                        {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["posix", "windows"],
                            "properties": {"posix": _HOOK, "windows": _HOOK},
                        },
                    ]
                }
            },
        },
        "pipeline": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"variables": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}},
        },
    },
}
"""The part of azd's schema (v1.0) that this template uses, closed, so that a misspelt key is found; azd's is open."""

GALLERY_FILES: Final = (
    "README.md", "LICENSE", "SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "azure.yaml", "infra/main.bicep",
    "infra/main.parameters.json", ".github/workflows/azure-dev.yml", ".github/ISSUE_TEMPLATE",
    ".devcontainer/devcontainer.json",
)  # fmt: skip
GALLERY_HEADINGS: Final = (
    "## Important Security Notice", "## Features", "## Getting Started", "## Guidance", "## Resources",
)  # fmt: skip

_REFERENCE: Final = re.compile(r"\$\{(?P<name>[A-Z][A-Z0-9_]*)(?:=(?P<default>[^}]*))?\}")
_BEFORE_2: Final = "python_full_version < '3.13'"
_PINNED: Final = re.compile(r"^[\w./-]+@[0-9a-f]{40}$")
_SECRET: Final = re.compile(r"secret|password|key|token|connection_?string", re.IGNORECASE)

_OF_AZD: Final = frozenset(
    {"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_SUBSCRIPTION_ID", "AZURE_ENV_NAME", "AZURE_LOCATION"}
)
"""Variables that `azd pipeline config` sets by itself."""
_FOUND_BY_AZD: Final = "AZURE_PRINCIPAL_ID"
_FIXED_IN_PIPELINES: Final = {"AZURE_PRINCIPAL_TYPE": "ServicePrincipal", "GRANT_DATA_ROLES": "false"}

_NO_SECRET: Final = ("monitoring.bicep", "connectionString")
"""Application Insights' address; its key is accepted from nobody, and it stays inside the deployment."""


def load_yaml(path: Path) -> Any:
    """A YAML file's content."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def azure_yaml(document: object) -> Iterator[str]:
    """What azd would refuse or silently ignore in azure.yaml."""
    for error in jsonschema.Draft202012Validator(dict(AZURE_YAML)).iter_errors(cast("Any", document)):
        yield f"azure.yaml: {'/'.join(str(part) for part in error.absolute_path) or 'top level'}: {error.message}"


def parameters(root: Path) -> Iterator[str]:
    """Each parameter is mapped, with the default of main.bicep: azd writes '' over it where the variable isn't set."""
    template = read(root / "infra" / "main.bicep", root)
    declared = template.of_kind("param")
    document = json.loads((root / "infra" / "main.parameters.json").read_text(encoding="utf-8"))
    mapped: dict[str, dict[str, str]] = document["parameters"]
    for name in sorted({*declared} ^ {*mapped}):
        yield f"infra/main.parameters.json: {name!r} is not on both sides (main.bicep: {name in declared})"
    variables = [match["name"] for one in mapped.values() if (match := _REFERENCE.fullmatch(str(one["value"])))]
    for variable in sorted({one for one in variables if variables.count(one) > 1}):
        yield f"infra/main.parameters.json: ${{{variable}}} stands for several parameters"
    for name, declaration in declared.items():
        match = _REFERENCE.fullmatch(str(mapped.get(name, {}).get("value", "")))
        default = _default(declaration)
        if match is None:
            yield f"infra/main.parameters.json: {name!r} is no ${{VARIABLE=default}}"
        elif match["default"] != default:
            yield f"infra/main.parameters.json: {name!r} has the default {match['default']!r}, main.bicep {default!r}"


def pipeline(root: Path) -> Iterator[str]:
    """A pipeline provisions with the environment's parameters; defaults would point the app to old queues (D52)."""
    mapped = json.loads((root / "infra" / "main.parameters.json").read_text(encoding="utf-8"))["parameters"]
    variables = {match["name"] for one in mapped.values() if (match := _REFERENCE.fullmatch(str(one["value"])))}
    copied = {*load_yaml(root / "azure.yaml").get("pipeline", {}).get("variables", ())}
    for name in sorted(copied ^ (variables - _OF_AZD - {_FOUND_BY_AZD} - {*_FIXED_IN_PIPELINES})):
        yield f"azure.yaml: pipeline variable {name!r} is not on both sides (azure.yaml: {name in copied})"
    where = ".github/workflows/azure-dev.yml"
    given: Mapping[str, str] = load_yaml(root / where)["jobs"]["deploy"].get("env", {})
    for name in sorted({*given} ^ (variables | _OF_AZD | {*_FIXED_IN_PIPELINES}) - {_FOUND_BY_AZD}):
        yield f"{where}: {name!r} is not on both sides (workflow: {name in given})"
    for name, value in given.items():
        wanted = _FIXED_IN_PIPELINES.get(name, f"${{{{ vars.{name} }}}}")
        if value != wanted:
            yield f"{where}: {name} is {value!r}, must be {wanted!r}"


def secrets_in_outputs(root: Path) -> Iterator[str]:
    """azd stores outputs in plain text."""
    for file in sorted((root / "infra").rglob("*.bicep")):
        template = read(file, root)
        for name, declaration in template.of_kind("output").items():
            if _SECRET.search(name) and (file.name, name) != _NO_SECRET:
                yield f"{template.path}:{declaration.line}: output {name!r} looks like a secret"
        for call in sorted(set(re.findall(r"\blist\w*(?=\()", file.read_text(encoding="utf-8")))):
            yield f"{template.path}: {call}() would read a key"


def python_versions(root: Path) -> Iterator[str]:
    """main.bicep offers what requirements, dev.py, workflow and container are tested with (R73)."""
    template = read(root / "infra" / "main.bicep", root)
    allowed = _allowed(template.of_kind("param")["pythonVersion"])
    tested = set(load_yaml(root / ".github/workflows/ci.yml")["jobs"]["versions"]["strategy"]["matrix"]["python"])
    if allowed != tested:
        yield f"infra/main.bicep: pythonVersion {sorted(allowed)}, .github/workflows/ci.yml {sorted(tested)}"
    own = _allowed(read(root / "infra/app/function.bicep", root).of_kind("param")["pythonVersion"])
    if allowed != own:
        yield f"infra/main.bicep: pythonVersion {sorted(allowed)}, infra/app/function.bicep {sorted(own)}"
    supported = re.findall(r"\((3), (\d+)\)", (root / "dev.py").read_text(encoding="utf-8"))
    known = {f"{major}.{minor}" for major, minor in supported}
    if allowed != known:
        yield f"infra/main.bicep: pythonVersion {sorted(allowed)}, dev.py {sorted(known)}"
    default, image = _default(template.of_kind("param")["pythonVersion"]), _devcontainer(root)["image"]
    if not image.rpartition(":")[2].startswith(f"{default}-"):
        yield f".devcontainer/devcontainer.json: {image}, pythonVersion in infra/main.bicep is {default}"
    text = (root / "requirements.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^azure-functions==(\S+)(?: ; (.+))?$", text, re.MULTILINE)
    for version in sorted(allowed):
        installed = [pin for pin, marker in pins if not marker or _applies(marker, version)]
        # 1.x is for Pythons below 3.13, 2.x for those from it on.
        if [pin.partition(".")[0] for pin in installed] != ["1" if _applies(_BEFORE_2, version) else "2"]:
            yield f"requirements.txt: azure-functions {installed} on Python {version}"


def _applies(marker: str, version: str) -> bool:
    match = re.fullmatch(r"python_full_version (<|>=) '(3\.\d+)'", marker)
    if match is None:
        return False
    is_below = int(version.partition(".")[2]) < int(match[2].partition(".")[2])
    return is_below == (match[1] == "<")


def workflows(root: Path) -> Iterator[str]:
    """Actions are pinned by commit, permissions are stated, no secret is used, roles get their time to be known."""
    for file in sorted((root / ".github/workflows").glob("*.yml")):
        document = load_yaml(file)
        where = file.relative_to(root).as_posix()
        if "permissions" not in document:
            yield f"{where}: no permissions"
        text = file.read_text(encoding="utf-8")
        if "secrets." in text:
            yield f"{where}: uses a secret"
        if "azd auth login" in text and "--federated-credential-provider github" not in text:
            yield f"{where}: logs in otherwise than with the workflow's identity"
        if "azd up" in text:
            yield f"{where}: provisions and deploys in one step; a new role is known minutes later only"
        for name, job in document["jobs"].items():
            for step in job["steps"]:
                action = step.get("uses")
                if action is not None and not _PINNED.fullmatch(action):
                    yield f"{where}: {name}: {action} is not pinned by commit"


def gallery(root: Path) -> Iterator[str]:
    """Files and headings that the template gallery's validator asks for."""
    for name in GALLERY_FILES:
        if not (root / name).exists():
            yield f"{name} is missing"
    readme = root / "README.md"
    lines = readme.read_text(encoding="utf-8").splitlines() if readme.exists() else []
    for heading in GALLERY_HEADINGS:
        if readme.exists() and heading not in lines:
            yield f"README.md: no heading {heading!r}"


def _devcontainer(root: Path) -> Mapping[str, Any]:
    text = (root / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8")
    return cast("Mapping[str, Any]", json.loads(text))


def _default(declaration: Declaration) -> str | None:
    value = declaration.value
    if value is None:
        return None
    if isinstance(value, Text):
        return "".join(str(part) for part in value.parts)
    literal = getattr(value, "value", None)
    if literal is None:  # the only other form is a negative number
        return "-" + str(getattr(value.operands[0], "value", "")) if hasattr(value, "operands") else None
    return str(literal).lower() if isinstance(literal, bool) else str(literal)


def _allowed(declaration: Declaration) -> set[str]:
    call = declaration.decorator("allowed")
    values = call.arguments[0] if call else None
    if not isinstance(values, Array):
        return set()
    return {str(item.parts[0]) for item in values.items if isinstance(item, Text)}
