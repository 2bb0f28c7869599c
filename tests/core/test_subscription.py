"""Subscriptions: they keep their texts unchanged, are small, and are closed by their owner."""

import pytest

from natsd.core.routing import Sink, Subscription


def test_texts_are_kept_apart() -> None:
    sub = Subscription("foo.bar", "workers", sid="42")
    assert (sub.subject, sub.queue, sub.sid) == ("foo.bar", "workers", "42")
    assert (sub.subject_bytes, sub.queue_bytes, sub.sid_bytes) == (b"foo.bar", b"workers", b"42")
    assert repr(sub) == "Subscription('foo.bar', queue='workers', sid='42')"


def test_a_plain_subscription_has_no_queue() -> None:
    sub = Subscription(b"foo")
    assert sub.queue is None
    assert sub.queue_bytes is None
    assert (sub.sid, sub.weight, sub.delivered, sub.max_delivered) == ("", 1, 0, 0)


def test_any_bytes_are_kept() -> None:
    sub = Subscription(b"\xff\x00.a", b"\xfe", sid=b"\x00")
    assert (sub.subject_bytes, sub.queue_bytes, sub.sid_bytes) == (b"\xff\x00.a", b"\xfe", b"\x00")
    assert sub.subject.encode("utf-8", "surrogateescape") == b"\xff\x00.a"


def test_it_is_small_and_the_garbage_collector_does_not_see_it() -> None:
    assert Subscription.__basicsize__ == 96
    assert not Subscription.__flags__ & (1 << 14)  # Py_TPFLAGS_HAVE_GC


def test_what_it_takes() -> None:
    with pytest.raises(TypeError):
        Subscription(7)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        Subscription("foo", sink=object())  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="queue name"):
        Subscription("foo", "")
    sub = Subscription("foo", sink=Sink())
    with pytest.raises(TypeError, match="once"):
        sub.__init__("bar")  # type: ignore[misc]  # on purpose
    assert sub.subject == "foo"
