"""The bytes of a record, and the chunks of a compressed block."""

include "record.pyx"
include "chunk_boundaries.pyx"
