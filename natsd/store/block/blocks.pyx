"""Blocks: their records in memory, their index, their scan, and their rewriting."""

include "block_index.pyx"
include "block_extent.pyx"
include "scan.pyx"
include "rewrite.pyx"
include "block.pyx"
include "block_copy.pyx"
