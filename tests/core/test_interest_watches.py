"""Watches on a subject: they report the first listener that comes, and the last one that leaves.

They correspond to nats-server's `Sublist.RegisterNotification`.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.core.routing import SubList, Subscription


@pytest.fixture
def sublist() -> SubList:
    return SubList()


def test_the_first_and_the_last_subscription_are_told(sublist: SubList) -> None:
    heard: list[bool] = []
    assert not sublist.watch("deliver.here", heard.append)
    first, second = Subscription("deliver.here"), Subscription("deliver.here")
    sublist.insert(first)
    sublist.insert(second)
    sublist.remove(first)
    assert heard == [True]
    sublist.remove(second)
    assert heard == [True, False]


def test_who_watches_late_is_told_at_once(sublist: SubList) -> None:
    sublist.insert(Subscription("deliver.here"))
    assert sublist.watch("deliver.here", lambda _: None)
    sublist.clear()


def test_a_wildcard_subscription_is_no_listener(sublist: SubList) -> None:
    """As on nats-server, `nats sub '>'` starts no push consumer."""
    heard: list[bool] = []
    wild = Subscription("deliver.*")
    sublist.insert(wild)
    assert not sublist.watch("deliver.here", heard.append)
    sublist.remove(wild)
    assert heard == []


def test_a_queue_group_is_watched_by_its_name(sublist: SubList) -> None:
    plain: list[bool] = []
    workers: list[bool] = []
    sublist.watch("deliver.here", plain.append)
    sublist.watch("deliver.here", workers.append, queue="workers")
    subs = [
        Subscription("deliver.here", queue="others"),
        Subscription("deliver.here", queue="workers"),
        Subscription("deliver.here"),
    ]
    for sub in subs:
        sublist.insert(sub)
    assert sublist.remove_batch(subs) == 3
    assert plain == workers == [True, False]


def test_clear_tells_everybody(sublist: SubList) -> None:
    heard: list[bool] = []
    sublist.watch("deliver.here", heard.append)
    sublist.insert(Subscription("deliver.here"))
    sublist.clear()
    assert heard == [True, False]


def test_who_ceases_to_watch_hears_nothing(sublist: SubList) -> None:
    heard: list[bool] = []
    sublist.watch("deliver.here", heard.append)
    sublist.watch("deliver.there", heard.append)
    sublist.unwatch("deliver.here", heard.append)
    sublist.unwatch("deliver.there", heard.append)
    sublist.unwatch("never.watched", heard.append)
    sublist.insert(Subscription("deliver.here"))
    assert heard == []
    sublist.clear()


SUBJECTS = st.sampled_from(["a", "a.b", "a.*", ">"])
QUEUES = st.sampled_from([None, "q", "r"])


@given(st.lists(st.tuples(st.booleans(), SUBJECTS, QUEUES), max_size=40))
def test_what_was_heard_last_is_what_is_listed(
    changes: list[tuple[bool, str, str | None]],
) -> None:
    sublist = SubList()
    watched = [("a", None), ("a.b", None), ("a.b", "q")]
    heard: dict[tuple[str, str | None], list[bool]] = {}
    for subject, queue in watched:
        heard[subject, queue] = [False]
        sublist.watch(subject, heard[subject, queue].append, queue=queue)
    here: list[Subscription] = []
    for joins, subject, queue in changes:
        known = [sub for sub in here if (sub.subject, sub.queue) == (subject, queue)]
        if joins:
            here.append(Subscription(subject, queue))
            sublist.insert(here[-1])
        elif known:
            here.remove(known[0])
            sublist.remove(known[0])
    for key, told in heard.items():
        assert told[-1] == any((sub.subject, sub.queue) == key for sub in here)
        assert all(one != other for one, other in itertools.pairwise(told))
    sublist.clear()
