"""Snapshots: the messages that they copy, and the snappy frames around them."""

include "snappy.pyx"
include "reused_bytes.pyx"
include "snapshot_image.pyx"
