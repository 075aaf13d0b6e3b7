"""The rules of queues, by a clock that the test turns."""

from __future__ import annotations

import tracemalloc
import uuid
from dataclasses import replace

import pytest

from local.broker import codec
from local.broker.machine import Broker, BrokerError, Delivery, Queue, QueueOptions, SessionLock
from local.broker.messages import ReceivedMessage, build_message
from local.broker.model import MessageReady, MessageState, SessionLost, SessionReady, Signal

NOW = 1_000_000.0


class Stand:
    """One queue, its dead-letter queue, a clock, and the signals that were given."""

    def __init__(self, **options: object) -> None:
        self.signals: list[Signal] = []
        defaults = QueueOptions("q", lock_seconds=60, max_delivery_count=3)
        self.broker = Broker([replace(defaults, **options)], listener=self.signals.append)  # type: ignore[arg-type]
        self.queue = self.broker.queue("q")
        self.dead = self.broker.queue("Q/$deadletterqueue")
        self.now = NOW

    def send(self, *messages: ReceivedMessage) -> list[int]:
        return self.queue.send(messages, self.now)

    def receive(self, lock: SessionLock | None = None) -> Delivery:
        queue = self.queue
        found = queue.receive(self.now) if lock is None else queue.receive_from_session(lock, self.now)
        assert found is not None
        return found

    def nothing_left(self, lock: SessionLock | None = None) -> bool:
        queue = self.queue
        return (queue.receive(self.now) if lock is None else queue.receive_from_session(lock, self.now)) is None

    def buried(self) -> list[tuple[object, object, object]]:
        """What the dead-letter queue holds: id, reason, description."""
        found = []
        while (delivery := self.dead.receive(self.now)) is not None:
            properties = delivery.message.application_properties
            texts = (properties.get("DeadLetterReason"), properties.get("DeadLetterErrorDescription"))
            found.append((delivery.message.message_id, *texts))
        return found


def message(message_id: str | None = None, session: str | None = None, **more: object) -> ReceivedMessage:
    return build_message(b"body", message_id=message_id, session_id=session, **more)  # type: ignore[arg-type]


def condition(error: pytest.ExceptionInfo[BrokerError]) -> str:
    return error.value.condition


def number(delivery: Delivery) -> int:
    return delivery.sequence_number


# ------------------------------------------------------------------------------------------------ order and settlement


def test_messages_come_in_sequence_order_and_an_abandoned_one_keeps_its_place() -> None:
    stand = Stand()
    assert stand.send(message("a"), message("b"), message("c")) == [1, 2, 3]
    first, second = stand.receive(), stand.receive()
    stand.queue.release(second.lock_token, NOW)
    stand.queue.abandon(first.lock_token, NOW)
    again = [stand.receive() for _ in range(3)]
    assert [(number(d), d.delivery_count) for d in again] == [(1, 1), (2, 0), (3, 0)]  # released: not counted
    assert len({d.lock_token for d in [first, second, *again]}) == 5  # each delivery has a token of its own
    assert stand.nothing_left()


def test_a_settled_delivery_cannot_be_settled_again() -> None:
    stand = Stand()
    stand.send(message("a"))
    delivery = stand.receive()
    stand.queue.complete(delivery.lock_token, NOW)
    queue = stand.queue
    for settle in (queue.complete, queue.abandon, queue.release, queue.defer, queue.renew):
        with pytest.raises(BrokerError) as error:
            settle(delivery.lock_token, NOW)
        assert condition(error) == "com.microsoft:message-lock-lost"


def test_at_the_maximum_delivery_count_a_message_is_dead_lettered_however_the_deliveries_failed() -> None:
    stand = Stand()
    stand.send(message("a"))
    stand.queue.abandon(stand.receive().lock_token, NOW)
    stand.receive()
    stand.now += 60  # the second delivery's lock runs out
    stand.queue.abandon(stand.receive().lock_token, stand.now)
    text = "Message could not be consumed after 3 delivery attempts."
    assert stand.buried() == [("a", "MaxDeliveryCountExceeded", text)]


def test_a_dead_lettered_message_keeps_what_it_was_and_gets_reason_description_and_properties() -> None:
    stand = Stand(requires_session=True)
    stand.send(message("skip", "s"), message("a", "s", application_properties={"k": 1, "DeadLetterReason": "old"}))
    lock = stand.queue.accept("s", "me", NOW)
    stand.receive(lock)
    token = stand.receive(lock).lock_token
    stand.queue.dead_letter(token, NOW, reason="new", description=None, lock=lock, properties={"extra": True})
    found = stand.dead.receive(NOW + 5)
    assert found is not None
    assert found.message.application_properties == {"k": 1, "DeadLetterReason": "new", "extra": True}  # R30: replaced
    assert (found.sequence_number, found.enqueue_sequence_number, found.enqueued_at) == (1, 2, NOW)
    assert (found.session_id, found.session_lock, found.message.body) == ("s", None, b"body")


def test_the_dead_letter_queue_has_no_maximum_no_expiry_no_further_dead_letter_queue_and_takes_no_sends() -> None:
    stand = Stand(default_ttl_seconds=10.0, dead_letter_on_expiration=True)
    stand.send(message("a"))
    stand.now += 10
    for _ in range(20):
        delivery = stand.dead.receive(stand.now)
        assert delivery is not None
        stand.dead.abandon(delivery.lock_token, stand.now)
        stand.now += 1000
    delivery = stand.dead.receive(stand.now)
    assert delivery is not None
    with pytest.raises(BrokerError, match="cannot be dead-lettered again"):
        stand.dead.dead_letter(delivery.lock_token, stand.now, reason=None, description=None)
    with pytest.raises(BrokerError, match="cannot be sent to the dead-letter queue"):
        stand.dead.send([message("b")], stand.now)


@pytest.mark.parametrize("texts", [("r" * 4097, None), (None, "d" * 4097)], ids=["reason", "description"])
def test_a_dead_letter_text_that_is_too_long_is_refused_and_the_message_stays_locked(  # R30
    texts: tuple[str | None, str | None],
) -> None:
    stand = Stand()
    stand.send(message("a"))
    token = stand.receive().lock_token
    with pytest.raises(BrokerError, match="4097 characters") as error:
        stand.queue.dead_letter(token, NOW, reason=texts[0], description=texts[1])
    assert condition(error) == "com.microsoft:argument-out-of-range"
    stand.queue.dead_letter(token, NOW, reason="r" * 4096, description="d" * 4096)


def test_properties_that_have_no_wire_form_are_refused_and_the_message_stays_locked() -> None:
    stand = Stand()
    stand.send(message("a"))
    token = stand.receive().lock_token
    with pytest.raises(BrokerError, match="object has no AMQP form"):
        stand.queue.abandon(token, NOW, properties={"k": object()})
    stand.queue.abandon(token, NOW, properties={"k": "v"})
    assert stand.receive().message.application_properties == {"k": "v"}


def test_a_deferred_message_is_found_by_its_number_only_and_stays_deferred_when_abandoned() -> None:
    stand = Stand()
    stand.send(message("a"), message("b"))
    stand.queue.defer(stand.receive().lock_token, NOW, properties={"why": "later"})
    assert number(stand.receive()) == 2
    with pytest.raises(BrokerError) as error:
        stand.queue.receive_deferred([1, 2], NOW)  # all or none: 2 is not deferred
    assert condition(error) == "com.microsoft:message-not-found"
    (found,) = stand.queue.receive_deferred([1, 1], NOW)
    assert (found.state, found.message.application_properties) == (MessageState.DEFERRED, {"why": "later"})
    with pytest.raises(BrokerError):
        stand.queue.receive_deferred([1], NOW)  # locked
    stand.queue.abandon(found.lock_token, NOW)
    (found,) = stand.queue.receive_deferred([1], NOW, delete=True)
    assert found.delivery_count == 1
    assert stand.queue.counts(NOW).deferred == 0


@pytest.mark.parametrize("lock_seconds", [5, 300])
def test_a_session_of_a_consumer_that_is_gone_waits_as_long_as_its_lock_lasts(lock_seconds: float) -> None:
    """C72 too long: nobody else gets the session before, so a long lock is a slow recovery."""
    stand = Stand(requires_session=True, lock_seconds=lock_seconds)
    stand.send(message("a", "s"))
    gone = stand.queue.accept("s", "gone", NOW)
    stand.receive(gone)
    assert stand.queue.accept_next("next", NOW + lock_seconds - 0.1) is None
    lock = stand.queue.accept_next("next", NOW + lock_seconds)
    assert lock is not None
    stand.now += lock_seconds
    assert stand.receive(lock).delivery_count == 1


def test_a_message_lock_can_be_renewed_until_it_runs_out() -> None:
    stand = Stand()
    stand.send(message("a"))
    token = stand.receive().lock_token
    assert stand.queue.renew(token, NOW + 59) == NOW + 119
    stand.queue.complete(token, NOW + 118.9)


# ------------------------------------------------------------------------------------------------------------ sessions


def test_next_session_is_the_one_that_waited_longest_and_a_served_one_goes_to_the_end() -> None:
    stand = Stand(requires_session=True)
    stand.send(message("1", "a"), message("2", "b"), message("3", "a"))
    order = []
    for _ in range(3):
        lock = stand.queue.accept_next("me", NOW)
        assert lock is not None
        order.append(lock.session_id)
        delivery = stand.receive(lock)
        stand.queue.complete(delivery.lock_token, NOW, lock=lock)
        stand.queue.release_session(lock, NOW)
    assert order == ["a", "b", "a"]
    assert stand.queue.accept_next("me", NOW) is None


def test_next_session_needs_an_active_message_but_a_name_does_not() -> None:
    stand = Stand(requires_session=True)
    stand.send(message("1", "s", scheduled_at=NOW + 100), message("2", "d"))
    lock = stand.queue.accept("d", "me", NOW)
    delivery = stand.receive(lock)
    stand.queue.defer(delivery.lock_token, NOW, lock=lock)
    stand.queue.release_session(lock, NOW)
    assert stand.queue.accept_next("me", NOW) is None
    assert stand.queue.accept("s", "me", NOW).session_id == "s"
    again = stand.queue.accept("d", "me", NOW)
    assert stand.nothing_left(again)
    assert [d.message.message_id for d in stand.queue.receive_deferred([2], NOW, lock=again)] == ["2"]


def test_a_session_has_one_holder_until_it_is_released_or_its_lock_runs_out() -> None:  # C58
    stand = Stand(requires_session=True)
    stand.send(message("1", "s"))
    lock = stand.queue.accept_next("me", NOW)
    assert lock is not None
    for at in (NOW, NOW + 59.999):
        with pytest.raises(BrokerError, match="'s' cannot be accepted") as error:
            stand.queue.accept("s", "you", at)
        assert condition(error) == "com.microsoft:session-cannot-be-locked"
        assert stand.queue.accept_next("you", at) is None
    other = stand.queue.accept("s", "you", NOW + 60)
    assert (lock.is_lost, other.is_lost) == (True, False)
    stand.queue.release_session(lock, NOW + 61)  # the late holder's good-bye frees nobody else's session
    with pytest.raises(BrokerError) as error:
        stand.queue.receive_from_session(lock, NOW + 61)
    assert condition(error) == "com.microsoft:session-lock-lost"
    assert stand.queue.renew_session(other, NOW + 100) == NOW + 160 == other.locked_until


@pytest.mark.parametrize(("expires", "count"), [(True, 1), (False, 0)], ids=["lock ran out", "closed"])
def test_what_a_session_holds_goes_back_in_order_and_counts_only_if_the_lock_ran_out(expires: bool, count: int) -> None:
    stand = Stand(requires_session=True)
    stand.send(*(message(f"{n}", "s") for n in range(4)))
    lock = stand.queue.accept("s", "me", NOW)
    held = [stand.receive(lock) for _ in range(2)]
    stand.now = NOW + 60 if expires else NOW
    if not expires:
        stand.queue.release_session(lock, NOW)
    again = stand.queue.accept("s", "you", stand.now)
    deliveries = [stand.receive(again) for _ in range(4)]
    assert [number(d) for d in deliveries] == [1, 2, 3, 4]
    assert [d.delivery_count for d in deliveries] == [count, count, 0, 0]  # R50
    for settle in (stand.queue.complete, stand.queue.abandon):
        with pytest.raises(BrokerError) as error:
            settle(held[0].lock_token, stand.now, lock=lock)
        assert condition(error) == "com.microsoft:session-lock-lost"


def test_a_holder_of_one_session_cannot_settle_the_message_of_another() -> None:
    stand = Stand(requires_session=True)
    stand.send(message("1", "a"), message("2", "b"))
    a, b = (stand.queue.accept(name, "me", NOW) for name in "ab")
    delivery = stand.receive(a)
    with pytest.raises(BrokerError) as error:
        stand.queue.complete(delivery.lock_token, NOW, lock=b)
    assert condition(error) == "com.microsoft:message-lock-lost"
    with pytest.raises(BrokerError) as error:
        stand.queue.complete(delivery.lock_token, NOW)
    assert condition(error) == "com.microsoft:session-lock-lost"
    stand.queue.complete(delivery.lock_token, NOW, lock=a)


def test_session_state_outlives_messages_and_locks_until_it_is_cleared() -> None:
    stand = Stand(requires_session=True, max_message_bytes=100)
    lock = stand.queue.accept("s", "me", NOW)
    assert stand.queue.session_state(lock, NOW) is None
    stand.queue.set_session_state(lock, b"", NOW)
    stand.queue.release_session(lock, NOW)
    assert stand.queue.session_ids(NOW) == ["s"]
    assert stand.queue.session_ids(NOW, state_set_after=NOW - 1) == ["s"]
    assert stand.queue.session_ids(NOW, state_set_after=NOW) == []
    lock = stand.queue.accept("s", "me", NOW)
    assert stand.queue.session_state(lock, NOW) == b""
    with pytest.raises(BrokerError, match="101 bytes"):
        stand.queue.set_session_state(lock, bytes(101), NOW)
    stand.queue.set_session_state(lock, None, NOW)
    stand.queue.release_session(lock, NOW)
    assert stand.queue.sessions(NOW) == []


def test_operators_see_each_session_with_its_holder_and_its_messages() -> None:  # C70
    stand = Stand(requires_session=True)
    stand.send(message("1", "a"), message("2", "a"), message("3", "b"))
    lock = stand.queue.accept("a", "me", NOW)
    stand.receive(lock)
    views = {view.session_id: view for view in stand.queue.sessions(NOW)}
    assert (views["a"].messages, views["a"].waiting, views["a"].locked_by) == (2, 1, "me")
    assert (views["b"].messages, views["b"].waiting, views["b"].locked_until) == (1, 1, None)
    assert stand.queue.session_ids(NOW) == ["a", "b"]


def test_receivers_are_signalled_where_they_wait() -> None:
    stand = Stand(requires_session=True)
    stand.send(message("1", "a"))
    lock = stand.queue.accept("a", "me", NOW)
    stand.send(message("2", "a"))
    stand.broker.advance(NOW + 60)
    assert stand.signals == [SessionReady("q"), MessageReady("q", lock), SessionReady("q"), SessionLost(lock)]
    plain = Stand()
    plain.send(message("1"))
    assert plain.signals == [MessageReady("q", None)]


def test_a_queue_with_sessions_and_one_without_refuse_each_others_receivers() -> None:  # R32, R33
    with pytest.raises(BrokerError, match="non-sessionful message receiver"):
        Stand(requires_session=True).queue.receive(NOW)
    for queue in (Stand().queue, Stand(requires_session=True).dead):
        for accept in (lambda q=queue: q.accept("s", "me", NOW), lambda q=queue: q.accept_next("me", NOW)):
            with pytest.raises(BrokerError, match="A sessionful message receiver cannot be created"):
                accept()


# -------------------------------------------------------------------------------------------- what may be sent (R32)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (message("1"), "amqp:not-allowed"),
        (message("i" * 129, "s"), "com.microsoft:argument-error"),
        (message("1", "s" * 129), "com.microsoft:argument-error"),
        (replace(message("1", "s"), partition_key="p"), "amqp:not-allowed"),
        (build_message(bytes(262_145), session_id="s"), "amqp:link:message-size-exceeded"),
    ],
    ids=["no session", "long id", "long session", "partition key", "too large"],
)
def test_a_message_that_breaks_a_rule_is_refused_and_the_whole_batch_with_it(
    wrong: ReceivedMessage, expected: str
) -> None:
    stand = Stand(requires_session=True)
    with pytest.raises(BrokerError) as error:
        stand.send(message("good", "s"), wrong)
    assert condition(error) == expected
    assert stand.queue.counts(NOW).active == 0
    stand.send(message("i" * 128, "s" * 128), replace(message("1", ""), partition_key=""))


def test_unknown_queues_are_refused_by_name_whatever_the_case() -> None:
    stand = Stand()
    assert stand.broker.queue("Q") is stand.queue
    with pytest.raises(BrokerError, match="'nowhere'") as error:
        stand.broker.queue("nowhere")
    assert condition(error) == "amqp:not-found"
    with pytest.raises(ValueError, match="two queues are named 'Q'"):
        Broker([QueueOptions("q"), QueueOptions("Q")])


def test_session_ids_are_exact_unless_the_queue_folds_their_case() -> None:
    exact = Stand(requires_session=True)
    exact.send(message("1", "A"), message("2", "a"))
    assert exact.queue.session_ids(NOW) == ["A", "a"]
    folding = Stand(requires_session=True, folds_session_case=True)
    folding.send(message("1", "AÄ"), message("2", "aÄ"))
    assert folding.queue.session_ids(NOW) == ["aÄ"]  # ASCII only
    delivery = folding.receive(folding.queue.accept("AÄ", "me", NOW))
    assert codec.decode_one(codec.raw_items(delivery.message.properties)[10]) == "aÄ"


# ---------------------------------------------------------------------------------- duplicates, scheduling, expiry


def test_duplicates_in_the_window_vanish_each_message_of_a_batch_and_scheduled_ones_too() -> None:
    stand = Stand(duplicate_detection=True, duplicate_window_seconds=20.0)
    stand.send(message("a"), message("a"), message("b"))
    stand.send(message("a", scheduled_at=NOW + 5), message("c", scheduled_at=NOW + 5))
    stand.send(message("c"))
    assert (stand.queue.counts(NOW).active, stand.queue.counts(NOW).scheduled) == (2, 1)
    stand.queue.complete(stand.receive().lock_token, NOW)
    stand.now = NOW + 19.9
    stand.send(message("a"))  # gone from the queue, still in the window
    assert stand.queue.counts(stand.now).active == 2
    stand.now = NOW + 20
    stand.send(message("a"))  # counted from the first one: a duplicate does not lengthen it
    assert stand.queue.counts(stand.now).active == 3


def test_ids_that_the_broker_made_up_and_empty_ones_are_nobodys_duplicates() -> None:  # R26
    stand = Stand(duplicate_detection=True)
    stand.send(message(), message(), message(""), message(""))
    ids = [stand.receive().message.message_id for _ in range(4)]
    assert ids[2:] == ["", ""]
    assert isinstance(ids[0], str)
    assert len({*ids[:2]}) == 2
    stand.send(message(ids[0]))
    assert not stand.nothing_left()


def test_a_refused_batch_leaves_no_trace_in_the_window() -> None:
    stand = Stand(duplicate_detection=True, requires_session=True)
    with pytest.raises(BrokerError):
        stand.send(message("a", "s"), message("b"))
    stand.send(message("a", "s"))
    assert stand.queue.counts(NOW).active == 1


def test_a_scheduled_message_becomes_active_when_due_under_a_new_number() -> None:
    stand = Stand()
    numbers = stand.send(message("late", scheduled_at=NOW + 10, ttl_seconds=5.0), message("now"))
    assert numbers == [1, 2]
    assert stand.broker.next_deadline() == NOW + 10
    stand.broker.advance(NOW + 12)
    stored = stand.queue.peek(1, 10, NOW + 12)
    assert [(s.message.message_id, s.sequence_number) for s in stored] == [("now", 2), ("late", 3)]
    assert (stored[1].enqueued_at, stored[1].expires_at) == (NOW + 10, NOW + 15)  # as if sent when due
    assert stand.send(message("past", scheduled_at=NOW - 1)) == [4]
    assert stand.queue.counts(NOW + 12).scheduled == 0


def test_scheduled_messages_can_be_cancelled_all_or_none() -> None:
    stand = Stand()
    numbers = stand.send(message("a", scheduled_at=NOW + 10), message("b", scheduled_at=NOW + 10), message("c"))
    with pytest.raises(BrokerError) as error:
        stand.queue.cancel_scheduled(numbers, NOW)
    assert condition(error) == "com.microsoft:message-not-found"
    stand.queue.cancel_scheduled(numbers[:2], NOW)
    assert stand.queue.counts(NOW).scheduled == 0
    assert stand.broker.next_deadline() is None


@pytest.mark.parametrize(("message_ttl", "queue_ttl", "lives"), [(5, None, 5), (None, 7, 7), (9, 7, 7), (5, 7, 5)])
def test_the_lesser_time_to_live_holds(message_ttl: float | None, queue_ttl: float | None, lives: float) -> None:
    stand = Stand(default_ttl_seconds=queue_ttl, dead_letter_on_expiration=True)
    stand.send(message("a", ttl_seconds=message_ttl))
    stand.now = NOW + lives - 0.001
    assert stand.queue.counts(stand.now).active == 1
    stand.now = NOW + lives
    assert stand.buried() == [("a", "TTLExpiredException", "The message expired and was dead lettered.")]


def test_without_dead_lettering_an_expired_message_is_dropped() -> None:
    stand = Stand()
    stand.send(message("a", ttl_seconds=5.0))
    stand.now = NOW + 5
    assert stand.nothing_left()
    assert stand.buried() == []


def test_a_locked_message_expires_when_it_comes_back_and_can_be_completed_before() -> None:
    stand = Stand(dead_letter_on_expiration=True)
    stand.send(message("a", ttl_seconds=5.0), message("b", ttl_seconds=5.0))
    a, b = stand.receive(), stand.receive()
    stand.now = NOW + 30
    stand.queue.complete(a.lock_token, stand.now)
    stand.queue.abandon(b.lock_token, stand.now)
    assert [found[:2] for found in stand.buried()] == [("b", "TTLExpiredException")]


def test_a_deferred_message_expires_when_somebody_asks_for_it() -> None:
    stand = Stand(dead_letter_on_expiration=True)
    stand.send(message("a", ttl_seconds=5.0))
    stand.queue.defer(stand.receive().lock_token, NOW)
    stand.now = NOW + 30
    assert stand.queue.counts(stand.now).deferred == 1
    with pytest.raises(BrokerError) as error:
        stand.queue.receive_deferred([1], stand.now)
    assert condition(error) == "com.microsoft:message-not-found"
    assert [found[:2] for found in stand.buried()] == [("a", "TTLExpiredException")]


def test_a_session_whose_only_message_expired_is_not_offered_as_next() -> None:
    stand = Stand(requires_session=True)
    stand.send(message("a", "s", ttl_seconds=5.0))
    assert stand.queue.accept_next("me", NOW + 5) is None
    assert stand.queue.sessions(NOW + 5) == []


# ------------------------------------------------------------------------------------------------------ looking, size


def test_peek_shows_every_state_in_order_from_a_number_and_changes_nothing() -> None:
    stand = Stand(requires_session=True)
    stand.send(*(message(f"{n}", "ab"[n % 2]) for n in range(6)), message("s", "a", scheduled_at=NOW + 9))
    lock = stand.queue.accept("a", "me", NOW)
    stand.queue.complete(stand.receive(lock).lock_token, NOW, lock=lock)
    stand.queue.defer(stand.receive(lock).lock_token, NOW, lock=lock)
    stand.receive(lock)
    before = stand.queue.counts(NOW)

    def peek(first: int, count: int, session_id: str | None = None) -> list[object]:
        return [stored.message.message_id for stored in stand.queue.peek(first, count, NOW, session_id=session_id)]

    assert peek(0, 100) == ["1", "2", "3", "4", "5", "s"]
    assert peek(4, 2) == ["3", "4"]
    assert peek(0, 100, "a") == ["2", "4", "s"]
    assert peek(8, 1) == []
    assert stand.queue.counts(NOW) == before


def test_delete_batch_takes_available_messages_up_to_a_number_and_a_time() -> None:
    stand = Stand()
    stand.send(message("locked"), message("a"), message("b"), message("c"))
    stand.receive()
    stand.now = NOW + 1
    stand.send(message("new"))
    assert stand.queue.delete_batch(2, NOW + 1, stand.now) == 2
    assert stand.queue.delete_batch(9, NOW + 1, stand.now) == 1
    assert [stored.message.message_id for stored in stand.queue.peek(0, 9, stand.now)] == ["locked", "new"]


def footprint(queue: Queue) -> int:
    """Entries in all that the queue and its broker keep."""
    kept = (queue._messages, queue._order, queue._locks, queue._sessions, queue._sessions.plain.available)
    return sum(map(len, kept)) + len(queue._deadlines._heap) + len(queue._window)


def test_messages_that_went_through_leave_nothing_behind() -> None:
    queue = Broker([QueueOptions("q", default_ttl_seconds=3600.0)]).queue("q")
    template = message("a")

    def pass_through(count: int) -> int:
        for _ in range(count):
            queue.send([template], NOW)
            delivery = queue.receive(NOW)
            assert delivery is not None
            queue.complete(delivery.lock_token, NOW)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        assert pass_through(10_000) - pass_through(500) < 50_000
    finally:
        tracemalloc.stop()
    assert footprint(queue) < 300


def test_messages_that_expire_unread_leave_nothing_behind() -> None:
    stand = Stand(requires_session=True)
    for step in range(2000):
        stand.now = NOW + step
        stand.send(message(None, f"{step % 7}", ttl_seconds=1.0))
    stand.broker.advance(stand.now + 10)
    assert footprint(stand.queue) < 300


def test_messages_that_expire_behind_one_that_stays_do_not_pile_up() -> None:
    stand = Stand(requires_session=True)
    stand.send(message("stays", "s"), *(message(f"{n}", "s", ttl_seconds=1.0) for n in range(500)))
    stand.now += 1
    assert stand.queue.counts(stand.now).active == 1
    assert len(stand.queue._sessions.named("s").available) <= 66
    lock = stand.queue.accept("s", "me", stand.now)
    assert stand.receive(lock).message.message_id == "stays"
    assert stand.nothing_left(lock)


def test_ids_that_left_the_window_are_forgotten_by_a_queue_that_fell_silent() -> None:
    stand = Stand(duplicate_detection=True, duplicate_window_seconds=20.0)
    for step in range(100):
        stand.now = NOW + step / 4
        stand.send(message(f"{step}"))
    assert len(stand.queue._window) == 80
    stand.broker.advance(NOW + 60)
    assert len(stand.queue._window) == 0
    assert stand.broker.next_deadline() is None


def test_ten_thousand_idle_sessions_cost_no_deadline_and_one_step_to_pick_from() -> None:
    stand = Stand(requires_session=True)
    template = message("x", "s")
    stand.send(*(replace(template, session_id=f"{n}") for n in range(10_000)))
    assert stand.broker.next_deadline() is None
    lock = stand.queue.accept_next("me", NOW)
    assert lock is not None
    assert lock.session_id == "0"
    assert len(stand.queue._deadlines) == 1


def test_lock_tokens_come_from_the_callers_source() -> None:
    tokens = iter([uuid.UUID(int=1), uuid.UUID(int=2)])
    broker = Broker([QueueOptions("q")], new_token=lambda: next(tokens))
    broker.queue("q").send([message("a")], NOW)
    delivery = broker.queue("q").receive(NOW)
    assert delivery is not None
    assert delivery.lock_token == uuid.UUID(int=1)
