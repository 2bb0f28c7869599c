"""Messages from block to block."""

from libc.stdint cimport uint64_t

from natsd.store.block cimport MsgBlock


# Appends what lives in first..last to `into`, slots included; stops when `into` has `bytes_max`.
# The sequence where it stopped, last + 1 at the end; 0: raised ColdBlock.
cpdef uint64_t copy_messages(
    MsgBlock source, MsgBlock into, uint64_t first, uint64_t last, uint64_t bytes_max
) except 0
