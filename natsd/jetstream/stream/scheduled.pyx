"""Scheduled: the ingest's part in schedules, their ends, and delayed messages.

    check ─▶ schedules/rules.py             propose ─▶ apply ─┬─ note: a schedule, or the end of one
      └─ check_delayed                                        └─ delay: it is kept elsewhere

Promise
- The ingest calls this only for entries with such headers: other publishes cost one branch.
- A message that was appended and rolled back counts as never noted and never kept.

Source: ADR-51 and nats-server's `parseMsgSchedule`; `Nats-Delay` is natsd's own
(docs/delayed-messages.md).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from natsd.store.log.message_log cimport MessageLog

from natsd.jetstream.errors import ErrorId
from natsd.jetstream.headers import SCHEDULER as SCHEDULER_HEADER, header_value
from natsd.store.errors import StoreError

cdef enum:
    TARGET_HEADERS_MAX = 65_535
    MARK_ROOM = 40              # bytes of a Nats-Delayed header, without the stream's name


cdef class Scheduled:
    def __init__(self, MessageLog log not None, Rollups rollups not None):
        self.log = log
        self.rollups = rollups

    cdef int configure(self, rules, Preconditions preconditions) except -1:
        self.rules = rules
        self.preconditions = preconditions
        return 0

    # Check

    cdef bytes check(self, Entry* entry, PublishHeaders* headers):
        found = self.rules.check(
            entry.subject[:entry.subject_len], entry.headers[:entry.headers_len], entry.time_ns
        )
        if isinstance(found, ErrorId):
            return self.preconditions.refuse(found)
        entry.scheduling = found.kind
        self.headers = found.headers    # kept here as long as the entry
        entry.headers = PyBytes_AS_STRING(self.headers)
        entry.headers_len = PyBytes_GET_SIZE(self.headers)
        find_publish_headers(entry.headers, entry.headers_len, headers)
        return None

    cdef bytes check_delayed(self, Entry* entry, uint64_t size, int64_t max_msg_size):
        """Check a delayed message, which takes room elsewhere and replaces nothing yet."""
        cdef Py_ssize_t headers_len = (     # with the line that its copy gets
            entry.headers_len + MARK_ROOM + PyBytes_GET_SIZE(self.preconditions.name)
        )
        if headers_len > TARGET_HEADERS_MAX:
            return self.preconditions.refuse(ErrorId.JSStreamHeaderExceedsMaximumErr)
        if 0 <= max_msg_size < headers_len + entry.data_len:
            return self.preconditions.refuse(ErrorId.JSStreamMessageExceedsMaximumErr)
        if not self.delays.has_room(size):
            return self.preconditions.refuse(ErrorId.JSStreamTooManyRequests)
        entry.is_skipped = True
        entry.rollup = NO_ROLLUP
        entry.expires_ns = 0
        return None

    cdef uint64_t find_id(self, Entry* entry, int64_t window_ns) except? 0:
        if self.delays is None or window_ns == 0:
            return 0
        return self.delays.find_id(
            entry.message_id[:entry.message_id_len], entry.time_ns - window_ns
        )

    cdef bint is_unsaved(self, uint64_t sequence) except -1:
        """Tell whether a delayed message is not on disk yet."""
        return self.delays is not None and self.delays.is_unsaved(sequence)

    # Apply

    cdef bint delay(self, Entry* entry) except -1:
        """Keep a delayed message elsewhere; True: its answer waits until it is on disk there."""
        cdef bint must_wait = self.delays.take(
            entry.sequence, entry.subject[:entry.subject_len],
            entry.headers[:entry.headers_len], entry.data[:entry.data_len], entry.time_ns,
        )
        try:
            self.log.skip_raw(1)
        except StoreError:
            self.delays.roll_back(self.log.edges.last)
            raise
        return must_wait

    cdef bint note(self, Entry* entry) except -1:
        """Note an appended entry that is a schedule or ends one."""
        cdef bytes headers = entry.headers[:entry.headers_len]
        if entry.scheduling & IS_SCHEDULE and not entry.is_skipped:
            self.schedules.note(
                entry.sequence, entry.subject[:entry.subject_len], headers, entry.time_ns
            )
            self.is_waiting = True
        if entry.scheduling & ENDS_SCHEDULE:
            return self.purge(entry.sequence, header_value(headers, SCHEDULER_HEADER))
        return False

    cdef bint purge(self, uint64_t sequence, bytes subject) except -1:
        """Remove all messages of the subject along with what the entry replaces."""
        cdef Entry purge
        memset(&purge, 0, sizeof(Entry))
        purge.subject = PyBytes_AS_STRING(subject)
        purge.subject_len = PyBytes_GET_SIZE(subject)
        purge.sequence = sequence
        purge.rollup = ROLLUP_SUBJECT
        purge.is_skipped = True         # the rollup itself stores no message
        return self.rollups.roll_up(&purge)

    # After the append

    cdef int await_product(self) except -1:
        """Note that a message of the server's own making was appended."""
        self.is_waiting = self.schedules is not None
        return 0

    cdef int settle(self, uint64_t visible) except -1:
        """Note that everything up to `visible` is durable."""
        if self.is_waiting:
            self.is_waiting = self.schedules.settle(visible)
        return 0

    cdef int roll_back(self, uint64_t durable) except -1:
        """Forget what was appended above `durable`, which was rolled back."""
        if self.schedules is not None:
            self.schedules.roll_back(durable)
        if self.delays is not None:
            self.delays.roll_back(durable)
        return 0
