"""Each guard of the protocol is taken out, and the simulation has to notice (docs/guarantees.md lists the guards)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from shared.contracts.documents import LedgerState
from shared.domain import ledger, streams, verdicts
from shared.domain.verdicts import Outcome, Verdict
from shared.envelope import Role
from shared.handlers import claim, process_order, relay
from shared.handlers.claim import Claims, Settled
from shared.handlers.relay import Relay
from shared.ports import Committed, Replace
from tests.simulation.engine import ROUGH
from tests.simulation.run import run_seed
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
    """What is left to send is forgotten with the attempt."""
    real = relay.messages_of
    patch.setattr(process_order, "messages_of", lambda record: real(record)[:1])


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
    )
}


@pytest.mark.parametrize("guard", GUARDS)
def test_the_simulation_notices_a_missing_guard(guard: str, monkeypatch: Patch) -> None:
    GUARDS[guard](monkeypatch)
    reports = (run_seed(seed, ROUGH) for seed in range(SEEDS))
    assert any(report.violations for report in reports), f"{SEEDS} seeds without {guard} show nothing"
