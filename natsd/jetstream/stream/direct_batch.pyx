"""Direct get of many messages, compiled: those that match a filter, or those of a list.

Promise
- A slice ends after MESSAGES_PER_SLICE messages, where the client falls behind, or where a block is
  not in memory; the caller goes on from there. No Python object is made per message.
- Only durable messages are shown. A message that was removed meanwhile, or is damaged, is skipped.

Source: ADR-31; nats-server's `getDirectRequest` and `getDirectMulti`.
"""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport MatchResult
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport DONE, GONE, NEEDS_BLOCK, Outcome, PENDING, next_match
from natsd.store.log.subjects cimport Filter

from natsd.store.errors import MessageNotFound

cdef enum:
    MESSAGES_PER_SLICE = 256


cdef class DirectBatch:
    def __init__(
        self, StreamReaders readers not None, AccountPublisher publisher not None,
        bytes reply not None, *,
        int64_t messages, int64_t bytes_max, int64_t pending, bint is_bare, staleness=None,
    ):
        self.readers = readers
        self.answer = DirectAnswer(readers.name, publisher)
        self.answer.staleness = staleness
        self.reply = reply
        self.messages_max = messages
        self.bytes_left = bytes_max
        self.pending = pending
        self.is_bare = is_bare

    def look_for(self, Filter wanted not None, uint64_t sequence) -> None:
        """Send the messages that match `wanted`, from `sequence` on."""
        self.filter = None if wanted.is_everything else wanted
        self.from_sequence = sequence

    def take_list(self, sequences) -> None:
        """Send these messages in that order, but those that are gone by then."""
        self.listed = list(sequences)

    def send_some(self):
        """Send a slice; return the block to fetch before the next one, or None."""
        cdef MatchResult to = self.answer.publisher.resolve(self.reply, len(self.reply))
        cdef RecordView view
        cdef Outcome outcome
        cdef uint64_t sequence = 0
        cdef int left = MESSAGES_PER_SLICE
        self.is_congested = False
        while left > 0 and not self.is_done and not self.is_congested:
            left -= 1
            outcome = self.find(&sequence)
            if outcome == DONE:
                outcome = self.view(sequence, &view)
                if outcome == DONE:
                    self.send(to, &view)
                if outcome != NEEDS_BLOCK:
                    self.passed(sequence)
            elif outcome == GONE:
                self.is_done = True
            if outcome == NEEDS_BLOCK:
                return self.readers.log.wanted
        return None

    cdef Outcome find(self, uint64_t* sequence) except? NEEDS_BLOCK:
        """Find the next sequence. GONE: there is none. PENDING: not found yet."""
        cdef Outcome outcome
        if self.listed is not None:
            if self.at == len(self.listed):
                return GONE
            sequence[0] = self.listed[self.at]
            return DONE
        if self.from_sequence > self.readers.visible:
            return GONE
        if self.filter is None:
            if self.readers.log.next_live(self.from_sequence, sequence):
                return DONE if sequence[0] <= self.readers.visible else GONE
            return GONE
        outcome = next_match(
            self.readers.log, self.filter, self.from_sequence, self.readers.visible, sequence
        )
        if outcome == PENDING or outcome == NEEDS_BLOCK:
            self.from_sequence = self.readers.log.resume_at
        return outcome

    cdef Outcome view(self, uint64_t sequence, RecordView* view) except? NEEDS_BLOCK:
        if not self.readers.log.is_here(sequence):
            return GONE
        try:
            return self.readers.log.view(sequence, view)
        except MessageNotFound:         # a damaged message
            return GONE

    cdef int passed(self, uint64_t sequence) except -1:
        self.at += 1
        self.from_sequence = sequence + 1
        return 0

    cdef int send(self, MatchResult to, const RecordView* view) except -1:
        """Send a message. As on nats-server, bare messages are not taken off `pending`."""
        if self.is_bare:
            self.answer.send_bare(to, self.reply, len(self.reply), view)
        else:
            self.pending -= self.pending > 0
            self.answer.send(to, self.reply, len(self.reply), view, self.pending, self.last)
        self.is_congested = self.answer.publisher.is_congested
        self.last = view.sequence
        self.sent += 1
        self.bytes_left -= view.subject_len + view.headers_len + view.data_len
        self.is_done = self.sent == self.messages_max or self.bytes_left <= 0
        return 0
