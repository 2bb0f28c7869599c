"""S2 streams between servers: what is sent can be read, and what is damaged ends the route."""

import os
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.cluster.compression import CompressionFraming
from natsd.core.reasons import ClosedReason
from tests.cluster.mesh import client, inbox, interested, member, meshed, routes_of

LEVELS = ("s2_uncompressed", "s2_fast")


class FakeEndpoint:
    def __init__(self) -> None:
        self.reason: ClosedReason | None = None

    def close(self, reason: ClosedReason) -> None:
        self.reason = reason


def framing(level: str = "s2_fast") -> tuple[CompressionFraming, FakeEndpoint]:
    endpoint: Any = FakeEndpoint()
    return CompressionFraming(endpoint, level), endpoint


@pytest.mark.parametrize("level", LEVELS)
@given(
    parts=st.lists(st.binary(max_size=200_000), min_size=1, max_size=4), cut=st.integers(1, 70_000)
)
def test_what_is_sent_is_received_however_it_is_cut(
    level: str, parts: list[bytes], cut: int
) -> None:
    sender, receiver = framing(level)[0], framing()[0]
    stream = b"".join(sender.encode(part) for part in parts if part)
    received, pending = b"", b""
    for at in range(0, len(stream), cut):
        pending += stream[at : at + cut]
        content, used = receiver.decode(pending)
        received, pending = received + content, pending[used:]
    assert received == b"".join(parts)
    assert pending == b""


@pytest.mark.parametrize("level", LEVELS)
def test_a_reader_of_snappy_reads_it(level: str) -> None:
    sender = framing(level)[0]
    data = [b"a" * 100_000, os.urandom(100_000)]
    stream = b"".join(map(sender.encode, data))
    assert bytes(cramjam.snappy.decompress(stream)) == b"".join(data)
    assert (len(stream) < 120_000) == (level == "s2_fast")


@pytest.mark.parametrize(
    "stream", [b"\x00\x10\x00\x00" + bytes(16), b"\x01\xff\xff\xff", b"\x05\x01\x00\x00x"]
)
def test_damage_ends_the_route(stream: bytes) -> None:
    receiver, endpoint = framing()
    assert receiver.decode(stream) == (b"", len(stream))
    assert endpoint.reason is ClosedReason.PROTOCOL_VIOLATION


MODES = [
    ("off", "s2_fast", "off"),
    ("accept", "accept", "off"),
    ("accept", "s2_better", "s2_better"),
    ("s2_best", "s2_best", "s2_best"),
]


@pytest.mark.both_loops
@pytest.mark.parametrize(("first", "second", "agreed"), MODES)
async def test_two_servers_agree(first: str, second: str, agreed: str) -> None:
    async with member("A", cluster={"compression": first}) as one:
        async with member("B", [one], {"compression": second}) as other:
            await meshed(one, other)
            found = {route.compression for each in (one, other) for route in routes_of(each)}
            assert found == {agreed}
            async with client(one) as a, client(other) as b:
                got = await inbox(b, "foo")
                await interested(one, "foo")
                for size in (1, 1000, 500_000):
                    await a.publish("foo", b"x" * size)
                await a.flush()
                await got.filled(3)
                assert [len(each.data) for each in got] == [1, 1000, 500_000]
