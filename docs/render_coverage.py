"""Write docs/coverage.md: `python docs/render_coverage.py`. Which requirement is named by which test, page or template.

Nothing is listed by hand but the requirements themselves. A test names a number in its name, its docstring, a comment
or a case of a table; a page and a template name it in their text. `C74-C78` names all five.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "coverage.md"
MOST_SHOWN: Final = 6

# Kind: T a test has to name it, I a test, a check or a template, D any page or test.
REQUIREMENTS: Final = """
C01 T a message that is sent again after a lost answer has one effect
C02 T a redelivery after a crash, an expired lock or a lost settlement has one effect
C03 T a crash between commit and settlement repeats no write
C04 D at least once and idempotent gives effectively once; external effects are not the broker's
C05 T key, claim, work and record together, settlement last
C06 T a duplicate is settled and skipped, and its recorded result is known
C07 T the key is the same on each redelivery
C08 T the key is the producer's MessageId, or the business key of one operation
C09 T CorrelationId is never the key
C10 T the key of a CloudEvent is source and id
C11 T nothing of the transport and nothing that changes is in the key
C12 T consumers do not suppress each other
C13 D both places of the marker, with what each costs
C14 T marker and effect are both there or neither
C15 T the consumer's inbox is paired with an outbox
C16 T of any number of copies at once exactly one wins, decided by the database
C17 T a claim is one insert, never a check and then a write
C18 T in_progress is stored before the external call, the result behind it
C19 T a completed effect is not called again
C20 T an effect in progress is a case of its own
C21 D natural idempotency first; decided per handler
C22 T records live longer than any redelivery
C23 T a late redelivery finds its record; a record deleted early would let it in
C24 T records outlive a replay by an operator
C25 D when a framework is the better choice
C26 I duplicate detection of the broker is on and bounded, and is the first line only
C27 T duplicates outside the broker's window are caught
C28 T order rests on numbers and versions, not on deduplication
C29 T each outcome is logged with dedup key and correlation id
C30 T duplicates are counted, and a rising rate alerts
C31 T one trace follows a message through all queues
C32 T the idempotency key is passed on
C33 D when to use the pattern, when not, and where else it fits
C34 T MessageId is the order id; peek-lock; completed on success only
C35 I documents of an order share one logical partition
C36 T created, then completed
C37 T a 409 is read and compared
C38 T 409 and an equal hash is a duplicate
C39 T 409 and another hash is parked, never dropped
C40 T a legitimate change of the data is no reuse of the id
C41 T a transient failure gives the message back
C42 T several documents are one transactional batch
C43 D at least, at most and exactly once: what they are, and which holds where
C44 T a write without an answer is unknown, not failed
C45 T an unknown outcome is an error type of its own and never repeated blindly
C46 T repeating after an unknown commit runs no business logic twice
C47 T a completing write asserts that one record changed
C48 T that assertion failing is permanent for the attempt
C49 T it leaves no other write behind
C50 T no external call inside a transaction
C51 T short work is acknowledged after success only
C52 T long work renews its lease
C53 T effects across systems go by outbox and idempotency key
C54 T nothing rests on the client's recovery of connections
C55 T nothing is lost and nothing doubled under injected failures
C56 T a group is handled strictly one after the other
C57 T groups run in parallel, and more consumers add throughput
C58 T a session has one consumer at a time
C59 D producers know no consumer; consumers are replaceable
C60 D how coarse a session key should be
C61 T throughput of one group is measured
C62 D what to do for very high volume
C63 I the tier supports sessions, and its price is stated
C64 T new keys need no change of topology or code
C65 T arrival out of order is found by numbers
C66 T a sequence has an end that can be known
C67 T a poison message is counted, parked, and its session goes on
C68 I zones and a second region are parameters with their price
C69 T a wrong session key is found by producer and consumer
C70 T operators see sessions and what waits in each
C71 T operators repair parked messages and feed them back into their session
C72 T lock duration and renewal fit the work; too short and too long are shown
C73 I limits of scale and concurrency are explicit, with their price
C74 T ledgers are handled in the order received, transaction by transaction
C75 T each transaction's session is its order
C76 T each transaction goes to the second queue
C77 T a transaction never spans orders
C78 T entries of an order are handled in order, in peek-lock
C79 D the ledger queue is the serial part, named and measured
C80 D when not to use sessions, Well-Architected, related patterns, Logic Apps
D01 T a crash before the fan-out is resumed, not taken for a duplicate
D02 T a crash within the fan-out is resumed at the watermark
D03 T a batch whose answer was lost is sent again under the same ids
D04 T one batch in flight for a session
D05 T batches are packed by size; one item too large is found before the first send
D06 T mixed sessions in one AMQP batch
D07 T a ledger of any size fits its documents
D08 T the plan is stored, never computed again
D09 T one canonical form of a body
D10 T the hash is the request's, not that of the stored state
D11 T members that may differ between retries have a place of their own
D12 T volatile fields are not hashed
D13 T hashes are compared under one version
D14 T a mismatch is parked, never completed silently
D15 T a mismatch costs one delivery
D16 T ids are compared exactly
D17 T any MessageId is a safe document id
D18 T a session whose case the broker changed is the same order
D19 T one key, one partition
D20 T two consumers never share a record
D21 T one id for two operations is found
D22 T no MessageId, no processing
D23 T records outlive message TTL and dead-letter stay
D24 T unfinished records never expire
D25 I the containers' TTL is switched on
D26 T a replay is not swallowed by duplicate detection
D27 T a replay keeps session, properties and correlation
D28 T a replay goes in the original order, session by session
D29 T a dead-letter queue is read without sessions
D30 T the rest of a session behind a parked message is safe
D31 T an outage burns no deliveries
D32 T a zombie's write is refused
D33 I lock renewal outlasts the function
D34 I the idle time-out does not end work
D35 I no prefetch and one call per session
D36 T one message an invocation
D37 T one owner of settlement
D38 T one's own lost answer is recognised
D39 T the SDK's own repeats do no harm
D40 T each status has one reaction
D41 T a record that is gone again is created again, within bounds
D42 I one write region
D43 T a dead worker blocks nobody, a live one is not overtaken
D44 T nobody deletes another's record
D45 T an external call's unknown outcome has a policy
D46 T no back-off by sending again
D47 T a gap is bounded and reported; an old number is compared
D48 T number and effect advance together
D49 T several ledgers for one order do not mix
D50 T a wrong session is refused before any write
D51 T complete means flag, count and no gap
D52 I properties that can't be changed are in a queue's generation
D53 T shutdown between batch and watermark loses nothing
D54 T no blocking call in the worker's loop
D55 T outcomes are counted apart
D56 T keys can be kept out of logs
D57 D a hot partition is a matter of the key
D58 T local and cloud settings are compared
D59 T leases go by the server's clock
D60 T each record says which rules decided it
R11 T crash between document and ledger messages
R17 T equal numbers, another spelling
R18 T single messages, so bytes stay as sent
R19 T two relays at once
R20 T a duplicate while the first attempt is at work
R21 T a message parked in the middle of a session
R22 T a gap that never closes
R23 T a database outage of seconds
R24 T no delayed copies in a session
R25 T the SDK refuses an id before it sends
R26 T no MessageId at all
R27 T a MessageId that is no string on the wire
R28 T properties that arrive as bytes
R29 T what a replay must keep
R30 T reasons that are too long, or there already
R31 T a local database as strict as the service
R32 T a local broker as strict as the service
R33 T the dead-letter queue of a session queue
R34 T draining past a short page
R35 T a replay that stopped half-way
R36 T a replay that never succeeds
R37 T a redelivery after a failed attempt is no duplicate
R38 T a duplicate behind the send and before the completion
R39 T sent is what the broker accepted
R40 T records outlive the replay horizon
R41 T conflicts are found by the stored hash
R42 T member order, white space, escapes, null and missing
R43 T Unicode forms are kept apart
R44 T date-times are texts
R45 T byte-order mark, gzip and other encodings
R46 T a partition key that is missing or no string
R47 T 429, 449, 412 and 503 sorted right
R48 T too large, found before the first write
R49 T several sessions in one send
R50 T delivery counts with sessions
R51 T fields that are empty in the Python message
R52 T cardinality and shape
R53 T one of a batch fails
R54 T abandon and prefetch
R55 T a lock lost while working
R56 T batches with sessions, and default pauses
R57 T the idle timer
R58 T scale-in and shutdown
R59 T settlement from Python
R60 T no retry policy on the trigger
R61 T sending with the SDK instead of an output binding
R62 D why no change feed
R63 T relay order without a query
R64 T a patch has at most ten operations
R65 T one client per process, closed in order
R66 T no thread pool, no fork
R67 T one trace across the queues
R68 T each log line once
R69 T identity-based settings, wrong in each way
R70 T local.settings.json, wrong in each way
R71 I data-plane roles
R72 I second deployments
R73 I Flex Consumption
R74 T clock skew
R75 T many sessions spread over partitions
"""

_NUMBER = re.compile(r"\b(?:C(?:0[1-9]|[1-7][0-9]|80)|D(?:0[1-9]|[1-5][0-9]|60)|R(?:11|1[7-9]|[2-6][0-9]|7[0-5]))\b")
_RANGE = re.compile(r"\b([CDR])(\d\d)(?:-|–|\.\.| to )(?:\1)?(\d\d)\b")
_TITLES: Final = {
    "C": "The three patterns",
    "D": "How naive versions fail",
    "R": "Faults that people met",
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One check: its number, the kind of evidence that it needs, and what it says."""

    number: str
    kind: str
    says: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a number is named."""

    file: str
    name: str = ""

    @property
    def is_test(self) -> bool:
        """Whether a test, or what a test runs, names it."""
        return self.file.startswith("tests/")

    @property
    def is_page(self) -> bool:
        """Whether a page names it."""
        return self.file.endswith(".md")

    def link(self) -> str:
        """A link from docs/ to the place."""
        target = self.file.removeprefix("docs/") if self.file.startswith("docs/") else f"../{self.file}"
        shown = Path(self.file).name
        return f"[{shown}]({target})" + (f" `{self.name}`" if self.name else "")


def requirements() -> list[Requirement]:
    """All requirements, in order."""
    return [Requirement(*line.split(" ", 2)) for line in REQUIREMENTS.strip().splitlines()]


def numbers_in(text: str) -> set[str]:
    """The numbers that a text names, ranges included."""
    found = set(_NUMBER.findall(text))
    for letter, first, last in _RANGE.findall(text):
        found |= {f"{letter}{n:02}" for n in range(int(first), int(last) + 1)}
    return {number for number in found if _NUMBER.fullmatch(number)}


def places(root: Path) -> dict[str, set[Place]]:
    """Every place of every number in the tree."""
    found: dict[str, set[Place]] = defaultdict(set)
    for path in sources(root):
        file = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        for name, part in named_parts(text) if path.suffix == ".py" else [("", text)]:
            for number in numbers_in(f"{name.upper().replace('_', ' ')}\n{part}"):
                found[number].add(Place(file, name))
    return found


def sources(root: Path) -> Iterator[Path]:
    """What can name a number: tests, checks, templates and pages; not this list and not the page made from it."""
    for pattern in ("tests/**/*.py", "checks/**/*.py", "infra/**/*.bicep", "infra/**/*.kql", "docs/**/*.md", "*.md"):
        for path in sorted(root.glob(pattern)):
            if path.name != "coverage.md" and path != root / "tests" / "docs" / "test_coverage.py":
                yield path


def named_parts(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a Python file: each test with the comments right above it, and the rest under no name."""
    lines = text.splitlines()
    rest = set(range(len(lines)))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            while first > 0 and lines[first - 1].lstrip().startswith("#"):
                first -= 1
            span = range(first, node.end_lineno or node.lineno)
            rest -= set(span)
            yield node.name, "\n".join(lines[line] for line in span)
    yield "", "\n".join(lines[line] for line in sorted(rest))


def is_covered(requirement: Requirement, found: Iterable[Place]) -> bool:
    """Whether the evidence is of the kind that the requirement needs."""
    match requirement.kind:
        case "T":
            return any(place.is_test for place in found)
        case "I":
            return any(place.is_test or not place.is_page for place in found)
        case _:
            return any(True for _ in found)


def render(found: Mapping[str, set[Place]]) -> str:
    """The whole page."""
    known = requirements()
    still_open = [one for one in known if not is_covered(one, found.get(one.number, ()))]
    parts = [_head(len(known), still_open)]
    for letter, title in _TITLES.items():
        rows = [_row(one, found.get(one.number, set())) for one in known if one.number.startswith(letter)]
        head = "| # | Kind | Requirement | Named in |\n|---|---|---|---|\n"
        parts.append(f"## {letter}: {title}\n\n{head}{''.join(rows)}")
    return "\n".join(parts)


def _head(count: int, still_open: list[Requirement]) -> str:
    closed = count - len(still_open)
    listed = "".join(f"* **{one.number}** ({one.kind}) {one.says}\n" for one in still_open)
    return (
        "# Coverage\n\n"
        "Made by `python docs/render_coverage.py` from the tests, pages and templates themselves; a test compares.\n\n"
        "**C** numbers are the checks of the three published patterns that this template implements (idempotent\n"
        "consumer, commits of unknown outcome, sequential convoy: [patterns.md](patterns.md)). **D** numbers are ways\n"
        "in which naive versions of this design fail, **R** numbers are faults that people reported on systems like\n"
        "this one; R has holes. Kind: **T** a test has to name it, **I** a test, a check or a template, **D** any\n"
        "page or test.\n\n"
        f"{closed} of {count} are named where they have to be.\n\n"
        + (f"## Open\n\n{listed}" if still_open else "")
    )


def _row(one: Requirement, found: set[Place]) -> str:
    tests_first = sorted(found, key=lambda place: (not place.is_test, place))
    shown = ", ".join(place.link() for place in tests_first[:MOST_SHOWN])
    more = len(tests_first) - MOST_SHOWN
    if more > 0:
        shown += f" and {more} more"
    return f"| {one.number} | {one.kind} | {one.says} | {shown or '–'} |\n"


if __name__ == "__main__":
    FILE.write_text(render(places(ROOT)), encoding="utf-8", newline="\n")
    sys.stdout.write(f"{FILE.relative_to(ROOT)}\n")
