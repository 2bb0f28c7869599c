"""The publish path of a stream: from a message to its acknowledgement."""

include "usage.pyx"
include "republish.pyx"
include "write_backpressure.pyx"
include "fast_reply.pyx"
include "refusals.pyx"
include "publish.pyx"
include "publish_commands.pyx"
