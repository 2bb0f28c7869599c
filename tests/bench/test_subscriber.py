"""A subscriber counts exactly: lost, doubled and damaged messages are found."""

import pytest

from natsd.bench import subscriber
from natsd.bench.frames import PING, FrameShape, msg, sub
from natsd.bench.progress import RELEASED, Progress, Window
from natsd.bench.result import RoleResult
from natsd.bench.subscriber import SAMPLE_BYTES, Subscriber
from tests.bench.fakes import server_that_sends

FRAME = msg(b"data", b"x" * 100)
SENT = 5_000
assert len(FRAME) * SENT > 2 * SAMPLE_BYTES  # most of it is counted, not inspected


def received(stream: bytes, *, then_closes: bool = False) -> tuple[RoleResult, int]:
    """Return a subscriber's result for this stream, and its shared counter."""
    with (
        Progress.create(1) as progress,
        server_that_sends(stream, then_closes=then_closes) as (
            port,
            begin,
        ),
    ):
        role = Subscriber(
            host="127.0.0.1",
            port=port,
            progress_path=progress.path,
            slot=0,
            window=Window((), (0,), shared=False, messages_ahead_max=1),
            subscriptions=sub(b"data"),
            shape=FrameShape.literal(FRAME),
            expected=SENT,
        )
        role.prepare()
        begin.set()
        result = role.run()
        counter = progress.counters[0]
        role.close()
    return result, counter


def test_everything_there() -> None:
    result, counter = received(FRAME * SENT)
    assert (result.received, result.problem, counter) == (SENT, "", SENT)


def test_a_ping_of_the_server_is_not_a_message() -> None:
    result, _ = received(FRAME * 4_000 + PING + FRAME * 1_000)
    assert (result.received, result.problem) == (SENT, "")


def test_a_message_too_many_is_counted() -> None:
    result, _ = received(FRAME * (SENT + 1))
    assert (result.received, result.problem) == (SENT + 1, "")


def test_a_lost_byte_shows() -> None:
    result, _ = received((FRAME * (SENT + 1))[:-1])
    assert "inside a frame" in result.problem


def test_a_lost_message_is_missing_once_nothing_more_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriber, "STALL_SECONDS_MAX", 0.2)
    result, counter = received(FRAME * (SENT - 1))
    assert (result.received, result.problem, counter) == (SENT - 1, "", SENT - 1)


def test_a_closed_connection_shows_and_lets_the_publishers_go_on() -> None:
    result, counter = received(FRAME * (SENT - 1), then_closes=True)
    assert "the server closed the connection" in result.problem
    assert (result.received, counter) == (SENT - 1, RELEASED)


def test_foreign_frames_show() -> None:
    result, _ = received(FRAME.replace(b"data", b"date") * SENT)
    assert "unexpected frames" in result.problem
