"""Refusals of publishes: a leader sends them once it is sure that it still leads.

A leader that is deposed, and does not know it yet, may lack what the new one has, and refuse what
that one takes. Its acknowledgements wait for a majority in any case; its refusals wait here, until
a round of heartbeats shows that no other leader was elected before. On a stream with one replica
`confirming` is None, and nothing waits.
"""

from libc.stdint cimport uint64_t

from natsd.jetstream.stream.checks cimport AckQueue, Answer, TEXT
from natsd.jetstream.stream.state cimport Actor, Scheduler


cdef class Refusals:
    def __cinit__(
        self, AckQueue acks not None, Scheduler scheduler not None, Actor ingest not None
    ):
        self.acks = acks
        self.scheduler = scheduler
        self.ingest = ingest

    cdef bint may_send(self, const Answer* answer) except -1:
        if answer.kind != TEXT or self.confirming is None or self.answered < self.confirmed:
            self.answered += 1
            return True
        if not self.is_confirming:
            self.is_confirming = True
            self.confirming(self.answered + self.acks.count)
        return False

    cdef int confirm_all(self) noexcept:
        self.confirmed = self.answered + self.acks.count
        return 0

    def confirm(self, uint64_t count) -> None:
        """Send refusals among the first `count` answers; 0: it is not sure yet."""
        self.is_confirming = False
        self.confirmed = max(self.confirmed, count)
        self.scheduler.submit(self.ingest)

    def drop(self) -> None:
        """Drop refusals that are not confirmed: it is not known whether they were right."""
        cdef AckQueue kept = AckQueue()
        cdef Answer answer
        cdef uint64_t index = self.answered
        if self.confirming is None:
            return
        while self.acks.peek(&answer):
            if answer.kind != TEXT or index < self.confirmed:
                kept.keep(&answer)
            self.acks.pop()
            index += 1
        self.acks.take(kept)
        self.confirm_all()
