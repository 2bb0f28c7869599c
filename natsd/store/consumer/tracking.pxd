"""The declarations of tracking.pyx."""

include "consumer_log.pxd"
include "consumer_tracker.pxd"
