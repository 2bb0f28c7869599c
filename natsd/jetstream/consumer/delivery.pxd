"""The declarations of delivery.pyx."""

include "backlog.pxd"
include "keyed_backlog.pxd"
include "redelivery.pxd"
include "acks.pxd"
include "sinks.pxd"
include "engine.pxd"
