"""Declarations of subscription.pyx: messages, sinks and subscriptions."""

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


cpdef enum Kind:               # what publishes a message; the values are nats-server's
    CLIENT_KIND = 0
    ROUTE_KIND = 1
    GATEWAY_KIND = 2
    SYSTEM_KIND = 3
    LEAF_KIND = 4
    JETSTREAM_KIND = 5
    ACCOUNT_KIND = 6           # a part of the server that publishes in an account

cdef struct Hop:               # a service import that a message went through; it owns nothing
    PyObject* export           # ExportedService
    PyObject* account          # natsd.accounts.Account that imports the service
    bint is_shared             # the import shares what is known of the requestor
    const Hop* before          # the hop before this one; NULL: this is the first

cdef struct Origin:            # what publishes messages; it owns nothing
    PyObject* session          # Session that received it from a peer; NULL: the server itself
    PyObject* account          # natsd.accounts.Account in which it is published; NULL: none yet
    Kind kind
    const Hop* hop             # last service import on the way; NULL: published in the account

cdef inline bint is_routed(const Origin* origin) noexcept:
    """Return whether another server sent the message, and it has not changed its account since."""
    return origin.kind == ROUTE_KIND and origin.hop == NULL

cdef struct Message:           # a message on its way from a publisher to sinks; it owns nothing
    const char* subject
    Py_ssize_t subject_len
    const char* reply          # NULL: no reply subject
    Py_ssize_t reply_len
    const char* line           # "[reply ][header size ]size CRLF", as in (H)PUB and (H)MSG
    Py_ssize_t line_len
    const char* data           # header block, then payload; CRLF always follows it in memory
    Py_ssize_t header_len      # bytes of the header block; 0: no headers
    Py_ssize_t data_len        # bytes of headers and payload, without the CRLF
    PyObject* owner            # bytes object that owns `data`; NULL: valid until deliver returns
    const Origin* origin       # never NULL


cdef class Sink:
    cdef int deliver(self, Subscription sub, Message* message) except -1


cdef Sink nowhere              # sink of a detached subscription; it accepts no message


cdef class Subscription:
    cdef char* text            # one allocation: subject, queue, sid, each NUL-terminated
    cdef uint32_t subject_len
    cdef uint32_t queue_len    # 0: plain subscription
    cdef uint32_t sid_len
    cdef readonly int32_t weight        # how often a remote queue subscription is in its group
    cdef readonly bint closed           # the owner ended it: deliver must skip it
    cdef readonly bint is_remote        # another server told of it; set before it is listed
    cdef public bint is_private         # no other server is told of it; set before it is listed
    cdef uint32_t index        # only the SubList uses it: index in the array of the node or group
    cdef readonly int64_t delivered     # messages delivered so far
    cdef readonly int64_t max_delivered  # auto-unsubscribe after so many messages; 0: never
    cdef readonly Sink sink
    # Only the SubList uses these: the position of this subscription.
    cdef void* node            # trie node; NULL: no SubList lists this subscription
    cdef void* group           # queue group at that node; NULL: plain subscription


cdef class ImportedSubscription(Subscription):    # listed in the account of an exported stream
    cdef readonly Subscription original           # the subscription in the importing account


cdef enum:
    WEIGHT_MAX = 65536         # upper limit of `Subscription.weight`


cdef inline const char* queue_of(Subscription sub) noexcept:
    """Return the queue name; it is empty for a plain subscription."""
    return sub.text + sub.subject_len + 1


cdef inline const char* sid_of(Subscription sub) noexcept:
    """Return the subscription id."""
    return sub.text + sub.subject_len + sub.queue_len + 2


cdef inline bint is_untold(Subscription sub) noexcept:
    """Return whether other servers are not told of the subscription."""
    return sub.is_remote or sub.is_private


cdef inline void detach(Subscription sub) noexcept:
    """End a subscription for its owner. This breaks the cycle sink -> subscription -> sink."""
    sub.closed = True
    sub.sink = nowhere


# Constructor for C: `queue_len` 0 for a plain subscription; the bytes are copied.
cdef Subscription new_subscription(
    const char* subject, Py_ssize_t subject_len,
    const char* queue, Py_ssize_t queue_len,
    const char* sid, Py_ssize_t sid_len,
    Sink sink,
)
