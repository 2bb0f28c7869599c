"""The replay at the original pace: each message follows the one before as it did when published.

Promise
- The messages that were there when the replay began are sent at the pace at which they were
  published. Later messages are sent at once: from then on `is_on` is false.
- A gap is measured from the time at which the message before was sent. Gaps of up to a millisecond
  are not waited for.
- No clock is read here: now is an argument, wall clock, nanoseconds.

Source: nats-server's `loopAndGatherMsgs` (`ReplayOriginal`).
"""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.codec.records cimport RecordView

cdef enum:
    GAP_NS_MIN = 1_000_000


cdef class Replay:
    cdef int begin(self, bint is_on, uint64_t until) noexcept:
        """Begin; `until` is the last sequence that is visible."""
        self.is_on = is_on
        self.until = until
        self.time_ns = self.due_ns = 0
        return 0

    cdef int64_t due(self, RecordView* view, int64_t now_ns) noexcept:
        """Return when to send the message, in ns; 0: now."""
        cdef int64_t gap_ns = view.time_ns - self.time_ns
        if self.time_ns == 0 or gap_ns <= GAP_NS_MIN:
            return 0
        if self.due_ns == 0 or self.sequence != view.sequence:
            self.sequence = view.sequence
            self.due_ns = now_ns + gap_ns
        return self.due_ns if now_ns < self.due_ns else 0

    cdef int sent(self, RecordView* view) noexcept:
        """Note that the message was sent."""
        self.time_ns = view.time_ns
        self.due_ns = 0
        return 0

    cdef int read_before(self, uint64_t next_sequence) noexcept:
        """End the replay if the messages before `next_sequence` include all that were there."""
        self.is_on = self.is_on and next_sequence <= self.until
        return 0
