"""What a consumer has delivered and acknowledged: in memory, and as a log of changes."""

include "consumer_log.pyx"
include "consumer_tracker.pyx"
