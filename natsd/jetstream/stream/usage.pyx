"""Usage: bytes that streams hold and have reserved, and their limits.

Promise
- An account's usage is part of the server's usage: `add` and `reserve` count in both.
- Bytes are those of records (natsd/store/codec/record.pxd), memory and file apart. A limit of -1
  means none.
- An account's limit holds for all servers together: `used` counts the replicas on this server, and
  `elsewhere` what the others say of theirs. A publish costs one comparison all the same.
- Without tiers every replica counts. The limit of a tier counts a stream's bytes once, so all its
  replicas together may have that many times `replicas`.
- Nothing here refuses anything: the caller decides what follows from a limit.

The numbers are those of nats-server's `JetStreamAccountStats`; its `wouldExceedLimits`.
"""

from libc.stdint cimport INT64_MAX, int64_t

from natsd.jetstream.errors import ErrorId


cdef inline StorageUse* use_of(Usage usage, bint is_memory) noexcept nogil:
    return &usage.memory if is_memory else &usage.file


cdef class Usage:
    """Bytes used, reserved and allowed, of an account or of the server; -1: no limit.

    `refusal` is the error that answers a publish beyond the limit. `replicas` is the number that
    the streams of a tier have; 0: these are no limits of a tier.
    """

    def __init__(
        self, Usage server=None, *, int64_t memory_limit=-1, int64_t file_limit=-1,
        refusal=ErrorId.JSAccountResourcesExceededErr, int replicas=0,
    ):
        self.server = server
        self.refusal = refusal
        self.replicas = replicas
        self.memory_limit = memory_limit
        self.file_limit = file_limit

    cdef int add(self, bint is_memory, int64_t change) except -1:
        use_of(self, is_memory).used += change
        if self.server is not None:
            self.server.add(is_memory, change)
        return 0

    cdef bint exceeds(self, bint is_memory, int64_t more) noexcept nogil:
        cdef StorageUse* use = use_of(self, is_memory)
        return use.allowed < use.used + more

    cdef int allow(self, StorageUse* use) except -1:
        """Have `allowed` follow from the limit and from what others use."""
        cdef int64_t factor = max(self.replicas, 1)
        if use.limit < 0:
            use.allowed = INT64_MAX
        elif use.limit > INT64_MAX // factor:
            use.allowed = INT64_MAX - use.elsewhere
        else:
            use.allowed = factor * use.limit - use.elsewhere
        return 0

    def count(self, *, bint is_memory, int64_t change) -> None:
        """Count `change` more stored bytes; negative: fewer."""
        self.add(is_memory, change)

    def reserve(self, *, bint is_memory, int64_t change) -> None:
        """Count `change` more bytes reserved by streams; negative: fewer."""
        use_of(self, is_memory).reserved += change
        if self.server is not None:
            self.server.reserve(is_memory=is_memory, change=change)

    def count_elsewhere(self, *, int64_t memory, int64_t file) -> None:
        """Count that many bytes as used on other servers, in place of what was counted before."""
        assert memory >= 0 and file >= 0
        self.memory.elsewhere, self.file.elsewhere = memory, file
        self.allow(&self.memory)
        self.allow(&self.file)

    cpdef int64_t counted_copies(self, int64_t copies):
        """Return how often the limit counts each byte of a stream with that many copies."""
        return self.replicas or copies

    def is_over(self, *, bint is_memory, int64_t more=0) -> bool:
        """Return whether `more` bytes would exceed the limit of this object, not of the server.

        `more` counts all replicas.
        """
        return self.exceeds(is_memory, more)

    @property
    def memory_used(self) -> int:
        """Bytes stored in memory storage on this server."""
        return self.memory.used

    @property
    def memory_elsewhere(self) -> int:
        """Bytes stored in memory storage on other servers."""
        return self.memory.elsewhere

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
        self.allow(&self.memory)

    @property
    def file_used(self) -> int:
        """Bytes stored in file storage on this server."""
        return self.file.used

    @property
    def file_elsewhere(self) -> int:
        """Bytes stored in file storage on other servers."""
        return self.file.elsewhere

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
        self.allow(&self.file)
