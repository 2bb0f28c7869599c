"""Header names of JetStream, each written once, and how one is looked up in a header block.

The compiled publish path has its own one-pass scanner; this is for requests and replies.

Source: reference §6.7, §6.10, §6.11.
"""

from typing import Final

# Of a publish: what must hold for it to be stored.
MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
EXPECTED_LAST_SEQUENCE: Final = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_MSG_ID: Final = "Nats-Expected-Last-Msg-Id"
EXPECTED_LAST_SUBJECT_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
REQUIRED_API_LEVEL: Final = "Nats-Required-Api-Level"

# Of a publish: what it does.
ROLLUP: Final = "Nats-Rollup"
TTL: Final = "Nats-TTL"
MARKER_REASON: Final = "Nats-Marker-Reason"
INCR: Final = "Nats-Incr"
COUNTER_SOURCES: Final = "Nats-Counter-Sources"
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
SCHEDULE: Final = "Nats-Schedule"
SCHEDULE_TIME_ZONE: Final = "Nats-Schedule-Time-Zone"
SCHEDULE_TTL: Final = "Nats-Schedule-TTL"
SCHEDULE_ROLLUP: Final = "Nats-Schedule-Rollup"
SCHEDULE_TARGET: Final = "Nats-Schedule-Target"
SCHEDULE_SOURCE: Final = "Nats-Schedule-Source"
SCHEDULER: Final = "Nats-Scheduler"
SCHEDULE_NEXT: Final = "Nats-Schedule-Next"
STREAM_SOURCE: Final = "Nats-Stream-Source"
KV_OPERATION: Final = "KV-Operation"

# Of a message that the server sends.
STREAM: Final = "Nats-Stream"
SUBJECT: Final = "Nats-Subject"
SEQUENCE: Final = "Nats-Sequence"
TIME_STAMP: Final = "Nats-Time-Stamp"
LAST_SEQUENCE: Final = "Nats-Last-Sequence"
NUM_PENDING: Final = "Nats-Num-Pending"
UPTO_SEQUENCE: Final = "Nats-UpTo-Sequence"
MSG_SIZE: Final = "Nats-Msg-Size"
RESPONSE_TYPE: Final = "Nats-Response-Type"

# Of a consumer's status messages.
LAST_CONSUMER: Final = "Nats-Last-Consumer"
LAST_STREAM: Final = "Nats-Last-Stream"
CONSUMER_STALLED: Final = "Nats-Consumer-Stalled"
PENDING_MESSAGES: Final = "Nats-Pending-Messages"
PENDING_BYTES: Final = "Nats-Pending-Bytes"
PIN_ID: Final = "Nats-Pin-Id"

REQUEST_INFO: Final = "Nats-Request-Info"


def header_value(block: bytes, name: str) -> bytes | None:
    """The value of the first header of that name, exactly spelled; None when there is none."""
    if not block:
        return None
    start = block.find(b"\r\n" + name.encode() + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = block.find(b"\r\n", start)
    return block[start : end if end >= 0 else len(block)].lstrip(b" ")
