"""Arrow returns the rows of a MessageBatch unchanged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.spark.rows.arrow import BatchWrapper
from natsd.spark.rows.columns import DDL, NAMES, Columns, UnknownColumn, arrow_schema, ddl, flags
from natsd.spark.rows.message_batch import MessageBatch

Row = tuple[bytes | None, bytes, int, int, bytes, bytes]

TEXT = st.binary(max_size=12) | st.text(max_size=8).map(str.encode)
KEYS = st.sampled_from([b"A", b"B", b"a", b"Nats-Msg-Id", "ключ".encode(), b"\xff"])
VALUES = st.binary(max_size=6).map(lambda text: text.replace(b"\n", b"").replace(b"\r", b""))
LINES = st.lists(st.tuples(KEYS, VALUES), max_size=50)
ROWS = st.lists(
    st.tuples(
        st.none() | TEXT,
        TEXT,
        st.integers(1, 2**63 - 1),
        st.integers(-(2**62), 2**62),
        LINES,
        st.binary(max_size=40),
    ),
    max_size=20,
)


def block(lines: list[tuple[bytes, bytes]]) -> bytes:
    """Return a header block as on the wire."""
    text = b"".join(b"%b: %b\r\n" % line for line in lines)
    return b"NATS/1.0\r\n%b\r\n" % text if lines else b""


def decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def headers_of(lines: list[tuple[bytes, bytes]]) -> dict[str, list[str]] | None:
    found: dict[bytes, list[str]] = {}
    for key, value in lines:
        found.setdefault(key, []).append(decoded(value.strip(b" \t\r")))
    return {decoded(key): values for key, values in found.items()} or None


def row_of(row: tuple[Any, ...], stream: str) -> dict[str, Any]:
    name, subject, sequence, time_ns, lines, data = row
    return {
        "stream": stream if name is None else decoded(name),
        "seq": sequence,
        "subject": decoded(subject),
        "time": time_ns // 1000,
        "time_ns": time_ns,
        "headers": headers_of(lines),
        "data": data,
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dictionaries: `time` in µs, headers as a dictionary."""
    if "time" in batch.schema.names:
        at = batch.schema.get_field_index("time")
        batch = batch.set_column(at, "time", batch.column(at).cast(pa.int64()))
    rows = batch.to_pylist()
    for row in rows:
        if row.get("headers") is not None:
            row["headers"] = dict(row["headers"])
    return list(rows)


@given(ROWS, st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
@settings(deadline=None)
def test_rows_come_out_as_they_went_in(rows: list[tuple[Any, ...]], names: list[str]) -> None:
    batch, wrapper = MessageBatch(names), BatchWrapper(names)
    batch.stream = "ORDERS"
    for _ in range(2):  # a taken batch starts empty
        for name, subject, sequence, time_ns, lines, data in rows:
            batch.add(name, subject, sequence, time_ns, block(lines), data)
        assert batch.rows == len(rows)
        taken = wrapper.take(batch)
        taken.validate(full=True)
        assert taken.schema.equals(arrow_schema(names))
        expected = [row_of(row, "ORDERS") for row in rows]
        assert rows_of(taken) == [{name: row[name] for name in names} for row in expected]
        assert (batch.rows, batch.size) == (0, 0)


def test_what_was_taken_outlives_the_batch() -> None:
    batch, wrapper = MessageBatch(["data"]), BatchWrapper(["data"])
    batch.add(None, b"a", 1, 0, b"", b"first")
    first = wrapper.take(batch)
    batch.add(None, b"a", 2, 0, b"", b"later")
    del batch
    assert first.to_pylist() == [{"data": b"first"}]


@pytest.mark.parametrize("end", [b"", b"\r\n"])
def test_a_block_of_headers_may_lack_its_empty_line(end: bytes) -> None:
    batch = MessageBatch(["headers"])
    batch.add(None, b"a", 1, 0, b"NATS/1.0\r\nA:1\r\nA: 2 \r\n: x\r\nno key\r\n" + end, b"")
    assert rows_of(BatchWrapper(["headers"]).take(batch)) == [{"headers": {"A": ["1", "2"]}}]


def test_a_batch_is_full_by_rows_or_by_bytes() -> None:
    by_rows = MessageBatch(["seq"], max_rows=2)
    by_bytes = MessageBatch(["data"], max_bytes=100)
    for sequence in (1, 2):
        assert not by_rows.is_full
        assert not by_bytes.is_full
        by_rows.add(None, b"", sequence, 0, b"", b"")
        by_bytes.add(None, b"", sequence, 0, b"", bytes(60))
    assert by_rows.is_full
    assert by_bytes.is_full


def test_many_lines_with_one_key_are_one_list() -> None:
    batch = MessageBatch(["headers"])
    lines = [(b"k%d" % (at % 7), b"%d" % at) for at in range(20_000)]
    batch.add(None, b"a", 1, 0, block(lines), b"")
    assert rows_of(BatchWrapper(["headers"]).take(batch)) == [{"headers": headers_of(lines)}]


def test_a_choice_of_columns() -> None:
    assert flags(["data", "seq"]) == Columns.DATA | Columns.SEQ
    assert flags(NAMES) == Columns.ALL
    assert ddl(["seq", "time"]) == "seq BIGINT, time TIMESTAMP"
    assert tuple(DDL) == NAMES
    for names in ([], ["nothing"], ["seq", "seq"]):
        with pytest.raises(UnknownColumn):
            flags(names)


def test_the_schema_is_exactly_sparks() -> None:
    """The schema equals the one that Spark's workers make of the DDL's types."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        LongType,
        MapType,
        StringType,
        StructType,
        TimestampType,
    )

    kinds = {
        "STRING": StringType(),
        "BIGINT": LongType(),
        "TIMESTAMP": TimestampType(),
        "MAP<STRING, ARRAY<STRING>>": MapType(StringType(), ArrayType(StringType())),
        "BINARY": BinaryType(),
    }
    spark = StructType()
    for name in NAMES:
        spark = spark.add(name, kinds[DDL[name]])
    assert to_arrow_schema(spark, timezone="UTC").equals(arrow_schema())
