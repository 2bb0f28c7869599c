"""The declarations of delivery.pyx."""

include "pending_cursor.pxd"
include "keyed_pending_cursor.pxd"
include "redelivery.pxd"
include "acks.pxd"
include "sinks.pxd"
include "engine.pxd"
