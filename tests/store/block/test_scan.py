"""Recovery of a block by a scan: only damaged records are lost, and all others are served.

- Bytes behind the last valid mark are torn and cut.
- Bad bytes before it are damage: they are reported with file, offset and sequence, and never
  served. The records around them survive.
- A record header has its own checksum, so a flipped length does not lose the records behind it.
- Checksums are seeded per block, so that a payload cannot forge a record.
- Sequences must increase where the scan finds records again behind damage.
- Preallocated zeros are the end.

See docs/store.md, "Damaged files", and natsd/store/block/scan.pyx.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.store.block.blocks import MsgBlock, Scan
from natsd.store.codec.records import StoredMessage
from natsd.store.sequence_set import SequenceSet
from tests.store.damage import (
    Wound,
    flipped_bits,
    overwritten,
    truncated,
    with_flipped_bit,
    zeroed,
)

SEED = 0xFEED_5EED_0BAD_CAFE
HEADER_BYTES = 64
RECORD_HEADER_BYTES = 32
MARK_BYTES = 104
MARKS_BYTES = 2 * MARK_BYTES


@dataclass
class Written:
    """A block and its file, and the messages, places and commits that a test knows of it."""

    block: MsgBlock = field(default_factory=lambda: MsgBlock(7, SEED, 1, 1 << 20))
    data: bytes = b""
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    commits: list[tuple[int, int]] = field(default_factory=list)  # end in the file, last sequence

    def put(self, payload: bytes | None = None, subject: str = "orders.new") -> int:
        sequence = self.block.last_sequence + 1
        headers = b"NATS/1.0\r\n\r\n" if sequence % 2 else None
        data = b"payload %d" % sequence if payload is None else payload
        self.block.put(sequence, subject, headers, data, 1000 + sequence, sequence % 3)
        stored = self.block.get(sequence)
        assert stored is not None
        self.messages[sequence] = stored
        self.places[sequence] = (
            self.block.offset_of(sequence),
            self.block.record_bytes(sequence),
        )
        return sequence

    def remove(self, *sequences: int) -> None:
        self.block.put_tombstones(SequenceSet(sequences).encode())

    def commit(self, floor: int = 1, *, closing: bool = False) -> int:
        """Commit the appends and return the offset of the commit's marks in the file."""
        extent = self.block.take_extent(
            self.block.commit_number + 1, floor, force=True, closing=closing
        )
        assert extent is not None
        self.data = self.data[: extent.offset] + bytes(memoryview(extent))
        self.block.committed()
        self.commits.append((len(self.data), self.block.last_sequence))
        return len(self.data) - MARKS_BYTES

    def reopen(self, data: bytes | None = None) -> Scan:
        """Reopen the block from its bytes and return a scan of them.

        The block takes over a second scan.
        """
        scan = Scan(self.data if data is None else data)
        self.block = MsgBlock.from_scan(Scan(scan.data), 1 << 20)
        self.data = scan.data[: scan.end]
        return scan


def small_file(*, closed: bool = True) -> Written:
    """Return a file with three commits that contain every kind of record."""
    written = Written()
    written.put()
    written.put()
    written.commit()
    written.put()
    written.remove(1)
    written.block.skip(written.block.last_sequence + 1, 3)
    written.put(b"")
    written.commit()
    written.put()
    written.put(b"x" * 70)
    written.commit()
    if closed:
        written.commit(closing=True)
    return written


def removed(scan: Scan) -> set[int]:
    return {
        sequence for _, _, encoded in scan.tombstones for sequence in SequenceSet.decode(encoded)
    }


def check_wound(written: Written, wound: Wound, scan: Scan) -> None:
    """Assert that only messages that the wound overlaps are lost, and that these are reported."""
    found = {sequence: scan.read(sequence) for sequence in scan.sequences()}
    assert found == {sequence: written.messages[sequence] for sequence in found}, wound.what
    assert set(wound.untouched(written.places)) <= found.keys(), wound.what
    for sequence, (offset, length) in written.places.items():
        if sequence not in found:
            assert wound.touches(offset, length), wound.what
            assert any(
                damage.covers(sequence) and damage.offset <= offset < damage.offset + damage.length
                for damage in scan.damage
            ), wound.what


def test_a_whole_block() -> None:
    written = small_file()
    scan = Scan(written.data)
    assert scan.readable
    assert scan.header_is_whole
    assert scan.closed
    assert not scan.torn_commit
    assert (scan.seed, scan.block_id, scan.base_sequence, scan.commit_number) == (SEED, 7, 1, 4)
    assert scan.sequences() == [1, 2, 3, 7, 8, 9]
    assert [scan.read(sequence) for sequence in scan.sequences()] == list(written.messages.values())
    assert scan.read(4) is None
    assert scan.skips == [(4, 3)]
    assert removed(scan) == {1}
    assert scan.damage == []
    assert (scan.end, scan.torn_bytes, scan.last_sequence) == (len(written.data), 0, 9)


def test_every_flipped_bit_costs_no_more_than_the_record_it_is_in() -> None:
    written = small_file()
    for wound in flipped_bits(written.data):
        scan = Scan(wound.data)
        check_wound(written, wound, scan)
        assert scan.last_sequence == 9
        assert not scan.torn_commit
        if wound.first >= len(written.data) - MARK_BYTES:
            assert scan.torn_bytes == MARK_BYTES  # the very last mark, which is written twice
            continue
        assert scan.end == len(written.data)
        assert len(scan.damage) == 1, wound.what
        damage = scan.damage[0]
        assert damage.offset <= wound.first < damage.offset + damage.length, wound.what


def test_every_flipped_bit_of_a_block_that_was_not_closed() -> None:
    """The valid messages of a last commit are kept although no later mark proves the commit."""
    written = small_file(closed=False)
    for wound in flipped_bits(written.data):
        scan = Scan(wound.data)
        check_wound(written, wound, scan)
        last_commit = written.commits[1][0], written.commits[2][0] - MARKS_BYTES
        assert scan.torn_commit == (last_commit[0] <= wound.first < last_commit[1])
        assert scan.last_sequence == 9


@pytest.mark.parametrize("unit", [512, 4096])
def test_zeroed_sectors(unit: int) -> None:
    """Zeroed sectors of a block that is known to be on disk are damage, not a torn end.

    A sealed block is known to be on disk, and so is a closed one that index.db describes.
    """
    written = Written()
    for _ in range(20):
        for _ in range(7):
            written.put(b"x" * 100)
        written.commit()
    written.commit(closing=True)
    for wound in zeroed(written.data, unit):
        scan = Scan(wound.data, proven=len(wound.data))
        check_wound(written, wound, scan)
        assert scan.damage
        assert not scan.torn_commit


def test_zeroed_last_sector_of_a_block_of_which_nothing_is_known() -> None:
    """Without proof a zeroed end counts as never written, and is cut behind the last mark."""
    written = small_file()
    for wound in zeroed(written.data, 256):
        scan = Scan(wound.data)
        kept = max((last for end, last in written.commits if end <= scan.end), default=0)
        assert set(scan.sequences()) >= {
            sequence for sequence in wound.untouched(written.places) if sequence <= kept
        }


def test_cut_off_at_every_length() -> None:
    """A file that is cut off keeps all messages of the commits before the cut."""
    written = small_file()
    for wound in truncated(written.data):
        scan = Scan(wound.data)
        length = len(wound.data)
        kept = max((last for end, last in written.commits if end - MARK_BYTES <= length), default=0)
        assert scan.readable == (length >= HEADER_BYTES)
        assert scan.sequences() == [sequence for sequence in written.places if sequence <= kept]
        assert scan.damage == []
        assert not scan.torn_commit
        assert scan.end <= max(length, HEADER_BYTES)
        assert scan.last_sequence == kept


def test_a_proven_end_that_is_missing_is_damage() -> None:
    """The missing end of a sealed block is damage, since all of it was on disk once."""
    written = small_file()
    for wound in truncated(written.data, range(HEADER_BYTES, len(written.data))):
        scan = Scan(wound.data, proven=len(written.data))
        check_wound(written, wound, scan)
        assert (scan.end, len(scan.data)) == (len(written.data), len(written.data))
        assert not scan.torn_commit


def test_preallocated_zeros_are_the_end() -> None:
    written = small_file()
    scan = Scan(written.data + bytes(100_000))
    assert (scan.end, scan.torn_bytes, scan.damage) == (len(written.data), 0, [])


def test_what_follows_the_last_mark_is_torn() -> None:
    written = small_file()
    committed = written.data
    written.put()
    written.remove(2)
    written.block.skip(written.block.last_sequence + 1, 5)
    written.commit()
    for length in (1, 40, 100, MARK_BYTES):
        scan = Scan(written.data[:-MARKS_BYTES] + bytes(length))
        assert scan.sequences() == [1, 2, 3, 7, 8, 9]
        assert (scan.end, scan.last_sequence) == (len(committed), 9)
        assert scan.torn_bytes == len(written.data) - MARKS_BYTES - len(committed)
        assert removed(scan) == {1}
        assert scan.skips == [(4, 3)]
        assert scan.damage == []


def test_one_mark_of_two_is_enough() -> None:
    written = small_file(closed=False)
    first = len(written.data) - MARKS_BYTES
    for at, end in ((first, len(written.data)), (first + MARK_BYTES, first + MARK_BYTES)):
        scan = Scan(overwritten(written.data, at, bytes(MARK_BYTES)))
        assert scan.sequences() == [1, 2, 3, 7, 8, 9]
        assert scan.end == end
        assert not scan.torn_commit


def test_a_block_goes_on_behind_the_mark_that_is_left() -> None:
    written = small_file(closed=False)
    written.reopen(written.data[:-MARK_BYTES] + b"torn")
    written.put()
    written.commit()
    scan = Scan(written.data)
    assert scan.sequences() == [1, 2, 3, 7, 8, 9, 10]
    assert scan.damage == []


# ---- a last commit that is not whole


def torn_commit() -> Written:
    """Return a file whose last commit is torn.

    The commit's first message is damaged; the commit has removals and raises the first sequence.
    """
    written = small_file(closed=False)
    damaged = written.put()
    written.put()
    written.remove(2)
    written.commit(floor=3)
    at = written.places[damaged][0] + RECORD_HEADER_BYTES
    written.data = with_flipped_bit(written.data, at * 8)
    return written


def test_a_torn_commit_removes_nothing() -> None:
    written = torn_commit()
    scan = Scan(written.data)
    assert scan.torn_commit
    assert scan.sequences() == [1, 2, 3, 7, 8, 9, 11]
    assert removed(scan) == {1}
    assert scan.first_sequence == 1
    assert scan.last_sequence == 11
    assert scan.end == len(written.data)
    assert [(found.first_sequence, found.last_sequence) for found in scan.damage] == [(10, 10)]


def test_a_torn_commit_never_counts_later() -> None:
    """The removals of a torn commit stay void after the next commit.

    The next mark proves that the messages were on disk, but says that the removals are void.
    """
    written = torn_commit()
    written.reopen()
    assert written.block.void_previous
    assert written.block.take_extent(5, 1) is not None
    written.block.rolled_back()
    assert written.block.take_extent(5, 1) is not None
    written.block.rolled_back()
    written.put()
    written.commit(floor=1)
    assert not written.block.void_previous
    written.remove(3)
    written.commit(floor=1)
    for _ in range(2):
        scan = written.reopen()
        assert not scan.torn_commit
        assert removed(scan) == {1, 3}
        assert scan.first_sequence == 1
        assert scan.sequences() == [1, 2, 3, 7, 8, 9, 11, 12]
        written.commit(floor=1, closing=True)


def test_a_torn_commit_never_counts_although_proven_later() -> None:
    """The removals of a torn commit stay void if the block gets only the next mark.

    A full block takes no messages any more, but the next commit writes a mark to it in any case.
    """
    written = torn_commit()
    written.reopen()
    assert written.block.size > written.block.durable_size
    written.commit(floor=1)
    scan = Scan(written.data, proven=len(written.data))
    assert (removed(scan), scan.first_sequence) == ({1}, 1)


def test_a_commit_that_was_proven_counts_although_damaged() -> None:
    written = torn_commit()
    scan = Scan(written.data, proven=len(written.data))
    assert not scan.torn_commit
    assert removed(scan) == {1, 2}
    assert scan.first_sequence == 3


def test_a_write_that_was_lost_is_noticed_by_the_chain() -> None:
    """Bytes of an undone commit in place of newer ones do not match the newer mark's chain."""
    written = small_file(closed=False)
    old, new = written.block, small_file(closed=False).block
    for block, payload in ((old, b"old"), (new, b"new")):
        block.put(10, "orders.new", None, payload, 1)
    stale, fresh = old.take_extent(4, 1), new.take_extent(4, 1)
    assert stale is not None
    assert fresh is not None
    marks = bytes(memoryview(fresh))[-MARKS_BYTES:]
    scan = Scan(written.data + bytes(memoryview(stale))[:-MARKS_BYTES] + marks)
    assert scan.torn_commit
    assert [found.what for found in scan.damage] == ["commit does not match its mark"]


@pytest.mark.parametrize("number", [4, 5])
def test_what_an_undone_commit_left_behind_a_newer_one_is_torn(number: int) -> None:
    """Valid records of an undone commit behind a newer commit's end are torn."""
    written = small_file(closed=False)
    for _ in range(6):
        written.put()
    undone = written.block.take_extent(4, 1)
    assert undone is not None
    left = bytes(memoryview(undone))
    written.block.rolled_back()
    written.block.put(10, "orders.new", None, b"newer", 1)
    newer = written.block.take_extent(number, 1)
    assert newer is not None
    committed = written.data + bytes(memoryview(newer))
    scan = Scan(committed + left[newer.length :])
    assert scan.sequences() == [1, 2, 3, 7, 8, 9, 10]
    assert (scan.end, scan.last_sequence) == (len(committed), 10)
    assert scan.torn_bytes > 0
    assert scan.damage == []


# ---- payloads that look like records


def test_a_block_file_as_a_payload_is_a_payload() -> None:
    """A block's own file as a payload is never read as records, also if its header is damaged."""
    written = small_file(closed=False)
    holder = written.put(written.data)
    written.put()
    written.commit()
    offset, length = written.places[holder]
    assert Scan(written.data).damage == []
    for wound in flipped_bits(written.data, offset, offset + RECORD_HEADER_BYTES + 20):
        scan = Scan(wound.data)
        check_wound(written, wound, scan)
        assert [(found.offset, found.length) for found in scan.damage] == [(offset, length)]
        assert removed(scan) == {1}
        assert scan.skips == [(4, 3)]


def test_another_block_file_as_a_payload_does_not_tell_the_seed() -> None:
    other = MsgBlock(7, SEED + 1, 1, 1 << 20)
    for sequence in range(1, 50):
        other.put(sequence, "forged", None, b"forged", 1)
    extent = other.take_extent(1, 1)
    assert extent is not None
    written = Written()
    first = written.put(bytes(memoryview(extent)))
    written.put()
    written.commit()
    offset, _ = written.places[first]
    for upto in (HEADER_BYTES, offset + RECORD_HEADER_BYTES):
        data = bytes(upto) + written.data[upto:]
        scan = Scan(data)
        assert scan.readable
        assert not scan.header_is_whole
        assert scan.seed == SEED
        assert scan.sequences() == ([1, 2] if upto == HEADER_BYTES else [2])


def test_without_header_and_marks_nothing_is_read() -> None:
    for data in (b"", bytes(5000), b"no block" * 100):
        scan = Scan(data)
        assert not scan.readable
        assert scan.sequences() == []
        with pytest.raises(ValueError, match="neither a header nor a mark"):
            MsgBlock.from_scan(scan, 1000)


def test_a_block_without_header_goes_on() -> None:
    written = small_file()
    written.reopen(bytes(HEADER_BYTES) + written.data[HEADER_BYTES:])
    assert written.block.live_sequences() == [1, 2, 3, 7, 8, 9]
    written.put()
    written.commit()
    scan = Scan(written.data)
    assert scan.sequences() == [1, 2, 3, 7, 8, 9, 10]
    assert [found.what for found in scan.damage] == ["block header damaged"]


# ---- any bytes


def test_scans_in_threads_do_not_wait_for_each_other() -> None:
    """Scans in several threads find the same damage as a scan alone."""
    written = small_file()
    wounds = list(flipped_bits(written.data, 64, 300))
    alone = [Scan(wound.data).damage for wound in wounds]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda wound: Scan(wound.data).damage, wounds)) == alone


@given(st.binary(max_size=3000), st.booleans())
def test_any_bytes_can_be_scanned(garbage: bytes, with_header: bool) -> None:
    header = small_file().data[:HEADER_BYTES] if with_header else b""
    scan = Scan(header + garbage)
    assert scan.sequences() == []
    assert scan.readable == with_header


wounds = st.lists(
    st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=300)), min_size=1, max_size=4
)


@given(wounds, st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_several_wounds_cost_what_they_touch(
    places: list[tuple[int, bytes]], commits: list[int]
) -> None:
    written = Written()
    for count in commits:
        for at in range(count):
            written.put(b"y" * (at * 37))
        written.commit()
    data = written.data
    touched = []
    for place, noise in places:
        at = HEADER_BYTES + place % (len(data) - HEADER_BYTES)
        noise = noise[: len(data) - at]
        data = overwritten(data, at, noise)
        touched.append(Wound("", data, at, at + len(noise)))
    scan = Scan(data, proven=len(data))
    found = {sequence: scan.read(sequence) for sequence in scan.sequences()}
    assert found == {sequence: written.messages[sequence] for sequence in found}
    untouched = set(written.places).intersection(
        *(wound.untouched(written.places) for wound in touched)
    )
    assert untouched <= found.keys()
    for sequence in written.places.keys() - found.keys():
        assert any(damage.covers(sequence) for damage in scan.damage)


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 1200)),
        min_size=1,
        max_size=2,
    ),
    st.lists(st.integers(1, 6), min_size=2, max_size=12),
)
def test_bytes_written_to_the_wrong_place_cost_the_commits_that_they_touch(
    copies: list[tuple[int, int, int]], commits: list[int]
) -> None:
    """A misplaced write loses only messages of commits that it overlaps.

    The misplaced records are valid, but not in order.
    """
    written, commit_of, ends = Written(), {}, [HEADER_BYTES]
    for count in commits:
        for at in range(count):
            commit_of[written.put(b"y" * (at * 37))] = len(ends)
        written.commit()
        ends.append(len(written.data))
    data, touched = written.data, set[int]()
    for source, place, length in copies:
        at = HEADER_BYTES + place % (len(data) - HEADER_BYTES)
        piece = written.data[HEADER_BYTES + source % (len(data) - HEADER_BYTES) :][:length]
        piece = piece[: len(data) - at]
        data = overwritten(data, at, piece)
        wound = Wound("", data, at, at + len(piece))
        touched |= {
            number
            for number, (first, upto) in enumerate(pairwise(ends), 1)
            if wound.touches(first, upto - first)
        }
    scan = Scan(data, proven=len(data))
    found = {sequence: scan.read(sequence) for sequence in scan.sequences()}
    assert found == {sequence: written.messages[sequence] for sequence in found}
    assert {each for each in commit_of if commit_of[each] not in touched} <= found.keys()
    assert scan.damage or found.keys() == written.places.keys()
