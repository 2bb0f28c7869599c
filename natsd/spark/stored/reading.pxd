"""The declarations of reading.pyx."""

include "records.pxd"
include "digests.pxd"
