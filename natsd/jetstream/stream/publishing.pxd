"""The declarations of publishing.pyx."""

include "usage.pxd"
include "republish.pxd"
include "backlog.pxd"
include "fast_reply.pxd"
include "publish.pxd"
