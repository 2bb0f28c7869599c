"""The declarations of entries.pyx."""

include "extent.pxd"
