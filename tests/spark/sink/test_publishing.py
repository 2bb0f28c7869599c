"""Rows become frames, and answers complete rows: against a plain encoder, without a server."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.spark.sink.publishing import FoundIds, RowProblem, SendWindow
from natsd.spark.sink.written_columns import WrittenColumns, maps
from natsd.spark.wire.frames import FrameParser
from tests.spark.writing import BY_ID, HEADERS, PLAIN, batch

INBOX = b"_INBOX.me.1."
SID = 7

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True)
SUBJECTS = st.from_regex(r"[a-z]{1,6}(\.[a-z0-9]{1,5}){0,3}", fullmatch=True)
LISTS = st.lists(TEXTS, min_size=1, max_size=3)
MAPS = st.none() | st.dictionaries(NAMES, LISTS, max_size=3).map(lambda d: list(d.items()))
ROWS = st.lists(
    st.tuples(SUBJECTS, st.none() | st.binary(max_size=40), MAPS), min_size=1, max_size=12
)


def frame(prefix: bytes, row: int, subject: str, data: bytes | None, headers: Any) -> bytes:
    """Return the frame of a message as the protocol defines it."""
    block = b"NATS/1.0\r\nNats-Msg-Id: %b%d\r\n" % (prefix, row)
    for name, values in headers or ():
        for value in [] if name.lower() == "nats-msg-id" else values:
            block += f"{name}: {value}\r\n".encode()
    block += b"\r\n"
    data = data or b""
    line = f"HPUB {subject} {INBOX.decode()}{row} {len(block)} {len(block) + len(data)}\r\n"
    return line.encode() + block + data + b"\r\n"


def window(first: int = 0, max_rows: int = 1000, max_bytes: int = 1 << 20) -> SendWindow:
    made = SendWindow(b"q:1:0:", first, max_rows=max_rows, max_bytes=max_bytes)
    made.add_target(b"ORDERS")
    made.connected(INBOX)
    return made


def answer(into: SendWindow, row: int, data: bytes, headers: bytes = b"") -> None:
    parser = FrameParser()
    parser.attach(SID, into)
    if headers:
        sizes = b"%d %d" % (len(headers), len(headers) + len(data))
        line = b"HMSG %b%d %d %b\r\n" % (INBOX, row, SID, sizes)
    else:
        line = b"MSG %b%d %d %d\r\n" % (INBOX, row, SID, len(data))
    parser.feed(line + headers + data + b"\r\n")
    while parser.next() is not None:
        pass


def ack(into: SendWindow, row: int, sequence: int, more: bytes = b"") -> None:
    answer(into, row, b'{"stream":"ORDERS", "seq":%d%b}' % (sequence, more))


@given(ROWS, st.integers(0, 5), st.integers(0, 100_000))
def test_frames_are_those_of_a_plain_encoder(rows: list[Any], cut: int, base: int) -> None:
    sliced = batch([("cut.off", b"", None)] * cut + rows).slice(cut)
    made = window(base)
    made.fill(PLAIN.rows(sliced), base, base + len(rows))
    wanted = b"".join(frame(b"q:1:0:", base + at, *row) for at, row in enumerate(rows))
    assert bytes(made.outgoing()) == wanted
    assert (made.in_flight, made.in_flight_bytes) == (len(rows), len(wanted))


def test_headers_with_one_value_each() -> None:
    kind = pa.map_(pa.string(), pa.string())
    columns = [
        pa.array(["a.b", "a.c"]),
        pa.array(["text", "more"]),
        pa.array([[("A", "1"), ("B", "two")], None], kind),
    ]
    plain = pa.RecordBatch.from_arrays(columns, ["subject", "data", "headers"])
    made = window()
    made.fill(PLAIN.rows(plain), 0, 2)
    assert bytes(made.outgoing()) == frame(
        b"q:1:0:", 0, "a.b", b"text", [("A", ["1"]), ("B", ["two"])]
    ) + frame(b"q:1:0:", 1, "a.c", b"more", None)


def test_an_id_column_is_the_message_id() -> None:
    made = SendWindow(b"", max_rows=10, max_bytes=1 << 20)
    made.connected(INBOX)
    rows = [("a", b"", [("nats-msg-id", ["theirs"]), ("K", ["v"])], "id 7")]
    made.fill(BY_ID.rows(batch(rows)), 0, 1)
    sent = bytes(made.outgoing())
    assert b"\r\nNats-Msg-Id: id 7\r\nK: v\r\n\r\n" in sent
    assert b"theirs" not in sent


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((None, b""), "the subject is null"),
        (("", b""), "not one that can be published to"),
        (("a..b", b""), "not one that can be published to"),
        (("a.*", b""), r"'a\.\*' is not one"),
        (("a b", b""), "not one that can be published to"),
        (("a.>", b""), "not one that can be published to"),
        (("a\r\nPUB", b""), "not one that can be published to"),
        (("a", b"", [("K", None)]), "a header has no value"),
        (("a", b"", [("K", [])]), "a header has no value"),
        (("a", b"", [("K", [None])]), "a header has no value"),
        (("a", b"", [("", ["v"])]), "a header's name"),
        (("a", b"", [("K:", ["v"])]), "a header's name"),
        (("a", b"", [("K", ["v\r\nX: 1"])]), "a header's value holds a line end"),
        (("a", b"x" * 2000), "larger than the server's max_payload of 1024 bytes"),
        (("a", b"", None, None), "the id is null or empty"),
        (("a", b"", None, ""), "the id is null or empty"),
        (("a", b"", None, "x\n"), "the id holds a line end"),
    ],
)
def test_a_row_that_no_server_could_store(row: tuple[Any, ...], reason: str) -> None:
    good = ("fine", b"", None, "1")[: len(row)]
    columns = BY_ID if len(row) == 4 else PLAIN
    with pytest.raises(RowProblem, match=reason) as error:
        columns.rows(batch([good, row])).check(1024)
    assert error.value.row == 1
    columns.rows(batch([good])).check(1024)


@given(ROWS, ROWS)
def test_a_digest_is_of_content_and_order(rows: list[Any], others: list[Any]) -> None:
    def digest(of: list[Any], cut: int) -> int:
        made = PLAIN.rows(batch(of))
        return made.digest(cut, len(of), made.digest(0, cut, 0))

    assert digest(rows, 0) == digest(rows, len(rows) // 2)
    as_sent = [(subject, data or b"", headers or []) for subject, data, headers in rows]
    as_others = [(subject, data or b"", headers or []) for subject, data, headers in others]
    assert (digest(rows, 0) == digest(others, 0)) == (as_sent == as_others)


def test_acknowledgements_move_the_window() -> None:
    made = window()
    made.fill(PLAIN.rows(batch([("a", b"")] * 5)), 0, 5)
    ack(made, 1, 102)
    ack(made, 0, 101, b',"domain":"hub"')
    ack(made, 0, 101)  # a second time
    ack(made, 9, 101)  # of no row
    assert (made.in_flight, made.acknowledged, made.duplicates) == (3, 2, 0)
    assert made.take_refusals() == []
    assert (made.first, made.last_sequences()) == (2, {b"ORDERS": 102})
    ack(made, 3, 104, b',"duplicate": true')
    ack(made, 4, 105)
    ack(made, 2, 103)
    assert made.take_refusals() == []
    assert (made.first, made.duplicates, made.last_sequences()) == (5, 1, {b"ORDERS": 105})


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (
            b'{"error":{"code":503,"err_code":10077,"description":"x"},"stream":"ORDERS","seq":0}',
            b"",
        ),
        (b'{"stream":"ORDERS","error":{"code":400},"seq":3}', b""),
        (b'{"stream":"OTHERS","seq":3}', b""),
        (b'{"stream":"ORDERS","seq":0}', b""),
        (b'{"stream":"ORDERS"}', b""),
        (b"", b"NATS/1.0 503\r\n\r\n"),
        (b"+OK", b""),
        (b"", b""),
    ],
)
def test_what_acknowledges_nothing_is_handed_out(data: bytes, headers: bytes) -> None:
    made = window()
    rows = PLAIN.rows(batch([("a", b"0"), ("a", b"1"), ("a", b"2")]))
    made.fill(rows, 0, 3)
    made.sent_all()
    answer(made, 1, data, headers)
    ack(made, 0, 1)
    ack(made, 2, 2)
    assert made.take_refusals() == [(1, headers, data)]
    assert (made.first, made.refused_rows(), made.in_flight) == (1, [1], 0)
    made.resend(rows, 0)
    assert bytes(made.outgoing()) == frame(b"q:1:0:", 1, "a", b"1", None)
    ack(made, 1, 3)
    assert made.take_refusals() == []
    assert (made.first, made.refused) == (3, 0)


def test_the_window_bounds_rows_and_bytes() -> None:
    made = window(max_rows=3)
    rows = PLAIN.rows(batch([("a", b"x" * 100)] * 10))
    made.fill(rows, 0, 10)
    assert (made.next, made.in_flight, made.is_full) == (3, 3, True)
    ack(made, 1, 1)
    assert not made.is_full
    made.fill(rows, 0, 10)
    assert (made.first, made.next) == (0, 4)
    made = window(max_bytes=200)
    made.fill(rows, 0, 10)
    assert (made.in_flight, made.is_full) == (2, True)
    made = window(max_bytes=1)  # one row is always allowed
    made.fill(rows, 0, 10)
    assert made.in_flight == 1


def test_a_new_connection_sends_what_is_not_done_or_found() -> None:
    made = window()
    rows = PLAIN.rows(batch([("a", b"%d" % at) for at in range(6)]))
    made.fill(rows, 0, 5)
    for row in (0, 3):
        ack(made, row, row + 1)
    made.connected(b"_INBOX.new.")
    found = FoundIds()
    found.add(b"1")
    made.fill(rows, 0, 6, found)
    sent = bytes(made.outgoing())
    assert [row for row in range(6) if b"_INBOX.new.%d " % row in sent] == [2, 4, 5]
    assert (made.first, made.found) == (2, 1)


@given(st.sets(st.integers(0, 5000), max_size=50), st.sets(st.integers(0, 5000), max_size=50))
def test_found_ids_are_a_set(rows: set[int], others: set[int]) -> None:
    found = FoundIds()
    headers = [[("A", ["x"]), ("Nats-Msg-Id", [f"q:1:0:{row}"])] for row in sorted(rows)]
    headers += [[("Nats-Msg-Id", [f"q:1:1:{row}"])] for row in others]
    headers += [None, []]  # type: ignore[list-item]  # a message without headers
    array = pa.array(headers, HEADERS)
    found.take(len(array), maps(array), b"q:1:0:", True)
    assert found.count == len(rows)
    assert found.highest_row == max(rows, default=-1)
    assert all((b"%d" % row in found) == (row in rows) for row in rows | others)


@pytest.mark.parametrize(
    ("patterns", "subjects", "wanted"),
    [
        ([b"orders.>"], ["orders.a", "orders.a.b", "bills.a"], 2),
        ([b"orders.>", b"bills.*"], ["bills.a", "orders.a.b", "bills.a"], 3),
        ([], ["a"], 0),
        ([b"a", b"b"], ["b", "a", "c"], 2),
    ],
)
def test_the_first_subject_outside(patterns: list[bytes], subjects: list[str], wanted: int) -> None:
    rows = PLAIN.rows(batch([(subject, b"") for subject in subjects]))
    assert rows.first_outside(patterns, 0) == wanted


def test_columns_stand_in_any_order_and_types_convert() -> None:
    columns = [
        pa.array([17]),
        pa.array([b"data"], pa.large_binary()),
        pa.array(["a.b"], pa.large_string()),
    ]
    made = SendWindow(b"", max_rows=10, max_bytes=1 << 20)
    made.connected(INBOX)
    shuffled = pa.RecordBatch.from_arrays(columns, ["id", "data", "subject"])
    made.fill(WrittenColumns(subject=2, data=1, id=0).rows(shuffled), 0, 1)
    assert bytes(made.outgoing()).startswith(b"HPUB a.b _INBOX.me.1.0 ")
    assert bytes(made.outgoing()).endswith(b"Nats-Msg-Id: 17\r\n\r\ndata\r\n")
