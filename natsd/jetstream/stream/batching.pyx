"""Atomic batches, fast batches, and traced publishes."""

include "atomic_batch.pyx"
include "atomic_batches.pyx"
include "fast_batches.pyx"
include "traced_publish.pyx"
