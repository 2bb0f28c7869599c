"""TLS as a framing: records around the bytes of the protocol, by Python's `ssl` module.

    socket ─▶ read buffer ─▶ incoming ─ SSLObject.read ─▶ plain ─▶ protocol, record by record
    socket ◀─ sealed ◀────── outgoing ◀ SSLObject.write ◀───────── pending bytes, 256 KiB at most

Promise
- All connections of a reactor share one `TlsEngine`: two memory BIOs and one buffer for decrypted
  bytes. Both BIOs are empty between two calls, so an idle connection holds only its SSLObject,
  whose record buffers OpenSSL frees when they are empty.
- Bytes are decrypted to where the protocol wants them: a large payload to its place, others to
  `plain`. What the protocol leaves of `plain` is kept and put before the next bytes.
- OpenSSL is asked when the first record is whole, or HELLO_BYTES_MAX of it: 44 KiB that a handshake
  takes are not spent on a peer that begins one and stops before that.
- Bytes appended before `frame` are sent as they are; those appended during the handshake are
  encrypted after it.
- A handshake, whose signature takes up to a millisecond, may take half of the loop's time: one that
  comes earlier waits, unread, until others were served.
- Bytes that the peer makes OpenSSL send (alerts, key updates) are collected before any other
  connection uses the engine.
- A TLS error closes the connection after the alert was sent. After it nothing is decrypted, and
  what is still pending is dropped.
"""

import collections
import ssl

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from natsd.core.reasons import ClosedReason

cdef enum:
    PLAIN_BYTES_MORE = 64 * 1024    # room in `plain` for records that an earlier read began
    SEALED_BYTES = 256 * 1024       # bytes that are encrypted at a time, about
    SEALED_VECTORS = 16
    HANDSHAKE_RECORD = 22           # first byte of a client that speaks TLS
    RECORD_HEADER_BYTES = 5         # type, version, length of what follows
    HELLO_BYTES_MAX = 4096          # of a first record that are awaited before OpenSSL gets it
    HANDSHAKES_NS = 1_000_000       # time for waiting handshakes in one turn of the loop

NOT_TLS = "tls: first record does not look like a TLS handshake"


cdef class TlsEngine:
    """What the TLS connections of a reactor share."""

    def __init__(self, Reactor reactor not None):
        self.reactor = reactor
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.waiting = collections.deque()
        # The protocol leaves less than a read, and decrypted bytes are fewer than encrypted ones.
        self.plain_bytes = 2 * reactor.read_bytes + PLAIN_BYTES_MORE
        self.plain = <char*>malloc(self.plain_bytes + 1)
        if self.plain == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.plain)

    @property
    def waiting_handshakes(self) -> int:
        """Connections whose handshake waits for its turn."""
        return len(self.waiting)

    cdef bint must_wait(self):
        """Return whether a handshake must wait, because others took half of the latest time."""
        return bool(self.waiting) or monotonic_ns() < self.free_at_ns

    cdef int wait(self, TlsFraming framing) except -1:
        """Continue a handshake later; nothing more is read from its connection until then."""
        framing.is_waiting = True
        framing.endpoint.is_deciding = True
        framing.endpoint.pause_reading()
        self.waiting.append(framing)
        if not self.is_scheduled:
            self.is_scheduled = True
            self.reactor.loop.call_soon(self._continue)
        return 0

    def _continue(self) -> None:
        """Continue handshakes that wait, for HANDSHAKES_NS; the others after a turn of the loop."""
        cdef TlsFraming framing
        cdef int64_t end_ns = monotonic_ns() + HANDSHAKES_NS
        self.is_scheduled = False
        while self.waiting and monotonic_ns() < end_ns:
            framing = self.waiting.popleft()
            framing.is_waiting = False
            if framing.endpoint.reason is None:
                framing.endpoint.resume_reading(framing.admit)
        if self.waiting:
            self.is_scheduled = True
            self.reactor.loop.call_soon(self._continue)


cdef class TlsFraming(Framing):
    """TLS on a connection that a peer opened; after `connect`, on one that this side opened.

    The handshake ends with one call: `opening.handshake_done()`, `opening.handshake_failed(error)`
    where `error` is an ssl.SSLError or a text, or `opening.handshake_ended(reason)` if the
    connection closes first. The last returns the ClosedReason to be shown. `opening.context` is the
    ssl.SSLContext, which is asked for when the peer's first bytes are here.
    """

    def __init__(
        self, TlsEngine engine not None, Endpoint endpoint not None, opening not None
    ):
        self.engine = engine
        self.endpoint = endpoint
        self.opening = opening
        self.plain = None

    def __dealloc__(self):
        free(self.rest)

    def connect(self, str server_name not None) -> None:
        """Send the first record, as a client of the server with this name or address."""
        self.is_client = self.has_begun = True
        self.tls = self.opening.context.wrap_bio(
            self.engine.incoming, self.engine.outgoing, server_hostname=server_name
        )
        self.shake_hands()

    # ---- received bytes

    cdef Py_ssize_t take(self, const char* buffer, Py_ssize_t size) except -1:
        cdef TlsEngine engine = self.engine
        cdef Py_ssize_t used
        if self.suspended:
            return 0
        if self.has_ended:
            return size
        if self.tls is None and size and (<unsigned char>buffer[0]) == HANDSHAKE_RECORD:
            self.has_begun = True
            if size < first_record(buffer, size):
                return 0
        if not self.is_open and size:
            if not self.is_admitted and engine.must_wait():
                engine.wait(self)
                return 0
            self.is_admitted = False
        try:
            self.receive_sealed(buffer, size)
        finally:
            used = size - <Py_ssize_t>engine.incoming.pending
            if used != size:
                engine.incoming.read()      # the endpoint passes these bytes again
            self.collect()
        return size if self.has_ended else used

    def admit(self) -> None:
        """Let the next bytes continue the handshake at once."""
        self.is_admitted = True

    cdef int receive_sealed(self, const char* buffer, Py_ssize_t size) except -1:
        """Handle received bytes: first the handshake, then records."""
        if size:
            if self.tls is None:
                if not self.has_begun:
                    return self.fail(NOT_TLS)
                self.tls = self.opening.context.wrap_bio(
                    self.engine.incoming, self.engine.outgoing, server_side=True
                )
            self.engine.incoming.write(PyMemoryView_FromMemory(<char*>buffer, size, PyBUF_READ))
        if not self.is_open and self.tls is not None:
            self.shake_hands()
        if self.is_open and not self.suspended:
            self.decrypt()
        return 0

    cdef int shake_hands(self) except -1:
        """Continue the handshake with the bytes in `incoming`."""
        cdef int64_t begin_ns = monotonic_ns()
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            return self.fail(error)
        finally:
            self.engine.free_at_ns = 2 * monotonic_ns() - begin_ns
            self.collect()
        self.is_open = True
        opening, self.opening = self.opening, None
        opening.handshake_done()
        if out_pending(&self.endpoint.out) and not self.endpoint.is_dirty:
            self.endpoint.reactor.mark_dirty(self.endpoint)
        return 0

    cdef int decrypt(self) except -1:
        """Hand the records in `incoming` to the protocol, until it is suspended or has all."""
        cdef TlsEngine engine = self.engine
        cdef char* plain = engine.plain
        cdef Py_ssize_t begin = 0
        cdef Py_ssize_t end = self.rest_bytes
        cdef Py_ssize_t room = 0
        cdef Py_ssize_t size
        cdef char* at
        if end:
            memcpy(plain, self.rest, end)
            plain[end] = 0
            free(self.rest)
            self.rest = NULL
            self.rest_bytes = 0
            begin = self.inner.take(plain, end)
        elif isinstance(self.inner, Framing):
            self.inner.take(plain, 0)       # what it decoded before it was suspended
        while not self.suspended:
            at = self.inner.space(&room)
            if at != NULL:
                size = self.decrypt_into(at, room)
                if size <= 0:
                    break
                self.inner.filled(size)
                continue
            room = engine.plain_bytes - end
            size = self.decrypt_into(plain + end, room)
            if size <= 0:
                break
            end += size
            plain[end] = 0
            begin += self.inner.take(plain + begin, end - begin)
            if size < room and <Py_ssize_t>engine.incoming.pending == 0:
                break
        return self.keep_rest(plain + begin, end - begin)

    cdef Py_ssize_t decrypt_into(self, char* at, Py_ssize_t room) except -1:
        """Return the size of the next decrypted bytes, one record at most; 0: there are none."""
        cdef Py_ssize_t size
        assert room > 0
        try:
            size = self.tls.read(room, PyMemoryView_FromMemory(at, room, PyBUF_WRITE))
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError:
            self.has_ended = self.has_failed = True
            self.endpoint.close(ClosedReason.READ_ERROR)
            return 0
        finally:
            self.collect()
        if size == 0:
            self.has_ended = True
            self.endpoint.peer_ended()
        return size

    cdef int keep_rest(self, const char* at, Py_ssize_t size) except -1:
        """Keep decrypted bytes that the protocol has not used. Raises MemoryError."""
        if size == 0 or self.endpoint.reason is not None:
            return 0
        self.rest = <char*>malloc(size)
        if self.rest == NULL:
            raise MemoryError
        memcpy(self.rest, at, size)
        self.rest_bytes = size
        return 0

    # ---- bytes to send

    cdef int seal(self, Outbound* out, ChunkPool pool) except -1:
        """Encrypt pending bytes, unless the handshake is not over or earlier ones are not sent."""
        cdef iovec[SEALED_VECTORS] vector
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t part
        cdef int i
        if self.has_failed:
            out_clear(out, pool)
        if not self.is_open or out_pending(&self.sealed) or not out_pending(out):
            return 0
        for i in range(out_gather(out, vector, SEALED_VECTORS)):
            part = min(<Py_ssize_t>vector[i].iov_len, SEALED_BYTES - size)
            if part == 0:
                break
            try:
                self.tls.write(
                    PyMemoryView_FromMemory(<char*>vector[i].iov_base, part, PyBUF_READ)
                )
            except ssl.SSLError:
                self.has_ended = self.has_failed = True
                self.engine.outgoing.read()
                out_clear(out, pool)
                self.endpoint.close(ClosedReason.WRITE_ERROR)
                return 0
            size += part
        self.push_sealed(self.engine.outgoing.read(), pool)
        out_sent(out, pool, size)
        return 0

    cdef int collect(self) except -1:
        """Send what OpenSSL itself wants to send: the handshake, alerts, key updates."""
        cdef TlsEngine engine = self.engine
        if <Py_ssize_t>engine.outgoing.pending == 0:
            return 0
        self.push_sealed(engine.outgoing.read(), engine.reactor.pool)
        if not self.endpoint.is_dirty and self.endpoint.reason is None:
            engine.reactor.mark_dirty(self.endpoint)
        return 0

    def send_unframed(self, bytes data not None) -> None:
        """Send bytes as they are, because the peer does not speak TLS; it has not sent anything."""
        self.push_sealed(data, self.engine.reactor.pool)
        self.endpoint.flush()

    cdef int finish(self, ChunkPool pool) except -1:
        """Append close_notify, unless TLS failed or never began."""
        if not self.is_open or self.has_failed:
            return 0
        try:
            self.tls.unwrap()
        except ssl.SSLError:    # the peer's close_notify is not awaited
            pass
        if <Py_ssize_t>self.engine.outgoing.pending:
            self.push_sealed(self.engine.outgoing.read(), pool)
        return 0

    # ---- the end

    cdef int fail(self, object error) except -1:
        """Give up the handshake; an alert of OpenSSL is still sent."""
        self.has_ended = self.has_failed = True
        opening, self.opening = self.opening, None
        opening.handshake_failed(error)
        return 0

    def closing(self, reason):
        """Return the reason: a connection that ends in its handshake has failed in it."""
        if self.is_open or self.opening is None:
            return reason
        opening, self.opening = self.opening, None
        return opening.handshake_ended(reason)

    cdef void drop(self) noexcept:
        free(self.rest)
        self.rest = NULL
        self.rest_bytes = 0
        self.inner.drop()
        self.inner = deaf


cdef Py_ssize_t first_record(const char* buffer, Py_ssize_t size) noexcept:
    """Return how many bytes of the first record are awaited."""
    cdef const unsigned char* header = <const unsigned char*> buffer
    if size < RECORD_HEADER_BYTES:
        return RECORD_HEADER_BYTES
    return min(RECORD_HEADER_BYTES + (header[3] << 8 | header[4]), <Py_ssize_t>HELLO_BYTES_MAX)
