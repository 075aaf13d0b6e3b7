"""Each guard of the protocol is taken out, and somebody has to notice (docs/guarantees.md lists the guards).

That is the simulation, by its schedules of workers, of payments or of an outage. What no schedule shows, because it is
about a moment or about who is told, the test of that rule has to show.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from shared.contracts.documents import AttemptNote, LedgerState, Order
from shared.domain import failures, ledger, streams, verdicts
from shared.domain.verdicts import Outcome, Policy, Verdict
from shared.envelope import Role
from shared.errors import TransientError
from shared.handlers import claim, effect, process_order, relay
from shared.handlers.attempt import Attempt
from shared.handlers.claim import Claims, Seen, Settled
from shared.handlers.effect import PaymentEffect
from shared.handlers.intake import Intake
from shared.handlers.notes import Notes
from shared.handlers.quarantine import Quarantine
from shared.handlers.relay import Relay
from shared.ports import Committed, Container, Replace, Written
from tests.simulation import test_effects, test_outage
from tests.simulation.engine import ROUGH
from tests.simulation.run import run_seed
from tests.unit.handlers import test_effect, test_guard, test_notes, test_sweep
from tests.unit.handlers.handler_bench import bury, status
from tests.unit.handlers.ports_in_memory import Store

SEEDS = 150

Patch = pytest.MonkeyPatch


def claim_token(patch: Patch) -> None:
    """One's own lost answer looks like another attempt's record."""
    real = Claims._known

    def foreign(self: Claims, *arguments: Any) -> verdicts.Known:
        return dataclasses.replace(real(self, *arguments), mine=True)

    patch.setattr(Claims, "_known", foreign)


def hash_comparison(patch: Patch) -> None:
    """Every conflict is a duplicate."""
    real = Claims._known

    def equal(self: Claims, *arguments: Any) -> verdicts.Known:
        return dataclasses.replace(real(self, *arguments), same_hash=True)

    patch.setattr(Claims, "_known", equal)


def resume(patch: Patch) -> None:
    """A known record is a duplicate, finished or not; and the sweep is too late for the proof."""
    real = claim.decide

    def duplicate(known: verdicts.Known) -> Verdict:
        verdict = real(known)
        return Verdict.DUPLICATE if verdict is Verdict.RESUME else verdict

    patch.setattr(claim, "decide", duplicate)
    patch.setattr(Claims, "adopt", _never_adopt)


async def _never_adopt(*_: object, **__: object) -> Settled:
    return Settled(Outcome.DUPLICATE)


def sweep(patch: Patch) -> None:
    """Nobody takes over what has no message any more."""
    patch.setattr(Claims, "adopt", _never_adopt)


def unfinished_batch_first(patch: Patch) -> None:
    """A batch is accepted whatever its predecessor is up to."""
    real = ledger.decide_batch

    def accept(state: Any, batch: Any, document_id: str) -> Any:
        if state is not None and state.unfinished not in (None, document_id):
            state = state.model_copy(update={"unfinished": None})
        return real(state, batch, document_id)

    patch.setattr(ledger, "decide_batch", accept)


def if_match(patch: Patch) -> None:
    """Replaces are unconditional."""
    real = Store._apply

    def unconditional(self: Store, container: Any, partition: str, operation: Any) -> Any:
        if isinstance(operation, Replace):
            row = self.find(container, partition, str(operation.document["id"]))
            if row is not None:
                operation = Replace(operation.document, row.etag)
        return real(self, container, partition, operation)

    patch.setattr(Store, "_apply", unconditional)


def watermark_behind_send(patch: Patch) -> None:
    """Messages are counted as sent before they are."""

    async def finish(self: Relay, attempt: Any, claimed: Any, access: Any, messages: Any) -> Any:
        settled = await self._complete(attempt, claimed, access, messages)
        outgoing = [relay._outgoing(claimed.record, message) for message in messages]
        while settled is None and outgoing:
            sent = await attempt.io(lambda: self._sender.send(Role.LEDGER_ENTRIES, outgoing))
            del outgoing[:sent]
        return settled

    patch.setattr(Relay, "finish", finish)


def sequence_check(patch: Patch) -> None:
    """Entries are applied as they come."""
    real = streams.decide_entry

    def any_order(state: LedgerState | None, entry: Any, document_id: str, held_max: int) -> Any:
        if entry.sequence is not None:
            entry = entry.model_copy(update={"sequence": None})
        return real(state, entry, document_id, held_max)

    patch.setattr(streams, "decide_entry", any_order)


def state_in_the_entrys_batch(patch: Patch) -> None:
    """The ledger's state is written behind the entry, not with it."""
    real = Store.batch

    def apart(self: Store, container: Any, partition: str, operations: Any) -> Any:
        if str(container) == "ledger-entries" and len(operations) > 1:
            first = real(self, container, partition, operations[:1])
            if isinstance(first, Committed):
                real(self, container, partition, operations[1:])
            return first
        return real(self, container, partition, operations)

    patch.setattr(Store, "batch", apart)


def stored_outbox(patch: Patch) -> None:
    """What is left to send is forgotten with the attempt (D08)."""
    real = relay.messages_of
    patch.setattr(process_order, "messages_of", lambda record: real(record)[:1])


def business_data_without_ttl(patch: Patch) -> None:
    """Orders expire like the records of commands do."""
    real = claim.finished

    def expiring(document: Any, record_ttl_seconds: int, **members: object) -> Any:
        done = real(document, record_ttl_seconds, **members)
        return _Expiring(done, record_ttl_seconds) if isinstance(done, Order) else done

    real_dump = claim.dump

    def dump(document: Any) -> dict[str, Any]:
        if isinstance(document, _Expiring):
            return {**real_dump(document.order), "ttl": document.ttl}
        return real_dump(document)

    for module in (relay, effect):
        patch.setattr(module, "finished", expiring)
    patch.setattr(relay, "dump", dump)


@dataclasses.dataclass(frozen=True)
class _Expiring:
    """An order that the models have no member for."""

    order: Order
    ttl: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.order, name)


def copy_before_completion(patch: Patch) -> None:
    """A message is completed although its copy could not be sent."""
    real = Quarantine.park

    async def park(self: Quarantine, *arguments: Any) -> None:
        with contextlib.suppress(TransientError):
            await real(self, *arguments)

    patch.setattr(Quarantine, "park", park)


def replay_count(patch: Patch) -> None:
    """Any delivery calls a parked effect again."""
    real = Claims._known

    def newer(self: Claims, *arguments: Any) -> verdicts.Known:
        known = real(self, *arguments)
        return dataclasses.replace(known, replay_count=known.stored_replay_count + 1)

    patch.setattr(Claims, "_known", newer)


def park_on_take_over(patch: Patch) -> None:
    """Whoever finds a caller dead calls again, whatever the policy is."""
    real = claim.decide

    def take_over(known: verdicts.Known) -> Verdict:
        verdict = real(known)
        return Verdict.TAKE_OVER if verdict is Verdict.PARK_EFFECT else verdict

    patch.setattr(claim, "decide", take_over)


def park_in_the_sweep(patch: Patch) -> None:
    """The sweep calls again, whatever the policy is."""
    real = Claims.adopt

    async def adopt(self: Claims, *arguments: Any, **options: Any) -> Any:
        daring = copy.copy(self)
        daring._policy = Policy.RETRY
        return await real(daring, *arguments, **options)

    patch.setattr(Claims, "adopt", adopt)


def park_on_no_answer(patch: Patch) -> None:
    """A call without an answer is made again, whatever the policy is."""
    real = PaymentEffect._call

    async def call(self: PaymentEffect, *arguments: Any) -> Any:
        daring = copy.copy(self)
        daring._policy = Policy.RETRY
        return await real(daring, *arguments)

    patch.setattr(PaymentEffect, "_call", call)


def one_key(patch: Patch) -> None:
    """Each call has a key of its own."""
    numbers = itertools.count()
    patch.setattr(effect, "idempotency_key_of", lambda order: f"{order.record.key}-{next(numbers)}")


def answer_in_memory(patch: Patch) -> None:
    """An answer whose write fails is forgotten, and asked for again."""
    real = PaymentEffect.run

    async def run(self: PaymentEffect, attempt: Attempt, *arguments: Any) -> Any:
        once = copy.copy(attempt)
        once._budget_seconds = 0
        while True:
            try:
                return await real(self, once, *arguments)
            except TransientError as error:
                await attempt.pace().wait_or_raise(error)

    patch.setattr(PaymentEffect, "run", run)


def live_claim(patch: Patch) -> None:
    """A claim never holds anybody off."""
    patch.setattr(claim, "_is_alive", lambda _: False)


def expired_lease(patch: Patch) -> None:
    """A lease of no length reads as one that was not set."""
    real = claim.claim_alive

    def alive(*, written_at: int, read_at: int, lease_seconds: int) -> bool:
        return lease_seconds <= 0 or real(written_at=written_at, read_at=read_at, lease_seconds=lease_seconds)

    patch.setattr(claim, "claim_alive", alive)


def stop_on_a_lost_claim(patch: Patch) -> None:
    """A write that was refused is made again on whatever is there, also under another's token."""
    real = Claims.update

    async def update(
        self: Claims, attempt: Any, claimed: Any, change: Any, holds: Any, read: Any, write: Any
    ) -> Any:
        async def read_as_mine() -> Any:
            seen = await read()
            if seen is None:
                return None
            token = seen.document.record.claim.model_copy(update={"token": attempt.token})
            return dataclasses.replace(seen, document=claim.with_record(seen.document, claim=token))

        return await real(self, attempt, claimed, change, holds, read_as_mine, write)

    patch.setattr(Claims, "update", update)


def claim_in_the_sweep(patch: Patch) -> None:
    """The sweep works on records without taking them over."""
    real = Claims.adopt

    async def adopt(self: Claims, attempt: Any, read: Any, _write: Any, **options: Any) -> Any:
        async def leave(_document: Any, etag: str) -> Written:
            return Written(etag)

        return await real(self, attempt, read, leave, **options)

    patch.setattr(Claims, "adopt", adopt)


def sweeps_are_counted(patch: Patch) -> None:
    """A record that kills its worker is taken over by every sweep."""
    patch.setattr(claim, "SWEEPS_BEFORE_STUCK", 10**9)


def back_off(patch: Patch) -> None:
    """What fails is raised at once."""

    async def wait(_self: Attempt, _step: int) -> bool:
        return False

    patch.setattr(Attempt, "wait", wait)


def deliveries_are_no_poison(patch: Patch) -> None:
    """Whoever was delivered often is poison."""

    async def start(_self: Notes, _attempt: Any, note: str, session: str) -> Any:
        found = AttemptNote(id=note, session_id=session, worker=None)
        return Seen(found, "", 0, 0), failures.Poison("delivered too often", found)

    patch.setattr(Notes, "start", start)


def note_of_attempts(patch: Patch) -> None:
    """Nobody writes down who is at a message."""

    def started(_note: Any, *, note_id: str, session_id: str, worker: str) -> AttemptNote:
        return AttemptNote(id=note_id, session_id=session_id, worker=worker)

    patch.setattr(failures, "started", started)


def attempts_of_a_claim(patch: Patch) -> None:
    """Deaths that the broker does not count are counted nowhere."""
    patch.setattr(claim, "is_poison_claim", lambda _attempts, _deliveries: False)


def age_check(patch: Patch) -> None:
    """A message may be older than the record that would recognise it."""
    patch.setattr(Intake, "_check_age", lambda _self, _envelope: None)


def document_version(patch: Patch) -> None:
    """What a newer release wrote is read, and overwritten, as if this one had written it."""
    real = claim.parse

    def parse(model: Any, found: Any) -> Any:
        return real(model, dataclasses.replace(found, document={**found.document, "v": 1}))

    patch.setattr(claim, "parse", parse)


Finder = Callable[[pytest.LogCaptureFixture], bool]


def by_schedules(_: pytest.LogCaptureFixture) -> bool:
    """Workers, crashes, lost answers, lost locks."""
    return any(run_seed(seed, ROUGH).violations for seed in range(SEEDS))


def by_payments(_: pytest.LogCaptureFixture) -> bool:
    """A fickle provider, replays, cancellations."""
    return any(test_effects.violations_of(seed, policy)[0] for seed in range(SEEDS) for policy in Policy)


def by_an_outage(_: pytest.LogCaptureFixture) -> bool:
    """An hour without the database."""
    run = test_outage.outage_of("database", 0)
    try:
        test_outage.check(run.run())  # type: ignore[arg-type]
    except AssertionError:
        return True
    return run.most_deliveries > 75


def by(test: Callable[..., None], *arguments: Any, logs: bool = False) -> Finder:
    """The test of a rule."""

    def finder(caplog: pytest.LogCaptureFixture) -> bool:
        try:
            test(*((caplog,) if logs else ()), *arguments)
        except AssertionError:
            return True
        finally:
            bury()
        return False

    return finder


GUARDS: dict[str, Callable[[Patch], None]] = {
    guard.__name__: guard
    for guard in (
        claim_token,
        hash_comparison,
        resume,
        sweep,
        unfinished_batch_first,
        if_match,
        watermark_behind_send,
        sequence_check,
        state_in_the_entrys_batch,
        stored_outbox,
        business_data_without_ttl,
        copy_before_completion,
        replay_count,
        park_on_take_over,
        park_in_the_sweep,
        park_on_no_answer,
        one_key,
        answer_in_memory,
        live_claim,
        expired_lease,
        stop_on_a_lost_claim,
        claim_in_the_sweep,
        sweeps_are_counted,
        back_off,
        deliveries_are_no_poison,
        note_of_attempts,
        attempts_of_a_claim,
        age_check,
        document_version,
    )
}

FINDERS: dict[str, Finder] = {
    "copy_before_completion": by(test_guard.test_a_copy_that_cannot_be_sent_leaves_the_message, logs=True),
    "replay_count": by_payments,
    "park_on_take_over": by_payments,
    "park_in_the_sweep": by_payments,
    "park_on_no_answer": by_payments,
    "one_key": by_payments,
    "answer_in_memory": by(test_effect.test_an_answer_stays_in_memory_while_its_write_fails, "retry"),
    "live_claim": by(test_effect.test_a_live_claim_is_waited_for_within_the_budget, logs=True),
    "expired_lease": by(test_effect.test_a_lease_of_no_length_never_held, 0),
    "stop_on_a_lost_claim": by(test_effect.test_a_zombie_that_hears_its_answer_late_stops, logs=True),
    "claim_in_the_sweep": by(test_sweep.test_two_sweeps_at_once_do_no_harm, logs=True),
    "sweeps_are_counted": by(
        test_sweep.test_take_overs_that_die_are_counted_and_reported_and_then_tried_once_an_hour, logs=True
    ),
    "back_off": by_an_outage,
    "deliveries_are_no_poison": by_an_outage,
    "note_of_attempts": by(test_notes.test_the_third_death_in_a_row_parks_the_message_without_another_try),
    "attempts_of_a_claim": by(test_notes.test_a_claim_finds_a_killer_where_the_broker_does_not_count),
    "age_check": by(test_guard.test_a_copy_that_outlived_its_record_brings_no_old_content_back),
    "document_version": by(
        test_guard.test_a_document_of_a_newer_release_is_left_alone, Container.ORDERS, "O", status("confirmed", 1),
        {"v": 2}, logs=True,
    ),
}
"""Who notices, where it isn't `by_schedules`."""


@pytest.mark.parametrize("guard", GUARDS)
def test_the_simulation_notices_a_missing_guard(
    guard: str, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    GUARDS[guard](monkeypatch)
    finder = FINDERS.get(guard, by_schedules)
    with caplog.at_level(logging.INFO, logger="convoy"):
        assert finder(caplog), f"nobody notices that {guard} is missing"
