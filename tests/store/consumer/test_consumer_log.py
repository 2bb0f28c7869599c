"""The log of a consumer's changes: damage never makes a wrong entry, and loses little."""

import struct
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.consumer.consumer_state import AckPolicy
from natsd.store.consumer.tracking import ConsumerTracker, LogScan, encode_log_header, scan_log

SEED = 0xABCDEF0123456789
HEADER = encode_log_header(7, SEED, 100)
SLOT = 32


@dataclass
class Log:
    """An encoded log, and the entries that were written to it."""

    data: bytes
    entries: bytes
    bounds: list[tuple[int, int, int]]  # start, number of entries and end of each extent


def make_log(*sizes: int, closing: bool = False) -> Log:
    """Return a log with one extent for each size; an extent has `size` different entries."""
    tracker = ConsumerTracker(AckPolicy.EXPLICIT)
    tracker.start_logging(100)
    log = Log(HEADER, b"", [])
    stream = 0
    for size in sizes:
        for _ in range(size):
            stream += 1
            tracker.update_delivered(stream, stream * 2, 1, 10**15 + stream)
        start = len(log.data)
        last = closing and size == 0
        extent = tracker.changes.seal(SEED, start // SLOT, tracker.change_count, last)
        log.data += extent
        log.entries += extent[: size * SLOT]
        log.bounds.append((start, size, len(log.data)))
    return log


def scan(data: bytes) -> LogScan:
    return scan_log(data, SEED, 100)


def test_header_as_drawn() -> None:
    assert HEADER[:32] == struct.pack("<8sHHIQQ", b"NATSDOBS", 1, 0, 7, SEED, 100)
    assert len(HEADER) == 64


def test_slots_as_drawn() -> None:
    log = make_log(2)
    kind, flags, count, _, a, b, c = struct.unpack_from("<BBHIQQQ", log.data, 64)
    assert (kind, flags, count, a, b, c) == (1, 0, 1, 1, 2, 10**15 + 1)
    mark = struct.unpack_from("<BBHIQQQ", log.data, 64 + 4 * SLOT)
    assert (mark[0], mark[1], mark[4], mark[6]) == (5, 0, 102, 2 | 2 << 32)


@given(st.lists(st.integers(0, 40), max_size=8), st.integers(0, 200))
def test_what_is_written_is_read(sizes: list[int], zeros: int) -> None:
    log = make_log(*sizes)
    found = scan(log.data + bytes(zeros))
    assert found.entries == log.entries
    assert (found.end, found.total) == (len(log.data), 100 + sum(sizes))
    assert (found.damage, found.late, found.torn) == ([], b"", False)


def test_a_clean_close_is_seen() -> None:
    assert scan(make_log(3, 0, closing=True).data).closed
    assert not scan(make_log(3, 0).data).closed


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 1, 20, 0)])
def test_every_flipped_bit_costs_nothing_and_is_reported(sizes: tuple[int, ...]) -> None:
    log = make_log(*sizes)
    for bit in range(64 * 8, len(log.data) * 8):
        flipped = bytearray(log.data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = scan(bytes(flipped))
        assert found.entries == log.entries
        assert (found.end, found.total) == (len(log.data), 100 + sum(sizes))
        ((offset, length, _, harmless),) = found.damage
        assert (offset, length, harmless) == (bit // 8 // SLOT * SLOT, SLOT, True)


@pytest.mark.parametrize("size", [16, 17, 40, 64])
def test_a_lost_sector_costs_nothing_in_a_large_extent(size: int) -> None:
    log = make_log(2, size, 1)
    start, _, end = log.bounds[1]
    for at in range(start, end - 512 - 2 * SLOT, SLOT):
        found = scan(log.data[:at] + bytes(512) + log.data[at + 512 :])
        assert found.entries == log.entries
        assert found.damage
        assert all(harmless for *_, harmless in found.damage)


def is_prefix(found: LogScan, log: Log) -> bool:
    """Return whether the found entries are a prefix of the log's, and late ones follow in order."""
    if not log.entries.startswith(found.entries):
        return False
    rest = [log.entries[at : at + SLOT] for at in range(len(found.entries), len(log.entries), SLOT)]
    for at in range(0, len(found.late), SLOT):
        slot = bytes(found.late[at : at + SLOT])
        if slot not in rest:
            return False
        rest = rest[rest.index(slot) + 1 :]
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
    log = make_log(*data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=8)))
    damaged = bytearray(log.data)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(64, max(64, len(damaged) - 1)))
        damaged[at : at + data.draw(st.integers(1, 100))] = data.draw(st.binary(max_size=100))
    found = scan(bytes(damaged))
    assert is_prefix(found, log)
    assert len(found.entries) + len(found.late) <= len(log.entries)


def test_behind_the_last_mark_is_torn() -> None:
    log = make_log(3, 5)
    _, _, end = log.bounds[0]
    for size in range(end + 1, len(log.data) - 2 * SLOT + 1):
        found = scan(log.data[:size])
        assert found.entries == log.entries[: 3 * SLOT]
        assert found.end == end
        assert found.torn
        assert not found.damage


def test_a_last_extent_that_is_not_whole_is_dropped_unless_a_later_mark_proves_it() -> None:
    log = make_log(3, 20)
    start, _, _ = log.bounds[1]
    hole = slice(start, start + 20 * SLOT)
    found = scan(log.data[: hole.start] + bytes(20 * SLOT) + log.data[hole.stop :])
    assert found.entries == log.entries[: 3 * SLOT]
    assert found.end == start
    assert found.damage[-1][2] == "last extent torn or damaged"
    log = make_log(3, 20, 0, 2)
    found = scan(log.data[: hole.start] + bytes(20 * SLOT) + log.data[hole.stop :])
    assert found.entries == log.entries[: 3 * SLOT]
    assert found.late.endswith(log.entries[23 * SLOT :])
    assert is_prefix(found, log)
    assert found.end == len(log.data)
    assert found.total == 125


def test_marks_lost_together_cost_nothing_where_the_entries_are_whole() -> None:
    log = make_log(2, 3, 4)
    _, _, end = log.bounds[1]
    found = scan(log.data[: end - 2 * SLOT] + bytes(2 * SLOT) + log.data[end:])
    assert found.entries == log.entries
    assert [(what, harmless) for _, _, what, harmless in found.damage] == [
        ("marks do not verify", True)
    ]


def test_slots_of_another_log_or_another_place_are_none() -> None:
    log = make_log(3, 3)
    other = scan_log(log.data, SEED + 1, 100)
    assert (other.entries, other.end, other.torn) == (b"", 64, True)
    moved = scan(HEADER + log.data[log.bounds[0][2] :])
    assert (moved.entries, moved.torn) == (b"", True)
