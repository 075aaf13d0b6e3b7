"""The inequalities that must hold between settings, queues, host and code, for Azure and locally.

Each check is a pure function of profiles (docs/contracts.md, sections 7, 11 and 12). A number that is too small loses
messages, dedup records or order without any error at run time, so a deployment must not get that far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from checks.code import Trigger
from checks.facts import CONTAINERS, ROLES, WORKING_ROLES, Profile
from checks.sources import Sources

POISON_MARGIN: Final = 4
"""Three noted attempts, and one that a lost note may cost."""
SHUTDOWN_SECONDS: Final = 30
SWEEP_MARGIN_SECONDS: Final = 60
DAY: Final = 86_400
LAST_REQUESTS: Final = 2
"""One request may run when the budget ends, and the one that writes the answer follows."""
_SETTING: Final = re.compile(r"'%([A-Z]+(?:_[A-Z]+)*)%'")


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked relation: what it says with its numbers, and the places of both sides."""

    profile: str
    rule: str
    says: str
    holds: bool
    left: str
    right: str

    def __str__(self) -> str:
        text = f"{'ok  ' if self.holds else 'FAIL'} {self.profile:<5} {self.rule}: {self.says}"
        return text if self.holds else f"{text}\n       between {self.left}\n           and {self.right}"


def check(sources: Sources) -> list[Finding]:
    """All findings, those that hold too."""
    found = [finding for profile in (sources.azure, sources.local) for finding in of_profile(profile)]
    found += one_write_region(sources.azure)
    found += generations(sources.azure)
    found += of_triggers(sources.triggers, sources.azure)
    return found


def of_profile(profile: Profile) -> Iterator[Finding]:
    """What must hold in Azure and locally alike."""
    for rule in _RULES:
        yield from rule(profile)


def _at_most(profile: Profile, rule: str, small: tuple[str, int, str], large: tuple[str, int, str]) -> Finding:
    return Finding(
        profile.name, rule, f"{small[0]} = {small[1]} <= {large[0]} = {large[1]}", small[1] <= large[1],
        small[2], large[2],
    )  # fmt: skip


def _setting(profile: Profile, name: str) -> tuple[int, str]:
    key = f"setting.{name}"
    return profile.number(key), profile.fact(key).place


def poison_before_dead_letter(profile: Profile) -> Iterator[Finding]:
    """The app parks poison itself; the broker's count must not come first."""
    after, place = _setting(profile, "POISON_AFTER_DELIVERIES")
    for role in WORKING_ROLES:
        key = f"queue.{role}.maxDeliveryCount"
        yield _at_most(
            profile, "poison",
            (f"POISON_AFTER_DELIVERIES {after} + {POISON_MARGIN}", after + POISON_MARGIN, place),
            (f"maxDeliveryCount of {role}", profile.number(key), profile.fact(key).place),
        )  # fmt: skip


def attempt_within_timeout(profile: Profile) -> Iterator[Finding]:
    """An attempt that uses up its budget still ends before the host cuts it off."""
    budget, place = _setting(profile, "TRANSIENT_BUDGET_SECONDS")
    request = profile.number("code.REQUEST_SECONDS")
    timeout = profile.seconds("host.functionTimeout")
    yield _at_most(
        profile, "attempt",
        (
            f"TRANSIENT_BUDGET_SECONDS {budget} + {LAST_REQUESTS} x {request} + {SHUTDOWN_SECONDS}",
            budget + LAST_REQUESTS * request + SHUTDOWN_SECONDS,
            place,
        ),
        ("functionTimeout", timeout, profile.fact("host.functionTimeout").place),
    )  # fmt: skip


def lock_outlives_function(profile: Profile) -> Iterator[Finding]:
    """The host renews a session's lock for as long as a function may run (D33)."""
    yield _at_most(
        profile, "lock renewal (D33)",
        ("functionTimeout", profile.seconds("host.functionTimeout"), profile.fact("host.functionTimeout").place),
        (
            "maxAutoLockRenewalDuration",
            profile.seconds("host.maxAutoLockRenewalDuration"),
            profile.fact("host.maxAutoLockRenewalDuration").place,
        ),
    )  # fmt: skip


def lease_outlives_attempt(profile: Profile) -> Iterator[Finding]:
    """Nobody takes a claim over while its attempt may still call out."""
    lease, lease_place = _setting(profile, "CLAIM_LEASE_SECONDS")
    budget, budget_place = _setting(profile, "TRANSIENT_BUDGET_SECONDS")
    payments, _ = _setting(profile, "PAYMENTS_TIMEOUT_SECONDS")
    request = profile.number("code.REQUEST_SECONDS")
    yield _at_most(
        profile, "lease",
        (
            f"TRANSIENT_BUDGET_SECONDS {budget} + PAYMENTS_TIMEOUT_SECONDS {payments} + {LAST_REQUESTS} x {request}",
            budget + payments + LAST_REQUESTS * request,
            budget_place,
        ),
        ("CLAIM_LEASE_SECONDS", lease, lease_place),
    )  # fmt: skip


def sweep_within_timeout(profile: Profile) -> Iterator[Finding]:
    """A sweep's last record still ends before the host cuts it off."""
    longest = profile.number("code.LONGEST_RUN_SECONDS")
    yield _at_most(
        profile, "sweep",
        (
            f"longest run {longest} + {SWEEP_MARGIN_SECONDS}",
            longest + SWEEP_MARGIN_SECONDS,
            profile.fact("code.LONGEST_RUN_SECONDS").place,
        ),
        ("functionTimeout", profile.seconds("host.functionTimeout"), profile.fact("host.functionTimeout").place),
    )  # fmt: skip


def grace_outlives_budget(profile: Profile) -> Iterator[Finding]:
    """The sweep leaves alone what a handler is still at."""
    grace, grace_place = _setting(profile, "SWEEP_GRACE_SECONDS")
    budget, budget_place = _setting(profile, "TRANSIENT_BUDGET_SECONDS")
    yield _at_most(
        profile, "grace",
        (f"TRANSIENT_BUDGET_SECONDS {budget} + 1", budget + 1, budget_place),
        ("SWEEP_GRACE_SECONDS", grace, grace_place),
    )  # fmt: skip


def held_fit_into_a_batch(profile: Profile) -> Iterator[Finding]:
    """A release writes all held entries of a stream in one transactional batch."""
    held, place = _setting(profile, "HELD_MAX_PER_STREAM")
    largest = profile.fact("code.LARGEST_HELD")
    yield _at_most(
        profile, "held", ("HELD_MAX_PER_STREAM", held, place),
        ("places in a batch", profile.number("code.LARGEST_HELD"), largest.place),
    )  # fmt: skip


def record_outlives_replay(profile: Profile) -> Iterator[Finding]:
    """A record is there as long as a copy of its message can still arrive (D23, R40)."""
    ttl, ttl_place = _setting(profile, "RECORD_TTL_SECONDS")
    horizon, _ = _setting(profile, "REPLAY_HORIZON_SECONDS")
    timeout = profile.seconds("host.functionTimeout")
    for role in WORKING_ROLES:
        live = profile.seconds(f"queue.{role}.defaultMessageTimeToLive")
        deliveries = profile.number(f"queue.{role}.maxDeliveryCount")
        yield _at_most(
            profile, "retention (D23, R40)",
            (
                f"defaultMessageTimeToLive of {role} {live} + REPLAY_HORIZON_SECONDS {horizon}"
                f" + maxDeliveryCount {deliveries} x functionTimeout {timeout}",
                live + horizon + deliveries * timeout,
                profile.fact(f"queue.{role}.defaultMessageTimeToLive").place,
            ),
            (f"RECORD_TTL_SECONDS {ttl} - {DAY}", ttl - DAY, ttl_place),
        )  # fmt: skip


def parked_can_be_replayed(profile: Profile) -> Iterator[Finding]:
    """Whatever still lies in the quarantine may still be replayed (D23)."""
    horizon, place = _setting(profile, "REPLAY_HORIZON_SECONDS")
    key = "queue.quarantine.defaultMessageTimeToLive"
    yield _at_most(
        profile, "quarantine (D23)",
        ("defaultMessageTimeToLive of quarantine", profile.seconds(key), profile.fact(key).place),
        ("REPLAY_HORIZON_SECONDS", horizon, place),
    )  # fmt: skip


def _is(profile: Profile, rule: str, key: str, wanted: object, because: str) -> Finding:
    fact = profile.fact(key)
    # 1 == True in Python; a number in place of a boolean is a fault all the same.
    holds = fact.value == wanted and isinstance(fact.value, bool) == isinstance(wanted, bool)
    return Finding(profile.name, rule, f"{key} is {fact.value!r}, must be {wanted!r}", holds, fact.place, because)


def one_message_at_a_time(profile: Profile) -> Iterator[Finding]:
    """Order inside a session (D35, R54), and no retry beside the app's own (R60)."""
    yield _is(profile, "prefetch (D35, R54)", "host.prefetchCount", 0, "docs/contracts.md section 12")
    yield _is(profile, "calls (D35)", "host.maxConcurrentCallsPerSession", 1, "docs/contracts.md section 12")
    yield _is(profile, "settlement", "host.autoCompleteMessages", True, "docs/contracts.md section 12")
    yield _is(profile, "retries (R60)", "host.retry", None, "docs/contracts.md section 12")


def host_is_the_one_that_was_tested(profile: Profile) -> Iterator[Finding]:
    """The bindings' generation, and telemetry by OpenTelemetry alone: Application Insights' own would sample (R68)."""
    place = "docs/contracts.md section 12"
    bundle = {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"}
    yield _is(profile, "host", "host.version", "2.0", place)
    yield _is(profile, "host", "host.extensionBundle", bundle, place)
    yield _is(profile, "host", "host.telemetryMode", "OpenTelemetry", place)
    yield _is(profile, "host", "host.applicationInsights", None, place)


def queues_order_and_dedup(profile: Profile) -> Iterator[Finding]:
    """Create-only properties are stated, never left to a default (C26, D52, R72)."""
    for role in ROLES:
        for key in ("requiresSession", "requiresDuplicateDetection", "deadLetteringOnMessageExpiration"):
            yield _is(profile, "queue (C26, R72)", f"queue.{role}.{key}", True, "docs/contracts.md section 12")


def documents_can_expire(profile: Profile) -> Iterator[Finding]:
    """Without defaultTtl on the container a document's own ttl does nothing (D25, R40)."""
    for container in CONTAINERS:
        yield _is(
            profile, "ttl (D25, R40)", f"container.{container}.defaultTtl", -1, "docs/contracts.md section 7"
        )  # fmt: skip


def lock_outlives_a_slow_renewal(profile: Profile) -> Iterator[Finding]:
    """A worker whose event loop stands still for a request or two keeps its sessions (R66)."""
    request = profile.number("code.REQUEST_SECONDS")
    idle = profile.seconds("host.sessionIdleTimeout")
    for role in WORKING_ROLES:
        key = f"queue.{role}.lockDuration"
        yield _at_most(
            profile, "lock (R66)",
            (
                f"sessionIdleTimeout {idle} + {LAST_REQUESTS} x {request}",
                idle + LAST_REQUESTS * request,
                profile.fact("host.sessionIdleTimeout").place,
            ),
            (f"lockDuration of {role}", profile.seconds(key), profile.fact(key).place),
        )  # fmt: skip


_RULES: Final[Sequence[Callable[[Profile], Iterator[Finding]]]] = (
    poison_before_dead_letter,
    attempt_within_timeout,
    lock_outlives_function,
    lease_outlives_attempt,
    sweep_within_timeout,
    grace_outlives_budget,
    held_fit_into_a_batch,
    record_outlives_replay,
    parked_can_be_replayed,
    one_message_at_a_time,
    host_is_the_one_that_was_tested,
    queues_order_and_dedup,
    documents_can_expire,
    lock_outlives_a_slow_renewal,
)


def one_write_region(azure: Profile) -> Iterator[Finding]:
    """Two write regions would let two regions accept one id (D42); a verdict rests on a read that isn't stale."""
    yield _is(azure, "write region (D42)", "account.enableMultipleWriteLocations", False, "docs/contracts.md section 7")
    locations = azure.fact("account.locations")
    count = len(locations.value) if isinstance(locations.value, list) else 0
    yield Finding(
        "Azure", "write region (D42)", f"{count} location, must be 1", count == 1, locations.place,
        "docs/contracts.md section 7",
    )  # fmt: skip
    yield _is(
        azure, "consistency", "account.consistencyPolicy", {"defaultConsistencyLevel": "Strong"},
        "docs/contracts.md section 7",
    )  # fmt: skip


def generations(azure: Profile) -> Iterator[Finding]:
    """A queue whose fixed properties change gets a new name (D52, R72); one partition for batches of many sessions."""
    names = {
        "orders": "ORDERS_QUEUE",
        "ledger": "LEDGER_QUEUE",
        "ledger-entries": "LEDGER_ENTRIES_QUEUE",
        "quarantine": "QUARANTINE_QUEUE",
    }
    for role, setting in names.items():
        queue, setting_fact = azure.fact(f"queue.{role}.name"), azure.fact(f"setting.{setting}")
        name = str(queue.value)
        suffix = name.removeprefix(f"{role}-")
        holds = suffix.isdigit() and suffix != name and setting_fact.value == name
        yield Finding(
            "Azure", "generation (D52, R72)", f"{setting} = {setting_fact.value!r}, queue {name!r}", holds,
            queue.place, setting_fact.place,
        )  # fmt: skip
        yield _is(
            azure, "partitioning", f"queue.{role}.enablePartitioning", False, "docs/contracts.md section 12"
        )  # fmt: skip
        empty = [key for key, fact in azure.facts.items() if key.startswith(f"queue.{role}.") and fact.value == ""]
        yield Finding(
            "Azure", "no empty strings (R72)", f"{role}: {empty or 'none'}", not empty, queue.place,
            "a second deployment with an empty string fails",
        )  # fmt: skip
    partitions = azure.fact("namespace.premiumMessagingPartitions")
    yield Finding(
        "Azure", "partitioning", f"premiumMessagingPartitions = {partitions.value!r}, must be 1 (Standard: null)",
        partitions.value in (None, 1), partitions.place, "docs/contracts.md section 12",
    )  # fmt: skip


def of_triggers(triggers: Sequence[Trigger], azure: Profile) -> Iterator[Finding]:
    """Options that stand in the code: sessions, one message a call, bytes, no retry decorator, coroutines only."""
    host = azure.fact("host.maxConcurrentSessions").place
    wanted = {"is_sessions_enabled": "True", "cardinality": "func.Cardinality.ONE", "data_type": "func.DataType.BINARY"}
    for trigger in triggers:
        yield Finding(
            "both", "coroutines (R66)", f"{trigger.function} is {'async' if trigger.is_async else 'not async'}",
            trigger.is_async, trigger.place, host,
        )  # fmt: skip
        retries = sorted(name for name in trigger.decorators if "retry" in name)
        yield Finding(
            "both", "retries (R60)", f"{trigger.function}: {', '.join(retries) or 'no retry decorator'}", not retries,
            trigger.place, "docs/contracts.md section 12",
        )  # fmt: skip
        yield from _of_settings(trigger, azure)
        if trigger.kind != "service_bus_queue_trigger":
            continue
        connection = trigger.options.get("connection")
        yield Finding(
            "both", "trigger (R69)", f"{trigger.function}: connection = {connection}, must be 'ServiceBusConnection'",
            connection == "'ServiceBusConnection'", trigger.place, "docs/contracts.md section 11",
        )  # fmt: skip
        for option, value in wanted.items():
            found = trigger.options.get(option)
            yield Finding(
                "both", "trigger (D35)", f"{trigger.function}: {option} = {found}, must be {value}", found == value,
                trigger.place, host,
            )  # fmt: skip


def _of_settings(trigger: Trigger, azure: Profile) -> Iterator[Finding]:
    """Queue and schedule are settings with a flat name: the scale controller resolves them too, and reads no other."""
    for option in ("queue_name", "schedule"):
        if option not in trigger.options:
            continue
        match = _SETTING.fullmatch(trigger.options[option])
        fact = azure.facts.get(f"setting.{match[1]}") if match else None
        yield Finding(
            "both", "trigger (R69)", f"{trigger.function}: {option} = {trigger.options[option]} is a setting",
            fact is not None, trigger.place, fact.place if fact else "Azure: no such setting, or not flat",
        )  # fmt: skip
