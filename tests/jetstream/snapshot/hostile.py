"""Well-formed snapshots with right checksums and false contents, as an attacker would restore.

snapshot_of(stream_entry(), block_entry([record("s.1")]), state_entry(...))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.snapshot.contents import tracker_of
from natsd.store.backup.block_images import BLOCK_BYTES_LIMIT, closed_bytes
from natsd.store.backup.snapshot_file import SnapshotWriter
from natsd.store.block.blocks import MsgBlock, copy_messages
from natsd.store.log.message_log import MessageLog

Entry = tuple[str, bytes]

NAME = "S"


class Record(NamedTuple):
    """A message as a block holds it; sequence 0: the next sequence."""

    subject: bytes
    headers: bytes = b""
    data: bytes = b""
    sequence: int = 0
    time_ns: int = 1_700_000_000_000_000_000
    expires_ns: int = 0


def snapshot_of(*entries: Entry) -> bytes:
    writer = SnapshotWriter()
    return b"".join([writer.begin(), *(writer.entry(*entry) for entry in entries), writer.end()])


def stream_entry(created: str = "2024-01-01T00:00:00Z", **config: Any) -> Entry:
    asset = {"config": {"name": NAME, "subjects": ["s.>"], **config}, "created": created}
    return "meta.json", json.dumps(asset).encode()


def block_of(records: Sequence[Record]) -> tuple[bytes, int]:
    """Return the bytes of a block, and the bytes that its messages count as."""
    log = MessageLog(None, lambda base: MsgBlock(1, 0, base, BLOCK_BYTES_LIMIT))
    for subject, headers, data, sequence, time_ns, expires_ns in records:
        log.append(subject, headers, data, time_ns, sequence=sequence, expires_ns=expires_ns)
    block = MsgBlock(1, 0, log.first_sequence, BLOCK_BYTES_LIMIT)
    for each in log.all_blocks:
        copy_messages(each, block, log.first_sequence, log.last_sequence, BLOCK_BYTES_LIMIT)
    return closed_bytes(block), block.live_bytes


def messages_of(records: Sequence[Record], **state: Any) -> list[Entry]:
    """Return entries with a block of these records and its state; `state` overrides fields."""
    image, size = block_of(records)
    last = max([each.sequence for each in records] + [len(records)])
    counts = {"msgs": len(records), "bytes": size - 10 * len(records), "last_sequence": last}
    body = {**counts, "bytes": size, "last_time_ns": 0, **state}
    return [("msgs/000001.blk", image), ("msgs/state.json", msgspec.json.encode(body))]


def consumer_entries(name: str = "C", number: int = 0, **config: Any) -> list[Entry]:
    settings = {"durable_name": name, "ack_policy": "explicit", **config}
    body = {"name": name, "config": settings, "created": "2024-01-01T00:00:00Z"}
    state = tracker_of(ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)).encode()
    return [
        (f"obs/{number}/meta.json", json.dumps(body).encode()),
        (f"obs/{number}/state.db", state),
    ]


def whole(records: Sequence[Record], *between: Entry) -> bytes:
    """Return a snapshot of a stream with these messages."""
    return snapshot_of(stream_entry(), *between, *messages_of(records))
