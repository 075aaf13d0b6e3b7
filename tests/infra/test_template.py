"""Rules of azd and of its gallery, versions that move together, and the files around the template."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from checks import template


def test_azure_yaml_is_what_azd_reads(root: Path) -> None:
    assert list(template.azure_yaml(template.load_yaml(root / "azure.yaml"))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Convoy App"},
        {"servces": {}},
        {"services": {"app": {"project": ".", "host": "functions", "language": "python"}}},
        {"services": {"app": {"project": ".", "host": "function", "language": "python", "remotebuild": True}}},
        {"services": {"app": {"project": ".", "host": "function", "language": "python", "remoteBuild": False}}},
        {"services": {}},
        {"hooks": {"postprovison": {"shell": "sh", "run": "x"}}},
        {"hooks": {"postprovision": {"shell": "bash", "run": "x"}}},
        {"hooks": {"postprovision": {"posix": {"shell": "sh", "run": "x"}, "run": "x"}}},
        {"metadata": {"template": "convoy"}},
        {"pipeline": {"variable": []}},
    ],
    ids=str,
)
def test_a_mistake_in_azure_yaml_is_found(root: Path, change: dict[str, Any]) -> None:
    assert list(template.azure_yaml({**template.load_yaml(root / "azure.yaml"), **change}))


def test_azd_finds_the_template_and_knows_its_keys(root: Path) -> None:
    document = template.load_yaml(root / "azure.yaml")
    folder, module = root / document["infra"]["path"], document["infra"]["module"]
    version = re.fullmatch(r">= (\d+)\.(\d+)\.(\d+)", document["requiredVersions"]["azd"])

    assert (folder / f"{module}.bicep").is_file()
    assert (folder / f"{module}.parameters.json").is_file()
    assert version is not None
    assert tuple(map(int, version.groups())) >= (1, 23, 5)  # the first that knows remoteBuild


def test_the_service_name_is_that_of_the_tag(root: Path) -> None:
    services = template.load_yaml(root / "azure.yaml")["services"]

    assert list(services) == ["app"]
    assert "serviceName: 'app'" in (root / "infra/main.bicep").read_text(encoding="utf-8")


def test_hooks_run_what_is_there(root: Path) -> None:
    for hook in template.load_yaml(root / "azure.yaml")["hooks"]["postprovision"].values():
        assert (root / hook["run"].split()[1]).is_file()


def test_azd_offers_its_list_of_regions(root: Path) -> None:
    text = (root / "infra/main.bicep").read_text(encoding="utf-8")

    assert "@metadata({ azd: { type: 'location' } })\nparam location string\n" in text


def test_every_parameter_is_mapped_with_its_default(root: Path) -> None:
    assert list(template.parameters(root)) == []


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    for name in ("infra", ".github", ".devcontainer"):
        shutil.copytree(root / name, tmp_path / name)
    for name in ("dev.py", "requirements.txt", "azure.yaml"):
        shutil.copy(root / name, tmp_path)
    return tmp_path


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("${SERVICE_BUS_SKU=Standard}", "${SERVICE_BUS_SKU}"),
        ("${SERVICE_BUS_SKU=Standard}", "${SERVICE_BUS_SKU=Premium}"),
        ("${SERVICE_BUS_SKU=Standard}", "Standard"),
        ('"serviceBusSku"', '"serviceBusSkew"'),
        ("${ALWAYS_READY_LEDGER=0}", "${ALWAYS_READY_ORDERS=0}"),
    ],
)
def test_a_wrong_mapping_is_found(copy: Path, old: str, new: str) -> None:
    replace(copy / "infra/main.parameters.json", old, new)

    assert list(template.parameters(copy))


def test_a_pipeline_provisions_with_the_parameters_of_the_environment(root: Path) -> None:  # D52
    assert list(template.pipeline(root)) == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("azure.yaml", "    - QUEUE_GENERATION\n", ""),
        ("azure.yaml", "    - QUEUE_GENERATION\n", "    - QUEUES_GENERATION\n"),
        (".github/workflows/azure-dev.yml", "      QUEUE_GENERATION: ${{ vars.QUEUE_GENERATION }}\n", ""),
        (".github/workflows/azure-dev.yml", "{{ vars.ZONE_REDUNDANT }}", "{{ vars.ZONES_REDUNDANT }}"),
        (".github/workflows/azure-dev.yml", "AZURE_PRINCIPAL_TYPE: ServicePrincipal", "AZURE_PRINCIPAL_TYPE: User"),
        (".github/workflows/azure-dev.yml", 'GRANT_DATA_ROLES: "false"', 'GRANT_DATA_ROLES: "true"'),
    ],
)
def test_a_parameter_that_a_pipeline_forgets_is_found(copy: Path, file: str, old: str, new: str) -> None:
    replace(copy / file, old, new)

    assert list(template.pipeline(copy))


def test_versions_of_python_are_the_same_everywhere(root: Path) -> None:  # R73
    assert list(template.python_versions(root)) == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("infra/main.bicep", "['3.11', '3.12', '3.13']", "['3.11', '3.12']"),
        ("infra/app/function.bicep", "['3.11', '3.12', '3.13']", "['3.12', '3.13']"),
        (".github/workflows/ci.yml", '["3.11", "3.12", "3.13"]', '["3.12", "3.13"]'),
        ("dev.py", "((3, 13), (3, 12), (3, 11))", "((3, 14), (3, 13), (3, 12), (3, 11))"),
        ("requirements.txt", "azure-functions==2", "azure-functions-two==2"),
        ("requirements.txt", "< '3.13'", "< '3.12'"),
        ("requirements.txt", "azure-functions==2", "azure-functions==1"),
        (".devcontainer/devcontainer.json", "python:3.12-", "python:3.11-"),
    ],
)
def test_a_version_that_moved_alone_is_found(copy: Path, file: str, old: str, new: str) -> None:
    replace(copy / file, old, new)

    assert list(template.python_versions(copy))


def test_no_output_looks_like_a_secret(root: Path) -> None:
    assert list(template.secrets_in_outputs(root)) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("infra/app/storage.bicep", "output accountKey string = 'x'"),
        ("infra/main.bicep", "output APPLICATIONINSIGHTS_CONNECTION_STRING string = 'x'"),
        ("infra/main.bicep", "output a string = account.listKeys().primaryKey"),
        ("infra/app/messaging.bicep", "output connectionString string = 'x'"),
    ],
)
def test_an_output_that_looks_like_a_secret_is_found(copy: Path, file: str, text: str) -> None:
    path = copy / file
    path.write_text(path.read_text(encoding="utf-8") + text + "\n", encoding="utf-8")

    assert list(template.secrets_in_outputs(copy))


def test_workflows_are_pinned_and_have_least_permissions(root: Path) -> None:
    assert list(template.workflows(root)) == []
    deploy = template.load_yaml(root / ".github/workflows/azure-dev.yml")
    assert deploy["permissions"] == {}
    assert deploy["jobs"]["deploy"]["permissions"] == {"contents": "read", "id-token": "write"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8", "actions/checkout@v5"),
        ("vars.AZURE_TENANT_ID", "secrets.AZURE_TENANT_ID"),
        ("permissions: {}\n", ""),
        ("--federated-credential-provider github", '--client-secret "$X"'),
        ("azd provision --no-prompt", "azd up --no-prompt"),
    ],
)
def test_a_loose_workflow_is_found(copy: Path, old: str, new: str) -> None:
    replace(copy / ".github/workflows/azure-dev.yml", old, new)

    assert list(template.workflows(copy))


def test_provision_and_deploy_are_steps_of_their_own(root: Path) -> None:
    steps = template.load_yaml(root / ".github/workflows/azure-dev.yml")["jobs"]["deploy"]["steps"]
    commands = [step.get("run", "") for step in steps]

    assert [command for command in commands if "azd provision" in command and "azd deploy" in command] == []
    assert sum("--no-prompt" in command for command in commands) == 2


def test_the_gallery_finds_what_it_asks_for(root: Path) -> None:
    assert list(template.gallery(root)) == []


def test_a_missing_file_or_heading_is_found(copy: Path) -> None:
    (copy / "README.md").write_text("# x\n\n## Features\n", encoding="utf-8")

    found = list(template.gallery(copy))

    assert "LICENSE is missing" in found
    assert "README.md: no heading '## Guidance'" in found
    assert "README.md: no heading '## Features'" not in found


def test_issue_templates_and_devcontainer_are_readable(root: Path) -> None:
    for file in (root / ".github").rglob("*.yml"):
        assert template.load_yaml(file)
    container = json.loads((root / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert any("azure-dev/azd" in feature for feature in container["features"])


def test_linter_rules_never_stop_somebody_elses_build(root: Path) -> None:
    rules = json.loads((root / "bicepconfig.json").read_text(encoding="utf-8"))["analyzers"]["core"]["rules"]

    assert {rule["level"] for rule in rules.values()} == {"warning", "off"}


def test_abbreviations_are_used(root: Path) -> None:
    names = json.loads((root / "infra/abbreviations.json").read_text(encoding="utf-8"))
    text = (root / "infra/main.bicep").read_text(encoding="utf-8")

    assert set(re.findall(r"\{abbreviations\.(\w+)", text)) == set(names)
