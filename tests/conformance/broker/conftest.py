"""The fixture that starts brokers for the clients' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from running_broker import RunningBroker

from local.broker.service import QueueOptions


@pytest.fixture
def start_broker() -> Iterator[Callable[..., RunningBroker]]:
    """Start brokers for one test; each must stop without leaving a task."""
    running: list[RunningBroker] = []

    def start(*queues: QueueOptions, idle_seconds: float = 240.0) -> RunningBroker:
        running.append(RunningBroker(list(queues), idle_seconds))
        return running[-1]

    yield start
    left = [broker.stop() for broker in running]
    assert not any(left)
