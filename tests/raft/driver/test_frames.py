"""Frames: whole bodies come out whatever their length; damaged bytes raise one exception."""

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.raft.frames import (
    FrameReader,
    FrameWriter,
    MalformedFrameError,
    MalformedMessageError,
    MessageEncoder,
    read_body,
    read_frame,
)
from natsd.raft.messages import Heartbeat, Message


def writer(bytes_max: int) -> FrameWriter:
    return FrameWriter(7, 99, bytes_max, MessageEncoder())


def bodies(frames: list[bytes]) -> list[bytes]:
    reader = FrameReader()
    taken = [reader.take(read_frame(frame)) for frame in frames]
    return [body for body in taken if body is not None]


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=8), st.integers(30, 200))
def test_messages_come_out_as_they_went_in(groups: list[bytes], bytes_max: int) -> None:
    out = writer(bytes_max)
    sent: list[tuple[bytes, Message]] = []
    for number, group in enumerate(groups):
        sent.append((group, Heartbeat(1, 2, number, 3, 4)))
        out.add(*sent[-1])
    frames = out.take()
    assert all(len(frame) <= bytes_max for frame in frames)
    assert {(f.server, f.boot) for f in map(read_frame, frames)} == {(7, 99)}
    (body,) = bodies(frames)
    assert list(read_body(body)) == sent


def test_an_empty_body_is_a_frame() -> None:
    (frame,) = writer(100).take()
    assert bodies([frame]) == [b""]


@pytest.mark.parametrize("lost", range(4))
def test_a_body_with_a_lost_frame_is_lost_and_the_next_one_is_not(lost: int) -> None:
    out = writer(60)
    for _ in range(2):
        out.add(b"group", Heartbeat(1, 2, 3, 4, 5))
    first = out.take()
    assert len(first) > lost
    out.add(b"next", Heartbeat(1, 2, 3, 4, 5))
    second = out.take()
    del first[lost]
    assert bodies(first + second) == bodies(second)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_raise_one_exception(data: bytes) -> None:
    try:
        read_frame(data)
        list(read_body(data))
    except (MalformedFrameError, MalformedMessageError):
        pass


def test_flipped_bytes_raise_one_exception() -> None:
    chance = random.Random(1)
    out = writer(1 << 16)
    for name in (b"a", b"bcd"):
        out.add(name, Heartbeat(1, 2, 3, 4, 5))
    body = bodies(out.take())[0]
    for _ in range(500):
        damaged = bytearray(body)
        damaged[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        with contextlib.suppress(MalformedFrameError, MalformedMessageError):
            list(read_body(bytes(damaged[: chance.randrange(len(body) + 1)])))
