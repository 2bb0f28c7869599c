"""The interface between a store that has something to write and the committer.

A store that has something to write calls `Committer.dirty(source)`. Later the committer serves it:

    store (a CommitSource)                      committer
    take_extent() ─────────────── Extent ─────> worker thread: allocate, pwrite, sync
      goes on filling a buffer                   (or, with many others, in the volume's journal)
      of its own meanwhile
    committed()  <── written; with `sync_interval: always` also on disk: acknowledge
    on_disk(n)   <── the first n commits are on disk: remove, overwrite, unlink
    failed(e)    <── nothing of the extent counts: roll back

Promise
- At most one extent of a source is out at a time. Each is answered by exactly one call, of
  `committed` or of `failed`, on the thread that runs the committer.
- The committer reads `data` in another thread until that call: the bytes must neither move nor
  change. It drops its reference a little after the call.
- Before `failed(StoreFull)` the file was cut back to `offset`: it is as it was before the extent.
  The committer looks for space by itself and calls `resumed()` once there is some; until then it
  takes no extent.
- After `failed(StoreReadOnly)` nothing is known about the file from `offset` on, and nothing is
  written for this source until it is opened again. The call can come while no extent is out: if a
  sync on the timer or a checkpoint failed.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from typing import Protocol

ALLOCATION_BYTES_MIN = 4096
ALLOCATION_STEP_BYTES_MAX = 1 << 20


@cython.no_gc           # belongs to no reference cycle; each commit makes one
@cython.freelist(64)
cdef class Extent:
    """Bytes for one place in one file; `data` is a buffer of `size` bytes.

    `allocate_to`: the file size in bytes to reserve first; 0: no reservation. `new_in`: the
    directory to sync too, because the file was just created or renamed in it; or None. `identity`:
    the random number in the file's header (journal.file_identity); 0: it has none.

    A store that begins a new block commits the last bytes of the old block in an earlier extent.
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
    """A store, as the committer sees it.

    Subclasses inherit defaults for what few stores need.
    """

    # Appended and not yet committed; bounded by `Committer.attach`.
    buffered_bytes: int = 0
    buffered_msgs: int = 0

    def take_extent(self):
        """Return the extent to write now; None if there is none."""

    def committed(self) -> None:
        """Note that the extent is written: its messages may be acknowledged."""

    def failed(self, error) -> None:
        """Note that the extent is not written.

        `error` is StoreFull (roll back and go on later) or StoreReadOnly.
        """

    def on_disk(self, commits: int) -> None:
        """Note that the first `commits` committed extents are on disk; what they replace may go."""
        return

    def resumed(self) -> None:
        """Note that there is space again after a StoreFull."""
        return


def grown_allocation(end_bytes: int, block_bytes_max: int) -> int:
    """Return the file size in bytes to reserve so that `end_bytes` fit.

    The size doubles from 4 KiB to 1 MiB, then grows in steps of 1 MiB: an idle stream holds one
    page, and a block is reserved in a dozen steps. It exceeds `block_bytes_max` only if `end_bytes`
    does.
    """
    if end_bytes >= block_bytes_max:
        return end_bytes
    doubled = max(ALLOCATION_BYTES_MIN, 1 << (end_bytes - 1).bit_length())
    steps = -(-end_bytes // ALLOCATION_STEP_BYTES_MAX) * ALLOCATION_STEP_BYTES_MAX
    return min(doubled if doubled <= ALLOCATION_STEP_BYTES_MAX else steps, block_bytes_max)
