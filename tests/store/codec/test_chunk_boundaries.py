"""Blocks are cut between whole records only, into bounded pieces; the last marks are a piece."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.store.codec.records import KIND_MARK, encode, piece_bounds


def test_what_is_no_record_is_refused() -> None:
    whole = encode(1, 1, "a", None, b"", 0)
    for records in (bytes(100), whole[:-1], whole + b"\1", whole + bytes(60)):
        with pytest.raises(ValueError, match="no whole record"):
            piece_bounds(memoryview(records), 100)


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=30), st.integers(1, 2000))
def test_pieces_hold_whole_records(records: list[tuple[int, bool]], piece_bytes: int) -> None:
    encoded = [
        encode(1, number, "a", None, bytes(size), 0, kind=KIND_MARK if is_mark else 1)
        for number, (size, is_mark) in enumerate(records, 1)
    ]
    ends = [0]
    for record in encoded:
        ends.append(ends[-1] + len(record))
    data = b"".join(encoded)
    bounds = piece_bounds(memoryview(data), piece_bytes)
    assert b"".join(data[start:end] for start, end in bounds) == data
    assert all(end == following for (_, end), (following, _) in pairwise(bounds))
    for start, end in bounds:
        assert start in ends
        assert end in ends
        last = ends.index(end) - 1
        while last > ends.index(start) and records[last][1]:
            last -= 1  # marks that go with the record
        assert ends[last + 1] - start <= piece_bytes or ends[last] == start
    marks_at_the_end = 0
    for _, is_mark in reversed(records[-2:]):
        if not is_mark:
            break
        marks_at_the_end += 1
    for end in ends[len(ends) - 1 - marks_at_the_end :]:
        assert end in {0, *(bound for piece in bounds for bound in piece)}
