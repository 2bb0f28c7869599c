"""The declarations of subjects.pyx."""

include "subject_index.pxd"
include "subject_snapshot.pxd"
include "slot_marks.pxd"
include "filter.pxd"
include "matches.pxd"
