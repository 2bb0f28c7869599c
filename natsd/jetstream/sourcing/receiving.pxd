"""The declarations of receiving.pyx."""

include "finding.pxd"
include "carried_headers.pxd"
include "last_positions.pxd"
include "receiver.pxd"
