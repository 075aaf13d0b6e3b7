"""From the Service Bus SDK's errors to ours, with the SDK's own exceptions (docs/contracts.md, section 10)."""

from __future__ import annotations

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from shared.adapters.servicebus import translated_errors
from shared.errors import PermanentError, Reason, TransientError, UnknownCommitError

SECRET = "payload-value"


def translated(error: Exception) -> Exception:
    with pytest.raises(Exception) as caught, translated_errors("send"):  # noqa: PT011 - any is looked at
        raise error
    assert caught.value.__cause__ is error
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "kind", [ServiceBusServerBusyError, ServiceBusQuotaExceededError, MessagingEntityDisabledError]
)
def test_refused_for_now_is_transient(kind: type[ServiceBusError]) -> None:
    """D31: nothing was accepted."""
    assert type(translated(kind(message=SECRET))) is TransientError


@pytest.mark.parametrize(
    "error",
    [
        MessagingEntityNotFoundError(message=SECRET),
        ServiceBusAuthenticationError(message=SECRET),
        ServiceBusAuthorizationError(message=SECRET),
        ClientAuthenticationError(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
def test_wrong_deployment_is_transient_and_reported(error: Exception) -> None:
    found = translated(error)
    assert type(found) is TransientError
    assert found.event == "configuration"


@pytest.mark.parametrize(
    "error",
    [
        OperationTimeoutError(message=SECRET),
        ServiceBusCommunicationError(message=SECRET),
        ServiceBusConnectionError(message=SECRET),
        ServiceBusError(SECRET),
        TimeoutError(SECRET),
        ConnectionResetError(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_answer_is_unknown(error: Exception) -> None:
    """C44 D03: the broker may have accepted it; who sends again sends the same ids."""
    assert type(translated(error)) is UnknownCommitError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MessageSizeExceededError(message=SECRET), Reason.ITEM_TOO_LARGE),
        (ValueError(SECRET), Reason.INVALID_MESSAGE),
        (TypeError(SECRET), Reason.INVALID_MESSAGE),
    ],
)
def test_what_no_call_can_heal_is_permanent(error: Exception, reason: Reason) -> None:
    """D05: too large is never repeated."""
    found = translated(error)
    assert isinstance(found, PermanentError)
    assert found.reason is reason


def test_bug_stays_a_bug() -> None:
    with pytest.raises(KeyError), translated_errors("send"):
        raise KeyError(SECRET)
