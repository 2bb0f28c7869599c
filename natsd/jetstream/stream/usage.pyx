"""Usage: bytes that streams hold and have reserved, and their limits.

Promise
- An account's usage is part of the server's usage: `add` and `reserve` count in both.
- Bytes are those of records (natsd/store/codec/record.pxd), memory and file apart. A limit of -1
  means none.
- Nothing here refuses anything: the caller decides what follows from a limit.

The numbers are those of nats-server's `JetStreamAccountStats`.
"""

from libc.stdint cimport int64_t

from natsd.jetstream.errors import ErrorId


cdef class Usage:
    """Bytes used, reserved and allowed, of an account or of the server; -1: no limit.

    `refusal` is the error that answers a publish beyond the limit.
    """

    def __init__(
        self, Usage server=None, *, int64_t memory_limit=-1, int64_t file_limit=-1,
        refusal=ErrorId.JSAccountResourcesExceededErr,
    ):
        self.server = server
        self.refusal = refusal
        self.memory.limit = memory_limit
        self.file.limit = file_limit

    cdef int add(self, bint is_memory, int64_t change) except -1:
        if is_memory:
            self.memory.used += change
        else:
            self.file.used += change
        if self.server is not None:
            self.server.add(is_memory, change)
        return 0

    cdef bint exceeds(self, bint is_memory, int64_t more) noexcept nogil:
        cdef StorageUse* use = &self.memory if is_memory else &self.file
        return 0 <= use.limit < use.used + more

    def count(self, *, bint is_memory, int64_t change) -> None:
        """Count `change` more stored bytes; negative: fewer."""
        self.add(is_memory, change)

    def reserve(self, *, bint is_memory, int64_t change) -> None:
        """Count `change` more bytes reserved by streams; negative: fewer."""
        if is_memory:
            self.memory.reserved += change
        else:
            self.file.reserved += change
        if self.server is not None:
            self.server.reserve(is_memory=is_memory, change=change)

    def is_over(self, *, bint is_memory, int64_t more=0) -> bool:
        """Return whether `more` bytes would exceed the limit of this object, not of the server."""
        return self.exceeds(is_memory, more)

    @property
    def memory_used(self) -> int:
        """Bytes stored in memory storage."""
        return self.memory.used

    @property
    def memory_reserved(self) -> int:
        """Bytes reserved by streams in memory storage."""
        return self.memory.reserved

    @property
    def memory_limit(self) -> int:
        """Limit of memory storage, in bytes; -1: none."""
        return self.memory.limit

    @memory_limit.setter
    def memory_limit(self, int64_t limit):
        self.memory.limit = limit

    @property
    def file_used(self) -> int:
        """Bytes stored in file storage."""
        return self.file.used

    @property
    def file_reserved(self) -> int:
        """Bytes reserved by streams in file storage."""
        return self.file.reserved

    @property
    def file_limit(self) -> int:
        """Limit of file storage, in bytes; -1: none."""
        return self.file.limit

    @file_limit.setter
    def file_limit(self, int64_t limit):
        self.file.limit = limit
