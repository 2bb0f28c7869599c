"""Replay as it was published: every message as long after the one before as it came.

Promise
- What was there when it began goes out at the pace at which it came in. What comes later goes out
  at once: from then on `is_on` is false.
- A gap is measured from when the message before went out. Gaps up to a millisecond are not waited
  for.
- No clock: now is an argument, wall clock, nanoseconds.

Source: reference §6.10.
"""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.record cimport RecordView

cdef enum:
    GAP_NS_MIN = 1_000_000


cdef class Replay:
    cdef int begin(self, bint is_on, uint64_t until) noexcept:
        """`until`: the last sequence that is there."""
        self.is_on = is_on
        self.until = until
        self.time_ns = self.due_ns = 0
        return 0

    cdef int64_t due(self, RecordView* view, int64_t now_ns) noexcept:
        """When the message goes out. 0: now."""
        cdef int64_t gap_ns = view.time_ns - self.time_ns
        if self.time_ns == 0 or gap_ns <= GAP_NS_MIN:
            return 0
        if self.due_ns == 0 or self.sequence != view.sequence:
            self.sequence = view.sequence
            self.due_ns = now_ns + gap_ns
        return self.due_ns if now_ns < self.due_ns else 0

    cdef int sent(self, RecordView* view) noexcept:
        """Somebody took it."""
        self.time_ns = view.time_ns
        self.due_ns = 0
        return 0

    cdef int read_before(self, uint64_t next_sequence) noexcept:
        """All that is visible went out."""
        self.is_on = self.is_on and next_sequence <= self.until
        return 0
