"""A readable model of the headers that a stream observes."""

NAMES = [
    "Msg-Id",
    "Expected-Stream",
    "Expected-Last-Sequence",
    "Expected-Last-Msg-Id",
    "Expected-Last-Subject-Sequence",
    "Expected-Last-Subject-Sequence-Subject",
    "Rollup",
    "TTL",
    "Incr",
    "Schedule",
    "Schedule-Time-Zone",
    "Schedule-Next",
    "Scheduler",
    "Batch-Id",
    "Request-Info",
]


def plain_headers(block: bytes) -> dict[str, bytes]:
    """Return the observed headers of the block, read line by line."""
    found: dict[str, bytes] = {}
    for line in block.split(b"\r\n")[1:-1]:
        name, colon, value = line.partition(b":")
        short = name.removeprefix(b"Nats-").decode(errors="replace")
        if name.startswith(b"Nats-") and colon and short in NAMES and short not in found:
            found[short] = value.lstrip(b" ")
    return found
