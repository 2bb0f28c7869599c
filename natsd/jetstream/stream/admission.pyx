"""Admission: the step between a stream's ingest and its log in which batches are decided.

The ingest has one Admission for each kind of batch that its stream takes, and knows no more of
batches than this interface.

Promise
- Each open batch counts as one of the open batches of the server.
- A batch that gets no message for the timeout is given up. One deadline serves all batches.
"""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.stream.state cimport Actor, Scheduler


cdef class Batch:
    """An open batch; admission.pxd lists its fields."""


cdef class Admission(Actor):
    def __init__(self, Scheduler scheduler not None, InflightBatches inflight not None):
        self.scheduler = scheduler
        self.inflight = inflight
        self.batches = {}

    def __len__(self) -> int:
        """Return the number of open batches."""
        return len(self.batches)

    def close(self) -> None:
        """Forget all batches and take no more."""
        for batch in list(self.batches.values()):
            self.end(batch)
        self.scheduler.set_deadline(self, 0)

    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1:
        raise NotImplementedError

    cdef int forget_above(self, uint64_t durable) except -1:
        return 0

    cdef int forget(self, set numbers) except -1:
        return 0

    cdef bint hold(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        raise NotImplementedError

    cdef int finish(self) except -1:
        return 0

    cdef int add(self, Batch batch) except -1:
        self.batches[batch.id] = batch
        self.inflight.count += 1
        return 0

    cdef int end(self, Batch batch) except -1:
        del self.batches[batch.id]
        self.inflight.count -= 1
        return 0

    cdef int touch(self, Batch batch) except -1:
        batch.active_ns = self.scheduler.now()
        if self.due_ns == 0:
            self.scheduler.set_deadline(self, batch.active_ns + self.inflight.timeout_ns)
        return 0

    cdef int give_up(self, Batch batch) except -1:
        return self.end(batch)

    cdef int expired(self, int64_t now_ns) except -1:
        cdef Batch batch
        cdef int64_t next_ns = 0
        for batch in list(self.batches.values()):
            if batch.active_ns + self.inflight.timeout_ns <= now_ns:
                self.give_up(batch)
            elif next_ns == 0 or batch.active_ns + self.inflight.timeout_ns < next_ns:
                next_ns = batch.active_ns + self.inflight.timeout_ns
        return self.scheduler.set_deadline(self, next_ns)
