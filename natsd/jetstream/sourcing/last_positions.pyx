"""LastPositions: the last sequence of each source, read from the stream's own messages.

    1 … above │ above+1 ………… last       `Nats-Stream-Source: ORDERS 4711 > > orders.new`
              │ ◀── read backwards ──

Promise
- The newest message of each source counts; reading ends when all sources were found, or at `above`.
- The search runs in slices, like every operation on a log; a block that is not in memory is
  requested. Damaged messages are skipped.

Source: nats-server's `startingSequenceForSources`.
"""

from libc.stdint cimport uint64_t

from natsd.store.block.blocks cimport COLD, FOUND, Found, MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport MessageLog, Operation

from natsd.jetstream.headers import header_value
from natsd.store.block.cold_block import ColdBlock

cdef enum:
    LOOK_COST = 40              # budget per message; below: with headers; with a position
    HEADERS_COST = 200
    POSITION_COST = 1500

SOURCE = "Nats-Stream-Source"


cdef class LastPositions(Operation):
    """Backward search; `note(value) -> bool` gets each value of the header, the newest first.

    The search ends when `note` returns True.
    """

    cdef uint64_t above, at
    cdef object note

    def __init__(self, MessageLog log not None, uint64_t above, note not None):
        self.log = log
        self.above = above
        self.note = note

    cdef int begin(self) except -1:
        self.at = self.log.edges.last
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        cdef MsgBlock block
        cdef RecordView view
        cdef uint64_t cost
        cdef Found seen
        while self.at > self.above and self.log.live_before(self.at, &self.at):
            if self.at <= self.above:
                return True
            block = self.log.blocks.holding(self.at)
            seen = block.view(self.at, &view)
            if seen == COLD:
                raise ColdBlock(block)
            self.at -= 1
            cost = LOOK_COST
            if seen == FOUND and view.headers_len:
                value = header_value(view.headers[:view.headers_len], SOURCE)
                cost = HEADERS_COST
                if value is not None:
                    cost = POSITION_COST
                    if self.note(value):
                        return True
            if budget <= cost:
                return False
            budget -= cost
        return True
