"""The declarations of publishing.pyx."""

include "usage.pxd"
include "republish.pxd"
include "write_backpressure.pxd"
include "fast_reply.pxd"
include "refusals.pxd"
include "publish.pxd"
include "publish_commands.pxd"
