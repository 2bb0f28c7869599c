"""The ranges and subjects that `where` selects, against filters evaluated row by row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from natsd.core.routing import matches
from natsd.spark.reader.filters import Selection, push

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    stream: str
    seq: int
    subject: str
    time_ns: int

    @property
    def time(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.time_ns // 1000)


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


COMPARISONS = {
    "EqualTo": lambda a, b: a == b,
    "EqualNullSafe": lambda a, b: a == b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "In": lambda a, b: a in b,
    "StringStartsWith": lambda a, b: a.startswith(b),
    "StringContains": lambda a, b: b in a,
}
NUMBERS = ["EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan"]
NUMBERS += ["LessThanOrEqual"]
SUBJECTS = ["a", "a.b", "a.bc", "a.b.c", "ab", "b.b", "c"]


def evaluate(filter_: Any, row: Row) -> bool:
    if isinstance(filter_, ds.Not):
        return not evaluate(filter_.child, row)
    if isinstance(filter_, ds.IsNotNull):
        return True
    return COMPARISONS[type(filter_).__name__](getattr(row, filter_.attribute[0]), filter_.value)


def made(kind: str, column: str, value: Any) -> Any:
    return getattr(ds, kind)((column,), value)


def numbers(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(made, st.sampled_from(NUMBERS), st.just(column), values) | st.builds(
        made, st.just("In"), st.just(column), st.lists(values, min_size=1, max_size=3).map(tuple)
    )


SUBJECT_VALUES = st.sampled_from([*SUBJECTS, "a.", "a.b.", "a.*", "a.>", "", "x"])
FILTERS = st.one_of(
    numbers("seq", st.integers(-1, 12)),
    numbers("time", st.integers(0, 5).map(moment)),
    numbers("time_ns", st.integers(0, 5000)),
    st.builds(made, st.just("EqualTo"), st.sampled_from(["subject"]), SUBJECT_VALUES),
    st.builds(made, st.just("In"), st.just("subject"), st.tuples(SUBJECT_VALUES, SUBJECT_VALUES)),
    st.builds(
        made,
        st.sampled_from(["StringStartsWith", "StringContains"]),
        st.just("subject"),
        SUBJECT_VALUES,
    ),
    st.builds(made, st.just("EqualTo"), st.just("stream"), st.sampled_from("ST")),
    st.builds(lambda value: ds.Not(made("EqualTo", "seq", value)), st.integers(1, 9)),
    st.builds(lambda column: ds.IsNotNull((column,)), st.sampled_from(["seq", "subject"])),
)
ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from("ST"),
        st.integers(1, 10),
        st.sampled_from(SUBJECTS),
        st.integers(0, 5000),
    ),
    max_size=20,
)


def is_read(selection: Selection, row: Row) -> bool:
    return (
        not selection.is_empty
        and (selection.streams is None or row.stream in selection.streams)
        and row.seq >= selection.first_sequence
        and (selection.last_sequence is None or row.seq <= selection.last_sequence)
        and (selection.first_ns is None or row.time_ns >= selection.first_ns)
        and (selection.last_ns is None or row.time_ns <= selection.last_ns)
        and (
            not selection.subjects
            or any(matches(row.subject, pattern) for pattern in selection.subjects)
        )
    )


@given(st.lists(FILTERS, max_size=4), ROWS, st.sampled_from([(), ("a.>",), ("*.b", "c")]))
def test_what_is_read_and_then_filtered_is_what_was_asked(
    filters: list[Any], rows: list[Row], subjects: tuple[str, ...]
) -> None:
    options = Selection(subjects=subjects)
    selection, left = push(options, filters)
    asked = [
        row for row in rows if is_read(options, row) and all(evaluate(f, row) for f in filters)
    ]
    got = [row for row in rows if is_read(selection, row) and all(evaluate(f, row) for f in left)]
    assert got == asked
    assert all(any(f is given for given in filters) for f in left)


@pytest.mark.parametrize(
    "taken",
    [
        made("EqualTo", "seq", 5),
        made("GreaterThan", "time", moment(5)),
        made("EqualTo", "time", moment(5)),
        made("LessThanOrEqual", "time_ns", 5),
        made("In", "subject", ("a.b", "c")),
        made("StringStartsWith", "subject", "orders.eu."),
        made("EqualTo", "stream", "ORDERS"),
        ds.IsNotNull(("time",)),
    ],
    ids=str,
)
def test_what_spark_need_not_evaluate_again(taken: Any) -> None:
    assert push(Selection(), [taken])[1] == []


@pytest.mark.parametrize(
    "left",
    [
        made("In", "seq", (1, 5)),
        made("StringStartsWith", "subject", "orders.e"),
        made("StringStartsWith", "subject", "ord"),
        made("EqualTo", "subject", "orders.*"),
        made("EqualTo", "data", b"x"),
        ds.IsNotNull(("headers",)),
        ds.Not(made("EqualTo", "seq", 5)),
        made("GreaterThan", "seq", None),
    ],
    ids=str,
)
def test_what_stays_with_spark(left: Any) -> None:
    assert push(Selection(), [left])[1] == [left]


def test_the_last_of_each_subject_is_not_chosen_by_a_bound() -> None:
    """`seq <= 5` on a table of last messages does not mean the last messages up to 5."""
    filters = [made("LessThanOrEqual", "seq", 5), made("GreaterThanOrEqual", "seq", 2)]
    filters += [made("GreaterThan", "time_ns", 7)]
    selection, left = push(Selection(last_per_subject=True), filters)
    assert selection == Selection(last_per_subject=True, first_sequence=2)
    assert left == [filters[0], filters[2]]
