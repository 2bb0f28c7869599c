"""What a consumer delivers next: pending messages, redelivery, acknowledgements, the engine."""

include "pending_cursor.pyx"
include "keyed_pending_cursor.pyx"
include "redelivery.pyx"
include "acks.pyx"
include "sinks.pyx"
include "engine.pyx"
