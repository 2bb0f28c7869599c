"""A damaged snapshot, or any bytes: the entries that can be read are a prefix of the written ones.

Input: bytes written over a snapshot, piece by piece: place (2 bytes), length (1), the bytes. An
input that begins with 0xff is a snapshot itself, one with 0xfe is packed into frames first.
"""

from natsd.store.backup.snappy_frames import FramePacker, FrameUnpacker
from natsd.store.backup.snapshot_file import SnapshotReader, SnapshotWriter
from natsd.store.errors import DamagedEncoding, ForeignSnapshot

MODULES = [
    "natsd.store.codec.records",
    "natsd.store.backup.snapshots",
    "natsd.store.backup.snapshots",
]
PART_BYTES = 500


def written(entries: list[tuple[str, bytes]]) -> bytes:
    writer = SnapshotWriter()
    parts = [writer.begin(), *(writer.entry(*entry) for entry in entries), writer.end()]
    return b"".join(parts)


ENTRIES = [
    ("meta.json", b'{"config":{}}'),
    ("obs/0/state.db", bytes(range(256))),
    ("msgs/000001.blk", b"one two three four " * 4000),
    ("msgs/state.json", b"{}"),
]
SNAPSHOT = written(ENTRIES)
SEEDS = [
    b"",
    b"\x00\x00\x01\x00",  # the identifier
    b"\x00\x0a\x08" + bytes(8),  # a frame's number
    b"\x00\x17\x03\xff\xff\xff",  # a frame's length
    b"\x00\x20\xff" + bytes(255),
    b"\xff" + SNAPSHOT[:900],
    b"\xff\xff\x06\x00\x00S2sTwO",
    b"\xff" + bytes(300),
    b"\xfe" + bytes(1024),
    b"\xfemeta.inf",
]


def check(data: bytes) -> None:
    if data[:1] == b"\xfe":
        packer = FramePacker()
        packed = packer.begin() + packer.packing(data[1:])()
        assert FrameUnpacker().feed(packed) == data[1:]
        read(packed)
    elif data[:1] == b"\xff":
        read(data[1:])
    else:
        wounded = wound(data)
        found, is_whole = read(wounded)
        assert found == ENTRIES[: len(found)]
        assert is_whole or wounded != SNAPSHOT
        assert not is_whole or found == ENTRIES


def wound(data: bytes) -> bytes:
    wounded = bytearray(SNAPSHOT)
    while len(data) > 3:
        at = int.from_bytes(data[:2], "big") % len(SNAPSHOT)
        noise = data[3 : 3 + data[2]][: len(SNAPSHOT) - at]
        wounded[at : at + len(noise)] = noise
        data = data[3 + data[2] :]
    return bytes(wounded)


def read(data: bytes) -> tuple[list[tuple[str, bytes]], bool]:
    """Return the entries before the first error, and whether there was none."""
    reader = SnapshotReader()
    found: list[tuple[str, bytes]] = []
    try:
        for at in range(0, len(data), PART_BYTES):
            found += reader.feed(data[at : at + PART_BYTES])
        reader.finish()
    except (DamagedEncoding, ForeignSnapshot):
        return found, False
    return found, True
