"""Faults on demand for the embedded stack: rules, their engine, and what they do to broker and Cosmos DB."""

from local.faults.actions import (
    Answer,
    Cut,
    Delay,
    DeliverTwice,
    ExpireLock,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Stage,
    StaleRead,
    Stall,
    Starts,
    Throttle,
)
from local.faults.engine import Armed, Entry, Faults
from local.faults.rules import FaultError, Rule, Service

__all__ = [
    "Answer",
    "Armed",
    "Cut",
    "Delay",
    "DeliverTwice",
    "Entry",
    "ExpireLock",
    "FaultError",
    "Faults",
    "LoseReply",
    "LoseRequest",
    "LoseSettlement",
    "Loss",
    "Outage",
    "Refuse",
    "Rule",
    "Service",
    "Stage",
    "StaleRead",
    "Stall",
    "Starts",
    "Throttle",
]
