"""Ranges are cut without gap or overlap, and a limit is divided fairly among streams."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from natsd.spark.reader.planning import (
    SEQUENCES_PER_PART,
    WORTHWHILE_SEQUENCES,
    Cutting,
    SequenceSpan,
    cut,
    share,
)

SPANS = st.lists(st.tuples(st.integers(1, 100), st.integers(0, 60)), max_size=4).map(
    lambda pairs: [
        SequenceSpan(f"S{number}", start, start + length)
        for number, (start, length) in enumerate(pairs)
    ]
)
CUTTINGS = st.builds(
    Cutting,
    parts_min=st.none() | st.integers(1, 20),
    sequences_max=st.none() | st.integers(1, 70),
    cores=st.integers(1, 8),
)


def sequences(spans: list[SequenceSpan]) -> list[tuple[str, int]]:
    return [(span.stream, number) for span in spans for number in range(span.start, span.end)]


@given(SPANS, CUTTINGS)
def test_parts_are_the_ranges_in_order(spans: list[SequenceSpan], how: Cutting) -> None:
    parts = cut(spans, how)
    assert sequences(parts) == sequences(spans)
    assert all(part.length for part in parts)


@given(SPANS, CUTTINGS)
def test_parts_are_as_many_and_as_short_as_asked(spans: list[SequenceSpan], how: Cutting) -> None:
    parts = cut(spans, how)
    total = sum(span.length for span in spans)
    assert len(parts) >= min(how.parts_min or 0, total)
    assert all(part.length <= (how.sequences_max or total) for part in parts)
    for span in spans:
        lengths = [part.length for part in parts if part.stream == span.stream]
        assert not lengths or max(lengths) - min(lengths) <= 1


def test_few_sequences_are_one_task_and_many_are_spread() -> None:
    def count(length: int) -> int:
        return len(cut([SequenceSpan("S", 1, 1 + length)], Cutting(cores=4)))

    assert count(WORTHWHILE_SEQUENCES) == 1
    assert count(WORTHWHILE_SEQUENCES + 1) == 2
    assert count(100 * WORTHWHILE_SEQUENCES) == 5
    assert count(2 * SEQUENCES_PER_PART) == 4
    assert count(40 * SEQUENCES_PER_PART) == 40


@given(st.integers(0, 300), st.dictionaries(st.sampled_from("ABCDE"), st.integers(0, 100)))
def test_a_limit_is_shared(limit: int, waiting: dict[str, int]) -> None:
    shares = share(limit, waiting)
    total = sum(waiting.values())
    assert sum(shares.values()) == min(limit, total)
    assert shares.keys() == waiting.keys()
    for stream, count in waiting.items():
        assert 0 <= shares[stream] <= count
        if limit < total:
            assert abs(shares[stream] - limit * count / total) < 1
