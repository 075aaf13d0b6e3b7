"""What the templates deploy, over the matrix of parameters (test_bicep_compiler.py compares with the compiler)."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

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
    assert "containerSize" not in site.properties


def test_the_package_is_fetched_by_identity_from_a_container_that_exists(deployed: Deployment) -> None:  # R73
    storage = deployed.one("Microsoft.Web/sites").properties["functionAppConfig"]["deployment"]["storage"]

    assert storage["type"] == "blobContainer"
    assert storage["authentication"]["type"] == "UserAssignedIdentity"
    assert storage["authentication"]["userAssignedIdentityResourceId"].endswith("/id-uniquestring0")
    assert deployed.one("Microsoft.Storage/storageAccounts/blobServices/containers").name.endswith("/packages")


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
    named = set(re.findall(r"'function:(\w+)'", (root / "infra" / "main.bicep").read_text(encoding="utf-8")))

    assert scale == {
        "instanceMemoryMB": 2048,
        "maximumInstanceCount": 40,
        "alwaysReady": [{"name": "function:process_order", "instanceCount": 2}],
    }
    assert named
    assert named <= functions


def test_settings_are_texts(deployed: Deployment) -> None:
    assert all(isinstance(value, str) and value for value in deployed.settings().values())


def test_payments_are_absent_until_they_are_given(default: Deployment, everything: Deployment) -> None:
    assert not {"PAYMENTS_URL", "PAYMENTS_SCOPE"} & set(default.settings())
    assert everything.settings()["PAYMENTS_URL"] == "https://payments.example"
    assert "PAYMENTS_SCOPE" not in everything.settings()


def test_sign_in_is_a_parameter_and_needs_no_secret(default: Deployment, everything: Deployment) -> None:
    def sign_in(deployment: Deployment) -> list[Found]:
        return [one for one in deployment.of("Microsoft.Web/sites/config") if one.name.endswith("/authsettingsV2")]

    assert sign_in(default) == []
    (found,) = sign_in(everything)
    registration = found.properties["identityProviders"]["azureActiveDirectory"]["registration"]
    assert "clientSecretSettingName" not in registration
    assert found.properties["platform"] == {"enabled": True}
    assert found.properties["globalValidation"]["unauthenticatedClientAction"] == "Return401"
    assert found.properties["globalValidation"]["excludedPaths"] == ["/api/health"]


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
    assert "_" not in "".join(subnets)
    assert subnets["app"]["addressPrefix"] != subnets["endpoints"]["addressPrefix"]


# Monitoring


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
        assert alert.properties["actions"], name


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
