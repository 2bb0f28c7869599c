"""Positions in sources: from the headers of messages, and from sources.db."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from natsd.jetstream.models.stream import StreamSource
from natsd.jetstream.sourcing.positions import (
    POSITIONS_FILE,
    Positions,
    find_positions,
    keep_positions,
    parse_source,
    read_positions,
)
from natsd.jetstream.stream.stream import Stream
from natsd.store.crypto.vault import Vault
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import copy_of
from tests.jetstream.serving import account_of, create, publish, serving
from tests.waiting import eventually_within

A, B = "O o.a >", "O o.b >"


@pytest.mark.parametrize(
    ("value", "position"),
    [
        ("O 7 > > o.a", ("O > >", 7)),
        ("O:hash 7 a\fb c\fd a", ("O:hash a\fb c\fd", 7)),
        ("O 7", ("O", 7)),
        ("$JS.ACK.O.C.1.7.3.1700000000000000000.0", ("O", 7)),
        ("$JS.ACK._.hash.O.C.1.7.3.1700000000000000000.0", ("O", 7)),
        ("O x > > o", ("O > >", 0)),
        ("O 7 >", ("", 0)),
        ("", ("", 0)),
        ("$JS.ACK.O", ("", 0)),
    ],
)
def test_what_the_header_says(value: str, position: tuple[str, int]) -> None:
    assert parse_source(value) == position


def test_kept_and_read(tmp_path: Path) -> None:
    vault = Vault(RealDisk(), tmp_path, os.urandom)
    positions = Positions(upto=9, sequences={A: 7, B: 0})
    assert read_positions(vault, tmp_path) is None
    keep_positions(vault, tmp_path, positions)
    assert read_positions(vault, tmp_path) == positions
    half = (tmp_path / POSITIONS_FILE).read_bytes()[:-1]
    (tmp_path / POSITIONS_FILE).write_bytes(half)
    assert read_positions(vault, tmp_path) == positions
    for path in (tmp_path / POSITIONS_FILE, copy_of(tmp_path / POSITIONS_FILE)):
        path.write_bytes(b"damaged")
    assert read_positions(vault, tmp_path) is None


class TestFinding:
    """Stream S, whose messages 1 to 4 are O's 1 (a), 2 (b), 3 (a), and its own."""

    @pytest.fixture
    async def stream(self, tmp_path: Path) -> object:
        async with serving(tmp_path) as jetstream:
            await create(jetstream, "O", subjects=["o.*"])
            sources = [StreamSource(name="O", filter_subject=name) for name in ("o.a", "o.b")]
            made = await create(jetstream, "S", subjects=["s"], sources=sources)
            for number, subject in enumerate(("o.a", "o.b", "o.a", "s"), 1):
                await publish(jetstream, subject)
                await eventually_within(lambda number=number: made.readers.visible == number)
            yield made
            await account_of(jetstream).delete_stream("S")

    async def test_in_the_messages(self, stream: Stream) -> None:
        assert await find_positions(stream.store, [A, B], None) == {A: 3, B: 2}

    async def test_what_never_came_is_not_known(self, stream: Stream) -> None:
        assert await find_positions(stream.store, [A, "P > >"], None) == {A: 3}

    async def test_behind_what_was_kept(self, stream: Stream) -> None:
        kept = Positions(upto=2, sequences={A: 1, B: 99})
        assert await find_positions(stream.store, [A, B], kept) == {A: 3, B: 99}

    async def test_what_was_kept_of_more_messages_is_not_believed(self, stream: Stream) -> None:
        kept = Positions(upto=5, sequences={A: 99, B: 99})
        assert await find_positions(stream.store, [A, B], kept) == {A: 3, B: 2}

    async def test_a_new_source_is_looked_for_in_all_messages(self, stream: Stream) -> None:
        kept = Positions(upto=4, sequences={A: 3})
        assert await find_positions(stream.store, [A, B], kept) == {A: 3, B: 2}

    async def test_damaged_headers_are_passed_over(self, stream: Stream) -> None:
        header = b"NATS/1.0\r\nNats-Stream-Source: nonsense\r\n\r\n"
        stream.store.append("s", header, b"", 1)
        assert await find_positions(stream.store, [A, B], None) == {A: 3, B: 2}
