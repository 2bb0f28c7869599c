"""Loading a block that was evicted: which slots its messages have, found without a lock.

The scan of the file and this run in a thread; `MsgBlock.load` then takes the arrays over on the
loop's thread. Meanwhile the log goes on: a message that lives all the time keeps its subject's
slot, and what is removed meanwhile is dead in the block whatever slot was found for it.
"""

from libc.stdint cimport int64_t, uint32_t

from natsd.store.block_index cimport NO_SLOT, OFFSET_MASK
from natsd.store.record cimport RecordView, view_record
from natsd.store.scan cimport Scan
from natsd.store.subject_index cimport SubjectIndex
from natsd.trie.epochs cimport Lease, enter, leave
from natsd.trie.record_trie cimport RecordTrie

cdef enum:
    LEASE_LOOKUPS = 512         # under one lease: recycling is not held up for longer


def fill_slots(Scan scan not None, SubjectIndex subjects not None) -> None:
    """Find the slots of all messages of `scan`; NO_SLOT for a subject that is not there."""
    cdef RecordTrie trie = subjects.trie
    cdef uint32_t at = 0, end
    cdef int failed = 0
    with nogil:
        while at < scan.index.count and failed == 0:
            end = min(at + LEASE_LOOKUPS, scan.index.count)
            failed = find_slots(scan, trie, at, end)
            at = end
    if failed:
        raise MemoryError()


cdef int find_slots(Scan scan, RecordTrie trie, uint32_t at, uint32_t end) noexcept nogil:
    cdef Lease* lease = enter(&trie.memory.epochs)
    cdef RecordView view
    cdef int64_t slot
    cdef uint32_t offset
    if lease == NULL:
        return -1
    for at in range(at, end):
        offset = scan.index.offsets[at] & OFFSET_MASK
        if offset == 0:
            continue
        view_record(scan.bytes_at + offset, &view)
        slot = trie.find(<const unsigned char*> view.subject, view.subject_len)
        scan.index.slots[at] = <uint32_t> slot if slot >= 0 else <uint32_t> NO_SLOT
    leave(lease)
    return 0
