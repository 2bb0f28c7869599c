"""A stream as its readers see it: what is visible, direct gets, and the scheduler."""

include "scheduler.pyx"
include "slot_readers.pyx"
include "stream_readers.pyx"
include "visible_state.pyx"
include "direct_answer.pyx"
include "direct_batch.pyx"
include "direct.pyx"
