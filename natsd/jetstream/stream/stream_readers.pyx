"""StreamReaders: a stream's log, the visible part of it, and its readers.

    store: committed ─▶ advance ─▶ visible ─┬─ filters' SubList ─▶ reader.appeared; waiting: submit
                                            └─ waiting readers of everything: submit
    log: a message is removed ─▶ observer ─▶ slot ─▶ the readers it concerns: vanished
    consumer: acked ─▶ does another reader need it? ─▶ removed, by work queue and interest retention

Promise
- No message is shown, counted as pending or delivered before it is durable. If the stream has
  replicas, it is durable when they have committed it: then a majority of their logs has it on disk,
  and the files of the stream are written later.
- The cost of telling readers about a message does not depend on the number of readers, but on the
  number of readers that the message concerns: filters stand in a SubList, and the readers of a
  subject are remembered by its slot.
- A filtered reader is told of each matching message when it appears and when it vanishes, or is
  told to count its pending messages anew (`recount`).
- A reader's filters come into the SubList in steps before the reader is told of anything, and leave
  it in slices after the reader is told of nothing any more. In between they match nothing
  (slot_readers.pyx).
- A message that no reader needs any more is removed; where that needs a block that is not in
  memory, one task fetches it. Rechecking a whole stream (after a reader went away) runs in slices.
- The messages that a stream holds when it begins, or when its retention becomes interest, are not
  removed merely because no reader asks for them: such a reader may come, or could not be recovered.
  They are removed when all readers that asked for them need them no more, or when any reader goes
  away for good (`kept_through`).
- Nothing is removed before all readers were added, nor when they are removed because the stream
  closes (`allow_removals`): the messages to remove meanwhile are remembered.

Source: nats-server's `checkInterestState`, `ackMsg` and `signalConsumers`; docs/store.md.
"""

import asyncio

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport SubList, Subscription, wire_bytes
from natsd.store.block.blocks cimport FOUND, MsgBlock, NO_SLOT
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport LogObserver, NEEDS_BLOCK, SEQUENCE_LAST
from natsd.store.sequence_set cimport SequenceSet

from natsd.core.steps import at_once
from natsd.store.errors import StoreError, StoreUnavailable
from natsd.store.log.subjects import Filter

cdef enum:
    LISTED_PER_STEP = 200
    UNLISTED_PER_STEP = 500
    RECHECKED_PER_SLICE = 512
    SETTLED_PER_SLICE = 512

RETENTIONS = {"limits": LIMITS, "interest": INTEREST, "workqueue": WORKQUEUE}


cdef class Reader(Actor):
    """A reader that wants nothing; stream_readers.pxd describes the methods."""

    cdef int appeared(self, uint64_t sequence) except -1:
        return 0

    cdef int vanished(self, uint64_t sequence) except -1:
        return 0

    cdef int recount(self) except -1:
        return 0

    cdef bint needs(self, uint64_t sequence) except -1:
        return False


cdef class CallbackReader(Reader):
    """A reader in Python, for work that is not per message.

    `handler` has `work()`, `appeared(sequence)`, `vanished(sequence)`, `recount()` and
    `needs(sequence)`.
    """

    def __init__(self, handler):
        self.handler = handler

    def await_more(self) -> None:
        """Have `work` called when more messages than now are visible."""
        self.stream.await_more(self)

    def acked(self, uint64_t sequence) -> None:
        """Note that this reader needs the message no more."""
        self.stream.acked(self, sequence)

    cdef bint run(self, int64_t now_ns) except? -1:
        self.handler.work()
        return False

    cdef int appeared(self, uint64_t sequence) except -1:
        self.handler.appeared(sequence)
        return 0

    cdef int vanished(self, uint64_t sequence) except -1:
        self.handler.vanished(sequence)
        return 0

    cdef int recount(self) except -1:
        self.handler.recount()
        return 0

    cdef bint needs(self, uint64_t sequence) except -1:
        return self.handler.needs(sequence)


cdef class CoreObserver(LogObserver):
    """The observer that reports removals from the log to its stream."""

    cdef StreamReaders stream

    cdef int removed(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1:
        return self.stream.removing(sequence, slot, block)

    cdef int emptied(self) except -1:
        if self.stream.proposer is not None:
            self.stream.proposer.emptied(self.stream.log.edges.first)
        return self.look_again()

    cdef int rolled_back(self) except -1:
        if self.stream.proposer is not None:
            self.stream.proposer.forget_staged()
        return self.look_again()

    cdef int look_again(self) except -1:
        cdef StreamReaders stream = self.stream
        stream.known.forget()
        if stream.ingest is not None:
            stream.scheduler.submit(stream.ingest)
        return stream.recount_soon()


cdef class StreamReaders(Actor):
    def __init__(
        self, str name not None, store not None, AccountPublisher publisher not None,
        Scheduler scheduler not None,
    ):
        """Show everything that the store holds: all of it is durable."""
        cdef CoreObserver observer = CoreObserver()
        self.name = name
        self.store = store
        self.log = store.log
        self.publisher = publisher
        self.scheduler = scheduler
        self.visible = store.durable_sequence
        self.committed = SEQUENCE_LAST
        self.filters = SubList()
        self.leaving = []
        self.filtered = {}
        self.unfiltered = {}
        self.waiting_readers = []
        self.waiting_actors = []
        self.known = SlotReaders()
        self.unsettled = SequenceSet()
        observer.stream = self
        self.observer = observer
        self.log.set_observer(observer)
        store.set_durability_listener(self)

    # Readers

    def list_filters(self, filters):
        """List, in steps, the filters of a reader; no filter means all messages.

        This is a generator that returns the ReaderFilters. They go to `put_reader`, or to `unlist`
        if the reader is not made.
        """
        cdef ReaderFilters wanted = ReaderFilters()
        cdef Subscription subscription
        cdef list patterns = [pattern for pattern in filters if pattern]
        try:
            if patterns:
                wanted.filter = yield from Filter.in_steps(patterns)
            for place, pattern in enumerate(patterns):
                subscription = Subscription(pattern, sink=wanted)
                self.filters.insert(subscription)
                wanted.subscriptions.append(subscription)
                if place % LISTED_PER_STEP == LISTED_PER_STEP - 1:
                    yield
        except BaseException:
            self.unlist(wanted)
            raise
        return wanted

    def unlist(self, ReaderFilters wanted not None) -> None:
        """Take filters that no reader got out of the SubList, in slices."""
        assert wanted.reader is None
        self.leave(wanted)

    def put_reader(self, Reader reader not None, ReaderFilters wanted not None) -> None:
        """Tell `reader` of what appears from now on, by its new filters only.

        The reader must count the messages that are visible already itself.
        """
        cdef ReaderFilters before = reader.filters
        assert reader.stream is None or reader.stream is self
        assert wanted is before or wanted.reader is None and not wanted.is_leaving
        self.withdraw(reader)
        reader.stream = self
        reader.is_waiting = False
        reader.is_filtered = len(wanted.subscriptions) > 0
        reader.filters = wanted
        wanted.reader = reader
        if reader.is_filtered:
            self.filtered[reader] = None
            self.known.forget()
        else:
            self.unfiltered[reader] = None
        if before is not None and before is not wanted:
            self.leave(before)

    def add_reader(self, Reader reader not None, filters=()) -> None:
        """List few filters at once and put the reader there."""
        self.put_reader(reader, at_once(self.list_filters(filters)))

    cdef int withdraw(self, Reader reader) except -1:
        """Tell the reader nothing any more; its filters stay listed."""
        if reader.stream is not self:
            return 0
        reader.stream = None
        reader.is_waiting = False
        reader.filters.reader = None
        if reader.is_filtered:
            del self.filtered[reader]
            self.known.forget()
        else:
            del self.unfiltered[reader]
        return 0

    def remove_reader(self, Reader reader not None, *, is_gone=True) -> None:
        """Tell the reader nothing any more.

        `is_gone`: it is gone for good, so messages that only it needed may be removed.
        """
        cdef ReaderFilters wanted = reader.filters
        if reader.stream is not self:
            return
        self.withdraw(reader)
        reader.filters = None
        self.leave(wanted)
        if is_gone:
            self.claims_went()

    def change_filters(self, Reader reader not None, ReaderFilters wanted not None) -> None:
        """Give a reader other filters; it counts the matching messages itself."""
        cdef bint was_hungry = reader.is_waiting
        self.put_reader(reader, wanted)
        self.claims_went()
        if was_hungry:
            self.scheduler.submit(reader)

    cdef int claims_went(self) except -1:
        """Recheck messages of interest retention: a reader that needed some of them went away."""
        if self.retention == INTEREST:
            self.kept_through = 0
            self.recheck_soon()
        return 0

    cdef int leave(self, ReaderFilters wanted) except -1:
        """Start to take filters that are not in force out of the SubList.

        A closed readers does nothing: the SubList goes away with it.
        """
        assert wanted.reader is None
        if self.is_closed:
            wanted.subscriptions.clear()
        elif wanted.subscriptions and not wanted.is_leaving:
            wanted.is_leaving = True
            steps = self.take_out(wanted)
            if next(steps, True) is None:
                self.leaving.append(steps)
                self.scheduler.submit(self)
        return 0

    def take_out(self, ReaderFilters wanted):
        """Take filters out of the SubList in steps; a stream that closes may end this early."""
        cdef list last
        cdef Subscription subscription
        try:
            while wanted.subscriptions:
                last = wanted.subscriptions[-UNLISTED_PER_STEP:]
                del wanted.subscriptions[-UNLISTED_PER_STEP:]
                self.filters.remove_batch(last)
                for subscription in last:
                    subscription.detach()
                if wanted.subscriptions:
                    yield
            yield from wanted.filter.release()
        finally:
            wanted.subscriptions.clear()

    cdef bint unlist_some(self) except -1:
        """Run one step. True: there is more."""
        if next(self.leaving[-1], True) is not None:
            self.leaving.pop()
        return len(self.leaving) > 0

    def set_retention(self, str retention not None) -> None:
        """Set the retention: `limits`, `interest` or `workqueue`.

        A change to interest removes the messages that all interested readers have acknowledged; the
        first call, for a stream that begins, removes nothing.
        """
        cdef Retention before = self.retention
        cdef bint is_first = not self.has_retention
        self.retention = RETENTIONS[retention]
        self.has_retention = True
        if self.retention == INTEREST and before != INTEREST and not is_first:
            self.keep_unclaimed()
            self.recheck_soon()

    def keep_unclaimed(self) -> None:
        """Keep the messages that are in the log now although no reader asks for them."""
        self.kept_through = self.log.edges.last

    def allow_removals(self, bint allowed) -> None:
        """Allow removals once all readers were added; forbid them before the stream closes."""
        self.may_remove = allowed
        if allowed and self.recheck_from:
            self.scheduler.submit(self)
        if allowed and self.unsettled.count:
            self.settle_soon()

    def has_interest(self, subject) -> bool:
        """Tell whether any reader's filter matches that subject."""
        cdef bytes text = wire_bytes(subject)
        return self.is_wanted(text, len(text))

    def readers_of(self, subject) -> list:
        """Return the readers whose filters match that subject."""
        return [*self.unfiltered, *readers_in(self.filters.match(subject))]

    cdef bint is_wanted(self, const char* subject, Py_ssize_t length) except -1:
        if self.unfiltered:
            return True
        return len(self.filtered) > 0 and is_any_in_force(self.filters.lookup(subject, length))

    # Messages that become visible

    def hide_from(self, uint64_t sequence) -> None:
        """Show nothing from `sequence` on, durable or not; 0: show everything durable."""
        assert sequence == 0 or sequence > self.visible
        self.hidden_from = sequence
        self.advance(self.store.durable_sequence)
        if sequence == 0 and self.showing is not None:
            self.showing.set_result(None)
            self.showing = None

    def begin_as_replica(self) -> None:
        """Show what is committed, which the log of the replicas has on disk."""
        self.is_replica = True
        self.store.write_behind()

    def applied(self) -> None:
        """Show what a follower has applied: it is committed."""
        self.store.changed()
        self.advance(0)

    def begin_proposing(self, Proposer proposer) -> None:
        """Propose all changes from now on; what was changed before is committed. None: no more."""
        self.proposer = proposer
        self.committed = SEQUENCE_LAST if proposer is None else self.log.edges.last
        self.acknowledged = 0
        self.log.committed_index = SEQUENCE_LAST if proposer is None else proposer.proposed
        self.log.is_staged = False
        if proposer is not None:
            proposer.summoned, proposer.scheduler = self, self.scheduler
            self.log.applied_index = proposer.proposed
        self.advance(self.store.durable_sequence)

    def commit(self, uint64_t index) -> None:
        """Show, at the end of the turn, what the commands up to `index` have made."""
        if self.proposer is None:
            raise RuntimeError("commands of a stream that proposes nothing cannot be committed")
        self.committed = self.proposer.commit(index, self.committed)
        self.store.changed()
        self.scheduler.submit(self)

    def acknowledge(self, uint64_t index) -> None:
        """Answer the publishers of what the commands up to `index` have made."""
        if self.proposer is not None:
            self.acknowledged = max(self.acknowledged, self.proposer.sequence_at(index))
            self.scheduler.submit(self.ingest)

    async def shown(self) -> None:
        """Return once nothing durable is hidden."""
        if self.hidden_from:
            if self.showing is None:
                self.showing = self.scheduler.reactor.loop.create_future()
            await asyncio.shield(self.showing)

    def durable(self, uint64_t sequence) -> None:
        """Show messages up to `sequence`; the store calls this when they are on disk."""
        self.advance(sequence)
        if self.is_replica and self.ingest is not None:
            self.scheduler.submit(self.ingest)  # it takes more, now that these are written

    cdef uint64_t settled(self) except? 0:
        return self.store.durable_sequence if self.is_replica else self.visible

    def failed(self, error) -> None:
        """Note that a commit failed: the store rolled back unsynced appends and removals.

        Since removals were rolled back too, acknowledged messages are checked again.
        """
        self.rollbacks += 1
        self.acknowledged = 0
        if self.commit_failed is not None:
            self.commit_failed(error)
        self.known.forget()
        self.recount_soon()
        if self.retention != LIMITS:
            self.recheck_soon()

    cdef int advance(self, uint64_t durable) except -1:
        cdef uint64_t first = self.visible + 1
        cdef Reader reader
        cdef list waiting_readers
        if self.is_replica:
            durable = self.log.edges.last
        if durable < self.visible:      # the stream was truncated
            self.visible = durable
            self.recount_soon()
        if durable > self.committed:
            durable = self.committed
        if self.hidden_from and durable >= self.hidden_from:
            durable = self.hidden_from - 1
        if durable <= self.visible or self.is_closed:
            return 0
        self.visible = durable
        if self.filtered:
            self.show(first, durable)
        if self.waiting_readers:
            waiting_readers = self.waiting_readers
            self.waiting_readers = []
            for reader in waiting_readers:
                if reader.stream is self:
                    self.notify(reader)
        # Without an undo log and a committer, the ingest runs after each publish anyway.
        if self.ingest is not None and (self.log.is_undoable or self.proposer is not None):
            self.scheduler.submit(self.ingest)
        if self.republisher is not None:
            self.scheduler.submit(self.republisher)
        if self.waiting_actors:
            self.wake_waiting()
        if self.unsettled.count:
            self.settle_soon()
        return 0

    cdef int wake_waiting(self) except -1:
        cdef list waiting = self.waiting_actors
        cdef Actor actor
        self.waiting_actors = []
        for actor in waiting:
            self.scheduler.submit(actor)
        return 0

    cdef int notify(self, Reader reader) except -1:
        if reader.is_waiting:
            reader.is_waiting = False
            self.scheduler.submit(reader)
        return 0

    cdef int await_more(self, Reader reader) except -1:
        assert reader.stream is self
        if not reader.is_waiting:
            reader.is_waiting = True
            if not reader.is_filtered:
                self.waiting_readers.append(reader)
        return 0

    cdef int show(self, uint64_t first, uint64_t last) except -1:
        """Tell filtered readers which messages appeared."""
        cdef uint64_t sequence = first
        cdef MsgBlock block = None
        cdef tuple readers
        cdef Reader reader
        while self.log.next_live(sequence, &sequence) and sequence <= last:
            if block is None or sequence > block.last_sequence:
                block = self.log.blocks.holding(sequence)
            readers = self.concerned(sequence, block.slot_of(sequence), block)
            if readers is None:
                for reader in self.filtered:
                    self.notify(reader)
                return self.recount_soon()
            for reader in readers:
                reader.appeared(sequence)
                self.notify(reader)
            sequence += 1
        return 0

    cdef tuple concerned(self, uint64_t sequence, uint32_t slot, MsgBlock block):
        """Return the filtered readers of a message; None if its block is not in memory."""
        cdef RecordView view
        cdef tuple readers
        if slot == NO_SLOT:
            return None
        readers = self.known.readers_of(self.log.subjects, slot)
        if readers is None and block.view(sequence, &view) == FOUND:
            readers = self.known.learn(
                self.log.subjects, slot, self.filters.lookup(view.subject, view.subject_len)
            )
        return readers

    # Removed messages

    cdef int removing(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1:
        cdef tuple readers
        cdef Reader reader
        if self.proposer is not None:
            self.proposer.note_removed(sequence)
            self.scheduler.submit(self)     # it proposes what no command contains by then
        if self.ingest is not None and not self.ingest.is_queued:
            self.scheduler.submit(self.ingest)      # it counts the used bytes
        if sequence > self.visible or not self.filtered:
            return 0
        readers = self.concerned(sequence, slot, block)
        if readers is None:
            return self.recount_soon()
        for reader in readers:
            reader.vanished(sequence)
        return 0

    cdef int recount_soon(self) except -1:
        self.needs_recount = True
        self.scheduler.submit(self)
        return 0

    # Messages that no reader needs

    cdef int acked(self, Reader by, uint64_t sequence) except -1:
        if self.retention == LIMITS or sequence > self.visible or not self.log.is_here(sequence):
            return 0
        if not self.may_remove or self.settle(sequence, by) == UNKNOWN:
            self.defer(sequence)
        return 0

    cdef Need need_of(self, uint64_t sequence, Reader but) except? UNKNOWN:
        """Tell whether any reader but `but` needs a message that is in the log.

        In a work queue, and up to `kept_through`, a message that no reader asked for is needed too.
        """
        cdef MsgBlock block
        cdef tuple readers = ()
        cdef Reader reader
        for reader in self.unfiltered:
            if reader is not but and reader.needs(sequence):
                return NEEDED
        if self.filtered:
            block = self.log.blocks.holding(sequence)
            readers = self.concerned(sequence, block.slot_of(sequence), block)
            if readers is None:
                return UNKNOWN
            for reader in readers:
                if reader is not but and reader.needs(sequence):
                    return NEEDED
        if but is None and not self.unfiltered and not readers:
            if self.retention == WORKQUEUE or sequence <= self.kept_through:
                return NEEDED
        return UNNEEDED

    cdef Need settle(self, uint64_t sequence, Reader but) except? UNKNOWN:
        """Remove a message of the log if no reader but `but` needs it."""
        cdef Need need = UNNEEDED
        if self.retention == INTEREST or but is None:
            need = self.need_of(sequence, but)
        if need == UNNEEDED:
            self.remove(sequence)
        return need

    cdef int remove(self, uint64_t sequence) except -1:
        if self.log.refusal is not None or self.log.remove(sequence, False) == NEEDS_BLOCK:
            return self.defer(sequence)
        if self.log.needs_care or not self.log.is_told:
            self.log.tell()
        return 0

    cdef int defer(self, uint64_t sequence) except -1:
        self.unsettled.add_run(sequence, sequence)
        self.settle_soon()
        return 0

    def settle_soon(self) -> None:
        """Have one task check the messages that were put off."""
        if self.settling is None and self.may_remove and self.log.refusal is None:
            self.settling = self.scheduler.reactor.loop.create_task(self._settle_all())

    async def _settle_all(self) -> None:
        """Check the messages that were put off until none is left or the store takes no changes.

        Once the store takes changes again, `settle_soon` starts a new task.
        """
        left = SETTLED_PER_SLICE
        try:
            while self.unsettled and self.may_remove and self.log.refusal is None:
                block = self.cold_block()
                if block is not None:
                    try:
                        await self.store.fetch(block)
                    except StoreUnavailable:
                        continue        # the next fetch waits for the one that failed
                self.settle_first()
                left -= 1
                if left == 0:
                    left = SETTLED_PER_SLICE
                    await asyncio.sleep(0)
        except StoreError:
            pass        # closed, or an unreadable block: the messages stay
        finally:
            self.settling = None

    cdef MsgBlock cold_block(self):
        """Return the block that the first message put off needs; None if it is in memory."""
        cdef uint64_t sequence = 0
        cdef RecordView view
        cdef MsgBlock block
        if not self.unsettled.find_present(1, &sequence) or not self.log.is_here(sequence):
            return None
        block = self.log.blocks.holding(sequence)
        return None if block.view(sequence, &view) == FOUND else block

    cdef int settle_first(self) except -1:
        """Check the first message that was put off; its block is in memory.

        If its readers still cannot be told, its record is damaged, and the message stays.
        """
        cdef uint64_t sequence = 0
        if self.unsettled.find_present(1, &sequence):
            self.unsettled.discard_run(sequence, sequence)
            if self.retention != LIMITS and self.log.is_here(sequence):
                self.settle(sequence, None)
        return 0

    def recheck_soon(self) -> None:
        """Check every message again: does any reader need it?"""
        self.recheck_from = 1
        self.scheduler.submit(self)

    @property
    def is_rechecking(self) -> bool:
        """Whether messages are left to check for removal."""
        return self.recheck_from > 0 or self.unsettled.count > 0

    cdef bint recheck(self) except -1:
        """Check a slice of messages. True: there is more."""
        cdef int left = RECHECKED_PER_SLICE
        cdef uint64_t sequence = self.recheck_from
        if self.retention == LIMITS:
            self.recheck_from = 0
        if self.recheck_from == 0 or not self.may_remove:
            return False
        while left > 0 and self.log.next_live(sequence, &sequence) and sequence <= self.visible:
            if self.settle(sequence, None) == UNKNOWN:
                self.defer(sequence)
            sequence += 1
            left -= 1
        self.recheck_from = sequence if left == 0 else 0
        return self.recheck_from > 0

    cdef bint run(self, int64_t now_ns) except? -1:
        cdef Reader reader
        cdef bint has_more
        if self.proposer is not None:
            self.proposer.propose_rest()
        if self.is_replica or self.proposer is not None or not self.log.is_undoable:
            self.advance(self.store.durable_sequence)
        if self.needs_recount:
            self.needs_recount = False
            for reader in list(self.filtered):
                reader.recount()
            for reader in list(self.unfiltered):
                reader.recount()
        has_more = len(self.leaving) > 0 and self.unlist_some()
        return self.recheck_from > 0 and self.recheck() or has_more

    def close(self) -> asyncio.Task | None:
        """Stop showing and removing messages: the stream goes away.

        Returns the task that is still running, or None.
        """
        self.is_closed = True
        self.may_remove = False
        for steps in self.leaving:
            steps.close()
        self.leaving.clear()
        self.log.set_observer(None)
        self.store.set_durability_listener(None)
        return self.settling
