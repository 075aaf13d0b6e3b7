"""`python -m checks`: every relation holds, and each is violated by a seeded number."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from checks import app_settings, parity, settings
from checks.code import Trigger
from checks.facts import FactError, Profile, seconds_of
from checks.settings import Finding
from checks.sources import Sources, read


def every_finding(azure: Profile, local: Profile, triggers: tuple[Trigger, ...]) -> list[Finding]:
    sources = Sources(azure, local, triggers, (), "a test")
    return [
        *settings.check(sources),
        *app_settings.check(azure, local),
        *parity.complete(azure),
        *parity.complete(local),
        *parity.unexplained(azure, local),
    ]


def violated(sources: Sources, azure: Profile | None = None, local: Profile | None = None) -> list[Finding]:
    found = every_finding(azure or sources.azure, local or sources.local, sources.triggers)
    return [finding for finding in found if not finding.holds]


def test_all_relations_hold(parsed: Sources) -> None:
    assert not violated(parsed)


# What is changed, to what, and the rule that must say so (contracts 12, D and R numbers). That a record outlives every
# redelivery and replay (C22, C24) is the relation called retention, that a lock outlives the work (C52) lock renewal.
SEEDED = [
    ("setting.POISON_AFTER_DELIVERIES", "997", "poison"),
    ("queue.ledger.maxDeliveryCount", 8, "poison"),
    ("setting.TRANSIENT_BUDGET_SECONDS", "260", "attempt"),
    ("host.functionTimeout", "00:01:30", "attempt"),
    ("host.maxAutoLockRenewalDuration", "00:04:59", "lock renewal (D33)"),
    ("setting.CLAIM_LEASE_SECONDS", "89", "lease"),
    ("setting.PAYMENTS_TIMEOUT_SECONDS", "11", "lease"),
    ("code.REQUEST_SECONDS", 11, "lease"),
    ("code.LONGEST_RUN_SECONDS", 241, "sweep"),
    ("setting.SWEEP_GRACE_SECONDS", "60", "grace"),
    ("setting.HELD_MAX_PER_STREAM", "98", "held"),
    ("setting.RECORD_TTL_SECONDS", "2600000", "retention (D23, R40)"),
    ("queue.ledger-entries.defaultMessageTimeToLive", "P45D", "retention (D23, R40)"),
    ("queue.quarantine.defaultMessageTimeToLive", "P31D", "quarantine (D23)"),
    ("host.prefetchCount", 10, "prefetch (D35, R54)"),
    ("host.maxConcurrentCallsPerSession", 2, "calls (D35)"),
    ("host.autoCompleteMessages", False, "settlement"),  # D37
    ("host.retry", {"strategy": "fixedDelay"}, "retries (R60)"),
    ("host.version", "3.0", "host"),
    ("host.extensionBundle", {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[3.*, 4.0.0)"}, "host"),
    ("host.telemetryMode", None, "host"),
    ("host.applicationInsights", {"samplingSettings": {"isEnabled": True}}, "host"),
    ("queue.orders.requiresSession", False, "queue (C26, R72)"),
    ("queue.ledger.requiresDuplicateDetection", False, "queue (C26, R72)"),
    ("queue.quarantine.deadLetteringOnMessageExpiration", False, "queue (C26, R72)"),
    ("container.operations.defaultTtl", None, "ttl (D25, R40)"),
    ("container.orders.defaultTtl", 86400, "ttl (D25, R40)"),
    ("host.sessionIdleTimeout", "00:00:45", "lock (R66)"),
    ("queue.orders.lockDuration", "PT20S", "lock (R66)"),
]


@pytest.mark.parametrize(("key", "value", "rule"), SEEDED, ids=[f"{key}={value}" for key, value, _ in SEEDED])
@pytest.mark.parametrize("side", ["azure", "local"])
def test_a_violated_relation_is_found_with_both_places(
    parsed: Sources, side: str, key: str, value: object, rule: str
) -> None:
    changed = getattr(parsed, side).changed(key, value)

    found = [one for one in violated(parsed, **{side: changed}) if one.rule == rule]

    assert found
    assert all(finding.left and finding.right for finding in found)
    assert any(changed.fact(key).place in (finding.left, finding.right) for finding in found) or rule in (
        "lease",
        "retention (D23, R40)",
        "lock (R66)",
    )


AZURE_ONLY = [
    ("account.enableMultipleWriteLocations", True, "write region (D42)"),
    ("account.locations", [{}, {}], "write region (D42)"),
    ("account.consistencyPolicy", {"defaultConsistencyLevel": "Session"}, "consistency"),
    ("queue.orders.name", "orders", "generation (D52, R72)"),
    ("setting.LEDGER_QUEUE", "ledger-2", "generation (D52, R72)"),
    ("queue.orders.enablePartitioning", True, "partitioning"),
    ("namespace.premiumMessagingPartitions", 2, "partitioning"),
    ("queue.ledger.lockDuration", "", "no empty strings (R72)"),
    ("setting.ServiceBusConnection__fullyQualifiedNamespace", "sb://x.servicebus.windows.net/", "start (R69)"),
    ("setting.ServiceBusConnection__fullyQualifiedNamespace", "Endpoint=sb://x", "start (R69)"),
    ("setting.ServiceBusConnection__credential", "", "identity (R69)"),
    ("setting.AzureWebJobsStorage__clientId", "", "identity (R69)"),
    ("setting.CosmosConnection__accountEndpoint", "", "identity (R69)"),
    ("setting.PAYMENTS_UNKNOWN_OUTCOME", "maybe", "start (R69)"),
]


@pytest.mark.parametrize(("key", "value", "rule"), AZURE_ONLY, ids=[f"{key}={value}" for key, value, _ in AZURE_ONLY])
def test_a_fault_of_the_cloud_alone_is_found(parsed: Sources, key: str, value: object, rule: str) -> None:
    # An empty string in lockDuration can't be read as a duration either, which is said first.
    changed = parsed.azure.changed(key, value)
    findings = [*settings.generations(changed), *settings.one_write_region(changed)]
    if key.startswith("setting."):
        findings += app_settings.check(changed, parsed.local)

    assert rule in {finding.rule for finding in findings if not finding.holds}


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("FUNCTIONS_EXTENSION_VERSION", "setting (R73)"),
        ("WEBSITE_RUN_FROM_PACKAGE", "setting (R73)"),
        ("FUNCTIONS_WORKER_RUNTIME", "setting (R73)"),
        ("ServiceBusConnection", "identity (R69)"),
        ("AzureWebJobsStorage", "identity (R69)"),
        ("ORDERS_QUEU", "setting"),
    ],
)
def test_a_setting_too_many_is_found(parsed: Sources, name: str, rule: str) -> None:
    place = parsed.azure.fact("setting.LOG_KEYS")
    azure = Profile("Azure", {**parsed.azure.facts, f"setting.{name}": place})

    assert rule in {finding.rule for finding in app_settings.check(azure, parsed.local) if not finding.holds}


@pytest.mark.parametrize("side", ["azure", "local"])
def test_a_setting_too_few_is_found(parsed: Sources, side: str) -> None:
    profile: Profile = getattr(parsed, side)
    for key in [key for key in profile.facts if key.startswith("setting.") and key.isupper()]:
        without = Profile(profile.name, {name: fact for name, fact in profile.facts.items() if name != key})
        sides = {"azure": parsed.azure, "local": parsed.local, side: without}

        assert [one for one in app_settings.check(sides["azure"], sides["local"]) if not one.holds], key


@pytest.mark.parametrize(("value", "shown"), [(True, "True"), ({"a": 1}, "{'a': 1}"), (5, "5")])
def test_a_value_that_is_no_string_is_found(parsed: Sources, value: object, shown: str) -> None:  # R70
    local = parsed.local.changed("setting.REPLAY_MAX", value)

    found = [one for one in app_settings.strings_only(local) if not one.holds]

    assert [finding.rule for finding in found] == ["strings (R70)"]
    assert shown in found[0].says


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"is_async": False}, "coroutines (R66)"),
        ({"decorators": frozenset({"retry"})}, "retries (R60)"),
        ({"options": {"is_sessions_enabled": "False"}}, "trigger (D35)"),
        ({"options": {"cardinality": "func.Cardinality.MANY"}}, "trigger (D35)"),
        ({"options": {}}, "trigger (D35)"),
        ({"options": {"connection": "'ServiceBus'"}}, "trigger (R69)"),
        ({"options": {"queue_name": "'orders'"}}, "trigger (R69)"),
        ({"options": {"queue_name": "'%Queues__Orders%'"}}, "trigger (R69)"),
        ({"options": {"schedule": "'%SWEEP_CRON%'"}}, "trigger (R69)"),
    ],
)
def test_a_wrong_trigger_is_found(parsed: Sources, change: dict[str, object], rule: str) -> None:
    triggers = tuple(dataclasses.replace(trigger, **change) for trigger in parsed.triggers)

    assert rule in {one.rule for one in settings.of_triggers(triggers, parsed.azure) if not one.holds}


def test_a_difference_without_a_reason_is_found(parsed: Sources) -> None:  # D58
    local = parsed.local.changed("setting.REPLAY_MAX", "6")

    found = [one for one in violated(parsed, local=local) if one.rule == "parity (D58)"]

    assert [finding.says for finding in found] == ["setting.REPLAY_MAX: '5' and '6'"]
    assert found[0].left.startswith("infra/main.bicep:")
    assert found[0].right.startswith("local.settings.json:")


def test_an_index_that_differs_is_found(parsed: Sources) -> None:
    local = parsed.local.changed("container.orders.indexingPolicy", {"indexingMode": "consistent"})

    assert "parity (D58)" in {one.rule for one in violated(parsed, local=local)}


def test_a_missing_queue_is_found(parsed: Sources) -> None:
    facts = {key: fact for key, fact in parsed.local.facts.items() if not key.startswith("queue.ledger.")}

    assert not all(finding.holds for finding in parity.complete(Profile("local", facts)))


def test_the_report_gives_every_difference_a_reason(parsed: Sources) -> None:
    lines = parity.report(parsed.azure, parsed.local)

    assert not [line for line in lines if "NO REASON" in line]
    assert any(re.search(r"queue.orders.maxDeliveryCount +1000 +10 ", line) for line in lines)


def test_reasons_are_given_for_differences_only(parsed: Sources) -> None:
    differing = {parity._pattern(one.key) for one in parity.differences(parsed.azure, parsed.local)}

    assert not set(parity.REASONS) - differing


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("P14D", 1_209_600), ("PT1M", 60), ("1.00:00:00", 86_400), ("00:05:00", 300), ("P1DT2H", 93_600)],
)
def test_durations_are_read_as_the_services_read_them(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["24:00:00", "P", "five", "", "PT"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="days" if ":" in text else "not a duration"):
        seconds_of(text)


def run(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "checks", "--no-compiler", "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """The files that the checks read, to be changed."""
    for folder in ("infra", "shared"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "local").mkdir()
    for name in ("host.json", "local.settings.json", "function_app.py", "local/Config.json", "local/containers.json"):
        shutil.copy(root / name, tmp_path / name)
    return tmp_path


def test_the_command_prints_numbers_and_report_and_exits_with_0(root: Path) -> None:
    done = run(root)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "CLAIM_LEASE_SECONDS = 90" in done.stdout
    assert "What differs between Azure and local:" in done.stdout
    assert re.search(r"^\d+ relations, 0 violated$", done.stdout, re.MULTILINE)


def test_the_command_names_both_places_and_exits_with_1(copy: Path) -> None:
    file = copy / "infra" / "main.bicep"
    text = file.read_text(encoding="utf-8").replace("CLAIM_LEASE_SECONDS: '90'", "CLAIM_LEASE_SECONDS: '80'")
    file.write_text(text, encoding="utf-8")

    done = run(copy)

    assert done.returncode == 1
    assert re.search(r"between infra/main\.bicep:\d+ \(TRANSIENT_BUDGET_SECONDS\)", done.stdout)
    assert re.search(r"and infra/main\.bicep:\d+ \(CLAIM_LEASE_SECONDS\)", done.stdout)


def test_a_file_that_cannot_be_read_is_named_with_2(copy: Path) -> None:
    (copy / "host.json").write_text("{")

    done = run(copy)

    assert done.returncode == 2
    assert "host.json" in done.stderr


def test_a_missing_value_is_named(copy: Path) -> None:
    file = copy / "host.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    del document["extensions"]["serviceBus"]["prefetchCount"]
    file.write_text(json.dumps(document))

    with pytest.raises(FactError, match=r"host\.prefetchCount"):
        list(settings.of_profile(read(copy, use_compiler=False).azure))


def test_settings_are_the_same_in_code_bicep_local_file_and_contracts(root: Path, parsed: Sources) -> None:
    section = re.search(
        r"^## 11\..*?^## 12\.", (root / "docs/contracts.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert section is not None
    rows = [line.split("|")[1] for line in section.group().splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Za-z_]+)`", row)}
    connections = set(app_settings.CONNECTIONS)
    names = {
        profile.name: {
            key.removeprefix("setting.").partition("__")[0] for key in profile.facts if key.startswith("setting.")
        }
        for profile in (parsed.azure, parsed.local)
    }
    optional = {"PAYMENTS_URL", "PAYMENTS_SCOPE"}
    read_names = {name.partition("__")[0] for name in app_settings.read_by_the_app()}

    assert documented - app_settings.PLATFORM - app_settings.LOCAL_ONLY == read_names
    assert names["Azure"] | optional == documented - {"FUNCTIONS_WORKER_RUNTIME"}
    assert names["local"] | optional == documented - app_settings.PLATFORM
    assert connections <= documented


def test_every_rule_is_checked_on_both_sides(parsed: Sources) -> None:
    rules = Counter(finding.rule for finding in settings.check(parsed) if finding.profile != "both")

    assert len(rules) >= 15
    assert all(count > 0 for count in rules.values())
