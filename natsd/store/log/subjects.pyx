"""The subjects of a log: their index, their filters, and their snapshot."""

include "subject_index.pyx"
include "subject_snapshot.pyx"
include "slot_marks.pyx"
include "filter.pyx"
include "matches.pyx"
