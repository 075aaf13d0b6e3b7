"""The log of the host's HTTP servers, for functions and control."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError


class _NotTheClients(logging.Filter):
    """Drops the traceback that aiohttp writes for each request that is no HTTP: the client has its 400."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


SERVER_LOG: Final = logging.getLogger("local.host.http")
SERVER_LOG.addFilter(_NotTheClients())
