"""Mistakes that the compiler doesn't see are seen here: each is seeded into the templates and must be found.

They are the kinds that Microsoft's own samples fail on: properties left out, open enums, a role on the wrong resource,
a missing dependency, settings that the plan refuses.
"""

# ruff: noqa: E501 - one mistake a line

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checks import app_settings, parity, settings, sources
from checks.facts import FactError
from tests.infra import test_deployment as rules
from tests.infra.cases import CASES, Deployment

MESSAGING, DATA, FUNCTION = "infra/app/messaging.bicep", "infra/app/data.bicep", "infra/app/function.bicep"
ROLES, NETWORK, MAIN = "infra/app/roles.bicep", "infra/app/network.bicep", "infra/main.bicep"
STORAGE, ALERTS = "infra/app/storage.bicep", "infra/app/alerts.bicep"

SEEDED: list[tuple[str, str, str, Callable[..., None]]] = [
    (MESSAGING, "      requiresSession: true\n", "", rules.test_queues_state_every_property_that_cannot_change),
    (MESSAGING, "      requiresDuplicateDetection: true\n", "", rules.test_queues_state_every_property_that_cannot_change),
    (MESSAGING, "enablePartitioning: false", "enablePartitioning: true", rules.test_queues_state_every_property_that_cannot_change),
    (MESSAGING, "maxDeliveryCount: 1000", "maxDeliveryCount: 10", rules.test_queues_state_every_property_that_cannot_change),
    (MESSAGING, "lockDuration: 'PT1M'", "lockDuration: 'PT1M'\n      forwardTo: ''", rules.test_queues_state_every_property_that_cannot_change),
    (MESSAGING, "name: '${role.name}-${generation}'", "name: role.name", rules.test_queues_state_every_property_that_cannot_change),
    (MESSAGING, "premiumMessagingPartitions: isPremium ? 1 : null", "premiumMessagingPartitions: isPremium ? 2 : null", rules.test_the_tier_decides_what_a_namespace_may_have),
    (MESSAGING, "capacity: isPremium ? messagingUnits : null", "capacity: messagingUnits", rules.test_the_tier_decides_what_a_namespace_may_have),
    (MESSAGING, "    disableLocalAuth: true\n", "", rules.test_local_authentication_is_off_everywhere),
    (MESSAGING, "minimumTlsVersion: '1.2'", "minimumTlsVersion: '1.0'", rules.test_transport_is_encrypted_everywhere),
    (DATA, "defaultConsistencyLevel: 'Strong'", "defaultConsistencyLevel: 'Session'", rules.test_the_account_is_strong_with_one_write_region),
    (DATA, "enableMultipleWriteLocations: false", "enableMultipleWriteLocations: true", rules.test_the_account_is_strong_with_one_write_region),
    (DATA, "        defaultTtl: -1\n", "", rules.test_containers_are_those_of_the_local_stack),
    (DATA, "'/record/status/?', ", "", rules.test_every_filter_of_the_app_is_indexed),
    (DATA, "partitionKey: '/ledgerId'", "partitionKey: '/id'", rules.test_containers_are_those_of_the_local_stack),
    (DATA, "autoscaleSettings: throughputMode == 'autoscale'", "autoscaleSettings: throughputMode != ''", rules.test_a_serverless_account_has_no_throughput),
    (ROLES, "scope: receivingQueues[i]", "scope: namespace", rules.test_the_app_has_one_identity_and_just_the_roles_that_it_uses),
    (ROLES, "'4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'", "'090c5cfd-751d-490a-894a-3ce6f1109419'", rules.test_the_app_has_one_identity_and_just_the_roles_that_it_uses),
    (ROLES, "      principalType: 'ServicePrincipal'\n", "      principalType: 'User'\n", rules.test_every_role_assignment_names_its_kind_of_principal),
    (ROLES, "scope: '${account.id}/dbs/${databaseName}'", "scope: '/dbs/${databaseName}'", rules.test_cosmos_data_is_reached_by_its_own_roles_within_the_database),
    (MAIN, "grantDataRoles && !empty(principalId)", "!empty(principalId)", rules.test_who_deploys_gets_data_roles_unless_it_is_a_pipeline),
    (MAIN, "  dependsOn: [roles]\n", "", rules.test_the_app_waits_for_its_roles),
    (MAIN, "subnetId: network.?outputs.appSubnetId", "subnetId: network.?outputs.appSubnetId ?? ''", rules.test_the_app_runs_in_a_delegated_subnet_of_its_own),
    (MAIN, "name: 'function:apply_entry'", "name: 'function:apply_entries'", rules.test_scale_is_bounded_and_always_ready_is_per_group),
    (MESSAGING, "'${namespace.name}.servicebus.windows.net'", "namespace.properties.serviceBusEndpoint", rules.test_outputs_are_azds_and_setting_shaped),
    (MAIN, "uniqueString(subscription().id, environmentName, location)", "uniqueString(subscription().id, location)", rules.test_names_differ_by_subscription_environment_and_region),
    (MAIN, "output AZURE_RESOURCE_GROUP", "output RESOURCE_GROUP", rules.test_outputs_are_azds_and_setting_shaped),
    (MAIN, "'azd-env-name'", "'azd-env'", rules.test_tags_are_azds),
    (MAIN, "unfinishedAlarmSeconds: 900", "unfinishedAlarmSeconds: 200", rules.test_unfinished_records_are_told_after_the_sweep_had_its_chance),
    (FUNCTION, "http20Enabled: true", "alwaysOn: true", rules.test_the_plan_is_flex_and_nothing_that_it_refuses_is_set),
    (FUNCTION, "name: 'FC1'", "name: 'Y1'", rules.test_the_plan_is_flex_and_nothing_that_it_refuses_is_set),
    (FUNCTION, "type: 'UserAssignedIdentity'", "type: 'StorageAccountConnectionString'", rules.test_the_package_is_fetched_by_identity_from_a_container_that_exists),
    (FUNCTION, "    allow: false", "    allow: true", rules.test_local_authentication_is_off_everywhere),
    (FUNCTION, "requireAuthentication: true", "requireAuthentication: false", rules.test_sign_in_is_a_parameter_and_needs_no_secret),
    (FUNCTION, "${tenant().tenantId}/v2.0", "common/v2.0", rules.test_sign_in_is_a_parameter_and_needs_no_secret),
    (FUNCTION, "'azd-service-name'", "'azd-service'", rules.test_tags_are_azds),
    (FUNCTION, "filter(items(optionalSettings), setting => !empty(setting.value))", "items(optionalSettings)", rules.test_payments_are_absent_until_they_are_given),
    (NETWORK, "'Microsoft.App/environments'", "'Microsoft.Web/serverFarms'", rules.test_the_app_runs_in_a_delegated_subnet_of_its_own),
    (NETWORK, "  name: 'endpoints'", "  name: 'end_points'", rules.test_the_app_runs_in_a_delegated_subnet_of_its_own),
    (NETWORK, "if (!empty(serviceBusId))", "if (empty(serviceBusId))", rules.test_private_endpoints_come_with_zones_and_without_public_access),
    (STORAGE, "publicNetworkAccess: isPublic ? 'Enabled' : 'Disabled'", "publicNetworkAccess: 'Enabled'", rules.test_private_endpoints_come_with_zones_and_without_public_access),
    (STORAGE, "zoneRedundant ? 'Standard_ZRS' : 'Standard_LRS'", "'Standard_LRS'", rules.test_zones_reach_plan_storage_and_database),
    ("infra/app/diagnostics.bicep", "  scope: site\n", "", rules.test_diagnostics_have_a_scope_and_a_workspace),
    (ALERTS, "'DeadletteredMessages'", "'DeadLetteredMessages'", rules.test_service_bus_alerts_look_at_queues_one_by_one),
    (ALERTS, "'EntityName'", "'Entity'", rules.test_service_bus_alerts_look_at_queues_one_by_one),
    (ALERTS, "name: 'gap-age'", "name: 'gap-old'", rules.test_every_query_file_is_an_alert),
    (ALERTS, "#${alert.name}'", "'", rules.test_every_alert_has_severity_missing_data_rule_and_runbook),
    ("infra/app/workbook.bicep", "name: guid(resourceGroup().id, 'convoy')", "name: 'convoy'", rules.test_the_workbook_is_filled_in),
    ("infra/workbook.json", "{{namespaceId}}", "{{nameSpaceId}}", rules.test_the_workbook_is_filled_in),
    ("infra/workbook.json", "--ActiveMessages", "--ActiveMessage", rules.test_the_workbook_is_filled_in),
    (MESSAGING, "namespaces@2026-01-01' = {", "namespaces@2026-06-01' = {", rules.test_versions_are_the_newest_that_azds_compiler_checks),
    (FUNCTION, "sites@2025-03-01' = {", "sites@2024-04-01' = {", rules.test_versions_are_the_newest_that_azds_compiler_checks),
    (DATA, "'GlobalDocumentDB'", "'MongoDB'", rules.test_values_that_the_compiler_does_not_check_are_right),
    (STORAGE, "    allowBlobPublicAccess: false\n", "", rules.test_values_that_the_compiler_does_not_check_are_right),
    (FUNCTION, "name: 'python'", "name: 'Python'", rules.test_values_that_the_compiler_does_not_check_are_right),
    (ALERTS, "      skipQueryValidation: true\n", "", rules.test_values_that_the_compiler_does_not_check_are_right),
    (ALERTS, "    location: 'global'\n", "    location: location\n", rules.test_values_that_the_compiler_does_not_check_are_right),
    (MAIN, "    serviceName: 'app'", "    serviceName: 'api'", rules.test_tags_are_azds),
    ("infra/app/identity.bicep", "  tags: tags\n", "  tags: {}\n", rules.test_everything_that_takes_tags_has_those_of_the_environment),
    (ROLES, "guid(receivingQueues[i].id, principalId,", "guid(receivingQueues[i].id, namespaceName,", rules.test_names_of_roles_rest_on_scope_principal_and_role),
    (ROLES, "principalId, storageBlobDataOwner)", "principalId, monitoringMetricsPublisher)", rules.test_names_of_roles_rest_on_scope_principal_and_role),
    (ROLES, "subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataOwner)", "storageBlobDataOwner", rules.test_roles_are_named_by_their_full_ids),
    ("infra/app/developer-roles.bicep", "principalType: principalType", "principalType: 'User'", rules.test_the_persons_roles_follow_the_kind_of_principal),
    (STORAGE, "${packages.name}'", "deployments'", rules.test_the_package_is_fetched_by_identity_from_a_container_that_exists),
    (FUNCTION, "    httpsOnly: true", "    httpsOnly: true\n    vnetRouteAllEnabled: true", rules.test_the_plan_is_flex_and_nothing_that_it_refuses_is_set),
    (MAIN, "name: 'http'", "name: 'https'", rules.test_scale_is_bounded_and_always_ready_is_per_group),
    (MAIN, "      PAYMENTS_SCOPE: paymentsScope", "      ENABLE_ORYX_BUILD: paymentsScope", rules.test_no_deployment_sets_what_the_app_does_not_read),
    (STORAGE, "isPublic ? 'Allow' : 'Deny'", "'Allow'", rules.test_private_endpoints_come_with_zones_and_without_public_access),
    (NETWORK, "privatelink.documents.azure.com", "privatelink.document.azure.com", rules.test_each_private_endpoint_leads_to_its_service_and_is_found_by_its_zone),
    (NETWORK, "serviceId: storageAccountId", "serviceId: cosmosAccountId", rules.test_each_private_endpoint_leads_to_its_service_and_is_found_by_its_zone),
    (NETWORK, "cidrSubnet(addressPrefix, 24, 0)", "cidrSubnet(addressPrefix, 28, 0)", rules.test_the_app_runs_in_a_delegated_subnet_of_its_own),
    (NETWORK, "  dependsOn: [appSubnet]", "  dependsOn: []", rules.test_subnets_are_made_one_after_the_other),
    (ALERTS, "            dimensions: [\n              {\n                name: alert.dimension", "            dimension: [\n              {\n                name: alert.dimension", rules.test_metric_alerts_ask_for_what_their_names_say),
    (ALERTS, "metricName: 'ActiveMessages'\n    timeAggregation: 'Maximum'", "metricName: 'ActiveMessages'\n    timeAggregation: 'Total'", rules.test_metric_alerts_ask_for_what_their_names_say),
    (ALERTS, "timeAggregation: 'Minimum'", "timeAggregation: 'Maximum'", rules.test_each_working_queue_has_a_stalled_alert),
    (ALERTS, "'convoy-stalled-${workingRoles[i]}'", "'convoy-stalled-${queue}'", rules.test_each_working_queue_has_a_stalled_alert),
    (ALERTS, "'../alerts/payload-mismatch.kql'", "'../alerts/partition-full.kql'", rules.test_log_alerts_count_the_rows_of_their_own_query),
    (ALERTS, "windowSize: 'PT10M'", "windowSize: 'PT20M'", rules.test_log_alerts_count_the_rows_of_their_own_query),
    (ALERTS, "actionGroups: [actionGroup.id]", "actionGroups: []", rules.test_every_alert_has_severity_missing_data_rule_and_runbook),
    (ALERTS, "windowSize: 'PT15M'\n    missingData: 'Missing data: the fault", "windowSize: 'PT1H'\n    missingData: 'Missing data: the fault", rules.test_a_sweep_is_missed_after_a_quarter_of_an_hour),
    ("infra/app/diagnostics.bicep", "'allLogs'", "'allLog'", rules.test_diagnostics_have_a_scope_and_a_workspace),
]


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """The project's files that templates are compared with, to be changed."""
    for folder in ("infra", "shared", "docs"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "img"))
    (tmp_path / "local").mkdir()
    for name in ("host.json", "local.settings.json", "function_app.py", "local/Config.json", "local/containers.json"):
        shutil.copy(root / name, tmp_path / name)
    return tmp_path


def seed(root: Path, name: str, old: str, new: str) -> None:
    file = root / name
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{name} has no {old!r}"
    file.write_text(text.replace(old, new), encoding="utf-8")


def calls(rule: Callable[..., None], root: Path) -> Iterator[dict[str, Any]]:
    """The arguments of a rule, once per case where it looks at all of them."""
    wanted = inspect.signature(rule).parameters
    single = {"root": root, "default": Deployment(root, {}), "everything": Deployment(root, CASES["everything"])}
    for case, parameters in CASES.items():
        every = {**single, "name": "roles", "case": case, "deployed": Deployment(root, parameters) if "deployed" in wanted else None}
        yield {name: every[name] for name in wanted}
        if "case" not in wanted and "deployed" not in wanted:
            return


def hold(rule: Callable[..., None], root: Path) -> None:
    """The rule holds in each case."""
    for arguments in calls(rule, root):
        rule(**arguments)


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    SEEDED,
    ids=lambda value: value.strip()[:40] if isinstance(value, str) else None,
)
def test_a_seeded_mistake_is_found(copy: Path, name: str, old: str, new: str, rule: Callable[..., None]) -> None:
    seed(copy, name, old, new)

    with pytest.raises((AssertionError, KeyError)):
        hold(rule, copy)


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    [
        (MAIN, "REPLAY_MAX: '5'", "REPLAY_MAX: '5'\n      FUNCTIONS_EXTENSION_VERSION: '~4'", "setting (R73)"),
        (MAIN, "REPLAY_MAX: '5'", "REPLAY_MAXIMUM: '5'", "setting"),
        (MAIN, "REPLAY_MAX: '5'", "REPLAY_MAX: '6'", "parity (D58)"),
        (FUNCTION, "ServiceBusConnection__clientId: identityClientId", "ServiceBusConnection__client: 'x'", "identity (R69)"),
        (FUNCTION, "CosmosConnection__credential: 'managedidentity'", "CosmosConnection: 'x'", "identity (R69)"),
        (FUNCTION, "CosmosConnection__clientId: identityClientId", "CosmosConnection__clientId: identityId", "identity (R69)"),
        (FUNCTION, "      AZURE_CLIENT_ID: identityClientId\n", "", "identity (R69)"),
        (FUNCTION, ";Authorization=AAD", "", "identity (R69)"),
        (MAIN, "identityClientId: identity.outputs.clientId", "identityClientId: identity.outputs.principalId", "identity (R69)"),
        (MESSAGING, ".servicebus.windows.net'", ".servicebus.windows.net/'", "start (R69)"),
        ("local.settings.json", '"REPLAY_MAX": "5"', '"REPLAY_MAX": 5', "strings (R70)"),
        ("function_app.py", "%ORDERS_QUEUE%", "orders-1", "trigger (R69)"),
        ("function_app.py", "%SWEEP_SCHEDULE%", "%SWEEP_CRON%", "trigger (R69)"),
        ("function_app.py", "data_type=func.DataType.BINARY", "data_type=func.DataType.STRING", "trigger (D35)"),
        ("function_app.py", "@app.function_name(\"apply_entry\")", "@app.retry(strategy=\"fixed_delay\")", "retries (R60)"),
    ],
)
def test_a_seeded_setting_is_found(copy: Path, name: str, old: str, new: str, rule: str) -> None:
    seed(copy, name, old, new)

    read = sources.read(copy, use_compiler=False)
    found = [
        *settings.check(read), *app_settings.check(read.azure, read.local), *parity.unexplained(read.azure, read.local)
    ]  # fmt: skip

    assert rule in {finding.rule for finding in found if not finding.holds}


def test_a_property_that_was_left_out_is_named(copy: Path) -> None:
    seed(copy, MESSAGING, "      lockDuration: 'PT1M'\n", "")

    with pytest.raises(FactError, match=r"queue\.orders\.lockDuration"):
        settings.check(sources.read(copy, use_compiler=False))
