"""Log levels: the standard ones, and TRACE for protocol lines, which `-V` alone switches on."""

import logging
from typing import Final

TRACE: Final = 5

LABELS: Final = {
    logging.INFO: "INF",
    logging.WARNING: "WRN",
    logging.ERROR: "ERR",
    logging.CRITICAL: "FTL",
    logging.DEBUG: "DBG",
    TRACE: "TRC",
}
"""Label of each level in nats-server's log lines."""

logging.addLevelName(TRACE, "TRACE")
