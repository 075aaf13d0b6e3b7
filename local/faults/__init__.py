"""Faults on demand for the embedded stack: rules, their engine, and what they do to broker and Cosmos DB."""

from local.faults.actions import (
    Answer,
    Cut,
    Delay,
    DeliverTwice,
    ExpireLock,
    FaultError,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Service,
    Stage,
    StaleRead,
    Stall,
    Starts,
    Throttle,
)
from local.faults.engine import Armed, Entry, Faults
from local.faults.rules import Rule

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
