"""From the files of a store to columns."""

include "records.pyx"
include "digests.pyx"
