"""Frames become the rows of a plain Python parser, wherever the bytes are cut."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.spark.errors import ProtocolViolation
from natsd.spark.network.range_decoders import DirectDecoder, PullDecoder, RangeDecoder
from natsd.spark.rows.arrow import BatchWrapper
from natsd.spark.rows.columns import NAMES
from natsd.spark.rows.message_batch import MessageBatch
from natsd.spark.wire.frames import Control, FrameParser, ReceivedMessage
from tests.fuzz.fuzz_spark_frames import check, hmsg
from tests.spark.rows.test_message_batch import block, headers_of, rows_of

NAMES_OF_SERVERS = [
    b"Nats-Stream",
    b"Nats-Subject",
    b"Nats-Sequence",
    b"Nats-Time-Stamp",
    b"Nats-Num-Pending",
    b"Nats-Last-Sequence",
    b"Nats-Msg-Size",
]
KEYS = st.sampled_from([b"A", b"B", b"Nats-Msg-Id", b"Nats-Sequence-Of", *NAMES_OF_SERVERS])
VALUES = st.text("abc 07:-TZ", max_size=8).map(lambda text: text.strip().encode())
LINES = st.lists(st.tuples(KEYS, VALUES), max_size=6)
TIMES = st.integers(0, 9_000_000_000_000_000_000)
DATA = st.binary(max_size=30)
SUBJECTS = st.text("abc.$äß", min_size=1, max_size=10)


def time_stamp(time_ns: int) -> str:
    """Return a time in RFC 3339 as Go writes it: without trailing zeros in the fraction."""
    seconds, fraction = divmod(time_ns, 10**9)
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime(
        "%Y-%m-%dT%H:%M:%S"
    )
    return f"{text}.{fraction:09}".rstrip("0").rstrip(".") + "Z"


def direct_frame(
    sequence: int, subject: str, time_ns: int, lines: list[tuple[bytes, bytes]], data: bytes
) -> bytes:
    own = block(lines)[:-2] if lines else b"NATS/1.0\r\n"
    text = (
        f"Nats-Stream: S\r\nNats-Subject: {subject}\r\nNats-Sequence: {sequence}\r\n"
        f"Nats-Time-Stamp: {time_stamp(time_ns)}\r\nNats-Num-Pending: 9\r\n"
        f"Nats-Last-Sequence: {sequence - 1}\r\n\r\n"
    )
    return hmsg(1, own + text.encode(), data, b"_INBOX.x")


def pull_frame(
    number: int,
    sequence: int,
    subject: str,
    time_ns: int,
    lines: list[tuple[bytes, bytes]],
    data: bytes,
) -> bytes:
    reply = b"$JS.ACK.S.c.1.%d.%d.%d.9" % (sequence, number, time_ns)
    if lines:
        return hmsg(1, block(lines), data, subject.encode(), reply)
    return b"MSG %b 1 %b %d\r\n%b\r\n" % (subject.encode(), reply, len(data), data)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(ends)]


def read(decoder: RangeDecoder, pieces: list[bytes]) -> list[dict[str, Any]]:
    parser, wrapper = FrameParser(), BatchWrapper(NAMES)
    parser.attach(1, decoder)
    rows: list[dict[str, Any]] = []
    for piece in pieces:
        parser.feed(piece)
        while (event := parser.next()) is not None:
            assert event is decoder
            if decoder.batch.is_full:
                rows += rows_of(wrapper.take(decoder.batch))
    return rows + rows_of(wrapper.take(decoder.batch))


MESSAGES = st.lists(st.tuples(st.integers(1, 9), SUBJECTS, TIMES, LINES, DATA), max_size=8)
PLACES = st.lists(st.integers(0, 10_000), max_size=12)


@given(MESSAGES, PLACES, st.integers(0, 20), st.integers(1, 60), st.booleans())
@settings(deadline=None)
def test_rows_are_what_was_sent(
    messages: list[tuple[Any, ...]], places: list[int], after: int, upto: int, direct: bool
) -> None:
    batch = MessageBatch(NAMES, max_rows=3)
    batch.stream = "S"
    pull, is_bare = PullDecoder(batch, after, upto), len(places) % 2 == 0
    pull.is_bare = is_bare
    decoder = DirectDecoder(batch, after, upto) if direct else pull
    data, sequence, rows = b"", 0, []
    for number, (step, subject, time_ns, lines, payload) in enumerate(messages, 1):
        sequence += step
        if direct:
            data += direct_frame(sequence, subject, time_ns, lines, payload)
        else:
            data += pull_frame(number, sequence, subject, time_ns, lines, payload)
            if is_bare and lines and lines[-1][0] == b"Nats-Msg-Size":
                lines = lines[:-1]
        if after < sequence <= upto:
            rows.append(
                {
                    "stream": "S",
                    "seq": sequence,
                    "subject": subject,
                    "time": time_ns // 1000,
                    "time_ns": time_ns,
                    "headers": headers_of(lines),
                    "data": payload,
                }
            )
    assert read(decoder, cut(data, places)) == rows
    assert decoder.frames == len(messages)
    assert decoder.is_complete == (max(after, sequence) >= upto)


FIELDS = st.sampled_from([b"MSG", b"HMSG", b"msg", b"PING", b"a", b"1", b"2", b"3", b"0", b"12"])
PARTS = st.one_of(
    FIELDS, st.sampled_from([b" ", b"\r\n", b"\n", b"\t", b"NATS/1.0", b"Nats-Sequence: 1"]), DATA
)


@given(st.lists(PARTS, max_size=25).map(b"".join))
@settings(deadline=None)
def test_garbage_is_refused_alike_wherever_it_is_cut(data: bytes) -> None:
    check(data)


def events(data: bytes) -> list[Any]:
    parser = FrameParser()
    parser.feed(data)
    found: list[Any] = []
    while (event := parser.next()) is not None:
        found.append(event)
    return found


def test_messages_and_control_lines() -> None:
    info, message, ping = events(b'INFO {"a":1}\r\nHMSG a 7 b 24 26\r\n' + (
        b"NATS/1.0 503\r\nA: b c \r\n\r\n"[:24] + b"hi\r\nping\r\n"
    ))  # fmt: skip
    assert isinstance(info, Control)
    assert (info.verb, info.text) == ("INFO", '{"a":1}')
    assert isinstance(message, ReceivedMessage)
    assert (message.sid, message.subject, message.reply, message.data) == (7, "a", "b", b"hi")
    assert (message.status, message.header("a")) == (503, "b c")
    assert isinstance(ping, Control)
    assert ping.verb == "PING"


@pytest.mark.parametrize(
    "data",
    [
        b"MSG a 1\r\n",
        b"MSG a x 1\r\n",
        b"MSG a 1 b c 1\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 2\r\nabcd\r\n",
        b"MSG a 1 99999999999\r\n",
        b"HMSG a 1 5 4\r\nabcd\r\n",
        b"x" * (1 << 20) + b"x",
    ],
)
def test_what_is_no_frame(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        events(data)


@pytest.mark.parametrize(
    "change",
    [
        (b"Nats-Sequence: 5\r\n", b""),
        (b"Nats-Sequence: 5\r\n", b"Nats-Sequence: x\r\n"),
        (b"2001-", b"2001/"),
        (b"Z\r\n", b"\r\n"),
    ],
)
def test_an_answer_that_does_not_say_which_message_it_is(change: tuple[bytes, bytes]) -> None:
    frame = direct_frame(5, "a", 10**18, [], b"x")
    headers, data = frame.split(b"\r\n", 1)[1][:-2][:-1].replace(*change), b"x"
    with pytest.raises(ProtocolViolation, match="which message"):
        read(DirectDecoder(MessageBatch(NAMES), 0, 9), [hmsg(1, headers, data)])


def test_a_delivery_that_is_missing_is_seen() -> None:
    decoder = PullDecoder(MessageBatch(NAMES), 0, 99)
    frames = [pull_frame(number, number, "a", 1, [], b"") for number in (1, 2, 4)]
    assert len(read(decoder, frames)) == 2
    assert decoder.is_out_of_order


USUAL = b"HMSG in.1 7 12 15\r\nNATS/1.0\r\n\r\nabc\r\n"
LONGER = b"HMSG in.1 7 12 14\r\nNATS/1.0\r\n\r\nab\r\n"


@pytest.mark.parametrize(
    ("frame", "sid", "subject", "reply", "data"),
    [
        (LONGER, 7, "in.1", "", b"ab"),
        (LONGER.replace(b" 7 ", b" 71 "), 71, "in.1", "", b"ab"),
        (LONGER.replace(b" 7 ", b"1 7 "), 7, "in.11", "", b"ab"),
        (LONGER.replace(b" 7 ", b" 7 12 "), 7, "in.1", "12", b"ab"),
        (LONGER.replace(b" 12 ", b"  12  "), 7, "in.1", "", b"ab"),
        (LONGER.replace(b"14\r\n", b"14 \r\n"), 7, "in.1", "", b"ab"),
        (LONGER.replace(b"HMSG", b"hmsg"), 7, "in.1", "", b"ab"),
        (b"MSG in.1 7 2\r\nab\r\n", 7, "in.1", "", b"ab"),
    ],
)
def test_a_line_like_the_one_before_is_not_mistaken_for_it(
    frame: bytes, sid: int, subject: str, reply: str, data: bytes
) -> None:
    parser = FrameParser()
    parser.feed(USUAL + USUAL + frame + USUAL)
    found = [parser.next() for _ in range(4)]
    assert all(isinstance(message, ReceivedMessage) for message in found)
    assert [message.data for message in found] == [b"abc", b"abc", data, b"abc"]
    assert (found[2].sid, found[2].subject, found[2].reply) == (sid, subject, reply)
    assert (found[3].sid, found[3].subject, found[3].reply) == (7, "in.1", "")


@pytest.mark.parametrize("lengths", [b"", b"12", b"12 ", b"x 15", b"12 x", b"15 12", b"1" * 19])
def test_a_line_like_the_one_before_is_no_better_for_it(lengths: bytes) -> None:
    parser = FrameParser()
    parser.feed(USUAL + b"HMSG in.1 7 %b\r\nNATS/1.0\r\n\r\nabc\r\n" % lengths)
    assert isinstance(parser.next(), ReceivedMessage)
    with pytest.raises(ProtocolViolation):
        parser.next()


@given(TIMES)
def test_times(time_ns: int) -> None:
    rows = read(DirectDecoder(MessageBatch(NAMES), 0, 9), [direct_frame(1, "a", time_ns, [], b"")])
    assert rows[0]["time_ns"] == time_ns
