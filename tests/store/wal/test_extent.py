"""The number of bytes of a block's file that are reserved ahead."""

import pytest

from natsd.store.wal.entries import grown_allocation

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("end_bytes", "expected_bytes"),
    [
        (1, 4 * KIB),
        (4 * KIB, 4 * KIB),
        (4 * KIB + 1, 8 * KIB),
        (MIB, MIB),
        (MIB + 1, 2 * MIB),
        (2 * MIB + 1, 3 * MIB),
        (8 * MIB - 1, 8 * MIB),
        (8 * MIB + 5, 8 * MIB + 5),
    ],
)
def test_reservation_grows_with_the_block(end_bytes: int, expected_bytes: int) -> None:
    """The reservation grows with the block, so that an idle stream does not reserve 8 MiB."""
    assert grown_allocation(end_bytes, 8 * MIB) == expected_bytes


def test_a_small_block_reserves_no_more_than_itself() -> None:
    assert grown_allocation(20_000, 32_000) == 32_000
    assert grown_allocation(10_000, 32_000) == 16_384
