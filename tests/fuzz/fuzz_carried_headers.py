"""A copy of a header block omits the lines that it must omit, and nothing else.

Input: a header block. A mirror's block equals that of the plain reader; a source's block also omits
the source header; a second pass changes nothing. nats-server's counterpart is
`processInboundMirrorMsg`.
"""

from natsd.jetstream.sourcing.receiving import carried
from tests.jetstream.sourcing.plain_carried import plainly_carried

MODULES = ["natsd.jetstream.sourcing.receiving"]
SEEDS = [
    b"",
    b"\n",
    b"\r\n",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nA: b\r\nNats-Expected-Stream: S\r\nC: d\r\n\r\n",
    b"NATS/1.0\r\nNats-Batch-Id: a\r\nNats-Batch-Sequence: 1\r\n\r\n",
    b"NATS/1.0\r\nNats-Request-Info: {}\r\nNats-Request-Infos: {}\r\n\r\n",
    b"NATS/1.0\r\nNats-Stream-Source: O 1 > > o\r\nnats-stream-source: x\r\n\r\n",
    b"NATS/1.0\r\nA: Nats-Expected-\nNats-Batch-\r\rNats-Batch-\r\n\r\n\r\n",
    b"NATS/1.0\r\nNats-\r\nNats-Expected-",
    b"NATS/1.0\r\n\n\r\n\r\xc4",
]


def check(data: bytes) -> None:
    for is_source in (False, True):
        found = carried(data, is_source=is_source)
        assert found == plainly_carried(data, is_source=is_source)
        assert carried(found + b"\r\n", is_source=is_source) == found or not found.endswith(b"\r\n")
