"""Memory for bytes objects is reused, but never while anyone holds the object."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.store.backup.snapshots import ReusedBytes
from tests.asan import IS_ASAN

SIZE = 3 << 20
STEPS = st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=60)


@given(STEPS)
def test_what_is_held_does_not_change(steps: list[tuple[bytes, bool]]) -> None:
    """A bytes object does not change while it, or a view of it, is held."""
    reused, held = ReusedBytes(3), []
    for number, (data, is_held) in enumerate(steps):
        copied = reused.copy(data)
        assert copied == data
        assert hash(copied) == hash(data)
        if is_held:
            held.append((memoryview(copied) if number % 2 else copied, data))
        del copied
        assert all(bytes(one) == other for one, other in held)


@pytest.mark.skipif(IS_ASAN, reason="AddressSanitizer moves what is resized")
@pytest.mark.parametrize("sizes", [(SIZE, SIZE), (SIZE, SIZE - 9), (SIZE - 9, SIZE)])
def test_a_file_is_read_into_the_same_memory(tmp_path: Path, sizes: tuple[int, int]) -> None:
    content = os.urandom(SIZE)
    path = tmp_path / "file"
    path.write_bytes(content)
    reused = ReusedBytes(1)
    with path.open("rb") as file:
        first, second = sizes
        data = reused.read(file.fileno(), first, 0)
        assert data == content[:first]
        place = id(data)
        del data
        data = reused.read(file.fileno(), second, SIZE - second)
        assert data == content[SIZE - second :]
        assert id(data) == place
        assert id(reused.read(file.fileno(), second, 0)) != place


def test_a_file_ends_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        reused = ReusedBytes(2)
        assert reused.read(file.fileno(), 100, 4) == b"456789"
        assert reused.read(file.fileno(), 100, 10) == b""
        assert reused.read(file.fileno(), 3, 1) == b"123"


def test_what_cannot_be_read_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        ReusedBytes(1).read(-1, 10, 0)
