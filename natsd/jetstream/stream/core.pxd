"""A stream's heart for compiled callers: its log, what of it may be shown, who reads it."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.outlet cimport Outlet
from natsd.core.sublist cimport SubList
from natsd.jetstream.scheduler cimport Actor, Scheduler
from natsd.jetstream.stream.slot_readers cimport ReaderFilters, SlotReaders
from natsd.store.block cimport MsgBlock
from natsd.store.log cimport MessageLog
from natsd.store.observer cimport LogObserver
from natsd.store.sequence_set cimport SequenceSet


cdef enum Retention:
    LIMITS = 0
    INTEREST = 1
    WORKQUEUE = 2

cdef enum Need:                 # of the readers, for one message
    UNNEEDED = 0
    NEEDED = 1
    UNKNOWN = 2                 # which readers it concerns is not in memory


cdef class Reader(Actor):
    """Who reads a stream: a consumer's engine is one."""

    cdef StreamCore stream              # None: not added
    # It has read all that is visible and wants more. Set by `StreamCore.await_more` only; when
    # something for it appears it is submitted, and this is False again.
    cdef bint is_hungry
    cdef bint is_filtered               # False: it wants every message
    cdef ReaderFilters filters          # what it wants, in `StreamCore.filters`

    # Of filtered readers only, for messages that match; not for what is not visible yet:
    cdef int appeared(self, uint64_t sequence) except -1
    cdef int vanished(self, uint64_t sequence) except -1    # is about to be removed, for any cause
    # Of all: removals that could not be told apart, so what is pending is to be counted anew.
    cdef int recount(self) except -1
    # Interest retention: is this message, which matches, still to be acknowledged by this reader?
    cdef bint needs(self, uint64_t sequence) except -1


cdef class CallbackReader(Reader):
    cdef object handler


cdef class StreamCore(Actor):
    cdef readonly str name
    cdef readonly object store          # LogStore: awaitable doors (fetch(block), synced(), ...)
    cdef readonly MessageLog log
    cdef readonly Outlet outlet
    cdef readonly Scheduler scheduler
    cdef readonly uint64_t visible      # all up to this sequence is durable and may be shown
    cdef Retention retention

    cdef Actor ingest                   # submitted when something became durable, or went; or None
    cdef Actor republisher              # submitted when something became durable; or None
    cdef object commit_failed           # the ingest's: called with the StoreError
    cdef SubList filters                # Subscription(filter, sink=ReaderFilters)
    cdef list leaving                   # the steps that take ReaderFilters out of it
    cdef dict filtered                  # reader -> None, in the order they came
    cdef dict unfiltered
    cdef list hungry                    # of the unfiltered ones
    cdef list waiting                   # actors that are submitted when more is visible, once
    cdef readonly uint64_t rollbacks    # commits that failed: what had been appended is gone
    cdef SlotReaders known              # which filtered readers the subject of a slot concerns
    cdef LogObserver observer
    cdef uint64_t hidden_from           # nothing is shown from there on; 0: all is
    cdef object showing                 # a future, done when nothing is hidden any more; or None
    cdef bint needs_recount
    cdef uint64_t recheck_from          # whom messages interest is asked from here on; 0: it is not
    cdef SequenceSet unsettled          # perhaps to be removed, in blocks that are not in memory
    cdef object settling                # the task that looks at them, or None
    cdef bint has_retention             # it was said which
    # Interest: messages up to this one stay although no reader asks for them; 0: none do.
    cdef readonly uint64_t kept_through
    cdef bint may_remove                # all readers are there
    cdef bint is_closed

    # Called by the store's listener, or by who knows that all is durable at once: shows messages,
    # tells readers, submits hungry ones.
    cdef int advance(self, uint64_t durable) except -1
    # The reader has read all that is visible: it is submitted when something for it appears.
    cdef int await_more(self, Reader reader) except -1
    # `by` needs it no more: work queue and interest retention remove it. Nothing with limits.
    cdef int acked(self, Reader by, uint64_t sequence) except -1
    # Would a message of that subject be read by anybody?
    cdef bint is_wanted(self, const char* subject, Py_ssize_t length) except -1

    cdef int wake_waiting(self) except -1
    cdef int show(self, uint64_t first, uint64_t last) except -1
    cdef int feed(self, Reader reader) except -1
    cdef int going(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1
    cdef int recount_soon(self) except -1
    cdef tuple concerned(self, uint64_t sequence, uint32_t slot, MsgBlock block)
    cdef Need need_of(self, uint64_t sequence, Reader but) except? UNKNOWN
    cdef Need settle(self, uint64_t sequence, Reader but) except? UNKNOWN
    cdef MsgBlock cold_block(self)
    cdef int settle_first(self) except -1
    cdef int withdraw(self, Reader reader) except -1
    cdef int claims_went(self) except -1
    cdef int leave(self, ReaderFilters wanted) except -1
    cdef bint unlist_some(self) except -1
    cdef int remove(self, uint64_t sequence) except -1
    cdef int put_off(self, uint64_t sequence) except -1
    cdef bint recheck(self) except -1
