"""The declarations of records.pyx."""

include "record.pxd"
include "chunk_boundaries.pxd"
