"""TransactionalLog: a MessageLog whose changes become durable by commits, or are rolled back.

    take ─▶ extents, to be written ─┬─ committed ───▶ blocks to unlink, bytes to overwrite
                                    └─ rolled_back ─▶ begun blocks, whose files must be unlinked

Promise
- `take` seals all changes so far. At most one commit is in flight; other changes go on meanwhile.
- `rolled_back` undoes everything since the durable point, in flight or not: appends, removals,
  expiries, and the emptying of the whole log. Changes of earlier commits stay.
- Nothing that the stream's replicas have not committed (`is_staged`) is taken: what is on disk is
  committed, so `rolled_back` reaches back to a commit of the replicas or to an earlier one.
- Nothing of a removed message is given up before the commit that contains its removal is durable:
  neither its block nor its subject's slot.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport BlockExtent, FOUND, MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.log.subjects cimport SubjectIndex
from natsd.store.sequence_set cimport SequenceSet


cdef class Sealed:
    """The state that the extents in flight make durable."""


cdef class TransactionalLog(MessageLog):
    """A MessageLog whose changes become durable by commits, or are rolled back."""

    def __cinit__(self, limits=None, make_block=None):
        self.is_undoable = True
        self.new_journal()

    @property
    def is_quiet(self):
        """Whether every change is durable."""
        return self.sealed is None and not self.is_dirty

    cdef Edges known(self) noexcept:
        return self.sealed.edges if self.sealed is not None else self.undo_log.durable

    @property
    def is_dirty(self):
        """Whether there is a change that no extent has taken."""
        cdef Edges known = self.known()
        cdef Py_ssize_t replaced = self.sealed.replaced if self.sealed is not None else 0
        return (
            known.last != self.edges.last or known.first != self.edges.first
            or self.tombstones.count > 0 or self.erasures.count > 0
            or len(self.replaced) > replaced
        )

    @property
    def undo_bytes(self):
        """Bytes of memory kept only for a rollback: commit before this grows large."""
        return self.undo_log.removal_count * sizeof(Removal)

    @property
    def active(self):
        """The block that is appended to; None: there is none."""
        return self.blocks.active

    def take_over(
        self, list blocks not None, SubjectIndex subjects not None, SequenceSet dead not None,
        Expiries expiries not None, *, uint64_t first_sequence, uint64_t last_sequence,
        int64_t first_time_ns, int64_t last_time_ns, uint64_t msgs, uint64_t live_bytes,
    ):
        """Continue from the state found on disk; only for a log without any change so far.

        `first_time_ns` is the time of the first message, or an earlier one. `dead` holds the
        sequences between first and last that have no message.
        """
        assert self.msgs == 0 and self.blocks.count == 0
        self.blocks.set(blocks)
        self.subjects = subjects
        self.dead = dead
        self.expiries = expiries
        self.msgs = msgs
        self.live_bytes = live_bytes
        self.edges.first = first_sequence
        self.edges.last = last_sequence
        self.edges.first_time_ns = first_time_ns
        self.edges.last_time_ns = last_time_ns
        self.edges.first_time_is_exact = msgs == 0
        self.new_journal()
        self.is_behind = self.is_over()

    def take(self, uint64_t commit_number, *, bint force=False, bint closing=False):
        """Seal the changes; return the (block, extent) pairs to write, in this order.

        The list is empty if there is no change. Then `committed` or `rolled_back` must follow
        before the next call. While a batch is half appended nothing is taken, until the rest of it
        is there; nor while a change is not committed by the stream's replicas. `force`: write a
        mark even without a change. `closing`: the mark says that all before it is synced.
        """
        cdef Sealed sealed
        assert self.sealed is None
        self.is_told = False
        if self.is_together or self.is_staged:
            return []
        if not (force or closing or self.is_dirty):
            return []
        self.write_removals()
        extents = self.take_blocks(commit_number, closing)
        sealed = Sealed()
        sealed.blocks = [block for block, _ in extents]
        sealed.undo_log = self.undo_log
        sealed.removals = self.undo_log.removal_count
        sealed.begun = len(self.undo_log.begun)
        sealed.retired = len(self.undo_log.retired)
        sealed.expired = self.undo_log.expired.count
        sealed.replaced = len(self.replaced)
        sealed.removed_names = self.subjects.seal()
        sealed.subjects = self.subjects
        sealed.edges = self.edges
        sealed.applied_index = self.applied_index
        sealed.erasures = self.erasures
        self.erasures = SequenceSet()
        self.sealed = sealed
        return extents

    cdef list take_blocks(self, uint64_t commit_number, bint closing):
        """Take the uncommitted bytes of the last blocks, and at least a mark of the active block.

        Only the active block's mark moves the first sequence: messages that its messages remove
        must not disappear before these are on disk.

        If blocks were dropped before they were written, the other blocks must not be found without
        the active one: a first sequence of 0 in their marks says that the commit goes on.
        """
        cdef uint64_t first = 0 if leaves_out(self) else self.undo_log.durable.first
        cdef MsgBlock block
        cdef BlockExtent extent
        cdef list extents = []
        cdef bint is_active
        cdef uint32_t at = self.blocks.count - 1
        while at > 0 and is_unsaved(self.blocks.at(at - 1)):
            at -= 1
        for at in range(at, self.blocks.count):
            block = self.blocks.at(at)
            is_active = block is self.blocks.active
            extent = block.take(
                commit_number, self.edges.first if is_active else first,
                self.edges.last if is_active else block.last_sequence,
                is_active, closing and is_active,
            )
            if extent is not None:
                extents.append((block, extent))
        return extents

    cdef int write_removals(self) except -1:
        cdef MsgBlock block = self.writable_block(self.edges.last + 1)
        cdef int64_t time_ns = self.edges.last_time_ns
        if self.tombstones.count:
            block.append_tombstones(self.tombstones.encode(), False, time_ns)
            self.tombstones.empty()
        if self.erasures.count:
            block.append_tombstones(self.erasures.encode(), True, time_ns)
        return 0

    def committed(self):
        """Make the extents durable; return the blocks without live messages, to be unlinked.

        Afterwards `erased` holds the sequences whose bytes must be overwritten now.
        """
        cdef MsgBlock block
        cdef Replaced old
        cdef Sealed sealed = self.sealed
        cdef UndoLog undo_log = sealed.undo_log
        self.sealed = None
        for block in sealed.blocks:
            block.commit_done()
        gone = []
        for old in self.replaced[:sealed.replaced]:
            gone += old.undo_log.retired
            gone += old.blocks.blocks
        del self.replaced[:sealed.replaced]
        gone += undo_log.retired[:sealed.retired]
        del undo_log.retired[:sealed.retired]
        del undo_log.begun[:sealed.begun]
        undo_log.drop_expired(sealed.expired)
        undo_log.drop(sealed.removals)
        undo_log.durable = sealed.edges
        sealed.subjects.forget_removed_names(sealed.removed_names)
        self.erased.union_update(sealed.erasures)
        self.durable_index = sealed.applied_index
        return gone

    def rolled_back(self):
        """Undo everything since the durable point; extents in flight were not written.

        Returns the blocks that began since then, whose files must be unlinked.
        """
        cdef Replaced old
        cdef UndoLog undo_log
        begun = []
        self.sealed = None
        later = [old.undo_log for old in self.replaced[1:]]
        if self.replaced:
            later.append(self.undo_log)
            old = self.replaced[0]
            self.replaced.clear()
            old.subjects.outlive(self.subjects)
            self.subjects = old.subjects
            self.dead = old.dead
            self.edges = old.edges
            self.msgs = old.msgs
            self.live_bytes = old.live_bytes
            self.undo_log = old.undo_log
            self.blocks = old.blocks
        for undo_log in later:
            begun += undo_log.begun
            self.undo_log.take_expired(undo_log)
        begun = self.undo_log.begun + begun
        self.blocks.set(self.undo_log.retired + self.blocks.blocks)
        self.undo_changes()
        self.undo_appends()
        self.tombstones.empty()
        self.erasures.empty()
        self.age_from = 0
        self.is_staged = False
        self.applied_index = self.durable_index
        self.is_behind = self.is_over() or len(self.over_limit) > 0
        if self.observer is not None:
            self.observer.rolled_back()
        return begun

    cdef int undo_changes(self) except -1:
        """Undo removals and expiries, except those of messages that the rollback removes anyway."""
        cdef Edges* durable = &self.undo_log.durable
        cdef Removal* removal
        cdef Expiry item
        cdef size_t at
        cdef MsgBlock block
        if self.edges.first > durable.first and durable.first <= durable.last:
            self.dead.add_run(durable.first, min(self.edges.first - 1, durable.last))
        for at in range(self.undo_log.removal_count):
            removal = &self.undo_log.removals[at]
            if removal.sequence > durable.last:
                continue
            block = self.blocks.holding(removal.sequence)
            if block.has_arrays:
                block.mark_live(removal.sequence)
                block.set_slot(removal.sequence, removal.slot)
            else:
                block.dead.discard_run(removal.sequence, removal.sequence)
            self.dead.discard_run(removal.sequence, removal.sequence)
            self.subjects.renote(removal.slot, removal.sequence)
            self.msgs += 1
            self.live_bytes += removal.size
        for at in range(self.undo_log.expired.count):
            item = (<Expiry*> self.undo_log.expired.items)[at]
            if item.sequence <= durable.last:
                self.expiries.add(item.at_ns, item.sequence, durable.first, self.dead, NULL)
        return 0

    cdef int undo_appends(self) except -1:
        """Drop the messages and blocks that were added since the durable point."""
        cdef Edges durable = self.undo_log.durable
        cdef MsgBlock block
        cdef RecordView view
        cdef uint64_t sequence = max(durable.last + 1, self.edges.first)
        cdef uint32_t slot
        while self.next_live(sequence, &sequence):
            block = self.blocks.holding(sequence)
            slot = block.slot_of(sequence)
            self.subjects.unnote(slot, sequence)
            if self.subjects.record(slot).count == 0 and block.view(sequence, &view) == FOUND:
                self.subjects.remember_removed(view.subject, view.subject_len)
            self.msgs -= 1
            self.live_bytes -= block.size_of(sequence)
            sequence += 1
        self.dead.discard_run(durable.last + 1, SEQUENCE_LAST)
        self.edges = durable
        begun = set(self.undo_log.begun)
        self.blocks.set([block for block in self.blocks.blocks if block not in begun])
        for block in self.blocks.blocks:
            if is_unsaved(block):
                block.undo()
        self.new_journal()
        return self.subjects.forget_removed_names(self.subjects.seal())


cdef inline bint is_unsaved(MsgBlock block) noexcept:
    """Return whether the block has bytes that are not on disk."""
    return block.size != block.durable.size


cdef bint leaves_out(TransactionalLog log) except -1:
    """Return whether blocks were dropped since the durable point with bytes not on disk."""
    cdef Replaced old
    cdef MsgBlock block
    cdef list gone = list(log.undo_log.retired)
    for old in log.replaced:
        gone += old.undo_log.retired
        gone += old.blocks.blocks
    for block in gone:
        if is_unsaved(block):
            return True
    return False
