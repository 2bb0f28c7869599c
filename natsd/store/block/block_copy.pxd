"""Copying of messages from one block to another."""

from libc.stdint cimport uint64_t


# Append the live messages of first..last to `into`, slots included, until `into` has `bytes_max`
# bytes. Return the first sequence that was not copied, last + 1 if all were. The arrays and the
# bytes of `source` must be in memory, otherwise StoreError is raised.
cpdef uint64_t copy_messages(
    MsgBlock source, MsgBlock into, uint64_t first, uint64_t last, uint64_t bytes_max
) except 0
