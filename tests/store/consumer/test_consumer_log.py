"""The log of a consumer's changes: damage never makes a wrong entry, and is always reported."""

import struct
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.consumer.consumer_state import AckPolicyCode
from natsd.store.consumer.tracking import ConsumerTracker, LogScan, encode_log_header, scan_log

SEED = 0xABCDEF0123456789
HEADER = encode_log_header(7, SEED, 100)
ENTRY = BATCH_HEADER = 32


@dataclass
class Log:
    """An encoded log, and the entries that were written to it."""

    data: bytes
    entries: bytes
    bounds: list[tuple[int, int, int]]  # start, number of entries and end of each batch


def make_log(*sizes: int) -> Log:
    """Return a log with one batch for each size; a batch has `size` different entries."""
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    tracker.start_logging(100)
    log = Log(HEADER, b"", [])
    stream = 0
    for size in sizes:
        for _ in range(size):
            stream += 1
            tracker.update_delivered(stream, stream * 2, 1, 10**15 + stream)
        start = len(log.data)
        batch = tracker.changes.seal(SEED, start, tracker.change_count)
        log.data += batch
        log.entries += batch[BATCH_HEADER:]
        log.bounds.append((start, size, len(log.data)))
    return log


def scan(data: bytes) -> LogScan:
    return scan_log(data, SEED, 100)


def test_header_as_drawn() -> None:
    assert HEADER[:32] == struct.pack("<8sHHIQQ", b"NATSDOBS", 2, 0, 7, SEED, 100)
    assert len(HEADER) == 64


def test_a_batch_as_drawn() -> None:
    log = make_log(3, 2)
    start, _, end = log.bounds[1]
    total, count, zero = struct.unpack_from("<QII", log.data, start + 16)
    assert (total, count, zero, end - start) == (105, 2, 0, BATCH_HEADER + 2 * ENTRY)
    kind, flags, deliveries, zero, a, b, c = struct.unpack_from("<BBHIQQQ", log.data, start + 32)
    assert (kind, flags, deliveries, zero, a, b, c) == (1, 0, 1, 0, 4, 8, 10**15 + 4)


@given(st.lists(st.integers(1, 40), max_size=8), st.integers(0, 200))
def test_what_is_written_is_read(sizes: list[int], zeros: int) -> None:
    log = make_log(*sizes)
    found = scan(log.data + bytes(zeros))
    assert found.entries == log.entries
    assert (found.end, found.total) == (len(log.data), 100 + sum(sizes))
    assert (found.damage, found.late, found.torn) == ([], b"", False)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 1, 20)])
def test_every_flipped_bit_costs_one_batch_and_is_reported(sizes: tuple[int, ...]) -> None:
    log = make_log(*sizes)
    for bit in range(64 * 8, len(log.data) * 8):
        flipped = bytearray(log.data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = scan(bytes(flipped))
        start, size, end = next(bounds for bounds in log.bounds if bit // 8 < bounds[2])
        before = (start - 64 - BATCH_HEADER * log.bounds.index((start, size, end))) // ENTRY
        assert found.entries == log.entries[: before * ENTRY]
        assert found.late == log.entries[(before + size) * ENTRY :]
        ((offset, length, _, harmless),) = found.damage
        assert (offset, length, harmless) == (start, end - start, False)
        assert end == len(log.data) or found.total == 100 + sum(sizes)


def is_prefix(found: LogScan, log: Log) -> bool:
    """Return whether the found entries are a prefix of the log's, and late ones follow in order."""
    if not log.entries.startswith(found.entries):
        return False
    rest = [
        log.entries[at : at + ENTRY] for at in range(len(found.entries), len(log.entries), ENTRY)
    ]
    for at in range(0, len(found.late), ENTRY):
        entry = bytes(found.late[at : at + ENTRY])
        if entry not in rest:
            return False
        rest = rest[rest.index(entry) + 1 :]
    return True


def test_a_zeroed_page_never_makes_a_wrong_entry() -> None:
    log = make_log(*([1] * 40), 300, *([2] * 20))
    for at in range(0, len(log.data), 256):
        for size in (512, 4096):
            found = scan(log.data[:at] + bytes(size) + log.data[at + size :])
            assert is_prefix(found, log)
            whole = found.entries == log.entries
            assert whole or found.torn or found.damage or found.end <= at


@given(st.data())
@settings(max_examples=200)
def test_no_damage_makes_a_wrong_entry(data: st.DataObject) -> None:
    log = make_log(*data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=8)))
    damaged = bytearray(log.data)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(64, max(64, len(damaged) - 1)))
        damaged[at : at + data.draw(st.integers(1, 100))] = data.draw(st.binary(max_size=100))
    found = scan(bytes(damaged))
    assert is_prefix(found, log)
    assert len(found.entries) + len(found.late) <= len(log.entries)


def test_a_cut_costs_the_batches_behind_it() -> None:
    log = make_log(3, 5)
    _, _, end = log.bounds[0]
    for size in range(end, len(log.data)):
        found = scan(log.data[:size])
        assert found.entries == log.entries[: 3 * ENTRY]
        assert found.total == 103
        assert found.torn == (size > end) or found.damage
        assert bool(found.damage) == (size >= end + BATCH_HEADER), "its header is whole"


def test_zeros_in_place_of_the_last_header_are_torn_and_other_bytes_are_damage() -> None:
    """A header lies in one sector: a crash leaves all of it, or nothing."""
    log = make_log(3, 20)
    start, _, end = log.bounds[1]
    torn = scan(log.data[:start] + bytes(BATCH_HEADER) + log.data[start + BATCH_HEADER :])
    assert (torn.entries, torn.end, torn.torn) == (log.entries[: 3 * ENTRY], start, True)
    assert torn.damage == []
    damaged = scan(log.data[:start] + b"\1" * BATCH_HEADER + log.data[start + BATCH_HEADER :])
    assert damaged.entries == torn.entries
    assert damaged.damage == [(start, end - start, "no batch verifies", False)]


def test_what_follows_a_gap_is_late() -> None:
    log = make_log(3, 20, 2)
    start, _, end = log.bounds[1]
    for lost in (bytes(end - start), bytes(BATCH_HEADER) + log.data[start + BATCH_HEADER : end]):
        found = scan(log.data[:start] + lost + log.data[end:])
        assert found.entries == log.entries[: 3 * ENTRY]
        assert found.late == log.entries[23 * ENTRY :]
        assert (found.end, found.total) == (len(log.data), 125)
        assert found.damage == [(start, end - start, "no batch verifies", False)]


def test_missing_changes_are_seen_without_a_gap() -> None:
    log = make_log(3)
    found = scan_log(log.data, SEED, 99)
    assert (found.entries, found.late) == (b"", log.entries)
    assert [what for _, _, what, _ in found.damage] == ["changes are missing"]


def test_batches_of_another_log_or_another_place_are_none() -> None:
    log = make_log(3, 3)
    other = scan_log(log.data, SEED + 1, 100)
    assert (other.entries, other.late, other.end) == (b"", b"", 64)
    moved = scan(HEADER + log.data[log.bounds[0][2] :])
    assert (moved.entries, moved.late) == (b"", b"")
    for found in (other, moved):
        assert [what for _, _, what, _ in found.damage] == ["no batch verifies"]
