"""Check of a snapshot's delayed messages: each needs a due time and its own sequence.

A start would not find a message without them (schedules/delays.py), and it would stay forever.
"""

import asyncio

from natsd.jetstream.headers import DELAY, header_value
from natsd.jetstream.schedules.delay import InvalidDelay, delayed_sequence, due_ns
from natsd.jetstream.schedules.delays import WAITING_MAX
from natsd.jetstream.sourcing.receiving import OF_DELAYS, find_messages
from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import DamagedEncoding
from natsd.store.log_store import LogStore


async def check_delayed(store: LogStore, stream: str) -> None:
    """Check all delayed messages, in slices. Raises DamagedEncoding, StoreError, OSError."""
    log, seen, number = store.log, set[int](), 1
    last = log.last_sequence
    if log.msgs > WAITING_MAX:
        raise DamagedEncoding("more messages wait in the snapshot than may")
    while number <= last:
        found: list[tuple[int, bytes, bytes, int]] = []
        try:
            number, _ = find_messages(log, number, last, OF_DELAYS, found)
        except ColdBlock as cold:
            await store.fetch(cold.block)
            continue
        seen.update(_sequence_of(stream, headers, time_ns) for _, _, headers, time_ns in found)
        await asyncio.sleep(0)
    seen.discard(0)
    if len(seen) != log.msgs:
        raise DamagedEncoding("messages wait in the snapshot that were never acknowledged so")


def _sequence_of(stream: str, headers: bytes, time_ns: int) -> int:
    """Return the sequence the message was acknowledged with; 0: a start would not find it."""
    try:
        due_ns(header_value(headers, DELAY) or b"", time_ns)
    except InvalidDelay:
        return 0
    return delayed_sequence(stream, headers)
