"""Protocols and framings: what becomes of the bytes that an endpoint receives.

    socket ──▶ Endpoint ──▶ Framing (if there is one) ──▶ Protocol ──▶ Session: operations
                   ◀── seal ──── pending bytes ◀──────────────────────── deliver

- A protocol turns bytes into operations of its session. It keeps no bytes, unless it says so
  (`space`): an endpoint passes unused bytes again.
- A framing is the protocol of its endpoint, and has an inner protocol, which notices nothing of it.
  The session appends unframed bytes to the endpoint; `seal` encodes them when they are sent: one
  frame for all that is pending.
- A preface is the protocol of an endpoint until the first bytes say what follows, such as a PROXY
  header, TLS or neither. Then the protocol, or a framing before it, takes its place, so that
  connections that need no framing have none. What is sent meanwhile is sent as it is.
- A protocol that is compiled overrides the C methods. One that is plain Python (for connections
  with few messages) overrides `receive`, or for a framing `decode` and `encode`.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject


cdef class Protocol:
    """What an endpoint's bytes are handed to."""

    cdef char* space(self, Py_ssize_t* room) noexcept:
        return NULL

    cdef int filled(self, Py_ssize_t size) except -1:
        return 0

    cdef Py_ssize_t take(self, const char* buffer, Py_ssize_t size) except -1:
        cdef Py_ssize_t used = self.receive(buffer[:size])
        assert 0 <= used <= size
        return used

    cdef void suspend(self, bint suspended) noexcept:
        self.suspended = suspended

    cdef void drop(self) noexcept:
        """Release what is kept of the peer's bytes."""

    def receive(self, bytes data not None) -> int:
        """Handle bytes and return how many were used; the rest comes again with what follows.

        It must stop behind the current operation once `is_suspended`.
        """
        return len(data)

    @property
    def is_suspended(self) -> bool:
        """Whether nothing more must be handled now."""
        return self.suspended


deaf = Protocol()


cdef class Framing(Protocol):
    """A protocol of frames around the bytes of another protocol."""

    def __cinit__(self):
        self.plain = bytearray(b"\0")
        self.inner = deaf

    cdef Py_ssize_t take(self, const char* buffer, Py_ssize_t size) except -1:
        cdef Py_ssize_t used = 0
        cdef Py_ssize_t handled
        self.decode_into(buffer, size, &used)
        if not self.suspended:
            handled = self.inner.take(
                PyByteArray_AS_STRING(self.plain), PyByteArray_GET_SIZE(self.plain) - 1
            )
            if self.reactor is not None:
                self.reactor.end_read()     # recipients may still point into `plain`
            del self.plain[:handled]
        return used

    cdef int decode_into(self, const char* buffer, Py_ssize_t size, Py_ssize_t* used) except -1:
        """Decode the whole frames in `buffer` into `plain`; set `used` to the bytes of them."""
        cdef bytes data
        if size == 0 or self.suspended:
            return 0
        data, used[0] = self.decode(buffer[:size])
        self.plain[PyByteArray_GET_SIZE(self.plain) - 1:] = data + b"\0"
        return 0

    cdef int seal(self, Outbound* out, ChunkPool pool) except -1:
        """Encode all bytes of `out` as the next ones to send, unless earlier ones are not sent."""
        if out_pending(&self.sealed) == 0 and out_pending(out):
            self.push_sealed(self.encode(out_take(out, pool, out_pending(out))), pool)
        return 0

    cdef int push_sealed(self, bytes data, ChunkPool pool) except -1:
        """Append bytes to those that are sent as they are."""
        return out_push(
            &self.sealed, pool, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), <PyObject*>data
        )

    cdef void suspend(self, bint suspended) noexcept:
        self.suspended = suspended
        self.inner.suspend(suspended)

    cdef void drop(self) noexcept:
        self.plain = bytearray(b"\0")
        self.inner.drop()
        self.inner = deaf

    cdef int finish(self, ChunkPool pool) except -1:
        """Append what ends the stream to `sealed`, after the last bytes were sent."""
        return 0

    def closing(self, reason):
        """Return the reason of an endpoint that is being closed with the ClosedReason `reason`."""
        return reason

    def decode(self, bytes data not None) -> tuple:
        """Return the decoded bytes of the whole frames in `data`, and how many bytes these took."""
        return data, len(data)

    def encode(self, bytes data not None) -> bytes:
        """Return the frames around `data`."""
        return data


cdef class Preface(Protocol):
    """What stands before the protocol of an endpoint until the first bytes are understood."""

    def __init__(self, Endpoint endpoint not None):
        self.endpoint = endpoint
        self.inner = endpoint.protocol
        endpoint.protocol = self

    cdef Py_ssize_t take(self, const char* buffer, Py_ssize_t size) except -1:
        cdef Py_ssize_t used
        cdef Endpoint endpoint = self.endpoint
        cdef Preface kept = self    # `end` may drop the last reference that others hold
        if kept.suspended:
            return 0
        decision = self.decide(buffer[:size])
        if decision is None or endpoint.reason is not None:
            return 0
        used, framing = decision
        assert 0 <= used <= size
        self.end(framing)
        if used == size or kept.suspended:
            return used
        return used + endpoint.protocol.take(buffer + used, size - used)

    def end(self, Framing framing) -> None:
        """Let the protocol take over, with a framing before it unless that is None."""
        cdef Endpoint endpoint = self.endpoint
        endpoint.protocol = self.inner
        if framing is not None:
            endpoint.frame(framing)

    cdef void suspend(self, bint suspended) noexcept:
        self.suspended = suspended
        self.inner.suspend(suspended)

    cdef void drop(self) noexcept:
        self.inner.drop()
        self.inner = deaf

    def decide(self, bytes data not None):
        """Return how many of the first bytes are used up, and the Framing of the others or None.

        Return None to get the same bytes again with more.
        """
        return 0, None
