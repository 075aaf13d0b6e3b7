"""What must come out, from the input lines alone.

It shares no code with the application, so that the two can disagree. The order in which one session's messages are
handled is known; between sessions, and between the senders of one stream, every order is tried. A message whose id was
sent before may have vanished in the broker's duplicate window. So each order, ledger and stream has a *set* of ends,
nearly always of one.

Where trying every order would take too long the set is left open (`None`); then only the invariants are checked.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from local.demo.lines import Line, Sending, plan
from local.demo.model import (
    Ledger,
    Order,
    Posting,
    Reasons,
    Stream,
    ledger_step,
    order_step,
    posting_of,
    stream_step,
)
from local.demo.readings import Fault, Message, Reading, fold, readings

MOST_STATES = 20_000
ID_LIMIT = 128
MESSAGE_LIMIT = 262_144
MAYBE_TRIMMED = 230_000  # from this size on, a parked copy may fit nowhere and end in the broker's dead-letter queue

S = TypeVar("S")
O = TypeVar("O")  # noqa: E741 (what an item offers to the step)


class CopyKey(NamedTuple):
    """What tells parked messages apart: where from, session, MessageId, body (None for one that the app sent)."""

    role: str
    session: str
    message_id: str | None
    body: str | None


class Park(NamedTuple):
    """A message that is parked for one of these reasons; `certain` is false when it may as well have vanished."""

    place: int
    key: CopyKey
    reasons: Reasons
    certain: bool
    is_caused: bool = False  # sent by the app, which may send it again after a crash


@dataclass(frozen=True, slots=True)
class Item(Generic[O]):
    """A message on its way: its readings, and whether it reaches the handler for certain."""

    place: int
    key: CopyKey
    options: tuple[O, ...]
    certain: bool
    group: str | None = None  # of the messages of one group at least one arrives
    is_caused: bool = False


@dataclass(frozen=True, slots=True)
class Ending(Generic[S]):
    """One end that the rules allow."""

    state: S
    parked: frozenset[Park]


Step = Callable[[S, O], Iterator[tuple[S, Reasons]]]
Streams = dict[str, "list[Ending[Stream]] | None"]


def explore(
    start: S, sources: Sequence[Sequence[Item[O]]], step: Step[S, O], *, required: Collection[str] = ()
) -> list[Ending[S]] | None:
    """Handle the messages of several sources, each in its order, in every order between them.

    Returns nothing when there are too many, or when an end depends on when a crash made the app send again.
    """
    first = (tuple(0 for _ in sources), start, frozenset[Park](), frozenset[str]())
    pending, seen, endings, steps = [first], {first}, dict[Ending[S], None](), 0
    may_meet = len(sources) > 1 or not all(item.certain for source in sources for item in source)
    while pending:
        positions, state, parked, arrived = pending.pop()
        steps += 1
        ended = True
        for index, source in enumerate(sources):
            if positions[index] == len(source):
                continue
            ended = False
            item = source[positions[index]]
            moved = (*positions[:index], positions[index] + 1, *positions[index + 1 :])
            for end, park, here in _taken(state, item, step):
                if park is not None and item.is_caused and "HeldLimitExceeded" in park.reasons:
                    return None
                node = (
                    moved,
                    end,
                    parked if park is None else parked | {park},
                    arrived | {item.group} if here and item.group is not None else arrived,
                )
                if not may_meet:
                    pending.append(node)
                elif node not in seen:
                    seen.add(node)
                    pending.append(node)
        if steps > MOST_STATES + sum(map(len, sources)):
            return None
        if ended and arrived.issuperset(required):
            endings[Ending(state, parked)] = None
    return list(endings) or None


def _taken(state: S, item: Item[O], step: Step[S, O]) -> Iterator[tuple[S, Park | None, bool]]:
    """Say what may become of one message: what the step says, or nothing when it vanished at the broker."""
    for option in item.options:
        for end, reasons in step(state, option):
            changes = end != state
            park = Park(item.place, item.key, reasons, item.certain, item.is_caused) if reasons else None
            yield end, park, True
            if not item.certain and (changes or item.group is not None):
                yield state, None, False


@dataclass(slots=True)
class Expectation:
    """What the input demands: ends of orders and ledgers, entries that it holds itself, and what is parked at once."""

    orders: dict[str, list[Ending[Order]] | None] = field(default_factory=dict)
    ledgers: dict[str, list[Ending[Ledger]] | None] = field(default_factory=dict)
    order_items: dict[str, list[Item[Reading]]] = field(default_factory=dict)
    ledger_items: dict[str, list[Item[Reading]]] = field(default_factory=dict)
    entries: dict[str, dict[str, list[list[Item[Posting | Fault]]]]] = field(default_factory=dict)
    parked: list[Park] = field(default_factory=list)
    copies: set[CopyKey] = field(default_factory=set)
    large: set[CopyKey] = field(default_factory=set)
    entry_places: dict[str, set[int]] = field(default_factory=dict)  # by MessageId, of the queue `ledger-entries`
    wrongly_refused: list[int] = field(default_factory=list)
    wrongly_accepted: list[int] = field(default_factory=list)

    def streams(self, order: str, caused: Iterable[Sequence[Posting]]) -> Streams:
        """Say how each stream of an order may end, given what its order and its ledgers send, sender by sender."""
        sources: dict[str, list[list[Item[Posting | Fault]]]] = defaultdict(list)
        sent: set[str] = set()
        for postings in caused:
            for stream in dict.fromkeys(posting.stream for posting in postings):
                mine = [posting for posting in postings if posting.stream == stream]
                sources[stream].append(list(self._caused(mine, sent)))
        for stream, direct in self.entries.get(order, {}).items():
            sources[stream] += [[self._contested(item, sent) for item in items] for items in direct]
        return {stream: self._ends(items) for stream, items in sources.items()}

    def _caused(self, postings: Sequence[Posting], sent: set[str]) -> Iterator[Item[Posting | Fault]]:
        for place, posting in enumerate(postings):
            is_contested = posting.key in self.entry_places
            yield Item(
                place=-1 - place,
                key=CopyKey("ledger-entries", fold(posting.order), posting.key, None),
                options=(posting,),
                certain=posting.key not in sent and not is_contested,
                group=posting.key if is_contested else None,
                is_caused=True,
            )
            sent.add(posting.key)

    @staticmethod
    def _contested(item: Item[Posting | Fault], sent: set[str]) -> Item[Posting | Fault]:
        """A line whose MessageId the app sends too: either may come first, and the other vanish."""
        message_id = item.key.message_id
        return replace(item, certain=False, group=message_id) if message_id in sent else item

    def _ends(self, sources: list[list[Item[Posting | Fault]]]) -> list[Ending[Stream]] | None:
        here: dict[str, set[int]] = defaultdict(set)
        for item in (item for source in sources for item in source):
            if item.group is not None and not any(isinstance(option, Fault) for option in item.options):
                here[item.group].add(item.place)
        required = [group for group, places in here.items() if self.entry_places[group] <= places]
        return explore(Stream(), sources, _entry_step, required=required)


def _entry_step(stream: Stream, option: Posting | Fault) -> Iterator[tuple[Stream, Reasons]]:
    if isinstance(option, Fault):
        yield stream, option.reasons
    else:
        yield from stream_step(stream, option)


def expect(lines: Sequence[Line], refused: Collection[int], now: datetime) -> Expectation:
    """Work out what the input demands; `refused` are the lines whose messages the broker did not take."""
    expectation = Expectation()
    for line in lines:
        if line.number in refused and not may_be_refused(line):
            expectation.wrongly_refused.append(line.number)
        elif line.number not in refused and must_be_refused(line):
            expectation.wrongly_accepted.append(line.number)
    orders: dict[str, dict[str, list[Item[Reading]]]] = defaultdict(lambda: defaultdict(list))
    ledgers: dict[str, dict[str, list[Item[Reading]]]] = defaultdict(lambda: defaultdict(list))
    entries: dict[str, dict[str, dict[str, list[Item[Posting | Fault]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    read: dict[int, tuple[Reading, ...]] = {}
    for place, sending, certain in _arriving(lines, refused):
        line = sending.line
        if line.number not in read:
            read[line.number] = readings(line, now)
        item = Item(place, copy_key(line), read[line.number], certain)
        expectation.copies.add(item.key)
        if size_of(line) > MAYBE_TRIMMED:
            expectation.large.add(item.key)
        if line.role == "ledger-entries" and line.message_id:
            expectation.entry_places.setdefault(line.message_id, set()).add(place)
        message = next((one for one in item.options if isinstance(one, Message)), None)
        if message is None:
            reasons = frozenset[str]().union(*(one.reasons for one in item.options if isinstance(one, Fault)))
            expectation.parked.append(Park(place, item.key, reasons, certain))
        elif line.role == "ledger-entries":
            posting = posting_of(message)
            options = tuple(posting_of(one) if isinstance(one, Message) else one for one in item.options)
            entries[posting.order][posting.stream][line.session_id].append(Item(place, item.key, options, certain))
        else:
            (orders if line.role == "orders" else ledgers)[message.owner][line.session_id].append(item)
    for order, sessions in orders.items():
        expectation.order_items[order] = [item for items in sessions.values() for item in items]
        expectation.orders[order] = explore(Order(), list(sessions.values()), order_step)
    for ledger, sessions in ledgers.items():
        expectation.ledger_items[ledger] = [item for items in sessions.values() for item in items]
        expectation.ledgers[ledger] = explore(Ledger(), list(sessions.values()), ledger_step)
    expectation.entries = {
        order: {stream: list(sessions.values()) for stream, sessions in streams.items()}
        for order, streams in entries.items()
    }
    return expectation


def _arriving(lines: Sequence[Line], refused: Collection[int]) -> Iterator[tuple[int, Sending, bool]]:
    """Name what the broker takes, in order of sending, and whether it is sure to be delivered.

    Of several messages with one id only the first is sure; the others may fall into the duplicate window. An empty id,
    and one that the broker makes up, match nothing.
    """
    seen: set[tuple[str, str]] = set()
    for place, sending in enumerate(plan(lines)):
        line = sending.line
        if line.number in refused:
            continue
        identity = (line.role, line.message_id or "")
        yield place, sending, not line.message_id or identity not in seen
        seen.add(identity)


def copy_key(line: Line) -> CopyKey:
    """Make the key under which a parked copy of a line is found."""
    return CopyKey(line.role, fold(line.session_id), line.message_id or None, digest_of(line.body))


def digest_of(body: bytes) -> str:
    """Tell bodies apart."""
    return hashlib.sha256(body).hexdigest()


def size_of(line: Line) -> int:
    """Estimate a message's size on the wire, a little too low."""
    texts = [line.message_id, line.session_id, line.subject, line.content_type, line.correlation_id]
    properties = sum(len(name.encode()) + len(str(value).encode()) for name, value in line.properties.items())
    return len(line.body) + properties + sum(len(text.encode()) for text in texts if text)


def must_be_refused(line: Line) -> bool:
    """Tell whether no broker may take this message."""
    ids = (line.message_id or "", line.session_id)
    return any(len(text) > ID_LIMIT for text in ids) or size_of(line) > MESSAGE_LIMIT


def may_be_refused(line: Line) -> bool:
    """Tell whether a broker may refuse this message: an id or the whole near its limit."""
    units = [len((text or "").encode("utf-16-le")) // 2 for text in (line.message_id, line.session_id)]
    slack = 1024 + 16 * len(line.properties)
    return any(unit > ID_LIMIT for unit in units) or size_of(line) + slack > MESSAGE_LIMIT


def uncertain(expectation: Expectation) -> Mapping[str, int]:
    """Count the orders and ledgers with more than one allowed end, and those whose ends were too many to try."""
    everything = [*expectation.orders.values(), *expectation.ledgers.values()]
    return {
        "several": sum(ends is not None and len(ends) > 1 for ends in everything),
        "open": sum(ends is None for ends in everything),
    }
