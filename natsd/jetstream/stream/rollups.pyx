"""Rollups: a message that replaces all earlier ones, on its subject or in the whole stream.

Promise
- The replaced messages are removed in the turn in which the rollup is appended. If they are more
  than ROLLED_MAX, or a block must be read for it, a task does it, one rollup after the other, and
  the publisher's answer is held until the removal is durable.
- A commit that fails takes back both the rollup and the removals.

Source: nats-server's `processJetStreamMsgWithRollup` (`Nats-Rollup`).
"""

import collections

from libc.stdint cimport int64_t, uint64_t

from natsd.core.routing cimport subject_is_literal
from natsd.jetstream.stream.state cimport Actor, StreamReaders
from natsd.store.log.message_log cimport DONE, exact_first

from natsd.store.errors import StoreError

EVERYTHING = None
NOTHING = b""       # only an answer waits

cdef enum:
    ROLLED_MAX = 64             # removals in one turn; the rest is left to a task


cdef class Rollups:
    def __init__(
        self, StreamReaders stream not None, AckQueue acks not None, Actor ingest not None
    ):
        self.stream = stream
        self.log = stream.log
        self.acks = acks
        self.ingest = ingest
        self.waiting = collections.deque()

    def close(self) -> None:
        """Stop the task: the stream goes away."""
        self.ingest = None      # breaks a reference cycle
        if self.rolling is not None:
            self.rolling.cancel()

    cdef bint roll_up(self, Entry* entry) except -1:
        """Remove what the entry replaces; True: a task goes on with it.

        A rollup on a subject with wildcards, which is not forbidden, replaces all matching
        messages.
        """
        cdef bint is_one = (
            entry.rollup == ROLLUP_ALL or subject_is_literal(entry.subject, entry.subject_len)
        )
        if is_one and self.remove_before(entry):
            if self.log.needs_care or not self.log.is_told:
                self.log.tell()
            return False
        self.waiting.append((
            EVERYTHING if entry.rollup == ROLLUP_ALL else entry.subject[:entry.subject_len],
            entry.sequence,
        ))
        if self.rolling is None:
            self.rolling = self.stream.scheduler.reactor.loop.create_task(self._roll())
        return True

    cdef int hold_answer(self, uint64_t sequence) except -1:
        if self.rolling is not None:
            self.acks.hold_last()
            self.waiting.append((NOTHING, sequence))
        return 0

    cdef bint remove_before(self, Entry* entry) except -1:
        """Remove what the entry replaces. False: that is more than may be done at once."""
        cdef int left = ROLLED_MAX
        cdef uint64_t first = 0
        cdef uint64_t kept = 0 if entry.is_skipped else 1
        cdef int64_t slot = self.log.subjects.find(entry.subject, entry.subject_len)
        if entry.rollup == ROLLUP_SUBJECT and slot < 0:
            return True
        while left > 0:
            if entry.rollup == ROLLUP_ALL:
                if self.log.msgs <= kept:
                    return True
                first = self.log.edges.first
            elif self.log.subjects.record(slot).count <= kept:
                return True
            elif exact_first(self.log, slot, &first) != DONE:
                return False
            if self.log.remove(first, False) != DONE:
                return False
            left -= 1
        return False

    async def _roll(self) -> None:
        try:
            while self.waiting:
                subject, sequence = self.waiting.popleft()
                try:
                    await self._remove_all_before(subject, sequence)
                finally:
                    self.acks.release(sequence)
                    if self.ingest is not None:
                        self.stream.scheduler.submit(self.ingest)
        finally:
            self.rolling = None

    async def _remove_all_before(self, subject, sequence) -> None:
        store = self.stream.store
        try:
            if subject is EVERYTHING:
                await store.compact(sequence)
            elif subject:
                await store.purge(
                    pattern=subject.decode("utf-8", "surrogateescape"), up_to_sequence=sequence
                )
            await store.synced()
        except StoreError:
            pass        # the commit failed, and the publish with it: `commit_failed` answers
