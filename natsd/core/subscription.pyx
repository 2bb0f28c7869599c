"""Subscriptions, and the sinks to which their messages are delivered.

A Subscription takes 96 bytes plus one allocation for its texts. It does not take part in garbage
collection (`no_gc`): a full collection would visit a million of them, and the only object that a
Subscription holds is its sink. The only cycle that it can close is sink -> subscription -> sink.
The owner of the sink breaks that cycle: it calls `detach` when the subscription ends, which it must
do anyway so that match results that are still held skip the subscription. `sink` is never None, so
that a deliver through a stale result is harmless.
"""

cimport cython
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef class Sink:
    """A recipient of messages at C level. This base class accepts no message."""

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        """Deliver a message to `sub`; return 1 if the sink took it, else 0.

        Unless `message.owner` is set, the message is valid only until this returns.
        """
        return 0


nowhere = Sink()


cdef char* append_text(char* at, const char* data, Py_ssize_t length) noexcept:
    """Write a text and a NUL at `at`; return the address behind them."""
    if length:
        memcpy(at, data, length)
    at[length] = 0
    return at + length + 1


cdef int set_texts(
    Subscription sub,
    const char* subject, Py_ssize_t subject_len,
    const char* queue, Py_ssize_t queue_len,
    const char* sid, Py_ssize_t sid_len,
) except -1:
    cdef char* at
    if subject_len + queue_len + sid_len > 0x7fffffff:
        raise ValueError("subscription texts are longer than 2 GiB")
    sub.text = <char*> malloc(subject_len + queue_len + sid_len + 3)
    if sub.text == NULL:
        raise MemoryError
    at = append_text(sub.text, subject, subject_len)
    at = append_text(at, queue, queue_len)
    append_text(at, sid, sid_len)
    sub.subject_len = <uint32_t> subject_len
    sub.queue_len = <uint32_t> queue_len
    sub.sid_len = <uint32_t> sid_len
    return 0


@cython.no_gc
cdef class Subscription:
    """One client's subscription to a subject, plain or in a queue group.

    With `remote` another server told of it. Raises ValueError for an empty queue name, or for texts
    of more than 2 GiB.
    """

    def __cinit__(self):
        NATSD_LIVE(live.subscriptions, 1)
        self.weight = 1
        self.sink = nowhere

    def __init__(
        self, subject, queue=None, *, sid=b"", sink=None, weight=1, bint remote=False
    ):
        cdef bytes subject_bytes = wire_bytes(subject)
        cdef bytes queue_bytes = wire_bytes(b"" if queue is None else queue)
        cdef bytes sid_bytes = wire_bytes(sid)
        if self.text != NULL:
            raise TypeError("a Subscription is initialised once")
        if queue is not None and not queue_bytes:
            raise ValueError("a queue name has at least one byte")
        set_texts(
            self, subject_bytes, len(subject_bytes), queue_bytes, len(queue_bytes),
            sid_bytes, len(sid_bytes),
        )
        self.weight = max(0, min(weight, WEIGHT_MAX))
        self.is_remote = remote
        if sink is not None:
            self.sink = <Sink?> sink

    def __dealloc__(self):
        NATSD_LIVE(live.subscriptions, -1)
        assert self.node == NULL, "a SubList holds a reference to what it lists"
        free(self.text)

    def __repr__(self):
        queue = f", queue={self.queue!r}" if self.queue_len else ""
        return f"Subscription({self.subject!r}{queue}, sid={self.sid!r})"

    @property
    def subject(self) -> str:
        """Subject as text."""
        return wire_text(self.text, self.subject_len)

    @property
    def subject_bytes(self) -> bytes:
        """Subject as on the wire."""
        return self.text[:self.subject_len]

    @property
    def queue(self):
        """Queue name as text; None: a plain subscription."""
        return wire_text(queue_of(self), self.queue_len) if self.queue_len else None

    @property
    def queue_bytes(self):
        """Queue name as on the wire; None: a plain subscription."""
        return queue_of(self)[:self.queue_len] if self.queue_len else None

    @property
    def sid(self) -> str:
        """Subscription id, which the client chose, as text."""
        return wire_text(sid_of(self), self.sid_len)

    @property
    def sid_bytes(self) -> bytes:
        """Subscription id as on the wire."""
        return sid_of(self)[:self.sid_len]

    def detach(self) -> None:
        """End the subscription for its owner: set `closed` and release the sink."""
        detach(self)


@cython.no_gc
cdef class ImportedSubscription(Subscription):
    """A subscription in the account of an exported stream, on behalf of one that imports it.

    `original` is the subscription in the importing account, to which messages go.
    """

    def __init__(self, bytes subject not None, Subscription original not None, Sink sink not None):
        if self.text != NULL:
            raise TypeError("a Subscription is initialised once")
        set_texts(
            self, subject, len(subject), queue_of(original), original.queue_len,
            sid_of(original), original.sid_len,
        )
        self.original = original
        self.weight = original.weight
        self.sink = sink


cdef Subscription new_subscription(
    const char* subject, Py_ssize_t subject_len,
    const char* queue, Py_ssize_t queue_len,
    const char* sid, Py_ssize_t sid_len,
    Sink sink,
):
    cdef Subscription sub = Subscription.__new__(Subscription)
    set_texts(sub, subject, subject_len, queue, queue_len, sid, sid_len)
    if sink is not None:
        sub.sink = sink
    return sub


def live_counts() -> dict:
    """Return the number of live natsd objects by kind; empty in a release build."""
    if not NATSD_COUNTS_LIVE:
        return {}
    return dict(live)
