"""What a delivery's end means for the broker: a pure table, and its execution."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from local.broker.model import BrokerError, Delivery
from local.broker.service import BrokerService
from local.host.events import Outcome


class Ending(Enum):
    """How an invocation ended in the worker."""

    SUCCEEDED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    WORKER_DIED = auto()


class Settlement(Enum):
    """What the broker is told."""

    COMPLETE = auto()
    ABANDON = auto()
    LEAVE = auto()


_OUTCOMES: Final = {
    Ending.FAILED: Outcome.ABANDONED,
    Ending.TIMED_OUT: Outcome.TIMED_OUT,
    Ending.WORKER_DIED: Outcome.WORKER_DIED,
}


def decide(ending: Ending, *, auto_complete: bool) -> tuple[Settlement, Outcome]:
    """Success completes, if the host is to complete; everything else abandons, always."""
    if ending is not Ending.SUCCEEDED:
        return Settlement.ABANDON, _OUTCOMES[ending]
    if auto_complete:
        return Settlement.COMPLETE, Outcome.COMPLETED
    return Settlement.LEAVE, Outcome.UNSETTLED


def settle(service: BrokerService, delivery: Delivery, ending: Ending, *, auto_complete: bool) -> Outcome:
    """Tell the broker; a lock that is gone by now is an outcome, since the message comes again by itself."""
    settlement, outcome = decide(ending, auto_complete=auto_complete)
    try:
        if settlement is Settlement.COMPLETE:
            service.complete(delivery)
        elif settlement is Settlement.ABANDON:
            service.abandon(delivery)
    except BrokerError:
        return Outcome.LOCK_LOST
    return outcome
