"""Faults of the broker: between a client, over AMQP or in this process, and the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from local.broker.exchange import Exchange, MessageKey
from local.broker.model import BrokerError
from local.broker.server import BrokerServer
from local.broker.service import BrokerService
from local.faults.actions import (
    Action,
    Cut,
    Delay,
    DeliverTwice,
    ExpireLock,
    FaultError,
    LoseReply,
    LoseRequest,
    LoseSettlement,
    Loss,
    Outage,
    Refuse,
    Service,
    Stage,
    Stall,
)
from local.faults.engine import Armed, Entry, Faults
from local.faults.rules import HANDED_OVER, Key, Operation, Rule

_DONE: Final = "done"


@dataclass(slots=True)
class _Turn:
    """One operation on its way through the faults."""

    exchange: Exchange[object]
    entry: Entry

    def do(self) -> None:
        refusal = self.exchange.execute()
        self.entry.result = _DONE if refusal is None else refusal.condition

    def do_and_answer(self) -> None:
        self.do()
        self.exchange.answer()


class BrokerPlug:
    """The engine's hold on a broker: its server for connections, its service for everything else."""

    def __init__(self, faults: Faults, server: BrokerServer) -> None:
        self._faults = faults
        self._server = server
        self._service: BrokerService = server.service
        self._service.intercept = self.intercept
        faults.plug_in(Service.BROKER, self)

    def check(self, rule: Rule) -> None:
        """Refuse a queue that is not there: the broker's queues are fixed."""
        if rule.entity is None:
            return
        queues = [queue for each in self._service.broker.queues for queue in (each, each.dead_letter_queue) if queue]
        if not any(rule.is_for_entity(queue.name) for queue in queues):
            known = ", ".join(queue.name for queue in self._service.broker.queues)
            raise FaultError("entity", f"there is no queue {rule.entity!r}; the broker has {known}")

    def armed(self, rules: Sequence[Rule]) -> None:
        """Nothing to prepare."""

    def suspend(self) -> None:
        """Be gone."""
        self._server.suspend()

    def resume(self) -> None:
        """Be back."""
        self._server.resume()

    def intercept(self, exchange: Exchange[object]) -> None:
        """Let an operation meet the rules."""
        asked = exchange.operation
        operation = Operation(Service.BROKER, asked.name, asked.queue, [_key(each) for each in asked.keys])
        entry, armed = self._faults.meet(operation, _all if asked.can_wait else _all_but_waiting)
        turn = _Turn(exchange, entry)
        if armed is None:
            turn.do_and_answer()
        else:
            self._do(armed, turn)

    def _do(self, armed: Armed, turn: _Turn) -> None:
        exchange, action = turn.exchange, armed.rule.action
        match action:
            case Delay(seconds, Stage.BEFORE):
                armed.hold(turn.do_and_answer, exchange.cut, seconds=seconds)
            case Delay(seconds, Stage.AFTER):
                turn.do()
                armed.hold(exchange.answer, exchange.cut, seconds=seconds)
            case Stall(Stage.BEFORE):
                armed.hold(turn.do_and_answer, exchange.cut)
            case Stall(Stage.AFTER):
                turn.do()
                armed.hold(exchange.answer, exchange.cut)
            case Refuse(condition, description):
                exchange.refuse(BrokerError(condition, description))
            case LoseRequest():
                pass
            case LoseReply(Loss.NEVER):
                turn.do()
            case LoseReply(how):
                turn.do()
                exchange.cut(resets=how is Loss.RESET)
            case Cut(how):
                exchange.cut(resets=how is Loss.RESET)
            case LoseSettlement():
                exchange.pretend()
            case DeliverTwice():
                self._deliver_twice(turn)
            case ExpireLock(seconds):
                self._expire(armed, turn, seconds)
            case Outage():
                exchange.cut()
                self._faults.begin_outage(armed)
            case _:
                raise TypeError(f"{action.kind} is not for the broker")

    def _deliver_twice(self, turn: _Turn) -> None:
        asked = turn.exchange.operation
        try:
            for token in asked.tokens:
                self._service.complete_for_show(asked.queue, token, asked.session_lock)
        except BrokerError as exc:
            turn.entry.result = exc.condition
            turn.exchange.refuse(exc)
        else:
            turn.entry.result = _DONE
            turn.exchange.pretend()

    def _expire(self, armed: Armed, turn: _Turn, seconds: float) -> None:
        asked = turn.exchange.operation

        def expire() -> None:
            self._service.expire(asked.queue, asked.tokens, asked.session_lock)

        if asked.name not in HANDED_OVER:
            expire()
            turn.do_and_answer()
            return
        turn.do_and_answer()
        if seconds > 0:
            armed.hold(expire, lambda: None, seconds=seconds)
        else:  # when the receiver has it in hand
            asyncio.get_running_loop().call_soon(expire)


def _all(_: Action) -> bool:
    return True


def _all_but_waiting(action: Action) -> bool:
    return not isinstance(action, Delay | Stall)


def _key(key: MessageKey) -> Key:
    session_id, message_id = key
    if message_id is None or isinstance(message_id, str):
        return Key(session_id, message_id)
    return Key(session_id, message_id.hex() if isinstance(message_id, bytes) else str(message_id))
