"""The errors of the application: few classes, each with a reaction of its own.

AppError                        caught, never raised
├── TransientError              back off in the invocation, then raise: abandoned, redelivered
│   ├── LostRaceError           somebody else kept writing first
│   └── UnknownCommitError      a write without an answer that reading could not resolve
├── InFlightError               another attempt holds a live claim, or took this one's
└── PermanentError              no redelivery can help: parked with a reason
ConfigurationError              outside the tree: no message is to blame
"""

from __future__ import annotations

from enum import StrEnum

EVENT_CONFIGURATION = "configuration"
EVENT_PARTITION_FULL = "partition.full"


class Reason(StrEnum):
    """Why a message is parked (docs/contracts.md, section 10)."""

    INVALID_MESSAGE = "InvalidMessage"
    UNSUPPORTED_ENCODING = "UnsupportedEncoding"
    MESSAGE_ID_MISSING = "MessageIdMissing"
    MESSAGE_KEY_MISMATCH = "MessageKeyMismatch"
    SESSION_KEY_MISMATCH = "SessionKeyMismatch"
    DEDUP_EXPIRED = "DedupExpired"
    PAYLOAD_MISMATCH = "PayloadMismatch"
    ORDER_UNKNOWN = "OrderUnknown"
    ORDER_NOT_READY = "OrderNotReady"
    ORDER_EXISTS = "OrderExists"
    SEQUENCE_GAP = "SequenceGap"
    SEQUENCE_CONFLICT = "SequenceConflict"
    SEQUENCE_CLOSED = "SequenceClosed"
    HELD_LIMIT_EXCEEDED = "HeldLimitExceeded"
    ITEM_TOO_LARGE = "ItemTooLarge"
    EFFECT_REFUSED = "EffectRefused"
    EFFECT_OUTCOME_UNKNOWN = "EffectOutcomeUnknown"
    POISON_MESSAGE = "PoisonMessage"


class AppError(Exception):
    """What every error with a message to blame has in common."""


class TransientError(AppError):
    """The same call may succeed a moment later; nothing is wrong with the message.

    `event` names the log event that operators alert on, where waiting alone will not help. `of_record`: it concerns
    this record alone, so it says nothing of the services.
    """

    def __init__(self, description: str, *, event: str | None = None, of_record: bool = False) -> None:
        super().__init__(description)
        self.event = event
        self.of_record = of_record


class LostRaceError(TransientError):
    """Others wrote first, again and again, until the attempt gave up deciding anew."""


class UnknownCommitError(TransientError):
    """A write has no answer: it may have been committed or not."""


class InFlightError(AppError):
    """Another attempt works on the record, or took the claim of this one."""


class PermanentError(AppError):
    """No redelivery can help. `description` names field, expectation and finding, never payload values.

    `pointer` is the JSON pointer of the place in the body where its text is at fault ("" is all of it), for clients
    that show it beside the field; the description begins with it.
    """

    def __init__(self, reason: Reason, description: str, *, pointer: str | None = None) -> None:
        super().__init__(f"{reason}: {description}")
        self.reason = reason
        self.description = description
        self.pointer = pointer


class ConfigurationError(Exception):
    """The app's own settings are wrong; the text names each of them, `names` gives the names alone."""

    def __init__(self, *faults: str) -> None:
        super().__init__("; ".join(faults))
        self.names = tuple(name for fault in faults for name in fault.partition(":")[0].split(" and "))
