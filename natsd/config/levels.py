"""Log levels: the standard ones, and TRACE for protocol lines, which `-V` switches on by itself."""

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
"""How nats-server writes each level."""

logging.addLevelName(TRACE, "TRACE")
