"""The declarations of state.pyx."""

include "scheduler.pxd"
include "slot_readers.pxd"
include "proposer.pxd"
include "stream_readers.pxd"
include "direct_answer.pxd"
include "direct_batch.pxd"
include "direct.pxd"
