"""Write docs/decisions.md: `python docs/render_tables.py`.

The tables are the data that the code decides with, or its answers to the inputs shown, so docs and code can't differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from shared.contracts.documents import AttemptNote  # noqa: E402 - found by the line above when run as a script
from shared.domain import failures, orders, streams, verdicts  # noqa: E402

FILE = ROOT / "docs" / "decisions.md"

HEAD = """\
# What the code decides

Made by `python docs/render_tables.py` from the code's own data; a test compares. Names are those of
[contracts.md](contracts.md); each decision is a pure function in `shared/domain/`.
"""


def render() -> str:
    """The whole page."""
    sections = (HEAD, _records(), _states(), _streams(), _outcomes(), _notes(), _backoff())
    return "\n".join(sections)


def _records() -> str:
    rows = [(_found(row), f"`{row.outcome}`", row.reaction) for row in verdicts.TABLE]
    return _section(
        "A record that is there already",
        "The create of a record met a document with its id (409), and that document was read. The first row that "
        "matches decides (`shared/domain/verdicts.py`). A create that succeeds needs no table, and one whose document "
        "is gone again on the read is made again. A claim is alive until the server's clock has passed its last write "
        f"by `leaseSeconds` + {verdicts.LEASE_MARGIN_SECONDS} s.",
        ("found", "outcome", "what happens"),
        rows,
    )


def _found(row: verdicts.Row) -> str:
    if row.same_key is False:
        return "an order placed under another `record.key`"
    if row.same_hash is False:
        return "other hash"
    parts = ["equal hash"]
    if row.mine:
        parts.append("my token")
    if row.status is not None:
        parts.append(f"`{row.status}`")
    if row.effect is not None:
        parts.append(f"effect `{row.effect}`")
    if row.is_newer_replay is not None:
        parts.append(f"`replay-count` {'>' if row.is_newer_replay else '≤'} `replayCount`, any token")
    if row.claim_alive is not None:
        parts.append(f"claim {'alive' if row.claim_alive else 'over'}")
    if row.policy is not None:
        parts.append(f"policy `{row.policy}`")
    return ", ".join(parts)


def _states() -> str:
    rows = [
        (f"`{message}`", *(rulings[situation].value for situation in orders.Situation))
        for message, rulings in orders.TABLE.items()
    ]
    return _section(
        "A message for an order",
        "A command's number is checked first (`shared/domain/orders.py`): the expected one is handled, a higher one is "
        "parked as `SequenceGap`, a lower one without a record as `SequenceConflict`. *Shipped* is a fulfilment of "
        "`shipped`, `delivered` or `returned`. *The record's table* is the one above; an order that was placed under "
        "another dedup key is its first row. *Version rule*: a higher version replaces the fulfilment; the stored one "
        "is a duplicate, or a conflict if its status differs; a lower one is stale.",
        ("message", *(situation.value for situation in orders.Situation)),
        rows,
    )


def _streams() -> str:
    known = [
        (f"there, {found}", "any", f"`{streams.decide_known(same_hash=same_hash, mine=mine)}`")
        for found, same_hash, mine in (
            ("hash equal, my token", True, True),
            ("hash equal", True, False),
            ("hash differs", False, False),
        )
    ]
    unknown = [("not there", row.when, _entry_verdict(row)) for row in streams.TABLE]
    return _section(
        "An entry for a stream",
        "The first row that matches decides (`shared/domain/streams.py`). `next` is 1 for a stream not seen yet.",
        ("document with the entry's id", "stream", "verdict"),
        known + unknown,
    )


def _entry_verdict(row: streams.Row) -> str:
    return row.says if row.reason is None else f"quarantine `{row.reason}`: {row.says}"


def _outcomes() -> str:
    rows = [(f"`{outcome}`", settlement.value) for outcome, settlement in failures.SETTLEMENTS.items()]
    return _section(
        "An outcome and the message's settlement",
        "Exactly one outcome for each delivery (`shared/domain/failures.py`).",
        ("outcome", "settlement"),
        rows,
    )


def _notes() -> str:
    free, own, other = (AttemptNote(id="q~", session_id="s", worker=worker) for worker in (None, "W", "V"))
    starts = [
        ("no note", None),
        ("free", free),
        ("names W itself", own),
        ("names V", other),
        ("names V, and two deaths before", other.model_copy(update={"crashes": failures.POISON_CRASHES - 1})),
    ]
    last = own.model_copy(update={"exceptions": failures.POISON_EXCEPTIONS - 1})
    ends = [
        ("message completed or parked", own, failures.Ending.SETTLED),
        ("abandoned in order", own, failures.Ending.ABANDONED),
        ("unexpected exception", own, failures.Ending.EXCEPTION),
        ("unexpected exception, and two before", last, failures.Ending.EXCEPTION),
    ]
    rows = [
        (f"start on worker W; {what}", _note(failures.started(note, note_id="q~", session_id="s", worker="W")))
        for what, note in starts
    ]
    rows += [(f"end on worker W; {what}", _note(failures.ended(note, ending))) for what, note, ending in ends]
    return _section(
        "The note of an attempt",
        "Kept from a delivery count above `POISON_AFTER_DELIVERIES` on (`shared/domain/failures.py`). Where the broker "
        "does not count deliveries, a claim whose attempts are more than "
        f"{failures.POISON_ATTEMPTS_AHEAD} above the delivery count is poison too.",
        ("event", "note behind it"),
        rows,
    )


def _note(after: AttemptNote | failures.Poison | None) -> str:
    if after is None:
        return "deleted"
    if isinstance(after, failures.Poison):
        return f"quarantine `PoisonMessage`: {after.description}"
    worker = "null" if after.worker is None else after.worker
    return f"worker {worker}, crashes {after.crashes}, exceptions {after.exceptions}"


def _backoff() -> str:
    steps = range(8)
    rows = [
        (str(step + 1), f"{failures.backoff_seconds(step, 0):.2f}", f"{failures.backoff_seconds(step, 1):.2f}")
        for step in steps
    ]
    return _section(
        "The waits of the back-off",
        "Drawn between the two; later waits are as long as the last one.",
        ("wait", "shortest, s", "longest, s"),
        rows,
    )


def _section(title: str, text: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    table = [head, ["---"] * len(head), *rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return f"## {title}\n\n{text}\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8", newline="\n")
