"""Endpoints: bytes from a socket to a protocol, and pending bytes to the socket.

    plain socket, served by the poller:   recv -> read buffer -> take       out -> send, sendmsg
    transport (TLS, or no poller):        read_space, bytes_read -> take    out -> transport.write

Promise
- An endpoint knows no protocol: what the bytes mean is the business of its `protocol`, and what
  the connection means that of its `session`.
- Reading and writing never wait, and never raise because of a peer: an error ends in `close` with a
  reason.
- Bytes that the protocol leaves of one read (a partial frame, or the rest after a stall) move to
  the endpoint and are put before the bytes of the next read.
- Pending bytes are bounded by `max_pending`. Above 75 % of it publishers wait
  (`Reactor.congested`). Beyond it, or when the socket takes nothing for `write_deadline`, the
  connection is closed as a slow consumer. With `retries_writes` the deadline begins anew once, and
  again after each byte that the socket takes.
- The memory that the pending bytes of all connections take is bounded by `max_pending_total`.
  Beyond it, the connections with the most pending bytes are closed until an eighth of it is free.
- After `close` nothing more is parsed or appended. The teardown at the end of the reactor's turn
  sends the pending bytes as far as the socket takes them.
- An idle connection holds no buffer.

Source: nats-server's `queueOutbound`, `flushOutbound` and `stalledWait` (server/client.go);
`max_pending_total` is natsd's own.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport close as close_file

from natsd.core.poller cimport POLLER_READ, POLLER_WRITE, SEND_FLAGS

from natsd.core.reasons import ClosedReason

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int shutdown(int fd, int how)
    int SHUT_WR
    int MSG_DONTWAIT

cdef enum:
    PENDING_FLUSH_BYTES = 256 * 1024    # with more pending bytes, a flush is in mid-read
    VECTORS = 64                    # buffers per sendmsg
    TRANSPORT_BYTES = 64 * 1024     # bytes passed to a transport at a time
    DISCARD_ROUNDS = 64             # reads of 4 KiB that discard unread input before a close
    STALL_NS = 2_000_000            # wait of a publisher for one congested recipient
    STALL_TOTAL_NS = 10_000_000     # all such waits of one read together

SLOW_CONSUMER = (
    ClosedReason.SLOW_CONSUMER_PENDING_BYTES, ClosedReason.SLOW_CONSUMER_WRITE_DEADLINE,
)


cdef class Settings:
    """Limits shared by the connections of a server; times in nanoseconds, sizes in bytes."""


cdef class Endpoint(Pollable):
    """Reading and sending on one socket. `fd` is -1 if `transport` serves the connection."""

    def __cinit__(self):
        self.protocol = deaf
        self.session = nobody
        self.read_most = PY_SSIZE_T_MAX

    def __init__(
        self, Reactor reactor not None, Settings settings not None, int fd, transport=None
    ):
        self.reactor = reactor
        self.settings = settings
        self.fd = fd
        self.transport = transport
        self.last_activity_ns = monotonic_ns()

    def __dealloc__(self):
        free(self.tail)
        if self.reactor is not None:
            out_clear(&self.out, self.reactor.pool)
            if self.framing is not None:
                out_clear(&self.framing.sealed, self.reactor.pool)
            if self.nested is not None:
                out_clear(&self.nested.sealed, self.reactor.pool)
        if self.fd >= 0:
            close_file(self.fd)

    def attach(self, Protocol protocol not None, Session session not None) -> None:
        """Hand bytes to `protocol` and events to `session` from now on."""
        self.protocol = protocol
        self.session = session

    def frame(self, Framing framing not None) -> None:
        """Put a framing around the attached protocol; bytes that are pending are sent unframed.

        A second framing stands between the first one and the protocol.
        """
        framing.reactor = self.reactor
        if self.framing is not None:
            self.nest(framing)
        else:
            framing.inner = self.protocol
            self.protocol = self.framing = framing
        if out_pending(&self.out):
            framing.push_sealed(
                out_take(&self.out, self.reactor.pool, out_pending(&self.out)), self.reactor.pool
            )

    cdef int nest(self, Framing framing) except -1:
        """Put a framing inside the one that faces the socket."""
        assert self.nested is None
        framing.inner = self.framing.inner
        self.framing.inner = self.nested = framing
        return 0

    def frame_rest(self, Framing framing not None) -> None:
        """Put a framing around what the peer sends after the operation that is being handled."""
        self.frame(framing)
        if self.reason is None:
            self.is_deciding = True
            self.pause_reading()
            self.reactor.loop.call_soon(self.resume_reading, nothing_to_do)

    def open(self) -> None:
        """Start serving the socket. Raises OSError if the system cannot watch it."""
        self.reactor.register(self)

    # ---- reading

    cdef char* space(self, Py_ssize_t* room) noexcept:
        """Return the place for the next bytes and its size `room`.

        It is where the protocol wants them, or in the read buffer after the unused tail.
        """
        cdef char* at = self.protocol.space(room)
        self.is_direct = at != NULL
        if at != NULL:
            return at
        if self.tail_bytes:
            memcpy(self.reactor.read_buffer, self.tail, self.tail_bytes)
        room[0] = min(self.reactor.read_bytes - self.tail_bytes, self.read_most)
        return self.reactor.read_buffer + self.tail_bytes

    cdef int on_readable(self) except -1:
        """Read from the socket once and parse the bytes, unless reading is paused."""
        cdef Py_ssize_t room = 0
        cdef char* at
        cdef ssize_t n
        if self.is_stalled:
            if self.is_deciding:    # only a hangup is reported meanwhile
                self.close(ClosedReason.CLIENT_CLOSED)
            return 0
        at = self.space(&room)
        n = recv(self.fd, at, room, MSG_DONTWAIT)
        if n > 0:
            return self.received(n)
        if n == 0:
            self.peer_ended()
        elif errno not in (EAGAIN, EINTR):
            self.close(ClosedReason.READ_ERROR)
        return 0

    cdef int received(self, Py_ssize_t n) except -1:
        """Hand on `n` bytes that were read into `space`."""
        self.last_activity_ns = self.reactor.now_ns
        self.reactor.turn_bytes += n
        self.stall_ns = 0
        if not self.is_direct:
            return self.process(self.reactor.read_buffer, self.tail_bytes + n)
        self.protocol.filled(n)
        return self.end_read()

    cdef int process(self, const char* buffer, Py_ssize_t size) except -1:
        """Hand on the first `size` bytes of the read buffer, and keep the unused rest."""
        cdef Py_ssize_t used
        self.reactor.read_buffer[size] = 0  # the parser's sentinel
        free(self.tail)
        self.tail = NULL
        self.tail_bytes = 0
        used = self.protocol.take(buffer, size)
        if used < size and self.reason is None:
            self.keep_tail(buffer + used, size - used)
        return self.end_read()

    cdef int keep_tail(self, const char* rest, Py_ssize_t size) except -1:
        """Copy unparsed bytes out of the read buffer. Raises MemoryError."""
        self.tail = <char*>malloc(size)
        if self.tail == NULL:
            raise MemoryError
        memcpy(self.tail, rest, size)
        self.tail_bytes = size
        return 0

    cdef int end_read(self) except -1:
        """End a read, after all its bytes were used or kept."""
        self.session.read_over()
        return self.reactor.end_read()

    cdef int pause_reading(self) except -1:
        """Stop parsing and reading until `resume`."""
        self.is_stalled = True
        self.protocol.suspend(True)
        if self.transport is not None:
            self.transport.pause_reading()
        else:
            self.reactor.want(self, POLLER_WRITE if self.is_blocked else 0)
        return 0

    cdef int resume(self) except -1:
        """End a stall: parse the unparsed bytes, then continue to read."""
        cdef Py_ssize_t size = self.tail_bytes
        if self.reason is not None:
            return 0
        self.is_stalled = False
        self.protocol.suspend(False)
        if size or self.framing is not None:
            if size:
                memcpy(self.reactor.read_buffer, self.tail, size)
            self.process(self.reactor.read_buffer, size)
        if not self.is_stalled and self.reason is None:
            self.continue_reading()
        return 0

    def resume_reading(self, call) -> None:
        """Call `call()`, then parse what was kept and continue to read, in a turn of its own."""
        self.reactor.begin()
        self.is_deciding = False
        try:
            call()
            self.resume()
        except Exception:
            self.reactor.failed(self)
        self.reactor.finish()

    cdef int continue_reading(self) except -1:
        """Watch the socket for readable data again."""
        if self.transport is not None:
            self.transport.resume_reading()
        else:
            self.reactor.want(self, POLLER_READ | (POLLER_WRITE if self.is_blocked else 0))
        return 0

    # ---- appending

    cdef int append(self, const char* data, Py_ssize_t size) except -1:
        """Append protocol text to the outbound buffer; a closed connection ignores it."""
        if self.out.limit - self.out.position < size:
            if not self.make_room(size, size):
                return 0
            self.reactor.congested = None  # publishers do not wait because of protocol text
        memcpy(self.out.position, data, size)
        self.out.position += size
        if not self.is_dirty:
            self.reactor.mark_dirty(self)
        return 0

    def send(self, bytes data not None) -> None:
        """Queue bytes, such as protocol text; a closed connection ignores them."""
        self.append(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef bint make_room(self, Py_ssize_t need, Py_ssize_t total) except -1:
        """Make room for `need` bytes of a frame of `total` bytes; False: the frame is refused.

        This may flush, mark the connection as congested, or close it as a slow consumer.
        """
        cdef int64_t pending = self.pending()
        cdef int64_t most = self.settings.max_pending
        cdef ChunkPool pool = self.reactor.pool
        if self.reason is not None:
            return False
        if not self.is_blocked and (pending > PENDING_FLUSH_BYTES or pending + total > most):
            self.flush()
            pending = self.pending()
        if pending + total > most:
            self.close_slow(
                ClosedReason.SLOW_CONSUMER_PENDING_BYTES, f"MaxPending of {most} Exceeded"
            )
            return False
        self.is_congested = pending > most // 4 * 3
        if self.is_congested:
            self.reactor.congested = self
        out_roll(&self.out, pool, need)
        if pool.pending_bytes > pool.pending_bytes_max:
            close_slowest(self.reactor)
            if self.reason is not None:
                return False
        if self.is_congested:
            self.out.limit = self.out.position + need
        elif self.out.limit - self.out.position > most - pending:
            self.out.limit = self.out.position + max(need, most - pending)
        return True

    # ---- sending

    cdef int flush(self) except -1:
        """Send the pending bytes, as far as the socket takes them."""
        self.session.before_flush()
        if self.is_blocked:
            self.keep_pending()
        elif self.fd >= 0:
            self.send_pending()
        elif self.transport is not None:
            self.send_to_transport()
        return 0

    cdef int64_t pending(self) noexcept:
        """Return the bytes that the socket, or the transport, has not taken yet."""
        cdef int64_t size = out_pending(&self.out)
        if self.framing is not None:
            size += out_pending(&self.framing.sealed)
        if self.nested is not None:
            size += out_pending(&self.nested.sealed)
        return size

    cdef Outbound* sendable(self) except NULL:
        """Return the bytes that are to be sent next, in frames if there is a framing."""
        cdef Outbound* out = &self.out
        if self.framing is None:
            return out
        if self.nested is not None:
            self.nested.seal(out, self.reactor.pool)
            out = &self.nested.sealed
        self.framing.seal(out, self.reactor.pool)
        return &self.framing.sealed

    cdef int send_pending(self) except -1:
        """Send to the socket until nothing is pending or the socket is full."""
        cdef Outbound* out = self.sendable()
        cdef iovec[VECTORS] vector
        cdef msghdr message
        cdef Py_ssize_t size
        cdef ssize_t sent
        cdef int n
        cdef int i
        while out_pending(out):
            n = out_gather(out, vector, VECTORS)
            size = 0
            for i in range(n):
                size += vector[i].iov_len
            if n == 1:
                sent = send(self.fd, vector[0].iov_base, size, SEND_FLAGS)
            else:
                memset(&message, 0, sizeof(message))
                message.msg_iov = vector
                message.msg_iovlen = n
                sent = sendmsg(self.fd, &message, SEND_FLAGS)
            if sent < 0 and errno == EINTR:
                continue
            if sent < 0 and errno != EAGAIN:
                self.drop_pending()
                self.close(ClosedReason.WRITE_ERROR)
                return 0
            if sent > 0:
                out_sent(out, self.reactor.pool, sent)
            if sent < size:
                return self.block()
            if self.framing is not None:
                out = self.sendable()
        return 0

    cdef int drop_pending(self) except -1:
        """Drop all pending bytes, and remember how many they were."""
        self.dropped_bytes += self.pending()
        out_clear(&self.out, self.reactor.pool)
        if self.framing is not None:
            out_clear(&self.framing.sealed, self.reactor.pool)
        if self.nested is not None:
            out_clear(&self.nested.sealed, self.reactor.pool)
        return 0

    cdef int block(self) except -1:
        """Wait until the full socket takes more, and keep the pending bytes."""
        self.blocked_ns = self.reactor.now_ns
        if not self.is_blocked:
            self.is_blocked = True
            self.reactor.want(self, POLLER_WRITE | (0 if self.is_stalled else POLLER_READ))
        return self.keep_pending()

    cdef int keep_pending(self) except -1:
        """Copy pending bytes out of the read buffer; close the slowest connections if needed."""
        cdef ChunkPool pool = self.reactor.pool
        if self.framing is not None and self.framing.sealed.fresh:
            out_keep(&self.framing.sealed, pool)
        if self.nested is not None and self.nested.sealed.fresh:
            out_keep(&self.nested.sealed, pool)
        if self.out.fresh:
            out_keep(&self.out, pool)
            if pool.pending_bytes > pool.pending_bytes_max:
                close_slowest(self.reactor)
        return 0

    cdef int on_writable(self) except -1:
        """Send pending bytes; when none is left, close an ending connection."""
        if self.is_blocked:
            self.send_pending()
            if self.pending() == 0 and self.reason is None:
                self.is_blocked = False
                if self.retried_ns:
                    self.has_caught_up()
                if self.is_ending:
                    self.close(ClosedReason.CLIENT_CLOSED)
                else:
                    self.reactor.want(self, 0 if self.is_stalled else POLLER_READ)
            self.unblock()
        return 0

    cdef int64_t stall_for(self, int64_t* waited_ns) except -1:
        """Return the ns that a publisher waits for this connection, and add them to `waited_ns`."""
        if waited_ns[0] >= STALL_TOTAL_NS:
            return 0
        self.stalls += 1
        waited_ns[0] += STALL_NS
        return STALL_NS

    cdef int sweep(self, int64_t now_ns) except -1:
        if self.reason is not None:
            return 0
        if self.is_blocked and now_ns - self.blocked_ns > self.settings.write_deadline_ns:
            if self.is_ending:
                self.close(ClosedReason.CLIENT_CLOSED)
                return 0
            self.deadline_passed(now_ns)
            if self.reason is not None:
                return 0
        if self.is_ending:
            return 0
        return self.session.check_deadlines(now_ns)

    cdef int deadline_passed(self, int64_t now_ns) except -1:
        """Close, or wait for another deadline, after the socket took nothing for so long."""
        cdef str why = (
            f"WriteDeadline of {self.settings.write_deadline_ns / 1e9:g}s exceeded with "
            f"{self.pending()} total bytes."
        )
        if not self.settings.retries_writes or self.blocked_ns == self.retried_ns:
            return self.close_slow(ClosedReason.SLOW_CONSUMER_WRITE_DEADLINE, why)
        self.session.slow_consumer(why, self.retried_ns != 0)
        self.blocked_ns = self.retried_ns = now_ns
        return 0

    cdef int has_caught_up(self) except -1:
        """Note that the socket took all, after a deadline that closed nothing."""
        self.retried_ns = 0
        self.session.caught_up()
        return 0

    cdef int unblock(self) except -1:
        """Let publishers continue if the connection is no longer congested."""
        if self.is_congested and self.pending() <= self.settings.max_pending // 4 * 3:
            self.is_congested = False
            self.reactor.drained()
        return 0

    # ---- closing

    def close(self, reason) -> None:
        """Close the connection at the end of this turn; the first `reason` is kept."""
        if self.reason is None:
            if self.framing is not None:
                reason = self.framing.closing(reason)
            self.reason = reason
            self.protocol.suspend(True)
            self.out.limit = self.out.position
            self.reactor.doom(self)

    def fail(self) -> None:
        """Close the connection because one of its handlers raised."""
        self.close(ClosedReason.PROTOCOL_VIOLATION)

    def linger(self) -> None:
        """Let the close wait (at most `reactor.LINGER_S`) so that the peer reads the last bytes."""
        self.lingers = True

    cdef int peer_ended(self) except -1:
        """Handle a FIN: close once the pending bytes are sent, or the write deadline is over."""
        self.flush()
        if not self.is_blocked or self.reason is not None:
            self.close(ClosedReason.CLIENT_CLOSED)
            return 0
        self.is_ending = True
        self.is_stalled = True
        self.protocol.suspend(True)
        self.reactor.want(self, POLLER_WRITE)
        self.session.ended()
        return 0

    cdef int close_slow(self, object reason, str why) except -1:
        """Drop the pending bytes and close as a slow consumer; `why` is the exceeded limit."""
        self.session.slow_consumer(why)
        self.drop_pending()
        self.close(reason)
        return 0

    cdef int tear_down(self) except -1:
        """Send pending bytes if the socket takes them, close it, and let go of everything."""
        cdef Protocol protocol = self.protocol
        cdef Session session = self.session
        if self.fd >= 0:
            self.send_pending()
            if self.framing is not None and self.pending() == 0:
                self.framing.finish(self.reactor.pool)
                self.send_pending()
        self.reactor.forget(self)
        if self.transport is not None:
            self.close_transport()
        elif self.fd >= 0:
            self.close_socket()
        self.drop_pending()
        free(self.tail)
        self.tail = NULL
        self.tail_bytes = 0
        self.protocol = deaf
        self.session = nobody
        protocol.drop()
        try:
            return session.end()
        finally:
            self.framing = self.nested = None

    cdef int close_socket(self) except -1:
        """Close the socket; a connection that lingers discards its input first.

        With unread input the kernel would reset the connection, and an -ERR could get lost.
        """
        cdef char[4096] discarded
        cdef ssize_t n = 1
        cdef int rounds = DISCARD_ROUNDS
        cdef int fd = self.fd
        self.fd = -1
        if not self.lingers:
            close_file(fd)
            return 0
        shutdown(fd, SHUT_WR)
        while n > 0 and rounds:
            n = recv(fd, discarded, sizeof(discarded), MSG_DONTWAIT)
            rounds -= 1
        if n == 0:
            close_file(fd)
        else:
            self.reactor.close_later(fd)
        return 0

    cdef int close_transport(self) except -1:
        """Pass the pending bytes to the transport and close it; abort it for a slow consumer."""
        cdef Outbound* out
        transport = self.transport
        self.transport = None
        if self.reason in SLOW_CONSUMER:
            self.dropped_bytes += transport.get_write_buffer_size()
            transport.abort()
            return 0
        out = self.sendable()
        while out_pending(out):
            transport.write(out_take(out, self.reactor.pool, out_pending(out)))
            out = self.sendable()
        if self.framing is not None and self.pending() == 0:
            self.framing.finish(self.reactor.pool)
            transport.write(out_take(out, self.reactor.pool, out_pending(out)))
        transport.close()
        return 0

    # ---- for a transport

    def read_space(self, Py_ssize_t hint):
        """Return writable memory for bytes of the transport.

        `bytes_read` must follow before another read, since all connections share the memory.
        """
        cdef Py_ssize_t room = 0
        cdef char* at = self.space(&room)
        return PyMemoryView_FromMemory(at, room, PyBUF_WRITE)

    def bytes_read(self, Py_ssize_t n) -> None:
        """Parse `n` bytes that the transport put into `read_space`."""
        self.reactor.begin()
        try:
            self.received(n)
        except Exception:
            self.reactor.failed(self)
        self.reactor.finish()

    def writing_paused(self) -> None:
        """Stop sending, because the transport's buffer is not empty."""
        self.is_blocked = True
        self.blocked_ns = monotonic_ns()

    def writing_resumed(self) -> None:
        """Continue sending, because the transport's buffer is empty again."""
        self.reactor.begin()
        self.is_blocked = False
        if self.retried_ns:
            self.has_caught_up()
        self.send_to_transport()
        self.unblock()
        self.reactor.finish()

    cdef int send_to_transport(self) except -1:
        """Pass pending bytes to the transport until it pauses writing."""
        cdef Outbound* out = self.sendable()
        while out_pending(out) and not self.is_blocked:
            self.transport.write(out_take(out, self.reactor.pool, TRANSPORT_BYTES))
            if self.framing is not None:
                out = self.sendable()
        return self.keep_pending()

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for the socket, or waited for it when the connection was closed."""
        cdef int64_t waiting = self.pending() + self.dropped_bytes
        if self.transport is not None:
            waiting += self.transport.get_write_buffer_size()
        return waiting


def nothing_to_do() -> None:
    """Do nothing: what follows is parsed by the framing that was put around it."""


cdef int close_slowest(Reactor reactor) except -1:
    """Close the connections with the most pending bytes, until an eighth of the bound is free."""
    cdef ChunkPool pool = reactor.pool
    cdef int64_t most = pool.pending_bytes_max
    cdef Endpoint endpoint
    cdef uint32_t i
    cdef list slowest = []
    for i in range(reactor.pollable_count):
        if isinstance(<Pollable>reactor.pollables[i], Endpoint):
            endpoint = <Endpoint>reactor.pollables[i]
            if endpoint.reason is None and endpoint.pending():
                slowest.append((endpoint.pending(), i, endpoint))
    slowest.sort()
    while slowest and pool.pending_bytes > most - most // 8:
        endpoint = slowest.pop()[2]
        endpoint.close_slow(
            ClosedReason.SLOW_CONSUMER_PENDING_BYTES,
            f"MaxPendingTotal of {most} Exceeded with {endpoint.pending()} total bytes.",
        )
    return 0
