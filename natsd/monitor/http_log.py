"""The logger that aiohttp gets: its own would write to standard error, past natsd's log.

An error in natsd's code is logged with its traceback. A request that cannot be read is not: anybody
may send such requests, and each would fill the log with the stack of aiohttp's parser.
"""

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether the record is about something else than a request that cannot be read."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | RequestPayloadError)


HTTP_LOGGER: Final = logging.getLogger("natsd.monitor.http")
HTTP_LOGGER.addFilter(_is_ours)
