"""Records with right checksums and any subjects and headers (natsd/store/block/sendable.pxd).

Records that can be sent are there, the others are damage, and no other message is lost.

Input: records, each a length, as many bytes of a subject, a length, as many bytes of headers.
"""

import re

from natsd.store.block.blocks import MsgBlock, Scan
from tests.jetstream.snapshot.hostile import Record, block_of

MODULES = ["natsd.store.block.blocks", "natsd.store.codec.records"]
SEEDS = [
    b"\x03s.1\x00\x03s.2\x00",
    b'\x1ex\r\nINFO {"forged":true}\r\n........\x00\x03s.2\x00',
    b"\x03s.1\x0cNATS/1.0\r\n\r\n\x04s..a\x00",
    b"\x01.\x00\x02s.\x00\x02.s\x00\x00\x00",
    b"\x03a b\x00\x03a\tb\x00\x03a\rb\x00",
]
RECORDS_MAX = 200
SENDABLE = re.compile(rb"[^ \t\r\n.]+(\.[^ \t\r\n.]+)*")


def check(data: bytes) -> None:
    records = records_in(data)
    if not records:
        return
    image, _ = block_of(records)
    scan = Scan(image)
    can_be_sent = [SENDABLE.fullmatch(record.subject) is not None for record in records]
    sequences = range(1, len(records) + 1)
    wanted = [n for n, is_sendable in zip(sequences, can_be_sent, strict=True) if is_sendable]
    found = MsgBlock.from_scan(scan, 1 << 30).live_sequences() if wanted else []
    assert found == wanted
    damaged = [
        n for each in scan.damage for n in range(each.first_sequence, each.last_sequence + 1)
    ]
    assert damaged == [n for n in sequences if n not in set(wanted)]


def records_in(data: bytes) -> list[Record]:
    records = list[Record]()
    while data and len(records) < RECORDS_MAX:
        subject, data = taken(data)
        headers, data = taken(data)
        records.append(Record(subject, headers))
    return records


def taken(data: bytes) -> tuple[bytes, bytes]:
    """Return as many bytes as the first byte says, and the rest."""
    end = 1 + (data[0] if data else 0)
    return data[1:end], data[end:]
