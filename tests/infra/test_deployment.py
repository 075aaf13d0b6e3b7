"""What the templates deploy, over the matrix of parameters (test_bicep_compiler.py compares with the compiler)."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from checks import app_settings
from checks.bicep import evaluate, names
from checks.facts import seconds_of
from tests.infra.cases import CASES, EVERYTHING, PERSON, Deployment, Found

SENDER = "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39"
RECEIVER = "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0"
OWNER = "090c5cfd-751d-490a-894a-3ce6f1109419"
BLOB_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
METRICS_PUBLISHER = "3913510d-42f4-4e42-8a64-420c390055eb"
DATA_CONTRIBUTOR = "00000000-0000-0000-0000-000000000002"


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def deployed(root: Path, case: str) -> Deployment:
    return Deployment(root, CASES[case])


@pytest.fixture(scope="module")
def default(root: Path) -> Deployment:
    return Deployment(root, {})


@pytest.fixture(scope="module")
def everything(root: Path) -> Deployment:
    return Deployment(root, EVERYTHING)


def roles(deployment: Deployment, module: str) -> list[tuple[str, str]]:
    return sorted(
        (str(one.scope).rpartition("/providers/")[2], str(one.properties["roleDefinitionId"]).rpartition("/")[2])
        for one in deployment.of("Microsoft.Authorization/roleAssignments")
        if one.module == module
    )


# Versions, and values that nobody else looks at

VERSIONS = {
    "Microsoft.Authorization": "2022-04-01",
    "Microsoft.Consumption": "2024-08-01",
    "Microsoft.DocumentDB": "2026-03-15",
    "Microsoft.Insights/actionGroups": "2023-01-01",
    "Microsoft.Insights/components": "2020-02-02",
    "Microsoft.Insights/diagnosticSettings": "2021-05-01-preview",  # no stable one has category groups
    "Microsoft.Insights/metricAlerts": "2026-01-01",
    "Microsoft.Insights/scheduledQueryRules": "2026-03-01",
    "Microsoft.Insights/workbooks": "2023-06-01",
    "Microsoft.ManagedIdentity": "2024-11-30",
    "Microsoft.Network": "2025-07-01",
    "Microsoft.Network/privateDnsZones": "2024-06-01",
    "Microsoft.OperationalInsights": "2025-07-01",
    "Microsoft.Resources": "2025-04-01",
    "Microsoft.ServiceBus": "2026-01-01",
    "Microsoft.Storage": "2026-04-01",
    "Microsoft.Web": "2025-03-01",  # 2024-04-01 refuses 512 MB
}
"""The newest stable versions that the compiler knows which azd brings; newer ones are deployed unchecked (BCP081)."""


def test_versions_are_the_newest_that_azds_compiler_checks(root: Path) -> None:  # R73
    for file in sorted((root / "infra").rglob("*.bicep")):
        for kind, version in re.findall(r"'(Microsoft\.[\w/.]+)@([\w-]+)'", file.read_text(encoding="utf-8")):
            keys = [key for key in VERSIONS if f"{kind}/".startswith(f"{key}/")]
            assert version == VERSIONS[max(keys, key=len)], (file.name, kind)


FIXED: dict[str, dict[str, object]] = {
    "Microsoft.DocumentDB/databaseAccounts": {
        "kind": "GlobalDocumentDB",
        "properties.databaseAccountOfferType": "Standard",
        "properties.enableAutomaticFailover": False,
    },
    "Microsoft.Storage/storageAccounts": {
        "kind": "StorageV2",
        "properties.allowBlobPublicAccess": False,
        "properties.allowCrossTenantReplication": False,
        "properties.defaultToOAuthAuthentication": True,
        "properties.networkAcls.bypass": "None",
    },
    "Microsoft.Web/serverfarms": {"kind": "functionapp"},
    "Microsoft.Web/sites": {
        "properties.siteConfig.minTlsVersion": "1.2",
        "properties.siteConfig.scmMinTlsVersion": "1.2",
        "properties.functionAppConfig.runtime.name": "python",
    },
    "Microsoft.OperationalInsights/workspaces": {"properties.features.disableLocalAuth": True},
    "Microsoft.Insights/components": {
        "kind": "web",
        "properties.WorkspaceResourceId": "<id>/Microsoft.OperationalInsights/workspaces/log-uniquestring0",
    },
    "Microsoft.Insights/actionGroups": {"location": "global", "properties.enabled": True},
    "Microsoft.Insights/metricAlerts": {"location": "global", "properties.enabled": True},
    "Microsoft.Insights/scheduledQueryRules": {
        "kind": "LogAlert",
        "location": "westeurope",
        "properties.enabled": True,
        "properties.skipQueryValidation": True,
        "properties.scopes": ["<id>/Microsoft.OperationalInsights/workspaces/log-uniquestring0"],
    },
    "Microsoft.Insights/workbooks": {
        "kind": "shared",
        "properties.category": "workbook",
        "properties.sourceId": "<id>/Microsoft.OperationalInsights/workspaces/log-uniquestring0",
    },
    "Microsoft.Network/privateDnsZones": {"location": "global"},
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks": {
        "location": "global",
        "properties.registrationEnabled": False,
        "properties.virtualNetwork.id": "<id>/Microsoft.Network/virtualNetworks/vnet-uniquestring0",
    },
}
"""Open enums, plain texts and options that may be left out: the compiler takes any of them, in any spelling."""


def without_group(value: object) -> object:
    """Resource ids without subscription and group."""
    if isinstance(value, list):
        return [without_group(item) for item in value]
    return re.sub(r"^/subscriptions/.*/providers/", "<id>/", value) if isinstance(value, str) else value


def test_values_that_the_compiler_does_not_check_are_right(deployed: Deployment) -> None:
    for kind, expected in FIXED.items():
        for one in deployed.of(kind):
            for path, value in expected.items():
                found: Any = one.body
                for name in path.split("."):
                    found = found[name]
                assert without_group(found) == value, (one.name, path)


def test_everything_that_takes_tags_has_those_of_the_environment(deployed: Deployment) -> None:
    for one in deployed.resources:
        if "location" in one.body:
            assert one.body["tags"]["azd-env-name"] == "check", one.name


# Access


def test_local_authentication_is_off_everywhere(deployed: Deployment) -> None:
    assert deployed.one("Microsoft.ServiceBus/namespaces").properties["disableLocalAuth"] is True
    assert deployed.one("Microsoft.DocumentDB/databaseAccounts").properties["disableLocalAuth"] is True
    assert deployed.one("Microsoft.Storage/storageAccounts").properties["allowSharedKeyAccess"] is False
    assert deployed.one("Microsoft.Insights/components").properties["DisableLocalAuth"] is True
    policies = deployed.of("Microsoft.Web/sites/basicPublishingCredentialsPolicies")
    allowed = {one.name.rpartition("/")[2]: one.properties["allow"] for one in policies}
    assert allowed == {"ftp": False, "scm": False}


def test_transport_is_encrypted_everywhere(deployed: Deployment) -> None:
    assert deployed.one("Microsoft.ServiceBus/namespaces").properties["minimumTlsVersion"] == "1.2"
    assert deployed.one("Microsoft.DocumentDB/databaseAccounts").properties["minimalTlsVersion"] == "Tls12"
    storage = deployed.one("Microsoft.Storage/storageAccounts").properties
    assert (storage["minimumTlsVersion"], storage["supportsHttpsTrafficOnly"]) == ("TLS1_2", True)
    assert deployed.one("Microsoft.Web/sites").properties["httpsOnly"] is True


def test_the_app_has_one_identity_and_just_the_roles_that_it_uses(deployed: Deployment, case: str) -> None:
    site = deployed.one("Microsoft.Web/sites")
    assert site.body["identity"]["type"] == "UserAssigned"
    assert len(site.body["identity"]["userAssignedIdentities"]) == 1
    generation = CASES[case].get("queueGeneration", 1)
    queues = "Microsoft.ServiceBus/namespaces/sbns-uniquestring0/queues"
    expected = [
        *[(f"{queues}/{name}-{generation}", RECEIVER) for name in ("ledger", "ledger-entries", "orders")],
        *[(f"{queues}/{name}-{generation}", SENDER) for name in ("ledger-entries", "orders", "quarantine")],
        ("Microsoft.Storage/storageAccounts/stuniquestring0", BLOB_OWNER),
        ("Microsoft.Insights/components/appi-uniquestring0", METRICS_PUBLISHER),
    ]
    if CASES[case].get("serviceBusManageForScaling"):
        expected += [(f"{queues}/{name}-{generation}", OWNER) for name in ("ledger", "ledger-entries", "orders")]

    assert roles(deployed, "roles") == sorted(expected)


def test_roles_follow_the_code(root: Path) -> None:
    """Receivers are the queues of the triggers, senders what the handlers send to."""
    handlers = "".join(file.read_text(encoding="utf-8") for file in (root / "shared" / "handlers").glob("*.py"))
    app = (root / "function_app.py").read_text(encoding="utf-8")

    assert set(re.findall(r'queue_name="%([A-Z_]+)_QUEUE%"', app)) == {"ORDERS", "LEDGER", "LEDGER_ENTRIES"}
    assert set(re.findall(r"sender\.send, Role\.([A-Z_]+)", handlers)) == {"ORDERS", "LEDGER_ENTRIES", "QUARANTINE"}


ASSIGNMENT = re.compile(
    r"name: guid\((?P<on>\S+)\.id, principalId, (?P<named>\w+)\)\s+(?:scope: (?P<scope>\S+)\s+)?"
    r"properties: \{.*?roleDefinitionId: [^\n]*?(?P<role>\w+)[)}']*\n",
    re.DOTALL,
)


@pytest.mark.parametrize("name", ["roles", "developer-roles"])
def test_names_of_roles_rest_on_scope_principal_and_role(root: Path, name: str) -> None:
    """With the principal's name in place of its id, a recreated identity can't get its roles (R73)."""
    text = (root / "infra" / "app" / f"{name}.bicep").read_text(encoding="utf-8")
    found = list(ASSIGNMENT.finditer(text))

    assert len(found) == len(re.findall(r"(?:roleAssignments|sqlRoleAssignments)@", text))
    for one in found:
        assert one["named"] == one["role"]
        assert one["scope"] in (one["on"], None)  # those of Cosmos DB have a parent instead


def test_roles_are_named_by_their_full_ids(everything: Deployment) -> None:
    for one in everything.of("Microsoft.Authorization/roleAssignments"):
        path, _, role = str(one.properties["roleDefinitionId"]).rpartition("/")
        assert re.fullmatch(r"/subscriptions/[^/]+/providers/Microsoft\.Authorization/roleDefinitions", path)
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", role)


def test_the_persons_roles_follow_the_kind_of_principal(root: Path) -> None:
    given = {"principalId": PERSON, "principalType": "Group"}
    found = Deployment(root, given).of("Microsoft.Authorization/roleAssignments")

    assert {one.properties["principalType"] for one in found if one.module == "developerRoles"} == {"Group"}


def test_every_role_assignment_names_its_kind_of_principal(everything: Deployment) -> None:
    kinds = {
        (one.module, one.properties["principalType"])
        for one in everything.of("Microsoft.Authorization/roleAssignments")
    }

    assert kinds == {("roles", "ServicePrincipal"), ("developerRoles", "User")}


def test_cosmos_data_is_reached_by_its_own_roles_within_the_database(deployed: Deployment, case: str) -> None:  # R71
    assignments = deployed.of("Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments")

    assert len(assignments) == (2 if "principalId" in CASES[case] else 1)
    for one in assignments:
        account = "/providers/Microsoft.DocumentDB/databaseAccounts/cosmos-uniquestring0"
        assert one.properties["roleDefinitionId"].endswith(f"{account}/sqlRoleDefinitions/{DATA_CONTRIBUTOR}")
        assert one.properties["scope"].endswith(f"{account}/dbs/convoy")
    assert not [role for _, role in roles(deployed, "roles") if role == DATA_CONTRIBUTOR]


def test_who_deploys_gets_data_roles_unless_it_is_a_pipeline(root: Path, default: Deployment) -> None:  # R71
    person = Deployment(root, {"principalId": PERSON})
    pipeline = Deployment(
        root, {"principalId": PERSON, "principalType": "ServicePrincipal", "grantDataRoles": False}
    )

    assert {role for _, role in roles(person, "developerRoles")} == {SENDER, RECEIVER}
    assert roles(pipeline, "developerRoles") == []
    assert roles(default, "developerRoles") == []


def test_names_differ_by_subscription_environment_and_region(root: Path) -> None:
    """Most of them are addresses in the whole world; a second environment must not meet the first."""
    text = (root / "infra/main.bicep").read_text(encoding="utf-8")

    assert "var token = uniqueString(subscription().id, environmentName, location)\n" in text
    assert "@minLength(1)\n@maxLength(64)\nparam environmentName string\n" in text  # a group's name: 90 at most


def test_names_are_deterministic_and_within_their_limits(root: Path, deployed: Deployment, case: str) -> None:
    again = Deployment(root, CASES[case])
    limits = {
        "Microsoft.Storage/storageAccounts": r"[a-z0-9]{3,24}",
        "Microsoft.ServiceBus/namespaces": r"[A-Za-z][A-Za-z0-9-]{4,48}[A-Za-z0-9]",
        "Microsoft.DocumentDB/databaseAccounts": r"[a-z0-9-]{3,44}",
        "Microsoft.Web/sites": r"[A-Za-z0-9-]{2,60}",
        "Microsoft.OperationalInsights/workspaces": r"[A-Za-z0-9-]{4,63}",
    }

    assert [one.name for one in deployed.resources] == [one.name for one in again.resources]
    for kind, pattern in limits.items():
        assert re.fullmatch(pattern, deployed.one(kind).name)
    ids = [(one.type, one.name, one.scope) for one in deployed.resources]
    assert len(ids) == len(set(ids))


def test_no_output_holds_a_secret(root: Path, everything: Deployment) -> None:
    assert not [name for name in everything.outputs if re.search("secret|password|key|token", name, re.IGNORECASE)]
    for file in (root / "infra").rglob("*.bicep"):
        assert not re.search(r"\blist\w*\(", file.read_text(encoding="utf-8")), file


def test_outputs_are_azds_and_setting_shaped(default: Deployment) -> None:
    expected = {
        "AZURE_LOCATION", "AZURE_TENANT_ID", "AZURE_RESOURCE_GROUP", "AZURE_FUNCTION_NAME", "SERVICE_APP_NAME",
        "SERVICE_APP_ENDPOINT_URL", "ServiceBusConnection__fullyQualifiedNamespace",
        "CosmosConnection__accountEndpoint", "ORDERS_QUEUE", "LEDGER_QUEUE", "LEDGER_ENTRIES_QUEUE",
        "QUARANTINE_QUEUE", "COSMOS_DATABASE",
    }  # fmt: skip

    assert set(default.outputs) == expected
    # Not the namespace's own serviceBusEndpoint, which has a scheme and a port (R69).
    host = default.outputs["ServiceBusConnection__fullyQualifiedNamespace"]
    assert host == "sbns-uniquestring0.servicebus.windows.net"
    for name in expected & set(default.settings()):
        assert default.outputs[name] == default.settings()[name]


def test_tags_are_azds(deployed: Deployment) -> None:
    tagged = [one.name for one in deployed.resources if "azd-service-name" in (one.body.get("tags") or {})]

    assert deployed.one("Microsoft.Resources/resourceGroups").body["tags"]["azd-env-name"] == "check"
    assert tagged == [deployed.one("Microsoft.Web/sites").name]
    assert deployed.one("Microsoft.Web/sites").body["tags"]["azd-service-name"] == "app"


# Service Bus


def test_queues_state_every_property_that_cannot_change(deployed: Deployment, case: str) -> None:  # C26, D52, R72
    generation = CASES[case].get("queueGeneration", 1)
    expected = {
        "requiresSession": True,
        "requiresDuplicateDetection": True,
        "duplicateDetectionHistoryTimeWindow": "PT1M",
        "enablePartitioning": False,
        "lockDuration": "PT1M",
        "maxDeliveryCount": 1000,
        "deadLetteringOnMessageExpiration": True,
    }
    live = {"orders": "P14D", "ledger": "P14D", "ledger-entries": "P14D", "quarantine": "P30D"}
    queues = deployed.of("Microsoft.ServiceBus/namespaces/queues")

    assert [one.name.rpartition("/")[2] for one in queues] == [f"{role}-{generation}" for role in live]
    for queue, ttl in zip(queues, live.values(), strict=True):
        found = queue.properties
        assert {key: found[key] for key in expected} == expected
        assert found["defaultMessageTimeToLive"] == ttl
        assert set(found) == {*expected, "defaultMessageTimeToLive", "maxSizeInMegabytes"}
        assert "" not in found.values()


def test_the_tier_decides_what_a_namespace_may_have(deployed: Deployment, case: str) -> None:  # C63, C68
    namespace = deployed.one("Microsoft.ServiceBus/namespaces")
    sku, properties = namespace.body["sku"], namespace.properties

    assert "zoneRedundant" not in properties  # deprecated and immutable; zones come without it
    if CASES[case]["serviceBusSku"] == "Premium":
        assert sku["tier"] == "Premium"
        assert sku["capacity"] in (1, 2, 4, 8, 16)
        assert properties["premiumMessagingPartitions"] == 1
    else:
        assert sku == {"name": "Standard", "tier": "Standard", "capacity": None}
        assert properties["premiumMessagingPartitions"] is None
        assert properties["publicNetworkAccess"] == "Enabled"
        assert properties["geoDataReplication"] is None


def test_geo_replication_has_one_primary_and_is_premium_only(root: Path, everything: Deployment) -> None:  # C68
    replication = everything.one("Microsoft.ServiceBus/namespaces").properties["geoDataReplication"]
    standard = Deployment(root, {"serviceBusSecondaryLocation": "northeurope"})

    assert [(one["locationName"], one["roleType"]) for one in replication["locations"]] == [
        ("westeurope", "Primary"),
        ("northeurope", "Secondary"),
    ]
    assert standard.one("Microsoft.ServiceBus/namespaces").properties["geoDataReplication"] is None


# Cosmos DB


def test_the_account_is_strong_with_one_write_region(deployed: Deployment, case: str) -> None:  # D42
    account = deployed.one("Microsoft.DocumentDB/databaseAccounts").properties

    assert account["consistencyPolicy"] == {"defaultConsistencyLevel": "Strong"}
    assert account["enableMultipleWriteLocations"] is False
    assert len(account["locations"]) == 1
    assert account["locations"][0]["isZoneRedundant"] is CASES[case]["zoneRedundant"]


def test_a_serverless_account_has_no_throughput(deployed: Deployment, case: str) -> None:
    serverless = CASES[case]["cosmosThroughputMode"] == "serverless"
    account = deployed.one("Microsoft.DocumentDB/databaseAccounts").properties
    options = [
        one.properties["options"]
        for one in deployed.of("Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers")
    ]

    assert account["capabilities"] == ([{"name": "EnableServerless"}] if serverless else [])
    assert options == [{"autoscaleSettings": None if serverless else {"maxThroughput": 1000}}] * 4


@pytest.mark.parametrize(("backup", "policy"), [("Periodic", None), ("Continuous30Days", "Continuous30Days")])
def test_backup_is_a_parameter(root: Path, backup: str, policy: str | None) -> None:
    found = Deployment(root, {"cosmosBackup": backup}).one("Microsoft.DocumentDB/databaseAccounts").properties

    assert found["backupPolicy"] == (
        {"type": "Continuous", "continuousModeProperties": {"tier": policy}} if policy else None
    )


def test_containers_are_those_of_the_local_stack(root: Path, default: Deployment) -> None:  # C35, D25, R40
    document = json.loads((root / "local" / "containers.json").read_text(encoding="utf-8"))
    (database,) = document["databases"]
    found = [
        one.properties["resource"]
        for one in default.of("Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers")
    ]

    assert default.one("Microsoft.DocumentDB/databaseAccounts/sqlDatabases").properties["resource"]["id"] == "convoy"
    assert database["id"] == "convoy"
    assert found == database["containers"]


def test_indexing_is_that_of_the_contracts(root: Path, default: Deployment) -> None:
    text = (root / "docs/contracts.md").read_text(encoding="utf-8")
    for one in default.of("Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"):
        policy = one.properties["resource"]["indexingPolicy"]
        assert policy["excludedPaths"] == [{"path": "/*"}]
        for path in policy["includedPaths"]:
            assert f"`{path['path']}`" in text


def test_every_filter_of_the_app_is_indexed(root: Path, default: Deployment) -> None:
    queries = (root / "shared" / "handlers" / "sweep.py").read_text(encoding="utf-8")
    filters = set(re.findall(r"c\.((?:record\.)?(?:effect\.)?status)\b", queries))
    indexed = {
        path["path"].strip("/?").replace("/", ".")
        for one in default.of("Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers")
        for path in one.properties["resource"]["indexingPolicy"]["includedPaths"]
    }

    assert filters
    assert filters <= indexed


# Function app


def test_the_plan_is_flex_and_nothing_that_it_refuses_is_set(deployed: Deployment, case: str) -> None:  # R73
    plan, site = deployed.one("Microsoft.Web/serverfarms"), deployed.one("Microsoft.Web/sites")
    refused = {
        "linuxFxVersion", "alwaysOn", "ftpsState", "use32BitWorkerProcess", "preWarmedInstanceCount",
        "netFrameworkVersion", "functionAppScaleLimit", "functionsRuntimeScaleMonitoringEnabled",
        "vnetRouteAllEnabled", "appSettings",
    }  # fmt: skip

    assert plan.body["sku"] == {"name": "FC1", "tier": "FlexConsumption"}
    assert plan.properties == {"reserved": True, "zoneRedundant": CASES[case]["zoneRedundant"]}
    assert site.body["kind"] == "functionapp,linux"
    assert not refused & set(site.properties["siteConfig"])
    assert set(site.properties) == {
        "serverFarmId", "httpsOnly", "virtualNetworkSubnetId", "siteConfig", "functionAppConfig",
    }  # fmt: skip


def test_the_package_is_fetched_by_identity_from_a_container_that_exists(  # R73
    root: Path, deployed: Deployment
) -> None:
    storage = deployed.one("Microsoft.Web/sites").properties["functionAppConfig"]["deployment"]["storage"]

    assert storage["type"] == "blobContainer"
    assert storage["authentication"]["type"] == "UserAssignedIdentity"
    assert storage["authentication"]["userAssignedIdentityResourceId"].endswith("/id-uniquestring0")
    assert deployed.one("Microsoft.Storage/storageAccounts/blobServices/containers").name.endswith("/packages")
    # The compiler doesn't relate the address to the container.
    assert "${packages.name}'" in (root / "infra/app/storage.bicep").read_text(encoding="utf-8")
    assert "value: packagesUrl" in (root / "infra/app/function.bicep").read_text(encoding="utf-8")


def test_the_app_waits_for_its_roles(root: Path) -> None:  # R73
    template = evaluate.read(root / "infra" / "main.bicep", root)
    app = template.of_kind("module")["functionApp"]

    assert "roles" in set(evaluate.used_names(app.value))


def test_zones_reach_plan_storage_and_database(deployed: Deployment, case: str) -> None:
    zones = CASES[case]["zoneRedundant"]

    assert deployed.one("Microsoft.Storage/storageAccounts").body["sku"]["name"] == (
        "Standard_ZRS" if zones else "Standard_LRS"
    )
    assert deployed.one("Microsoft.Web/serverfarms").properties["zoneRedundant"] is zones


def test_scale_is_bounded_and_always_ready_is_per_group(root: Path, everything: Deployment) -> None:  # C73
    scale = everything.one("Microsoft.Web/sites").properties["functionAppConfig"]["scaleAndConcurrency"]
    functions = {
        node.name
        for node in ast.parse((root / "function_app.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.AsyncFunctionDef)
    }
    counts = dict.fromkeys(("alwaysReadyOrders", "alwaysReadyLedger", "alwaysReadyEntries", "alwaysReadyHttp"), 1)
    ready = Deployment(root, counts).one("Microsoft.Web/sites").properties["functionAppConfig"]["scaleAndConcurrency"]
    groups = {group["name"] for group in ready["alwaysReady"]}

    assert scale == {
        "instanceMemoryMB": 2048,
        "maximumInstanceCount": 40,
        "alwaysReady": [{"name": "function:process_order", "instanceCount": 2}],
    }
    assert "http" in groups
    assert len(groups) == 4
    assert {name.removeprefix("function:") for name in groups - {"http"}} <= functions
    assert all(name.startswith("function:") for name in groups - {"http"})


def test_settings_are_texts(deployed: Deployment) -> None:
    assert all(isinstance(value, str) and value for value in deployed.settings().values())


def test_no_deployment_sets_what_the_app_does_not_read(root: Path, case: str) -> None:  # R73
    """Flex Consumption refuses some of the usual ones; those that are optional too are looked at here."""
    given = Deployment(root, {**CASES[case], "paymentsUrl": "https://x.example", "paymentsScope": "y"}).settings()
    storage = {f"AzureWebJobsStorage__{part}" for part in ("accountName", "credential", "clientId")}

    assert set(given) <= app_settings.read_by_the_app() | app_settings.PLATFORM | storage
    assert not set(given) & app_settings.REFUSED


def test_payments_are_absent_until_they_are_given(default: Deployment, everything: Deployment) -> None:
    assert not {"PAYMENTS_URL", "PAYMENTS_SCOPE"} & set(default.settings())
    assert everything.settings()["PAYMENTS_URL"] == "https://payments.example"
    assert "PAYMENTS_SCOPE" not in everything.settings()


def test_sign_in_is_a_parameter_and_needs_no_secret(
    root: Path, default: Deployment, everything: Deployment
) -> None:
    def sign_in(deployment: Deployment) -> list[Found]:
        return [one for one in deployment.of("Microsoft.Web/sites/config") if one.name.endswith("/authsettingsV2")]

    assert sign_in(default) == []
    (found,) = sign_in(everything)
    registration = found.properties["identityProviders"]["azureActiveDirectory"]["registration"]
    assert "clientSecretSettingName" not in registration
    assert found.properties["platform"] == {"enabled": True}
    assert found.properties["globalValidation"] == {
        "requireAuthentication": True,
        "unauthenticatedClientAction": "Return401",
        "excludedPaths": ["/api/health"],
    }
    # Tokens of this tenant only; another issuer would let everybody in who has an account anywhere.
    text = (root / "infra/app/function.bicep").read_text(encoding="utf-8")
    assert "openIdIssuer: '${environment().authentication.loginEndpoint}${tenant().tenantId}/v2.0'\n" in text


# Network


def test_private_endpoints_come_with_zones_and_without_public_access(deployed: Deployment, case: str) -> None:
    network, premium = CASES[case]["vnetEnabled"], CASES[case]["serviceBusSku"] == "Premium"
    groups = [
        one.properties["privateLinkServiceConnections"][0]["properties"]["groupIds"][0]
        for one in deployed.of("Microsoft.Network/privateEndpoints")
    ]
    access = {
        kind: deployed.one(kind).properties["publicNetworkAccess"]
        for kind in (
            "Microsoft.DocumentDB/databaseAccounts",
            "Microsoft.Storage/storageAccounts",
            "Microsoft.ServiceBus/namespaces",
        )
    }

    assert groups == (["Sql", "blob"] + (["namespace"] if premium else []) if network else [])
    assert len(deployed.of("Microsoft.Network/privateEndpoints/privateDnsZoneGroups")) == len(groups)
    assert len(deployed.of("Microsoft.Network/privateDnsZones/virtualNetworkLinks")) == len(groups)
    assert access == {
        "Microsoft.DocumentDB/databaseAccounts": "Disabled" if network else "Enabled",
        "Microsoft.Storage/storageAccounts": "Disabled" if network else "Enabled",
        "Microsoft.ServiceBus/namespaces": "Disabled" if network and premium else "Enabled",
    }
    rules = deployed.one("Microsoft.Storage/storageAccounts").properties["networkAcls"]
    assert rules["defaultAction"] == ("Deny" if network else "Allow")


ZONES = {
    "Sql": ("Microsoft.DocumentDB/databaseAccounts/cosmos-uniquestring0", "privatelink.documents.azure.com"),
    "blob": (
        "Microsoft.Storage/storageAccounts/stuniquestring0",
        "<privatelink.blob.<environment().suffixes.storage>>",  # known to the deployment's own cloud alone
    ),
    "namespace": ("Microsoft.ServiceBus/namespaces/sbns-uniquestring0", "privatelink.servicebus.windows.net"),
}
"""Service and zone of each part that is reached privately; a zone of any other name is simply never asked."""


def test_each_private_endpoint_leads_to_its_service_and_is_found_by_its_zone(everything: Deployment) -> None:
    endpoints = everything.of("Microsoft.Network/privateEndpoints")
    groups = everything.of("Microsoft.Network/privateEndpoints/privateDnsZoneGroups")

    assert len(endpoints) == len(groups) == len(ZONES)
    for endpoint, group in zip(endpoints, groups, strict=True):
        (connection,) = endpoint.properties["privateLinkServiceConnections"]
        (config,) = group.properties["privateDnsZoneConfigs"]
        service, zone = ZONES[connection["properties"]["groupIds"][0]]
        assert str(group.name) == f"{endpoint.name}/default"
        assert without_group(connection["properties"]["privateLinkServiceId"]) == f"<id>/{service}"
        found = without_group(config["properties"]["privateDnsZoneId"])
        assert found == f"<id>/Microsoft.Network/privateDnsZones/{zone}"
        assert endpoint.properties["subnet"]["id"].endswith("/subnets/endpoints")


def test_the_app_runs_in_a_delegated_subnet_of_its_own(deployed: Deployment, case: str) -> None:
    found = deployed.of("Microsoft.Network/virtualNetworks/subnets")
    subnets = {one.name.rpartition("/")[2]: one.properties for one in found}
    subnet = deployed.one("Microsoft.Web/sites").properties["virtualNetworkSubnetId"]

    if not CASES[case]["vnetEnabled"]:
        assert subnet is None  # not '', which the service refuses
        return
    assert subnet.endswith("/subnets/app")
    assert subnets["app"]["delegations"][0]["properties"]["serviceName"] == "Microsoft.App/environments"
    assert "delegations" not in subnets["endpoints"]
    assert int(subnets["app"]["addressPrefix"].partition("/")[2]) <= 27  # smaller ones are refused
    assert "_" not in "".join(subnets)
    assert subnets["app"]["addressPrefix"] != subnets["endpoints"]["addressPrefix"]


def test_subnets_are_made_one_after_the_other(root: Path) -> None:
    """Two writes to one network at a time make one of them fail, on some days."""
    subnet = evaluate.read(root / "infra/app/network.bicep", root).of_kind("resource")["endpointSubnet"]

    assert "appSubnet" in set(evaluate.used_names(subnet.value))


# Monitoring

WINDOWS = {60, 300, 600, 900, 1800, 2700, 3600, 7200, 10_800, 14_400, 18_000, 21_600, 86_400, 172_800}
"""Those that a rule on logs may have, in seconds."""

METRICS = {
    "dead-letter": ("DeadletteredMessages", "Maximum", 0, "EntityName", "*"),
    "quarantine-depth": ("ActiveMessages", "Maximum", 0, "EntityName", "quarantine-2"),
    "queue-size": ("Size", "Maximum", 3_758_096_384, "EntityName", "*"),  # 70 % of 5120 MB
    "bus-throttled": ("ThrottledRequests", "Total", 0, "EntityName", "*"),
    "bus-errors": ("ServerErrors", "Total", 10, "EntityName", "*"),
    "database-throttled": ("TotalRequests", "Count", 20, "StatusCode", "429"),
}


def test_metric_alerts_ask_for_what_their_names_say(everything: Deployment) -> None:
    """Names, aggregations and dimensions are plain texts, and a misspelt key of a criterion is dropped silently."""
    rules = {name: one for name, one in alerts(everything).items() if "metricAlerts" in one.type}
    shape = {
        "name", "criterionType", "metricNamespace", "metricName", "timeAggregation", "operator", "threshold",
        "dimensions",
    }  # fmt: skip

    assert set(rules) == {*METRICS, "stalled-orders", "stalled-ledger", "stalled-ledger-entries"}
    for name, rule in rules.items():
        criteria = rule.properties["criteria"]
        assert criteria["odata.type"] == "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria"
        for criterion in criteria["allOf"]:
            assert set(criterion) == shape, name
            (dimension,) = criterion["dimensions"]
            assert (set(dimension), dimension["operator"]) == ({"name", "operator", "values"}, "Include")
            assert f"/{criterion['metricNamespace']}/" in rule.properties["scopes"][0], name
    for name, expected in METRICS.items():
        (criterion,) = rules[name].properties["criteria"]["allOf"]
        (dimension,) = criterion["dimensions"]
        found = (*(criterion[key] for key in ("metricName", "timeAggregation", "threshold")), dimension["name"])
        assert (*found, *dimension["values"]) == expected, name
        assert criterion["operator"] == "GreaterThan"


def test_log_alerts_count_the_rows_of_their_own_query(root: Path, default: Deployment) -> None:
    for name, one in alerts(default).items():
        if "scheduledQueryRules" not in one.type:
            continue
        (criterion,) = one.properties["criteria"]["allOf"]
        assert set(criterion) == {"query", "timeAggregation", "operator", "threshold", "failingPeriods"}, name
        counted = (criterion["timeAggregation"], criterion["operator"], criterion["threshold"])
        assert counted == ("Count", "GreaterThan", 0), name
        text = (root / "infra" / "alerts" / f"{name}.kql").read_text(encoding="utf-8")
        assert re.fullmatch(r"\d+".join(map(re.escape, re.split(r"\{\{\w+\}\}", text))), criterion["query"]), name
        assert seconds_of(one.properties["windowSize"]) in WINDOWS, name


def test_a_sweep_is_missed_after_a_quarter_of_an_hour(default: Deployment) -> None:
    assert alerts(default)["no-sweep"].properties["windowSize"] == "PT15M"


def alerts(deployment: Deployment) -> dict[str, Found]:
    kinds = ("Microsoft.Insights/scheduledQueryRules", "Microsoft.Insights/metricAlerts")
    return {one.name.removeprefix("convoy-"): one for kind in kinds for one in deployment.of(kind)}


def test_every_alert_has_severity_missing_data_rule_and_runbook(root: Path, everything: Deployment) -> None:
    text = (root / "docs/operations.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### ([a-z-]+)$", text, re.MULTILINE)
    described = re.compile(r"Missing data: .+\. Runbook: docs/operations\.md#([a-z-]+)$")
    for name, alert in alerts(everything).items():
        match = described.search(alert.properties["description"])
        assert match is not None, name
        assert match[1] in headings, name
        assert alert.properties["severity"] in (1, 2, 3)
        actions: Any = alert.properties["actions"]  # a list in one kind of rule, an object in the other
        groups = actions["actionGroups"] if "actionGroups" in actions else [one["actionGroupId"] for one in actions]
        assert [group.rpartition("/")[2] for group in groups] == ["ag-uniquestring0"], name


def test_every_runbook_has_its_alert(root: Path, everything: Deployment) -> None:
    text = (root / "docs/operations.md").read_text(encoding="utf-8")
    section = re.search(r"^## Alerts.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    headings = re.findall(r"^### ([a-z-]+)$", section.group(), re.MULTILINE)
    fired = {re.sub(r"^stalled-.*", "stalled", name) for name in alerts(everything)}

    assert sorted(headings) == sorted(fired)


def test_every_query_file_is_an_alert(root: Path, default: Deployment) -> None:
    files = {file.stem for file in (root / "infra" / "alerts").glob("*.kql")}
    rules = {one.name.removeprefix("convoy-") for one in default.of("Microsoft.Insights/scheduledQueryRules")}

    assert files == rules
    for one in default.of("Microsoft.Insights/scheduledQueryRules"):
        query = one.properties["criteria"]["allOf"][0]["query"]
        assert "{{" not in query
        window = seconds_of(one.properties["windowSize"])
        assert seconds_of(one.properties["evaluationFrequency"]) <= window


def test_the_alarm_for_gaps_has_the_apps_number(default: Deployment) -> None:
    query = alerts(default)["gap-age"].properties["criteria"]["allOf"][0]["query"]

    assert f"Sum > {default.settings()['GAP_ALARM_SECONDS']}" in query


def test_unfinished_records_are_told_after_the_sweep_had_its_chance(default: Deployment) -> None:
    query = alerts(default)["unfinished-outboxes"].properties["criteria"]["allOf"][0]["query"]
    match = re.search(r"Sum > (\d+)", query)

    assert match is not None
    assert int(match[1]) > int(default.settings()["SWEEP_GRACE_SECONDS"]) + 60 + 120


def test_service_bus_alerts_look_at_queues_one_by_one(default: Deployment) -> None:
    for name, one in alerts(default).items():
        if one.type != "Microsoft.Insights/metricAlerts" or name == "database-throttled":
            continue
        for criterion in one.properties["criteria"]["allOf"]:
            assert criterion["dimensions"][0]["name"] == "EntityName"
            assert criterion["metricName"] in {
                "DeadletteredMessages", "ActiveMessages", "CompleteMessage", "Size", "ThrottledRequests",
                "ServerErrors",
            }  # fmt: skip


def test_each_working_queue_has_a_stalled_alert(everything: Deployment) -> None:
    stalled = {name: one for name, one in alerts(everything).items() if name.startswith("stalled-")}

    # Named by role: a rule of an old generation's name would outlive the move to a new one (D52).
    assert set(stalled) == {"stalled-orders", "stalled-ledger", "stalled-ledger-entries"}
    for name, one in stalled.items():
        waiting, completed = one.properties["criteria"]["allOf"]
        assert (waiting["metricName"], waiting["timeAggregation"]) == ("ActiveMessages", "Minimum")
        assert (waiting["operator"], waiting["threshold"]) == ("GreaterThan", 0)
        assert (completed["metricName"], completed["timeAggregation"]) == ("CompleteMessage", "Total")
        assert (completed["operator"], completed["threshold"]) == ("LessThan", 1)
        for criterion in (waiting, completed):
            assert criterion["dimensions"][0]["values"] == [f"{name.removeprefix('stalled-')}-2"]


def test_diagnostics_have_a_scope_and_a_workspace(default: Deployment) -> None:
    found = default.of("Microsoft.Insights/diagnosticSettings")

    assert len({one.scope for one in found}) == len(found) == 3
    assert all(one.scope and one.properties["workspaceId"] for one in found)
    assert not any("retentionPolicy" in json.dumps(one.properties) for one in found)
    assert {
        (one.module, item.get("categoryGroup") or item.get("category"), item["enabled"])
        for one in found
        for item in (*one.properties.get("logs", ()), *one.properties["metrics"])
    } == {
        ("diagnostics", "allLogs", True),
        ("diagnostics", "AllMetrics", True),
        ("diagnostics", "ControlPlaneRequests", True),
        ("diagnostics", "DataPlaneRequests", False),  # a log line a request: a parameter, since it costs
        ("diagnostics", "Requests", True),
    }


def test_the_budget_tells_whom_it_was_told_to(root: Path, default: Deployment, everything: Deployment) -> None:
    budget = everything.one("Microsoft.Consumption/budgets")

    assert default.of("Microsoft.Consumption/budgets") == []
    assert budget.properties["timePeriod"] == {"startDate": "2026-12-01"}
    assert {tuple(one["contactEmails"]) for one in budget.properties["notifications"].values()} == {
        ("operator@example.com",)
    }
    assert "utcNow" not in (root / "infra/app/budget.bicep").read_text(encoding="utf-8")


def test_the_workbook_is_filled_in(default: Deployment) -> None:
    workbook = default.one("Microsoft.Insights/workbooks")
    content: dict[str, Any] = json.loads(workbook.properties["serializedData"])

    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", workbook.name)
    assert "{{" not in workbook.properties["serializedData"]
    assert content["version"] == workbook.properties["version"] == "Notebook/1.0"
    assert {1, 3, 9, 10} == {item["type"] for item in content["items"]}
    shown = {
        (metric["metric"], metric["splitBy"])
        for item in content["items"]
        if item["type"] == 10
        for metric in item["content"]["metrics"]
    }
    bus, database = "microsoft.servicebus/namespaces--", "microsoft.documentdb/databaseaccounts--"
    assert shown == {
        (f"{bus}ActiveMessages", "EntityName"),
        (f"{bus}DeadletteredMessages", "EntityName"),
        (f"{bus}CompleteMessage", "EntityName"),
        (f"{bus}IncomingRequests", "EntityName"),
        (f"{database}TotalRequests", "StatusCode"),
        (f"{database}TotalRequestUnits", "CollectionName"),
    }


# Text


def test_names_resolve_and_everything_is_described_and_used(root: Path) -> None:
    found = [
        fault
        for file in sorted((root / "infra").rglob("*.bicep"))
        for fault in names.faults(evaluate.read(file, root))
    ]

    assert found == []


def test_what_costs_money_says_how_much(root: Path) -> None:  # C63, C68, C73
    template = evaluate.read(root / "infra" / "main.bicep", root)
    priced = (
        "serviceBusSku", "serviceBusMessagingUnits", "serviceBusSecondaryLocation", "cosmosThroughputMode",
        "cosmosBackup", "zoneRedundant", "instanceMemoryMB", "maximumInstanceCount", "alwaysReadyOrders",
        "vnetEnabled", "logRetentionDays", "logDailyCapGigabytes", "logDatabaseRequests",
    )  # fmt: skip
    for name in priced:
        call = template.of_kind("param")[name].decorator("description")
        assert call is not None
        text = "".join(str(part) for part in getattr(call.arguments[0], "parts", ()))
        assert re.search(r"USD|%|price|billed|times|doubles", text), name


def test_no_external_module_and_no_placeholder(root: Path) -> None:
    for file in (root / "infra").rglob("*.bicep"):
        text = file.read_text(encoding="utf-8")
        assert "br/public:" not in text
        assert not re.search(r"TODO|FIXME|<your", text)
