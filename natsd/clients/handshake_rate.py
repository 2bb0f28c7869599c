"""`connection_rate_limit`: how many TLS handshakes may begin in a second.

Source: nats-server's server/rate_counter.go.
"""

import logging

logger = logging.getLogger("natsd.server")


class HandshakeRate:
    """Counts handshakes against `connection_rate_limit`; the refused ones are logged together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._count = 0
        self._refused = 0
        self._end_s = 0.0

    def allow(self, now_s: float) -> bool:
        """Return whether another handshake may begin."""
        if not self.limit:
            return True
        if now_s > self._end_s:
            self._tell()
            self._count = 0
            self._end_s = now_s + 1
        else:
            self._count += 1
        if self._count < self.limit:
            return True
        self._refused += 1
        return False

    def _tell(self) -> None:
        if self._refused:
            logger.warning("Rejected %d connections due to TLS rate limiting", self._refused)
            self._refused = 0
