"""The declarations of batching.pyx."""

include "atomic_batch.pxd"
include "atomic_batches.pxd"
include "fast_batches.pxd"
