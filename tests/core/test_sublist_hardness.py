"""A SubList under abuse: floods, threads, re-entrant calls, and nothing left behind."""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from natsd.core.routing import Sink, SubList, Subscription, live_counts


class Marked(Subscription):
    """A subscription whose end a test can observe."""

    at_end: Callable[[], None] | None = None

    def __del__(self) -> None:
        if self.at_end is not None:
            self.at_end()


def seconds(work: Callable[[], object]) -> float:
    """Return the processor's time, to which other processes do not count."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def test_references_are_those_that_are_documented() -> None:
    sub = Subscription("foo")
    alone = sys.getrefcount(sub)
    sublist = SubList()
    sublist.insert(sub)
    assert sys.getrefcount(sub) == alone + 1
    held = sublist.match("foo")
    assert sys.getrefcount(sub) == alone + 2
    sublist.remove(sub)
    assert sys.getrefcount(sub) == alone + 1
    del held
    assert sys.getrefcount(sub) == alone


def test_an_idle_result_keeps_no_removed_subscription_alive() -> None:
    sublist = SubList(cache=False)
    sub = Marked("foo")
    gone = weakref.ref(sub)
    sublist.insert(sub)
    assert len(sublist.match("foo")) == 1
    sublist.remove(sub)
    del sub
    assert gone() is None


def test_a_sublist_releases_what_it_lists() -> None:
    subs = [Marked(f"a.{number % 7}.>", "q" if number % 3 else None) for number in range(100)]
    gone = [weakref.ref(sub) for sub in subs]
    sublist = SubList()
    for sub in subs:
        sublist.insert(sub)
    result = sublist.match("a.1.x")
    del sub, subs, sublist
    assert any(ref() for ref in gone)
    del result
    assert not any(ref() for ref in gone)


def test_detaching_breaks_the_cycle_with_the_sink() -> None:
    class Owner(Sink):
        subscriptions: list[Subscription]

    sink = Owner()
    gone = weakref.ref(sink)
    sub = Subscription("foo", sink=sink)
    sink.subscriptions = [sub]
    assert (sub.sink, sub.closed) == (sink, False)
    sub.detach()
    assert sub.closed
    assert type(sub.sink) is Sink
    del sink
    assert gone() is None


def test_destructors_may_use_the_sublist() -> None:
    """Destructors run only when the SubList is consistent again, whatever released the object."""
    sublist = SubList()
    ended = []

    def at_end() -> None:
        ended.append(len(sublist.match("foo.bar")))
        extra = Subscription("foo.*")
        sublist.insert(extra)
        sublist.remove(extra)

    for _ in range(50):
        sub = Marked("foo.bar")
        sub.at_end = at_end
        sublist.insert(sub)
        assert len(sublist.match("foo.bar")) == 1
        sublist.remove_batch([sub])
        del sub
    assert ended == [0] * 50

    doomed = [Marked("foo.bar") for _ in range(10)]
    for sub in doomed:
        sub.at_end = at_end
        sublist.insert(sub)
    doomed.clear()
    del sub
    sublist.clear()
    assert len(ended) == 60
    assert len(sublist) == 0


def test_readers_in_threads_never_crash_while_one_writes() -> None:
    sublist = SubList()
    stop = threading.Event()
    problems: list[object] = []

    def read() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for result in (
                sublist.match(f"a.{number % 50}"),
                sublist.match(f"a.b.{number}"),
                sublist.reverse_match("a.>"),
            ):
                wrong = [sub for sub in result.plain if not sub.subject.startswith("a.")]
                problems.extend(wrong)
            sublist.stats()
            sublist.subscriptions()
            sublist.has_interest("a.1")

    readers = [threading.Thread(target=read) for _ in range(3)]
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            subs = [
                Subscription(subject, queue)
                for number in range(20)
                for subject in (f"a.{number}", "a.*", "a.b.>")
                for queue in (None, "q")
            ]
            for sub in subs:
                sublist.insert(sub)
            for sub in subs[::2]:
                sublist.remove(sub)
            sublist.remove_batch(subs)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(switch_interval)
    assert problems == []
    assert len(sublist) == 0


@pytest.mark.parametrize("queue", [None, "one", "each"])
@pytest.mark.parametrize("subject", ["hot", "hot.*"])
def test_a_hundred_thousand_at_one_subject_come_and_go_in_linear_time(
    queue: str | None, subject: str
) -> None:
    sublist = SubList()
    published = subject.replace("*", "x")
    sublist.match(published)
    names = (f"q{number}" if queue == "each" else queue for number in range(100_000))
    subs = [Subscription(subject, name) for name in names]

    def come_and_go() -> None:
        for sub in subs:
            sublist.insert(sub)
        result = sublist.match(published)
        assert len(result.plain) + sum(map(len, result.queues.values())) == len(subs)
        for sub in subs:
            sublist.remove(sub)

    assert seconds(come_and_go) < 5


def test_joins_between_publishes_are_not_copied_each_time() -> None:
    sublist = SubList()
    subs = [Subscription("hot", "q") for _ in range(30_000)]

    def join() -> None:
        for sub in subs:
            sublist.insert(sub)
            held = sublist.match("hot")
            assert held.live

    assert seconds(join) < 2


def test_wide_and_deep_tries_are_taken_down_in_linear_time() -> None:
    deep = ".".join(["x"] * 2_000)
    sublist = SubList()
    for number in range(20_000):
        sublist.insert(Subscription(f"wide.{number}"))
    for number in range(20):
        sublist.insert(Subscription(f"{number}.{deep}"))
        sublist.insert(Subscription(f"{number}.{deep.replace('x', '*')}"))
    assert len(sublist.match(f"7.{deep}")) == 2
    assert seconds(sublist.clear) < 2
    assert len(sublist) == 0


def test_published_stars_do_not_multiply() -> None:
    """Every walk is bounded by the size of the trie, not by the number of paths through it."""
    sublist = SubList(cache=False)
    depth = 60
    for number in range(depth):
        tokens = ["*"] * depth
        tokens[number] = "a"
        sublist.insert(Subscription(".".join([*tokens, "end"])))
    published = ".".join(["a"] * depth)
    assert seconds(lambda: sublist.match(published)) < 1
    assert seconds(lambda: sublist.reverse_match(published.replace("a", "*"))) < 1


def test_no_live_objects_are_left() -> None:
    if not live_counts():
        pytest.skip("counted in debug builds only")
    gc.collect()
    before = live_counts()
    sublist = SubList()
    subs = [
        Subscription(f"a.{number}.{'*' if number % 2 else '>'}", "q" if number % 3 else None)
        for number in range(500)
    ]
    for sub in subs:
        sublist.insert(sub)
    for number in range(3_000):
        sublist.match(f"a.{number % 600}.x")
    for sub in subs[:250]:
        sublist.remove(sub)
    sublist.remove_batch(subs[240:400])
    assert live_counts()["nodes"] > before["nodes"]
    del sub, subs, sublist
    assert live_counts() == before
