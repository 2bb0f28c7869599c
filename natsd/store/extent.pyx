"""What a store hands to the committer, and what it hears back.

A store that has something to write calls `Committer.dirty(source)`. When its turn comes:

    store (a CommitSource)                      committer
    take_extent() ─────────────── Extent ─────> worker thread: allocate, pwrite, sync
      goes on filling a buffer                   (or with many others in the volume's journal)
      of its own meanwhile
    committed()  <── written; with `sync_interval: always` also on disk: acknowledge
    on_disk(n)   <── its first n commits are on disk: remove, overwrite, unlink
    failed(e)    <── nothing of the extent counts: roll back

Promise
- At most one extent of a source is out at a time; each is answered by exactly one of `committed`
  and `failed`, on the thread that runs the committer.
- The committer reads `data` in another thread until the answer: the bytes must neither move nor
  change. It lets go of its reference a little after the answer.
- On `failed(StoreFull)` the file was cut back to `offset`: it is as it was before the extent. The
  committer looks for space by itself and calls `resumed()` once there is some; until then it takes
  nothing.
- On `failed(StoreReadOnly)` nothing is known about the file from `offset` on, and nothing will be
  written for this source again until it is opened anew. It can come without an extent being out:
  a sync on the timer or a checkpoint failed.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from typing import Protocol

ALLOCATION_BYTES_MIN = 4096
ALLOCATION_STEP_BYTES_MAX = 1 << 20


@cython.no_gc           # it is part of no cycle, and there is one for each commit
@cython.freelist(64)
cdef class Extent:
    """Bytes for one place in one file; `data` has one dimension, of bytes, `size` of them.

    `allocate_to`: the size up to which the file is to be reserved first, 0 for no reservation.
    `new_in`: the directory to be synced along, where the file has just been created or renamed.
    `identity`: the random number in the file's header (journal.file_identity); 0: it has none.
    A store that begins a new block writes the last bytes of the old one in a commit before.
    """

    def __init__(
        self, file, int64_t offset, data, int64_t allocate_to=0, new_in=None, uint64_t identity=0
    ):
        self.file = file
        self.offset = offset
        self.data = data
        self.size = len(data)
        self.allocate_to = allocate_to
        self.new_in = new_in
        self.identity = identity


cdef int add_writing(object job, Extent extent) except -1:
    if extent.allocate_to > extent.offset:
        job.allocate(extent.file, extent.offset, extent.allocate_to - extent.offset)
    job.write(extent.file, extent.data, extent.offset)
    if extent.new_in is not None:
        job.sync_directory(extent.new_in)
    return 0


class CommitSource(Protocol):
    """One store, as the committer sees it. To subclass it saves what few need."""

    # What was appended and not committed; bounded by `Committer.attach`.
    buffered_bytes: int = 0
    buffered_msgs: int = 0

    def take_extent(self):
        """What is to be written now; None if there is nothing."""

    def committed(self) -> None:
        """The extent is written: what it holds may be acknowledged."""

    def failed(self, error) -> None:
        """The extent is not written: StoreFull (roll back, go on later) or StoreReadOnly."""

    def on_disk(self, commits: int) -> None:
        """The first `commits` extents that were committed are on disk; what they replace may go."""
        return

    def resumed(self) -> None:
        """There is space again after a StoreFull."""
        return


def grown_allocation(end_bytes: int, block_bytes_max: int) -> int:
    """The file size to reserve so that `end_bytes` fit: doubled from 4 KiB, then 1 MiB a step.

    An idle stream holds one page, and a block is reserved in a dozen steps. Never above
    `block_bytes_max`, unless `end_bytes` is.
    """
    if end_bytes >= block_bytes_max:
        return end_bytes
    doubled = max(ALLOCATION_BYTES_MIN, 1 << (end_bytes - 1).bit_length())
    steps = -(-end_bytes // ALLOCATION_STEP_BYTES_MAX) * ALLOCATION_STEP_BYTES_MAX
    return min(doubled if doubled <= ALLOCATION_STEP_BYTES_MAX else steps, block_bytes_max)
