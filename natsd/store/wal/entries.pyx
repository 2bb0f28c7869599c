"""The parts of a commit: extents of files, and the entries of the write-ahead log."""

include "extent.pyx"
include "entry_codec.pyx"
