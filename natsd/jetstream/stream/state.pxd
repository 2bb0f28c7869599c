"""The declarations of state.pyx."""

include "timestamp.pxd"
include "scheduler.pxd"
include "slot_readers.pxd"
include "core.pxd"
include "direct_answer.pxd"
include "direct_batch.pxd"
include "direct.pxd"
