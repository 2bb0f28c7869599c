"""The snapshot of a replica in its group's RAFT log: what the stream has, not the stream itself.

    ┌────────────┬────────────┬──────────────────┬──────────────────────────────────────┬───
    │ version u8 │ applied u64│ last sequence u64│ length u32 │ name │ length u32 │ body │ …
    └────────────┴────────────┴──────────────────┴──────────────────────────────────────┴───

Numbers are little-endian. `applied` is the number of commands that the stream has, or more; its
last message has at least that sequence. The entries are the configurations of the stream and of
its consumers (snapshot/contents.py). For a stream in memory they are its bare image
(memory_image.py), all of it that can be had again when every replica has lost the messages.
"""

import struct
from collections.abc import AsyncIterator, Iterable
from typing import Final, NamedTuple

from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.models.go_json import decode
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.snapshot.contents import CONSUMER_META, CONSUMERS, META, SnapshotConsumer
from natsd.jetstream.stream.files import StreamAsset

NUMBERS: Final = struct.Struct("<BQQ")
LENGTH: Final = struct.Struct("<I")
VERSION: Final = 2


class Manifest(NamedTuple):
    """What the stream of a replica has."""

    applied: int = 0
    last_sequence: int = 0
    image: tuple[tuple[str, bytes], ...] = ()

    @property
    def config(self) -> StreamConfig | None:
        """The configuration of the stream; None: the group begins with the log's first command."""
        bodies = [body for name, body in self.image if name == META]
        return decode(StreamAsset, bodies[0]).config if bodies else None

    @property
    def consumers(self) -> dict[str, ConsumerAsset]:
        """What the consumers are, by name."""
        found = (
            decode(SnapshotConsumer, body)
            for name, body in self.image
            if name.startswith(CONSUMERS) and name.endswith(CONSUMER_META)
        )
        return {each.name: each.asset for each in found}

    async def entries(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the entries of the image, as a transfer does."""
        for entry in self.image:
            yield entry


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest."""
    parts = [NUMBERS.pack(VERSION, manifest.applied, manifest.last_sequence)]
    for name, body in manifest.image:
        for each in (name.encode(), body):
            parts += (LENGTH.pack(len(each)), each)
    return b"".join(parts)


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest of its bytes; that of a new group has none."""
    if not data:
        return Manifest()
    version, applied, last_sequence = NUMBERS.unpack_from(data)
    assert version == VERSION
    parts = list(_parts(data))
    names = (each.decode() for each in parts[::2])
    return Manifest(applied, last_sequence, tuple(zip(names, parts[1::2], strict=True)))


def _parts(data: bytes) -> Iterable[bytes]:
    at = NUMBERS.size
    while at < len(data):
        begin = at + LENGTH.size
        at = begin + LENGTH.unpack_from(data, at)[0]
        yield data[begin:at]
