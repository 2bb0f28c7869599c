"""What a message is on its way, who may receive it, and the interest that ties the two together."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t


cdef extern from *:
    """
    /* Live objects are counted in debug builds only (-DNATSD_DEBUG). */
    #ifndef NATSD_LIVE
    #ifdef NATSD_DEBUG
    #define NATSD_LIVE(counter, change) ((void)((counter) += (change)))
    #define NATSD_COUNTS_LIVE 1
    #else
    #define NATSD_LIVE(counter, change) ((void)0)
    #define NATSD_COUNTS_LIVE 0
    #endif
    #endif
    """
    void NATSD_LIVE(int64_t counter, int change) noexcept nogil
    const bint NATSD_COUNTS_LIVE

cdef struct LiveCounts:
    int64_t subscriptions
    int64_t nodes
    int64_t queue_groups
    int64_t match_results
    int64_t result_arrays
    int64_t cache_entries

cdef LiveCounts live


cdef struct Message:
    const char* subject
    Py_ssize_t subject_len
    const char* reply          # NULL: no reply subject
    Py_ssize_t reply_len
    const char* line           # "[reply ][header size ]size CRLF", as in (H)PUB and (H)MSG
    Py_ssize_t line_len
    const char* data           # header block, then payload; CRLF always stands behind it in memory
    Py_ssize_t header_len      # 0: no headers
    Py_ssize_t data_len        # headers and payload, without the CRLF
    PyObject* owner            # bytes object that owns `data`; NULL: valid until deliver returns


cdef class Sink:
    cdef int deliver(self, Subscription sub, Message* message) except -1


cdef Sink nowhere              # what a detached subscription delivers to: never None, takes nothing


cdef class Subscription:
    cdef char* text            # one allocation: subject, queue, sid, each NUL-terminated
    cdef uint32_t subject_len
    cdef uint32_t queue_len    # 0: plain subscription
    cdef uint32_t sid_len
    cdef readonly int32_t weight        # how often a remote queue subscription stands in its group
    cdef readonly bint closed           # no longer wanted by its owner: deliver must skip it
    cdef readonly int64_t delivered
    cdef readonly int64_t max_delivered  # auto-unsubscribe after that many; 0: never
    cdef readonly Sink sink
    # The SubList's own: where this subscription stands.
    cdef void* node            # its trie node; NULL: not inserted anywhere
    cdef void* group           # its queue group at that node; NULL: plain
    cdef uint32_t index        # its place in the node's or the group's array


cdef enum:
    WEIGHT_MAX = 65536         # no server stands more often than this in one group


cdef inline const char* queue_of(Subscription sub) noexcept:
    return sub.text + sub.subject_len + 1


cdef inline const char* sid_of(Subscription sub) noexcept:
    return sub.text + sub.subject_len + sub.queue_len + 2


cdef inline void detach(Subscription sub) noexcept:
    """Its owner wants nothing more. Breaks the cycle sink -> subscription -> sink."""
    sub.closed = True
    sub.sink = nowhere


# From C: `queue` NULL for a plain subscription; the bytes are copied.
cdef Subscription new_subscription(
    const char* subject, Py_ssize_t subject_len,
    const char* queue, Py_ssize_t queue_len,
    const char* sid, Py_ssize_t sid_len,
    Sink sink,
)
