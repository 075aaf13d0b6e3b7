"""The log of the HTTP servers of this package."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError


class _NotTheClients(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


# Without the traceback that aiohttp writes for each request that is no HTTP: the client has its 400.
SERVER_LOG: Final = logging.getLogger("local.http")
SERVER_LOG.addFilter(_NotTheClients())
