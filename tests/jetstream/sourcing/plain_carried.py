"""A readable model of the headers that a copy omits (nats-server's `processInboundMirrorMsg`)."""

LEFT = (b"Nats-Expected-", b"Nats-Batch-", b"Nats-Request-Info:")
OF_SOURCES = (b"Nats-Stream-Source:",)


def plainly_carried(block: bytes, *, is_source: bool) -> bytes:
    """Return the block without the omitted lines; the first and an unfinished line stay."""
    left = (*LEFT, *OF_SOURCES) if is_source else LEFT
    first, *lines = block.split(b"\r\n")
    whole = [line + b"\r\n" for line in lines[:-1]]
    if lines and not lines[-1]:
        whole = whole[:-1] if whole and whole[-1] == b"\r\n" else whole
    else:
        whole += lines[-1:]
    kept = b"".join(line for line in whole if not line.startswith(left))
    return first + (b"\r\n" if lines else b"") + kept
