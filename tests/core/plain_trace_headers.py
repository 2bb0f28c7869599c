"""The headers of a trace in plain Python: the model that `natsd.core.network` is compared with."""

from __future__ import annotations

VERSION = b"NATS/1.0\r\n"


def plain_trace_headers(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return names and values of a header block in their order."""
    found: list[tuple[bytes, bytes]] = []
    if not block.startswith(VERSION):
        return found
    rest = block.removeprefix(VERSION)
    while True:
        name, colon, rest = rest.partition(b":")
        value, end, rest = rest.lstrip(b" \t").partition(b"\r\n")
        if not colon or not end:
            return found
        if name and value.strip(b" \t"):
            found.append((name, value.strip(b" \t")))
