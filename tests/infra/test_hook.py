"""The hook that writes the cloud's settings, and runs a command with them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from shared.settings import Settings
from tests.infra.cases import Deployment

NAMES = ("ORDERS_QUEUE", "LEDGER_QUEUE", "LEDGER_ENTRIES_QUEUE", "QUARANTINE_QUEUE", "COSMOS_DATABASE")
OUTPUTS = {
    "AZURE_ENV_NAME": "dev",
    "ServiceBusConnection__fullyQualifiedNamespace": "sbns-x.servicebus.windows.net",
    "CosmosConnection__accountEndpoint": "https://cosmos-x.documents.azure.com:443/",
    **{name: f"{name.lower()}-3" for name in NAMES},
}


@pytest.fixture
def hook(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("local_settings", root / "infra/hooks/local_settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    shutil.copy(root / "local.settings.json", tmp_path)
    return tmp_path


def written(project: Path) -> dict[str, str]:
    document = json.loads((project / ".azure/dev/local.settings.json").read_text(encoding="utf-8"))
    assert document["IsEncrypted"] is False
    values: dict[str, str] = document["Values"]
    return values


def test_the_app_accepts_what_the_hook_writes(hook: ModuleType, project: Path) -> None:
    before = (project / "local.settings.json").read_bytes()

    assert hook.write(project, OUTPUTS) == 0

    settings = Settings.from_env(written(project))
    assert settings.service_bus.namespace == "sbns-x.servicebus.windows.net"
    assert settings.service_bus.connection_string is None
    assert settings.cosmos.credential is None  # the developer's own login
    assert set(settings.queues.values()) == {OUTPUTS[name] for name in NAMES[:4]}
    assert (project / "local.settings.json").read_bytes() == before


def test_what_the_hook_needs_is_an_output(hook: ModuleType, root: Path) -> None:
    outputs = set(Deployment(root, {}).outputs)

    assert {*hook.CONNECTIONS.values(), *hook.SETTINGS} <= outputs


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_missing_output_is_named(
    hook: ModuleType, project: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hook.write(project, {key: value for key, value in OUTPUTS.items() if key != name}) == 1
    assert name in capsys.readouterr().err
    assert not (project / ".azure").exists()


def test_a_command_gets_the_values_and_no_flat_connection(hook: ModuleType, project: Path, tmp_path: Path) -> None:
    hook.write(project, OUTPUTS)
    seen = tmp_path / "seen.json"
    code = f"import json, os; open({str(seen)!r}, 'w').write(json.dumps(dict(os.environ)))"
    environment = {**os.environ, "ServiceBusConnection": "Endpoint=sb://localhost;"}

    assert hook.run(project, "dev", [sys.executable, "-c", code], environment) == 0

    settings = Settings.from_env(json.loads(seen.read_text(encoding="utf-8")))
    assert settings.service_bus.connection_string is None
    assert settings.cosmos.endpoint == OUTPUTS["CosmosConnection__accountEndpoint"]


def test_the_exit_code_is_the_commands(hook: ModuleType, project: Path) -> None:
    hook.write(project, OUTPUTS)

    assert hook.run(project, "dev", [sys.executable, "-c", "raise SystemExit(7)"], os.environ) == 7
    assert hook.run(project, "prod", [sys.executable, "-c", ""], os.environ) == 1


def test_wrong_usage_is_told(root: Path) -> None:
    script = root / "infra/hooks/local_settings.py"
    done = subprocess.run(
        [sys.executable, str(script), "walk"], capture_output=True, text=True, check=False, encoding="utf-8"
    )

    assert done.returncode == 2
    assert "usage" in done.stderr
