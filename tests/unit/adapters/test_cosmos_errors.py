"""From the Cosmos SDK's errors to ours, with the SDK's own exceptions (docs/contracts.md, section 10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceRequestTimeoutError,
    ServiceResponseError,
    ServiceResponseTimeoutError,
)
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosClientTimeoutError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)
from azure.identity import CredentialUnavailableError

from shared.adapters.cosmos import translated_errors
from shared.errors import AppError, PermanentError, Reason, TransientError, UnknownCommitError

SECRET = "payload-value"


def http(status: int, sub_status: int | None = None) -> CosmosHttpResponseError:
    error = CosmosHttpResponseError(status_code=status, message=SECRET)
    if sub_status is not None:
        error.sub_status = sub_status
    return error


def batch(*statuses: int, status: int | None = None) -> CosmosBatchOperationError:
    """A failed batch with the status of each operation."""
    index = next((place for place, each in enumerate(statuses) if each not in (201, 424)), 0)
    return CosmosBatchOperationError(
        error_index=index,
        headers={},
        status_code=status or (statuses[index] if statuses else 400),
        message=SECRET,
        operation_responses=[{"statusCode": each, "requestCharge": 1} for each in statuses],
    )


def translated(
    error: BaseException, *, write: bool, values: frozenset[int] = frozenset(), doing: str = "create"
) -> BaseException:
    with (
        pytest.raises(Exception) as caught,  # noqa: PT011 - any is looked at
        translated_errors(doing, values, write=write),
    ):
        raise error
    assert caught.value.__cause__ is error
    assert SECRET not in str(caught.value)
    return caught.value


NOT_COMMITTED = [(429, None), (429, 3200), (449, None)]
UNKNOWN = [(408, None), (410, 1002), (500, None), (502, None), (503, None), (504, None), (418, None)]
CONFIGURATION = [(401, None), (403, None), (404, 1003)]


@pytest.mark.parametrize("write", [True, False], ids=["write", "read"])
@pytest.mark.parametrize(("status", "sub_status"), NOT_COMMITTED)
def test_not_committed_is_transient(status: int, sub_status: int | None, write: bool) -> None:
    """D40: throttled, or asked to repeat; the answer says that nothing was written."""
    error = translated(http(status, sub_status), write=write)
    assert type(error) is TransientError
    assert error.event is None


@pytest.mark.parametrize(("status", "sub_status"), UNKNOWN)
def test_trouble_is_unknown_for_a_write_and_transient_for_a_read(status: int, sub_status: int | None) -> None:
    """C44 C45: a write behind such an answer may be committed."""
    assert type(translated(http(status, sub_status), write=True)) is UnknownCommitError
    assert type(translated(http(status, sub_status), write=False)) is TransientError


@pytest.mark.parametrize("write", [True, False], ids=["write", "read"])
@pytest.mark.parametrize(("status", "sub_status"), CONFIGURATION)
def test_wrong_deployment_is_transient_and_reported(status: int, sub_status: int | None, write: bool) -> None:
    error = translated(http(status, sub_status), write=write)
    assert type(error) is TransientError
    assert error.event == "configuration"


def test_full_partition_is_transient_with_its_own_event() -> None:
    error = translated(http(403, 1014), write=True)
    assert isinstance(error, TransientError)
    assert error.event == "partition.full"


@pytest.mark.parametrize(("status", "reason"), [(413, Reason.ITEM_TOO_LARGE), (400, Reason.INVALID_MESSAGE)])
def test_what_no_call_can_heal_is_permanent(status: int, reason: Reason) -> None:
    error = translated(http(status), write=True)
    assert isinstance(error, PermanentError)
    assert error.reason is reason


@pytest.mark.parametrize(
    "error", [CosmosResourceExistsError(status_code=409), CosmosResourceNotFoundError(status_code=404),
              CosmosAccessConditionFailedError(status_code=412)]
)  # fmt: skip
def test_answers_that_handlers_decide_on_are_no_errors_of_theirs(error: HttpResponseError) -> None:
    """C37 C47: 409, 404 and 412 become values, where the call knows them as answers."""
    answer = translated(error, write=True, values=frozenset({404, 409, 412}))
    assert not isinstance(answer, AppError)
    assert answer.status == error.status_code  # type: ignore[attr-defined]
    assert isinstance(translated(error, write=True), TransientError)
    assert isinstance(translated(error, write=True, values=frozenset({409}), doing="batch"), TransientError)


@pytest.mark.parametrize(
    ("status", "sub_status", "event"), [(404, 1002, None), (404, 1003, "configuration"), (400, 1024, "configuration")]
)
def test_what_looks_like_an_answer_and_is_none_parks_nothing(status: int, sub_status: int, event: str | None) -> None:
    """A session that is not there yet, an owner that is gone, a container that was made anew: no message's fault."""
    error = translated(http(status, sub_status), write=False, values=frozenset({404}))
    assert type(error) is TransientError
    assert error.event == event


@pytest.mark.parametrize(
    "error",
    [
        ServiceRequestError(SECRET),
        ServiceRequestTimeoutError(SECRET),
        ServiceResponseError(SECRET),
        ServiceResponseTimeoutError(SECRET),
        IncompleteReadError(SECRET),
        CosmosClientTimeoutError(),
        TimeoutError(SECRET),
        ConnectionResetError(SECRET),
        OSError(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_answer_is_unknown_for_a_write(error: Exception) -> None:
    """C44 D38: aio tells some lost answers as requests that never left, so none of them is trusted."""
    assert type(translated(error, write=True)) is UnknownCommitError
    assert type(translated(error, write=False)) is TransientError


@pytest.mark.parametrize("error", [ClientAuthenticationError(SECRET), CredentialUnavailableError(SECRET)])
def test_no_token_is_a_matter_of_configuration(error: Exception) -> None:
    found = translated(error, write=True)
    assert type(found) is TransientError
    assert found.event == "configuration"


@pytest.mark.parametrize("error", [ValueError(SECRET), TypeError(SECRET)])
def test_argument_that_the_sdk_refuses_is_permanent(error: Exception) -> None:
    """R25: no outage, and no request was made."""
    found = translated(error, write=True)
    assert isinstance(found, PermanentError)
    assert found.reason is Reason.INVALID_MESSAGE


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("x"), AssertionError("x")])
def test_bug_stays_a_bug(error: Exception) -> None:
    """D40: an unexpected exception is not dressed up as an outage."""
    with pytest.raises(type(error)), translated_errors("create", write=True):
        raise error


@pytest.mark.parametrize(
    ("statuses", "index", "status"),
    [((409, 424), 0, 409), ((424, 412), 1, 412), ((424, 424, 404), 2, 404), ((201, 412, 424), 1, 412)],
)
def test_cause_of_a_failed_batch_is_its_first_status_that_is_not_424(
    statuses: tuple[int, ...], index: int, status: int
) -> None:
    """C42 C49: which operation it was says whether the message is known or a race was lost."""
    error: Any = translated(batch(*statuses), write=True, values=frozenset({404, 409, 412}), doing="batch")
    assert not isinstance(error, AppError)
    assert (error.index, error.status) == (index, status)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (batch(424, 429), TransientError),
        (batch(449, 424), TransientError),
        (batch(413, 424), PermanentError),
        (batch(400, 424), PermanentError),
        (batch(status=413), PermanentError),
        (batch(424, 500), UnknownCommitError),
        (batch(status=503), UnknownCommitError),
    ],
    ids=str,
)
def test_batch_refused_for_another_reason_has_the_row_of_that_status(error: Any, kind: type[AppError]) -> None:
    assert type(translated(error, write=True)) is kind


def test_status_that_is_missing_is_unknown() -> None:
    """An answer without a status says nothing about the commit."""
    error = HttpResponseError(message=SECRET, response=None)
    assert SimpleNamespace(status=error.status_code).status is None
    assert type(translated(error, write=True)) is UnknownCommitError
