"""Messages that arrive from the origins of a mirror or source."""

include "finding.pyx"
include "carried_headers.pyx"
include "last_positions.pyx"
include "receiver.pyx"
