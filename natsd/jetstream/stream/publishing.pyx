"""The publish path of a stream: from a message to its acknowledgement."""

include "usage.pyx"
include "republish.pyx"
include "backlog.pyx"
include "fast_reply.pyx"
include "publish.pyx"
