"""Skips of all three kinds, refused entries, and what `gaps list` shows."""

from __future__ import annotations

import asyncio

import pytest

from tests.ops.operators import BECAUSE, Bench
from tests.scenarios.messages import amended, batch, entry, fresh, message_id_of, placed, transaction

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_skip_in_a_stream_releases_what_waits(bench: Bench) -> None:
    """D47 R22: 2 never comes; 3 and 4 are applied by the skip, in one batch; 2 is refused if it comes after all."""
    order, stream = fresh(), "ledger.L-1"
    entries = {n: entry(order, f"T-{n}", stream, sequence=n) for n in (1, 2, 3, 4)}
    await bench.app.send_all([entries[1], entries[3], entries[4]])
    await bench.app.outcomes(message_id_of(entries[4]))

    listed = await bench.ops("gaps", "list")
    gap = next(each for each in listed.json["gaps"] if each["owner"] == order)
    assert listed.code == 1
    assert (gap["stream"], gap["expected"], gap["waiting"], gap["lowest"]) == (stream, 2, 2, 3)

    skip = ("gaps", "skip", "entries", order, "--stream", stream)
    wrong, beyond, plan = await asyncio.gather(
        bench.ops(*skip, "--from", "1", *BECAUSE),
        bench.ops(*skip, "--from", "2", "--to", "3", *BECAUSE),
        bench.ops(*skip, "--from", "2"),
    )
    assert (wrong.code, beyond.code) == (2, 2)
    assert (plan.code, plan.json["released"]) == (0, 2)
    assert await bench.operations(order) == []

    done = await bench.ops(*skip, "--from", "2", *BECAUSE)
    assert (done.code, done.json["released"]) == (0, 2)
    applied = [(each["sequence"], each["position"]) for each in await bench.app.entries(order)]
    assert applied == [(1, 1), (3, 2), (4, 3)]
    marker = await bench.app.document("ledger-entries", order, f"~skip.{stream}.2")
    assert marker is not None
    assert (marker["what"], marker["from"], marker["to"]) == (stream, 2, 2)
    assert marker["reason"] == "the cause is repaired"
    assert "ledgerId" not in marker

    # As a crash between the batch and the audit's end leaves it: repeating finds the skip.
    (operation,) = await bench.app.documents("operations", order)
    await bench.app.container("operations").upsert_item({**operation, "status": "planned"})
    again = await bench.ops(*skip, "--from", "2", *BECAUSE)
    assert (again.code, again.json["released"]) == (0, 0)
    assert await bench.operations(order) == [("skip", "completed")]

    await bench.app.send(entries[2])
    assert (await bench.app.only_parked(order)).reason == "SequenceConflict"
    shown = (await bench.ops("gaps", "show", order)).json
    assert shown["numbers"][0]["expected"] == 5
    assert [(each["what"], each["from"]) for each in shown["skips"]] == [(stream, 2)]
    await bench.ops("parked", "discard", "--session", order, *BECAUSE)


async def test_skip_of_a_command_lets_its_successors_be_replayed(bench: Bench) -> None:
    """D47: 2 will never come; 3 was parked behind it."""
    order = fresh()
    await bench.app.outcome(placed(order, sequence=1))
    await bench.app.send(amended(order, "op-3", sequence=3))
    await bench.app.only_parked(order)
    gap = next(each for each in (await bench.ops("gaps", "list")).json["gaps"] if each["owner"] == order)
    assert (gap["kind"], gap["expected"], gap["lowest"], gap["predecessor"]) == ("commands", 2, 3, "not here")
    done = await bench.ops("gaps", "skip", "commands", order, "--from", "2", *BECAUSE)
    assert done.code == 0
    (replayed,) = await bench.replay_each(order)
    assert [result for _, result in replayed.results] == ["verified"]
    document = await bench.app.order(order)
    assert document is not None
    assert document["nextCommand"] == 4


async def test_skip_of_batches_lets_a_ledger_begin_in_the_middle(bench: Bench) -> None:
    """Contracts 6: a ledger that starts with number 41."""
    ledger, order = fresh("L"), fresh()
    await bench.app.send(batch(ledger, "B-41", transaction(1, order), batchSequence=41))
    assert (await bench.app.only_parked(ledger)).reason == "SequenceGap"
    done = await bench.ops("gaps", "skip", "batches", ledger, "--from", "1", "--to", "40", *BECAUSE)
    assert done.code == 0, done.err
    marker = await bench.app.document("ledgers", ledger, "~skip.batch.1")
    assert marker is not None
    assert (marker["from"], marker["to"], marker["ledgerId"]) == (1, 40, ledger)
    (replayed,) = await bench.replay_each(ledger)
    assert [result for _, result in replayed.results] == ["verified"]


async def test_entries_refused_behind_a_close_are_listed_and_discarded(bench: Bench) -> None:
    """Contracts 6: the only thing to do with them is to give them up."""
    order, stream = fresh(), "ledger.L-2"
    late = entry(order, "T-3", stream, sequence=3)
    close = entry(order, "T-2", stream, sequence=2, kind="close", entryCount=1)
    await bench.app.send_all([late, close])
    await bench.app.outcome(entry(order, "T-1", stream, sequence=1))
    refused = (await bench.ops("gaps", "list")).json["refused"]
    assert [each["id"] for each in refused if each["orderId"] == order] == [message_id_of(late)]

    applied = await bench.ops("gaps", "discard", order, message_id_of(close), *BECAUSE)
    assert applied.code == 2
    done = await bench.ops("gaps", "discard", order, message_id_of(late), *BECAUSE)
    assert done.code == 0
    stored = await bench.app.document("ledger-entries", order, message_id_of(late))
    assert stored is not None
    assert stored["status"] == "discarded"
    assert await bench.operations(order) == [("discard", "completed")]
