"""Frames follow the protocol, have constant length, and are counted to the byte."""

import pytest

from natsd.bench import frames
from natsd.bench.frames import FrameShape


def test_frames_read_as_the_protocol_says() -> None:
    assert frames.pub(b"a.b", b"hello") == b"PUB a.b 5\r\nhello\r\n"
    assert frames.pub(b"a.b", b"", b"inbox") == b"PUB a.b inbox 0\r\n\r\n"
    assert frames.sub(b"a.*", b"7") == b"SUB a.* 7\r\n"
    assert frames.sub(b"a.*", b"7", b"workers") == b"SUB a.* workers 7\r\n"
    assert frames.msg(b"a.b", b"hello", b"7") == b"MSG a.b 7 5\r\nhello\r\n"
    assert frames.msg(b"a.b", b"hello", b"7", b"inbox") == b"MSG a.b 7 inbox 5\r\nhello\r\n"


def test_wildcard_subscriptions_take_turns_between_star_and_rest() -> None:
    assert frames.fleet_subscriptions([8, 123_457]) == (
        b"SUB fleet.000008.* 1000008\r\nSUB fleet.123457.> 1123457\r\n"
    )


@pytest.mark.parametrize("number", [0, 9, 10, 99_999, 999_999])
def test_fleet_frames_all_have_one_length(number: int) -> None:
    body = frames.payload(16)
    sid = b"%d" % (frames.FLEET_SID_BASE + number)
    frame = frames.msg(frames.fleet_subject(number), body, sid)
    shape = FrameShape.fleet(body)
    assert len(frame) == shape.frame_bytes
    assert shape.agrees(frame * 3)


FRAME = frames.msg(b"a.b", b"xxxx")
SHAPE = FrameShape.literal(FRAME)


@pytest.mark.parametrize("cut", range(len(FRAME)))
def test_a_sample_may_end_anywhere_in_a_frame(cut: int) -> None:
    assert SHAPE.agrees(FRAME * 2 + FRAME[:cut])


@pytest.mark.parametrize(
    "sample",
    [
        FRAME.replace(b"a.b", b"a.c"),
        FRAME + FRAME.replace(b"xxxx", b"xxxy"),
        FRAME + b"-ERR 'Slow Consumer'\r\n",
        b"+OK\r\n" + FRAME,
    ],
)
def test_a_sample_of_anything_else_is_refused(sample: bytes) -> None:
    assert not SHAPE.agrees(sample)


def test_a_server_may_ping_between_frames() -> None:
    assert SHAPE.agrees(FRAME + frames.PING + FRAME)
    assert SHAPE.whole_frames(len(FRAME) * 1000 + len(frames.PING)) == (1000, True)


@pytest.mark.parametrize("stray_bytes", [1, 5, 7, len(FRAME) - 1])
def test_a_stream_that_ends_inside_a_frame_shows(stray_bytes: int) -> None:
    assert SHAPE.whole_frames(len(FRAME) * 1000 + stray_bytes) == (1000, False)
