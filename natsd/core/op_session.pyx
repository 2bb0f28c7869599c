"""What the sessions of clients and of other servers have in common: hooks, errors, pings.

Source: nats-server's `processPing`, `processPong` and `processPingTimer` (server/client.go).
"""

from libc.stdint cimport int64_t

from natsd.core.routing cimport Kind

from natsd.core.reasons import ClosedReason, ErrorText


cdef class OpSession(OpHandler):
    """The session of a connection with the operations of NATS."""

    def __init__(self, Endpoint endpoint not None, Kind kind):
        OpHandler.__init__(self, endpoint, kind)
        self.settings = endpoint.settings
        self.start_ns = endpoint.last_activity_ns

    # ---- hooks that the subclass overrides

    def connect_received(self, bytes json) -> None:
        """Handle a CONNECT; `json` is its argument."""

    def info_received(self, bytes json) -> None:
        """Handle an INFO; `json` is its argument."""

    def authentication_timed_out(self) -> None:
        """Handle a peer that has not authenticated in time."""

    def debug(self, str text) -> None:
        """Log at debug level."""

    def error(self, str text) -> None:
        """Log at error level."""

    def notice(self, str text) -> None:
        """Log at info level."""

    def trace_operation(self, str direction, bytes operation) -> None:
        """Log a protocol operation; `direction` is "<<-", "->>" or "<->"."""

    def trace_payload(self, str direction, bytes data, Py_ssize_t header_len) -> None:
        """Log a message's headers and payload; `direction` is "<<-" or "->>"."""

    # ---- operations

    cdef int on_pong(self) except -1:
        if self.trace:
            self.trace_operation("<<-", b"PONG")
        self.pings_out = 0
        if self.rtt_start_ns:
            self.rtt_ns = max(1, monotonic_ns() - self.rtt_start_ns)
        return 0

    cdef int on_connect(self, const char* json, Py_ssize_t size) except -1:
        self.connect_received(json[:size])
        return 0

    cdef int on_info(self, const char* json, Py_ssize_t size) except -1:
        self.info_received(json[:size])
        return 0

    # ---- protocol text

    def send_error(self, str text) -> None:
        """Queue `-ERR '<text>'`."""
        if self.trace:
            self.trace_operation("->>", b"-ERR " + bytes_of(text))
        self.send_protocol(b"-ERR '%b'\r\n" % bytes_of(text))

    def close_with_error(self, str text, reason) -> None:
        """Send `-ERR '<text>'`, then close with `reason`; a closed connection ignores this."""
        if self.endpoint.reason is None:
            self.send_error(text)
            self.endpoint.linger()
            self.endpoint.close(reason)

    cdef int send_pong(self) except -1:
        """Answer a PING."""
        if self.trace:
            self.trace_operation("<<-", b"PING")
            self.trace_operation("->>", b"PONG")
        return self.endpoint.append(b"PONG\r\n", 6)

    cdef int send_ping(self, int64_t now_ns) except -1:
        """Send PING; the answer measures the round-trip time."""
        self.pings_out += 1
        self.rtt_start_ns = now_ns
        if self.trace:
            self.trace_operation("->>", b"PING")
        return self.endpoint.append(b"PING\r\n", 6)

    cdef int ping_or_close(self, int64_t now_ns) except -1:
        """Send PING; after `ping_max` unanswered ones, close the connection as stale."""
        if self.pings_out < self.settings.ping_max:
            return self.send_ping(now_ns)
        self.debug("Stale Client Connection - Closing")
        self.reactor.counters.stale_connections += 1
        self.close_with_error(ErrorText.STALE_CONNECTION, ClosedReason.STALE_CONNECTION)
        return 0
