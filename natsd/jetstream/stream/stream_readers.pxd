"""The readers of a stream for compiled callers: its log, what of it is visible, and its readers."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport SubList
from natsd.store.block.blocks cimport MsgBlock
from natsd.store.log.message_log cimport LogObserver, MessageLog
from natsd.store.sequence_set cimport SequenceSet


cdef enum Retention:
    LIMITS = 0
    INTEREST = 1
    WORKQUEUE = 2

cdef enum Need:                 # whether the readers need one message
    UNNEEDED = 0
    NEEDED = 1
    UNKNOWN = 2                 # the block that would tell is not in memory


cdef class Reader(Actor):
    """A reader of a stream; the engine of a consumer is one."""

    cdef StreamReaders stream   # None: it was not added to a stream
    # The reader has read everything visible and waits for more. Only StreamReaders.await_more sets
    # it; when a message for the reader appears, the reader is submitted and this is False again.
    cdef bint is_waiting
    cdef bint is_filtered               # False: the reader wants every message
    cdef ReaderFilters filters          # its filters, which are in `StreamReaders.filters`

    # Called on filtered readers only, for visible messages that match their filters.
    cdef int appeared(self, uint64_t sequence) except -1
    # The message is about to be removed, for any cause.
    cdef int vanished(self, uint64_t sequence) except -1
    # Called on all readers after removals that were not reported one by one: count pending anew.
    cdef int recount(self) except -1
    # Interest retention: tell whether this reader still has to acknowledge this matching message.
    cdef bint needs(self, uint64_t sequence) except -1


cdef class CallbackReader(Reader):
    cdef object handler


cdef class StreamReaders(Actor):
    cdef readonly str name
    cdef readonly object store          # LogStore: the awaitable store (`fetch`, `synced`, …)
    cdef readonly MessageLog log
    cdef readonly AccountPublisher publisher
    cdef readonly Scheduler scheduler
    # Highest sequence that is shown: it is durable, or committed if the stream has replicas.
    cdef readonly uint64_t visible
    cdef readonly bint is_replica       # the log of its replicas makes its messages durable
    # Publishers of messages up to here are answered though these are not shown yet; 0: none are.
    cdef uint64_t acknowledged
    cdef readonly uint64_t committed    # highest sequence that is committed; one replica: all are
    # What makes commands of the stream's changes; None: one replica, nobody else has to agree.
    cdef readonly Proposer proposer
    cdef Retention retention
    # While uncommitted changes are undone: messages up to here will be stored again; else 0.
    cdef public uint64_t stored_again

    cdef Actor ingest                   # submitted when messages became durable or went; or None
    cdef Actor republisher              # submitted when messages became durable; or None
    cdef object commit_failed           # the ingest's callback, called with the StoreError
    cdef SubList filters                # Subscription(filter, sink=ReaderFilters)
    cdef list leaving                   # generators that take ReaderFilters out of `filters`
    cdef dict filtered                  # reader -> None, in the order in which they were added
    cdef dict unfiltered                # reader -> None
    cdef list waiting_readers           # unfiltered readers that wait for more messages
    cdef list waiting_actors            # actors that are submitted once, when more is visible
    cdef readonly uint64_t rollbacks    # failed commits; each dropped the unsynced messages
    cdef SlotReaders known              # the filtered readers that match the subject of a slot
    cdef LogObserver observer
    cdef uint64_t hidden_from           # messages from this sequence on are not shown; 0: all are
    cdef object showing                 # future: nothing is hidden any more; or None
    cdef bint needs_recount
    cdef uint64_t recheck_from          # next sequence to check for interest again; 0: none
    cdef SequenceSet unsettled          # to check for removal later; blocks may not be in memory
    cdef object settling                # the task that checks them, or None
    cdef bint has_retention             # `set_retention` was called
    # Interest retention: messages up to this one stay although no reader asks for them; 0: none.
    cdef readonly uint64_t kept_through
    cdef bint may_remove                # all readers were added, so messages may be removed
    cdef bint is_closed

    # Show messages up to `durable`: count them for readers and submit waiting readers. The store's
    # listener calls this, or a caller that knows that everything is durable at once. A replica
    # shows what is committed, in its files or not.
    cdef int advance(self, uint64_t durable) except -1
    # Return the highest sequence that needs no more memory until it is written.
    cdef uint64_t settled(self) except? 0
    # Submit the reader when a message for it appears; it has read everything visible.
    cdef int await_more(self, Reader reader) except -1
    # Note that the reader `by` needs this message no more: work-queue and interest retention remove
    # it.
    cdef int acked(self, Reader by, uint64_t sequence) except -1
    # Tell whether any reader's filter matches a subject.
    cdef bint is_wanted(self, const char* subject, Py_ssize_t length) except -1

    cdef int wake_waiting(self) except -1
    cdef int show(self, uint64_t first, uint64_t last) except -1
    cdef int notify(self, Reader reader) except -1
    cdef int removing(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1
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
    cdef int defer(self, uint64_t sequence) except -1
    cdef bint recheck(self) except -1
