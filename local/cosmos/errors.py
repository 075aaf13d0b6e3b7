"""The one error of the data plane: a status, a sub-status and a message, as the service sends them."""

from __future__ import annotations

CODES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "Conflict",
    410: "Gone",
    411: "LengthRequired",
    412: "PreconditionFailed",
    413: "RequestEntityTooLarge",
    424: "FailedDependency",
    429: "TooManyRequests",
    449: "RetryWith",
    500: "InternalServerError",
    503: "ServiceUnavailable",
}

PARTITION_KEY_MISMATCH = 1001
READ_SESSION_NOT_AVAILABLE = 1002  # with 404
PARTITION_KEY_RANGE_GONE = 1002  # with 410
COLLECTION_RID_MISMATCH = 1024


class CosmosError(Exception):
    """The request is refused with this answer; nothing was written."""

    def __init__(self, status: int, message: str, sub_status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.sub_status = sub_status
        self.message = message

    @property
    def code(self) -> str:
        return CODES.get(self.status, "Error")
