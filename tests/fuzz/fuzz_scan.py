"""A damaged block file: a scan returns written messages or none, and loses no other.

Input: bytes written over a block file, piece by piece: place (2 bytes), length (1), the bytes. An
empty input is the undamaged file; one that begins with 0xff is a file itself. See docs/store.md for
recovery.
"""

from natsd.store.block.blocks import MsgBlock, Scan
from natsd.store.codec.records import StoredMessage
from natsd.store.sequence_set import SequenceSet

MODULES = ["natsd.store.codec.records", "natsd.store.block.blocks", "natsd.store.block.blocks"]
HEADER_BYTES = 64
RECORD_HEADER_BYTES = 32


def written() -> tuple[bytes, dict[int, StoredMessage], dict[int, range], dict[int, range]]:
    """Return a small file, its messages, and the byte ranges of each message and its commit."""
    block, data = MsgBlock(1, 1234, 1, 1 << 20), b""
    commits = {}
    for sequence in range(1, 13):
        block.put(sequence, f"a.{sequence}", b"h" if sequence % 2 else None, b"x" * sequence, 1)
        if sequence % 4 == 0:
            block.put_tombstones(SequenceSet([sequence - 2]).encode())
            extent = block.take_extent(sequence, 1)
            assert extent is not None
            bytes_before = len(data)
            data += bytes(memoryview(extent))
            commits |= dict.fromkeys(
                range(sequence - 3, sequence + 1), range(bytes_before, len(data))
            )
            block.committed()
    messages = {message.sequence: message for message in map(block.get, range(1, 13)) if message}
    places = {
        at: range(block.offset_of(at), block.offset_of(at) + block.record_bytes(at))
        for at in messages
    }
    return data, messages, places, commits


FILE, MESSAGES, PLACES, COMMITS = written()
SEEDS = [
    b"",
    b"\x00\x40\x01\xff",  # a length
    b"\x00\x00\x40" + bytes(64),  # the block's header
    b"\x01\x00\xff" + bytes(255),  # half a sector
    b"\x00\x50\x02ab\x02\x50\x02cd\x03\x50\x02ef",
    b"\xff" + FILE,
    b"\xff" + FILE[:700],
    b"\xff" + bytes(300),
]


def check(data: bytes) -> None:
    if data[:1] == b"\xff":
        check_readable(Scan(data[1:]))
        return
    wounded, touched = wound(data)
    check_readable(Scan(wounded))
    scan = Scan(wounded, proven=len(wounded))
    if not scan.readable or scan.seed != 1234:
        return
    found = set(scan.sequences())
    has_copies = any(is_elsewhere(wounded, place) for place in PLACES.values())
    for sequence, place in PLACES.items():
        if sequence in found:
            assert scan.read(sequence) == MESSAGES[sequence]
        elif has_copies:  # only the commit marks decide which copy is valid
            assert touched.intersection(COMMITS[sequence])
            assert scan.damage
        else:
            assert touched.intersection(place)
            assert any(damage.covers(sequence) for damage in scan.damage)


def is_elsewhere(wounded: bytes, place: range) -> bool:
    """Return whether the record's header, with its own checksum, has a copy in another place."""
    header = FILE[place.start : place.start + RECORD_HEADER_BYTES]
    at = wounded.find(header)
    if at == place.start:
        at = wounded.find(header, at + 1)
    return at >= 0


def wound(data: bytes) -> tuple[bytes, set[int]]:
    wounded = bytearray(FILE)
    touched: set[int] = set()
    while len(data) > 3:
        at = int.from_bytes(data[:2], "big") % len(FILE)
        noise = data[3 : 3 + data[2]][: len(FILE) - at]
        wounded[at : at + len(noise)] = noise
        touched.update(range(at, at + len(noise)))
        data = data[3 + data[2] :]
    return bytes(wounded), touched


def check_readable(scan: Scan) -> None:
    """Check that all found messages can be read, and that a block can continue from the scan."""
    for sequence in scan.sequences():
        message = scan.read(sequence)
        assert message is not None
        assert message.sequence == sequence
    if scan.readable:
        assert HEADER_BYTES <= scan.end <= max(len(scan.data), HEADER_BYTES)
        block = MsgBlock.from_scan(scan, 1 << 20)
        if block.last_sequence < 2**64 - 1:
            block.put(block.last_sequence + 1, "a", None, b"", 1)
