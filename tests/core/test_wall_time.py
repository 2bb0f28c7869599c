"""Points in time as text."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from natsd.core.network import timestamp_text
from natsd.core.wall_time import timestamp


@example(-(2**63))
@example(-1_500_000_000)
@example(0)
@example(1_732_413_000_000_000_000)
@given(st.integers(-(2**63), 2**63 - 1))
def test_the_compiled_function_writes_the_same(wall_ns: int) -> None:
    assert timestamp_text(wall_ns) == timestamp(wall_ns)


def test_the_compiled_function_takes_64_bits() -> None:
    with pytest.raises(OverflowError):
        timestamp_text(2**63)
