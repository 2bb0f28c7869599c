"""The declarations of blocks.pyx."""

include "block_index.pxd"
include "block_extent.pxd"
include "scan.pxd"
include "rewrite.pxd"
include "block.pxd"
include "block_copy.pxd"
