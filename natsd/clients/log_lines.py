"""The log lines of a connection: `127.0.0.1:51234 - cid:7 - <text>`.

Source: nats-server's `Debugf`, `traceOp` and `traceMsg` (server/client.go).
"""

import logging
from typing import ClassVar

from natsd.config import Options
from natsd.config.levels import TRACE
from natsd.core.quoting import quoted


class LogLines:
    """What the session of a client or of another server writes to the log.

    `str` of the session begins its lines.
    """

    __slots__ = ()

    logger: ClassVar[logging.Logger]
    ip: str
    port: int

    @property
    def server_options(self) -> Options:
        """The settings of the server."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """Address and port of the peer."""
        where = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{where}:{self.port}"

    def debug(self, text: str) -> None:
        """Log at debug level."""
        if self.logger.isEnabledFor(logging.DEBUG):
            self.logger.debug("%s - %s", str(self), text)

    def error(self, text: str) -> None:
        """Log at error level."""
        self.logger.error("%s - %s", str(self), text)

    def notice(self, text: str) -> None:
        """Log at info level."""
        self.logger.info("%s - %s", str(self), text)

    def caught_up(self) -> None:
        """Log that the peer is no slow consumer any more."""
        self.notice("Slow Consumer Recovered")

    def trace_operation(self, direction: str, operation: bytes) -> None:
        """Log a protocol operation as `<<- [PUB foo 5]`."""
        shown = quoted(operation.decode(errors="replace"))[1:-1].replace('\\"', '"')
        self.logger.log(TRACE, "%s - %s [%s]", str(self), direction, shown)

    def trace_payload(self, direction: str, data: bytes, header_len: int) -> None:
        """Log a message's headers and payload, at most `max_traced_msg_len` bytes of them.

        An empty message is not logged. With `trace_headers` only the headers are logged.
        """
        options = self.server_options
        if options.trace_headers:
            data = data[:header_len].removesuffix(b"\r\n\r\n")
        if not data:
            return
        from natsd.clients.redact import shown_payload

        shown = shown_payload(data, options.max_traced_msg_len)
        self.logger.log(TRACE, "%s - %s MSG_PAYLOAD: [%s]", str(self), direction, shown)
