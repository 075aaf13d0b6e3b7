"""The deployments that are looked at, and their resources as our reader and the compiler list them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from checks import compiler
from checks.bicep import evaluate
from checks.sources import PARAMETERS

PERSON = "11111111-1111-1111-1111-111111111111"


def matrix() -> Iterator[tuple[str, dict[str, Any]]]:
    """Standard and Premium, serverless and autoscale, with and without network, with and without zones."""
    choices = product(("Standard", "Premium"), ("serverless", "autoscale"), (False, True), (False, True))
    for sku, throughput, network, zones in choices:
        name = f"{sku}-{throughput}{'-network' if network else ''}{'-zones' if zones else ''}"
        yield (
            name,
            {
                "serviceBusSku": sku,
                "cosmosThroughputMode": throughput,
                "vnetEnabled": network,
                "zoneRedundant": zones,
            },
        )


EVERYTHING: dict[str, Any] = {
    "principalId": PERSON,
    "serviceBusSku": "Premium",
    "serviceBusMessagingUnits": 2,
    "serviceBusSecondaryLocation": "northeurope",
    "serviceBusManageForScaling": True,
    "cosmosThroughputMode": "autoscale",
    "cosmosBackup": "Continuous30Days",
    "zoneRedundant": True,
    "vnetEnabled": True,
    "alwaysReadyOrders": 2,
    "entraClientId": "22222222-2222-2222-2222-222222222222",
    "paymentsUrl": "https://payments.example",
    "alertEmail": "operator@example.com",
    "budgetAmount": 100,
    "budgetStartDate": "2026-12-01",
    "queueGeneration": 2,
}
"""Every part that is off by default."""

CASES = {**dict(matrix()), "everything": EVERYTHING}


@dataclass(frozen=True)
class Found:
    """One resource, in the form that both readers have in common."""

    type: str
    name: str
    body: Mapping[str, Any]
    scope: str | None
    depends_on: frozenset[str]
    module: str

    @property
    def properties(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.body.get("properties") or {}
        return found


class Deployment:
    """All resources of one case."""

    def __init__(self, root: Path, parameters: Mapping[str, Any]) -> None:
        instance = evaluate.deployment(root, {**PARAMETERS, **parameters})
        self.resources = [
            Found(one.type, one.name, plain(one.body), one.scope, one.depends_on, one.module)
            for one in instance.resources()
        ]
        self.outputs: dict[str, Any] = plain(instance.outputs())

    def of(self, kind: str) -> list[Found]:
        return [resource for resource in self.resources if resource.type == kind]

    def one(self, kind: str) -> Found:
        (found,) = self.of(kind)
        return found

    def settings(self) -> Mapping[str, Any]:
        (found,) = [one for one in self.of("Microsoft.Web/sites/config") if one.name.endswith("/appsettings")]
        return found.properties


def plain(value: Any) -> Any:
    """Without our reader's own classes; what only the deployment knows becomes the text `<runtime>`."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return "<runtime>" if isinstance(value, evaluate.Runtime) else value


def comparable(value: Any, token: str) -> Any:
    """A value as the other reader would write it: names, ids and runtime values made alike, nulls left out."""
    if isinstance(value, Mapping):
        return {
            comparable(key, token): comparable(item, token) for key, item in value.items() if item is not None
        }
    if isinstance(value, list):
        return [comparable(item, token) for item in value]
    if not isinstance(value, str):
        return value
    text = value.replace(token, evaluate.UNIQUE) if token else value
    if text.startswith("[") or re.search(r"<[a-z]\w*[.(]", text):
        return "<runtime>"
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=$|\")", "<guid>", text)


def compiled(bicep: compiler.Compiler, root: Path, folder: Path, cases: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The resources of all cases as the official compiler predicts them, by one run: each case is a module."""
    target = Path(os.path.relpath(root / "infra" / "main.bicep", folder.resolve())).as_posix()
    lines = ["targetScope = 'subscription'"]
    for number, parameters in enumerate(cases.values()):
        given = {**PARAMETERS, **parameters}
        lines += [f"module case{number} '{target}' = {{", "  params: {"]
        lines += [f"    {name}: {compiler.literal(value)}" for name, value in given.items()] + ["  }", "}"]
    (folder / "cases.bicep").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found: Any = compiler.prediction(bicep, folder / "cases.bicep", {})
    resources: list[Any] = found["predictedResources"]
    starts = [at for at, one in enumerate(resources) if one["type"] == "Microsoft.Resources/resourceGroups"]
    parts = [resources[start:end] for start, end in pairwise([*starts, len(resources)])]
    return {name: _comparable(part, _token(part)) for name, part in zip(cases, parts, strict=True)}


def _comparable(part: list[Any], token: str) -> list[Any]:
    """Comparable resources that keep their ids as the compiler writes them: they say what a role is assigned on."""
    return [{**comparable(one, token), "id": one["id"].replace(token, evaluate.UNIQUE)} for one in part]


def _token(resources: list[Any]) -> str:
    """What `uniqueString` gave."""
    match = re.search(r"sbns-([a-z0-9]{13})", json.dumps(resources))
    assert match is not None
    return match[1]
