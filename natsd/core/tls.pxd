"""Declarations of tls.pyx."""

from libc.stdint cimport int64_t


cdef class TlsEngine:
    cdef Reactor reactor
    cdef object incoming             # ssl.MemoryBIO: received bytes of the connection being served
    cdef object outgoing             # ssl.MemoryBIO: encrypted bytes of the same connection
    cdef char* plain                 # decrypted bytes of one read
    cdef Py_ssize_t plain_bytes
    cdef object waiting              # deque of framings whose handshake waits for its turn
    cdef bint is_scheduled           # the loop will call `_continue`
    cdef int64_t free_at_ns          # monotonic time from which a handshake need not wait

    cdef bint must_wait(self)
    cdef int wait(self, TlsFraming framing) except -1


cdef class TlsFraming(Framing):
    cdef TlsEngine engine
    cdef Endpoint endpoint
    cdef readonly bint is_client     # this side sends the first record
    cdef object opening              # what is told of the end of the handshake; then None
    cdef readonly object tls         # ssl.SSLObject; None: no whole record has come yet
    cdef readonly bint has_begun     # the peer's first byte is that of a handshake
    cdef public bint is_first        # the handshake came before INFO
    cdef readonly bint is_open       # the handshake is complete
    cdef bint has_ended              # the peer sent close_notify, or TLS failed: no more is read
    cdef bint has_failed             # nothing is encrypted any more either
    cdef bint is_admitted            # the next step of the handshake is due
    cdef bint is_waiting             # in the engine's `waiting`
    cdef char* rest                  # decrypted bytes that the protocol has not used
    cdef Py_ssize_t rest_bytes

    cdef int receive_sealed(self, const char* buffer, Py_ssize_t size) except -1
    cdef int shake_hands(self) except -1
    cdef int decrypt(self) except -1
    cdef Py_ssize_t decrypt_into(self, char* at, Py_ssize_t room) except -1
    cdef int keep_rest(self, const char* at, Py_ssize_t size) except -1
    cdef int collect(self) except -1
    cdef int fail(self, object error) except -1
