"""LogCommits: the changes of a MessageLog become durable by commits, or are rolled back.

    take ─▶ extents, to be written ─┬─ committed ───▶ blocks to unlink, bytes to overwrite
                                    └─ rolled_back ─▶ begun blocks, whose files must be unlinked

The log notes in its undo log what is to be undone. A log in memory has no commits.

Promise
- `take` seals all changes so far. At most one commit is in flight; other changes go on meanwhile.
- `rolled_back` undoes everything since the durable point, in flight or not: appends, removals,
  expiries, and the emptying of the whole log. Changes of earlier commits stay.
- What is taken must not be written before the stream's replicas have committed it (`is_held`): what
  is on disk is committed, so `rolled_back` reaches back to a commit of the replicas or an earlier
  one.
- Nothing of a removed message is given up before the commit that contains its removal is durable:
  neither its block nor its subject's slot.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block.blocks cimport BlockExtent, FOUND, MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.sequence_set cimport SequenceSet


cdef class Sealed:
    """The state that the extents in flight make durable."""


@cython.final
cdef class LogCommits:
    """The commits of one log; what is in the log when they are made is durable."""

    def __cinit__(self, MessageLog log not None):
        self.log = log
        self.erased = SequenceSet()
        log.begin_undo_log()

    @property
    def is_quiet(self):
        """Whether every change is durable."""
        return self.sealed is None and not self.has_changes()

    @property
    def is_dirty(self):
        """Whether there is a change that no commit has taken."""
        return self.has_changes()

    @property
    def is_taken(self):
        """Whether a commit is in flight."""
        return self.sealed is not None

    @property
    def is_held(self):
        """Whether the commit in flight has to wait until the replicas have committed it."""
        return self.awaits_replicas()

    cdef bint awaits_replicas(self) noexcept:
        return self.sealed is not None and self.sealed.applied_index > self.log.committed_index

    cdef Edges known(self) noexcept:
        return self.sealed.edges if self.sealed is not None else self.log.undo_log.durable

    cdef bint has_changes(self) except -1:
        cdef MessageLog log = self.log
        cdef Edges known = self.known()
        cdef Py_ssize_t replaced = self.sealed.replaced if self.sealed is not None else 0
        return (
            known.last != log.edges.last or known.first != log.edges.first
            or log.tombstones.count > 0 or log.erasures.count > 0
            or len(log.replaced) > replaced
        )

    cpdef list take(self, uint64_t commit_number, bint force=False, bint closing=False):
        """Seal the changes; return the (block, extent) pairs to write, in this order.

        The list is empty if there is no change. Then `committed` or `rolled_back` must follow
        before the next call. While a batch is half appended nothing is taken, until the rest of it
        is there; nor while a change is not part of a command (`is_staged`). `force`: write a
        mark even without a change. `closing`: the mark says that all before it is synced.
        """
        cdef MessageLog log = self.log
        cdef UndoLog undo_log = log.undo_log
        cdef Sealed sealed
        assert self.sealed is None
        log.is_told = False
        if log.is_together or log.is_staged:
            return []
        if not (force or closing or self.has_changes()):
            return []
        self.write_removals()
        extents = self.take_blocks(commit_number, closing)
        sealed = Sealed()
        sealed.blocks = [block for block, _ in extents]
        sealed.undo_log = undo_log
        sealed.removals = undo_log.removal_count
        sealed.begun = len(undo_log.begun)
        sealed.retired = len(undo_log.retired)
        sealed.expired = undo_log.expired.count
        sealed.replaced = len(log.replaced)
        sealed.removed_names = log.subjects.seal()
        sealed.subjects = log.subjects
        sealed.edges = log.edges
        sealed.applied_index = log.applied_index
        sealed.erasures = log.erasures
        log.erasures = SequenceSet()
        self.sealed = sealed
        return extents

    cdef list take_blocks(self, uint64_t commit_number, bint closing):
        """Take the uncommitted bytes of the last blocks, and at least a mark of the active block.

        Only the active block's mark moves the first sequence: messages that its messages remove
        must not disappear before these are on disk.

        If blocks were dropped before they were written, the other blocks must not be found without
        the active one: a first sequence of 0 in their marks says that the commit goes on.
        """
        cdef MessageLog log = self.log
        cdef uint64_t first = 0 if self.leaves_out() else log.undo_log.durable.first
        cdef MsgBlock block
        cdef BlockExtent extent
        cdef list extents = []
        cdef bint is_active
        cdef uint32_t at = log.blocks.count - 1
        while at > 0 and is_unsaved(log.blocks.at(at - 1)):
            at -= 1
        for at in range(at, log.blocks.count):
            block = log.blocks.at(at)
            is_active = block is log.blocks.active
            extent = block.take(
                commit_number, log.edges.first if is_active else first,
                log.edges.last if is_active else block.last_sequence,
                is_active, closing and is_active,
            )
            if extent is not None:
                extents.append((block, extent))
        return extents

    cdef int write_removals(self) except -1:
        cdef MessageLog log = self.log
        cdef MsgBlock block = log.writable_block(log.edges.last + 1)
        cdef int64_t time_ns = log.edges.last_time_ns
        if log.tombstones.count:
            block.append_tombstones(log.tombstones.encode(), False, time_ns)
            log.tombstones.empty()
        if log.erasures.count:
            block.append_tombstones(log.erasures.encode(), True, time_ns)
        return 0

    cdef bint leaves_out(self) except -1:
        """Return whether blocks were dropped since the durable point with bytes not on disk."""
        cdef Replaced old
        cdef MsgBlock block
        cdef list gone = list(self.log.undo_log.retired)
        for old in self.log.replaced:
            gone += old.undo_log.retired
            gone += old.blocks.blocks
        for block in gone:
            if is_unsaved(block):
                return True
        return False

    cpdef list committed(self):
        """Make the extents durable; return the blocks without live messages, to be unlinked.

        Afterwards `erased` holds the sequences whose bytes must be overwritten now.
        """
        cdef MessageLog log = self.log
        cdef MsgBlock block
        cdef Replaced old
        cdef Sealed sealed = self.sealed
        cdef UndoLog undo_log = sealed.undo_log
        cdef list gone = []
        self.sealed = None
        for block in sealed.blocks:
            block.commit_done()
        for old in log.replaced[:sealed.replaced]:
            gone += old.undo_log.retired
            gone += old.blocks.blocks
        del log.replaced[:sealed.replaced]
        gone += undo_log.retired[:sealed.retired]
        del undo_log.retired[:sealed.retired]
        del undo_log.begun[:sealed.begun]
        undo_log.drop_expired(sealed.expired)
        undo_log.drop(sealed.removals)
        undo_log.durable = sealed.edges
        sealed.subjects.forget_removed_names(sealed.removed_names)
        self.erased.union_update(sealed.erasures)
        log.durable_index = sealed.applied_index
        return gone

    def cut(self, uint64_t sequence):
        """End the log at `sequence`, as MessageLog.cut; only while every change is durable."""
        assert self.is_quiet
        gone = self.log.cut(sequence)
        self.log.undo_log.durable = self.log.edges
        return gone

    cpdef list rolled_back(self):
        """Undo everything since the durable point; extents in flight were not written.

        Returns the blocks that began since then, whose files must be unlinked.
        """
        cdef MessageLog log = self.log
        cdef list begun
        self.sealed = None
        begun = self.return_to_first_state()
        log.blocks.set(log.undo_log.retired + log.blocks.blocks)
        self.undo_changes()
        self.undo_appends()
        log.tombstones.empty()
        log.erasures.empty()
        log.age_from = 0
        log.is_staged = False
        log.applied_index = log.durable_index
        log.is_behind = log.is_over() or len(log.over_limit) > 0
        if log.observer is not None:
            log.observer.rolled_back()
        return begun

    cdef list return_to_first_state(self):
        """Return to the state before the log was first emptied since the durable point, if it was.

        Returns the blocks that began since the durable point.
        """
        cdef MessageLog log = self.log
        cdef Replaced old
        cdef UndoLog undo_log
        cdef list begun = []
        cdef list later = [old.undo_log for old in log.replaced[1:]]
        if log.replaced:
            later.append(log.undo_log)
            old = log.replaced[0]
            log.replaced.clear()
            old.subjects.outlive(log.subjects)
            log.subjects = old.subjects
            log.dead = old.dead
            log.edges = old.edges
            log.msgs = old.msgs
            log.live_bytes = old.live_bytes
            log.undo_log = old.undo_log
            log.blocks = old.blocks
        for undo_log in later:
            begun += undo_log.begun
            log.undo_log.take_expired(undo_log)
        return log.undo_log.begun + begun

    cdef int undo_changes(self) except -1:
        """Undo removals and expiries, except those of messages that the rollback removes anyway."""
        cdef MessageLog log = self.log
        cdef Edges* durable = &log.undo_log.durable
        cdef Removal* removal
        cdef Expiry item
        cdef size_t at
        cdef MsgBlock block
        if log.edges.first > durable.first and durable.first <= durable.last:
            log.dead.add_run(durable.first, min(log.edges.first - 1, durable.last))
        for at in range(log.undo_log.removal_count):
            removal = &log.undo_log.removals[at]
            if removal.sequence > durable.last:
                continue
            block = log.blocks.holding(removal.sequence)
            if block.has_arrays:
                block.mark_live(removal.sequence)
                block.set_slot(removal.sequence, removal.slot)
            else:
                block.dead.discard_run(removal.sequence, removal.sequence)
            log.dead.discard_run(removal.sequence, removal.sequence)
            log.subjects.renote(removal.slot, removal.sequence)
            log.msgs += 1
            log.live_bytes += removal.size
        for at in range(log.undo_log.expired.count):
            item = (<Expiry*> log.undo_log.expired.items)[at]
            if item.sequence <= durable.last:
                log.expiries.add(item.at_ns, item.sequence, durable.first, log.dead, NULL)
        return 0

    cdef int undo_appends(self) except -1:
        """Drop the messages and blocks that were added since the durable point."""
        cdef MessageLog log = self.log
        cdef Edges durable = log.undo_log.durable
        cdef MsgBlock block
        cdef RecordView view
        cdef uint64_t sequence = max(durable.last + 1, log.edges.first)
        cdef uint32_t slot
        while log.next_live(sequence, &sequence):
            block = log.blocks.holding(sequence)
            slot = block.slot_of(sequence)
            log.subjects.unnote(slot, sequence)
            if log.subjects.record(slot).count == 0 and block.view(sequence, &view) == FOUND:
                log.subjects.remember_removed(view.subject, view.subject_len)
            log.msgs -= 1
            log.live_bytes -= block.size_of(sequence)
            sequence += 1
        log.dead.discard_run(durable.last + 1, SEQUENCE_LAST)
        log.edges = durable
        begun = set(log.undo_log.begun)
        log.blocks.set([block for block in log.blocks.blocks if block not in begun])
        for block in log.blocks.blocks:
            if is_unsaved(block):
                block.undo()
        log.begin_undo_log()
        return log.subjects.forget_removed_names(log.subjects.seal())


cdef inline bint is_unsaved(MsgBlock block) noexcept:
    """Return whether the block has bytes that are not on disk."""
    return block.size != block.durable.size
