"""Random use of a queue, held against a plain model: nothing lost, nothing twice, order kept, counts right."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from local.broker.machine import Broker, BrokerError, Delivery, QueueOptions, SessionLock
from local.broker.messages import build_message
from local.broker.model import MessageState

SESSIONS = ("a", "b", "c")
MAX_DELIVERIES = 4
LOCK = 10.0
TEMPLATE = build_message(b"x", message_id="t", session_id="s")


@dataclasses.dataclass
class Fate:
    """What the model knows of one message."""

    session: str
    number: int
    failures: int = 0
    place: str = "active"  # active, locked, deferred, gone, dead


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        options = QueueOptions("q", requires_session=True, lock_seconds=LOCK, max_delivery_count=MAX_DELIVERIES)
        self.broker = Broker([options])
        self.queue = self.broker.queue("q")
        self.now = 1000.0
        self.fates: dict[str, Fate] = {}
        self.locks: dict[str, SessionLock] = {}
        self.held: list[Delivery] = []

    def fate(self, delivery: Delivery) -> Fate:
        return self.fates[str(delivery.message.message_id)]

    def fail(self, fate: Fate) -> None:
        fate.failures += 1
        fate.place = "dead" if fate.failures >= MAX_DELIVERIES else "active"

    def drop_held(self, session: str, *, counted: bool) -> None:
        for delivery in [d for d in self.held if d.session_id == session]:
            self.held.remove(delivery)
            if counted:
                self.fail(self.fate(delivery))
            else:
                self.fate(delivery).place = "active"

    @rule(session=st.sampled_from(SESSIONS), count=st.integers(1, 3))
    def send(self, session: str, count: int) -> None:
        ids = [f"{len(self.fates) + n}" for n in range(count)]
        messages = [dataclasses.replace(TEMPLATE, message_id=i, session_id=session) for i in ids]
        for message_id, number in zip(ids, self.queue.send(messages, self.now), strict=True):
            self.fates[message_id] = Fate(session, number)

    @rule()
    def accept_next(self) -> None:
        free = {f.session for f in self.fates.values() if f.place == "active"} - self.locks.keys()
        lock = self.queue.accept_next("me", self.now)
        assert (lock is None) == (not free)
        if lock is not None:
            assert lock.session_id in free
            self.locks[lock.session_id] = lock

    @rule(session=st.sampled_from(SESSIONS))
    def accept_named(self, session: str) -> None:
        try:
            self.locks[session] = self.queue.accept(session, "me", self.now)
        except BrokerError:
            assert session in self.locks

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        lock = self.locks[data.draw(st.sampled_from(sorted(self.locks)))]
        waiting = [f for f in self.fates.values() if f.session == lock.session_id and f.place == "active"]
        delivery = self.queue.receive_from_session(lock, self.now)
        if delivery is None:
            assert not waiting
            return
        assert self.fate(delivery) is min(waiting, key=lambda f: f.number)
        assert delivery.delivery_count == self.fate(delivery).failures
        self.fate(delivery).place = "locked"
        self.held.append(delivery)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["complete", "abandon", "release", "defer", "dead_letter"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        delivery = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        texts = {"reason": "r", "description": "d"} if how == "dead_letter" else {}
        getattr(self.queue, how)(delivery.lock_token, self.now, lock=self.locks[delivery.session_id or ""], **texts)
        fate = self.fate(delivery)
        if how == "abandon":
            self.fail(fate)
        else:
            fate.place = {"complete": "gone", "release": "active", "defer": "deferred", "dead_letter": "dead"}[how]

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), renew=st.booleans())
    def end_or_renew(self, data: st.DataObject, renew: bool) -> None:
        session = data.draw(st.sampled_from(sorted(self.locks)))
        if renew:
            assert self.queue.renew_session(self.locks[session], self.now) == self.now + LOCK
        else:
            self.queue.release_session(self.locks.pop(session), self.now)
            self.drop_held(session, counted=False)

    @rule(seconds=st.sampled_from([0.0, 3.0, 7.0, 11.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for session in [s for s, lock in self.locks.items() if lock.locked_until <= self.now]:
            del self.locks[session]
            self.drop_held(session, counted=True)
        self.broker.advance(self.now)

    @invariant()
    def everything_is_where_the_model_has_it(self) -> None:
        stored = {str(s.message.message_id): s for s in self.queue.peek(0, 10**6, self.now)}
        places = {}
        for message_id, message in stored.items():
            is_deferred = message.state is MessageState.DEFERRED
            places[message_id] = "deferred" if is_deferred else "locked" if message.lock_token else "active"
        assert places == {i: f.place for i, f in self.fates.items() if f.place not in ("gone", "dead")}
        dead = {str(s.message.message_id) for s in self.broker.queue("q/$DeadLetterQueue").peek(0, 10**6, self.now)}
        assert dead == {i for i, f in self.fates.items() if f.place == "dead"}
        numbers = [s.sequence_number for s in stored.values()]
        assert numbers == sorted(numbers)

    @invariant()
    def counts_agree(self) -> None:
        places = [f.place for f in self.fates.values()]
        counts = self.queue.counts(self.now)
        assert counts.active == places.count("active") + places.count("locked")
        assert (counts.deferred, counts.locked) == (places.count("deferred"), places.count("locked"))
        assert counts.dead_letter == places.count("dead")
        assert {lock.session_id for lock in self.locks.values()} == {
            view.session_id for view in self.queue.sessions(self.now) if view.locked_by
        }


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
