"""Extent: the bytes that a store has to write to one place of one file."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

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


cpdef int write_extent(job, Extent extent) except -1:
    """Add the steps that write the extent to a CommitJob."""
    if extent.allocate_to > extent.offset:
        job.allocate(extent.file, extent.offset, extent.allocate_to - extent.offset)
    job.write(extent.file, extent.data, extent.offset)
    if extent.new_in is not None:
        job.sync_directory(extent.new_in)
    return 0


def write_parts(job, list extents not None) -> None:
    """Add the writing of each extent to a CommitJob, each as a part of its own."""
    for extent in extents:
        job.begin_part()
        write_extent(job, extent)
    job.end_parts()


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
