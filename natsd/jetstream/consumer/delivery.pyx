"""What a consumer delivers next: pending messages, redelivery, acknowledgements, the engine."""

include "backlog.pyx"
include "keyed_backlog.pyx"
include "redelivery.pyx"
include "acks.pyx"
include "sinks.pyx"
include "engine.pyx"
