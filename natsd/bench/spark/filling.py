"""The streams of the Spark rows: filled once for each server, and read by many rows.

Payloads look like an order in JSON with a text that compresses by half, and repeat after 8,000
messages: neither Parquet's dictionaries nor its compressed pages (a mebibyte) gain from the
repetition.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from natsd.bench.frames import pub
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.arms import JetStreamServer
from natsd.bench.jetstream.publisher import INBOX, TOKENS, WindowPublisher
from natsd.bench.wire import LoadError

SUBJECTS = 1_000
SEED = 6


@dataclass
class OrderPublisher(WindowPublisher):
    """A publisher of orders, each of exactly `payload_bytes`."""

    _bodies: list[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._bodies = orders(TOKENS, self.payload_bytes)

    def _frames(self, first: int) -> bytes:
        return b"".join(
            pub(self._subject(first + token), self._bodies[token], b"%s.%05d" % (INBOX, token))
            for token in range(TOKENS)
        )


def orders(count: int, payload_bytes: int) -> list[bytes]:
    """Return `count` orders, the same ones in each run."""
    source = random.Random(SEED)
    return [order(source, payload_bytes) for _ in range(count)]


def order(source: random.Random, payload_bytes: int) -> bytes:
    """Return one order of exactly `payload_bytes`."""
    begin = b'{"order":%d,"note":"' % source.randrange(10**7, 10**8)
    end = b'"}'
    left = payload_bytes - len(begin) - len(end)
    assert left > 0
    return begin + source.randbytes(left).hex().encode()[:left] + end


def fill(server: JetStreamServer, stream: str, messages: int, payload_bytes: int) -> None:
    """Fill the stream with `messages` messages, unless it already holds as many.

    Raises LoadError if they are not all stored.
    """
    subject = f"{stream.lower()}.%04d".encode()
    with Api(server.host, server.port) as api:
        if api.messages(stream) >= messages:
            return
        api.remake_stream(
            {
                "name": stream,
                "subjects": [f"{stream.lower()}.*"],
                "storage": "file",
                "num_replicas": 1,
                "allow_direct": True,
            }
        )
        publisher = OrderPublisher(
            server.host, server.port, subject, SUBJECTS, messages, payload_bytes
        )
        publisher.prepare()
        try:
            result = publisher.run()
        finally:
            publisher.close()
        if result.problem:
            raise LoadError(result.problem)
        if (found := api.messages(stream)) != messages:
            raise LoadError(f"{found:,} of {messages:,} messages are in the stream")


def url(server: JetStreamServer) -> str:
    """Return the server's URL for clients."""
    return f"nats://{server.host}:{server.port}"
