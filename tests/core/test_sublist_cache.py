"""The cache of a SubList (seed "SubList", section "Cache Strategy"), and results that are held."""

import pytest

from natsd.core.routing import MatchResult, SubList, Subscription


def listed(sublist: SubList, *subjects: str) -> list[Subscription]:
    subs = [Subscription(subject) for subject in subjects]
    for sub in subs:
        sublist.insert(sub)
    return subs


def test_the_second_match_is_a_hit() -> None:
    sublist = SubList()
    listed(sublist, "foo.*")
    first = sublist.match("foo.bar")
    assert first.live
    assert sublist.match("foo.bar") is first
    assert sublist.match(b"foo.bar") is first
    assert (sublist.num_cache, sublist.num_matches, sublist.num_cache_hits) == (1, 3, 2)


def test_without_a_cache_nothing_is_live() -> None:
    sublist = SubList(cache=False)
    listed(sublist, "foo")
    assert not sublist.match("foo").live
    assert sublist.num_cache == 0


def test_a_literal_insert_patches_its_entry() -> None:
    sublist = SubList()
    listed(sublist, "foo")
    before = sublist.match("foo")
    other = sublist.match("bar")
    (sub,) = listed(sublist, "foo")
    after = sublist.match("foo")
    assert sublist.num_cache_hits == 1
    assert after.plain == (*before.plain, sub)
    assert after.live
    assert not before.live
    assert other.live


def test_a_wildcard_insert_patches_every_matching_entry() -> None:
    sublist = SubList()
    subjects = ["foo", "foo.a", "foo.b", "foo.a.b", "bar.a", "foo*.a"]
    before = {subject: sublist.match(subject) for subject in subjects}
    listed(sublist, "foo.*")
    patched = {subject for subject in subjects if not before[subject].live}
    assert patched == {"foo.a", "foo.b"}
    assert all(len(sublist.match(subject)) == (subject in patched) for subject in subjects)
    assert sublist.num_cache_hits == len(subjects)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        (">", {"a", "a.b", "a.b.c", "b.b.c.d", "*.b"}),
        ("*", {"a"}),
        ("*.b", {"a.b", "*.b"}),
        ("*.b.>", {"a.b.c", "b.b.c.d"}),
        ("a.>", {"a.b", "a.b.c"}),
        ("a.*.c", {"a.b.c"}),
        ("*.*.*.d", {"b.b.c.d"}),
    ],
)
def test_removal_drops_matching_entries(pattern: str, matched: set[str]) -> None:
    sublist = SubList()
    (sub,) = listed(sublist, pattern)
    published = ("a", "a.b", "a.b.c", "b.b.c.d", "*.b")
    results = {subject: sublist.match(subject) for subject in published}
    sublist.remove(sub)
    assert {subject for subject in results if not results[subject].live} == matched
    assert sublist.num_cache == len(results) - len(matched)
    assert all(len(sublist.match(subject)) == 0 for subject in results)


def test_a_queue_insert_patches_its_group() -> None:
    sublist = SubList()
    first, second, third = (Subscription("foo", "q") for _ in range(3))
    sublist.insert(first)
    held = sublist.match("foo")
    sublist.insert(second)
    sublist.insert(third)
    sublist.insert(Subscription("foo", "r"))
    assert sublist.num_cache == 1
    assert sublist.match("foo").queues["q"] == (first, second, third)
    assert set(sublist.match("foo").queues) == {"q", "r"}
    assert held.queues == {"q": (first,)}


def test_an_entry_with_very_many_groups_is_dropped_instead() -> None:
    sublist = SubList()
    sublist.match("foo")
    for number in range(1_000):
        sublist.insert(Subscription("foo", str(number)))
    assert sublist.num_cache == 0
    assert len(sublist.match("foo").queues) == 1_000


def test_a_held_result_never_changes() -> None:
    sublist = SubList()
    held: list[tuple[MatchResult, tuple[Subscription, ...]]] = []
    subs = []
    for _ in range(100):
        subs += listed(sublist, "foo")
        result = sublist.match("foo")
        held.append((result, result.plain))
    for sub in subs:
        sublist.remove(sub)
        result = sublist.match("foo")
        held.append((result, result.plain))
    del sublist
    assert all(result.plain == plain for result, plain in held)
    assert held[99][1] == tuple(subs)


def test_two_successors_of_one_result_do_not_meet() -> None:
    """Results share arrays with their predecessors; after a removal a new array begins."""
    sublist = SubList()
    (first,) = listed(sublist, "foo")
    result = sublist.match("foo")
    (second,) = listed(sublist, "foo")
    branch = sublist.match("foo")
    sublist.remove(second)
    sublist.match("foo")
    (third,) = listed(sublist, "foo")
    assert result.plain == (first,)
    assert branch.plain == (first, second)
    assert sublist.match("foo").plain == (first, third)


def insist(sublist: SubList, subject: str) -> None:
    """Match until the result is in the cache; above half its size, it takes only one in eight."""
    for _ in range(1_000):
        if sublist.match(subject).live:
            return
    raise AssertionError(f"{subject} never came into the cache")


def test_the_cache_is_bounded_and_swept() -> None:
    sublist = SubList()
    sizes = []
    for number in range(3_000):
        insist(sublist, f"foo.{number}")
        sizes.append(sublist.num_cache)
    assert sizes[:1_024] == list(range(1, 1_025))
    assert sizes[1_024:1_026] == [256, 257]
    assert max(sizes) == 1_024
    assert min(sizes[1_024:]) == 256


def test_a_sweep_keeps_what_is_asked_for() -> None:
    sublist = SubList()
    hot = [sublist.match(f"hot.{number}") for number in range(200)]
    for number in range(3_000):
        insist(sublist, f"cold.{number}")
        for result in hot:
            assert sublist.match(result.subject_text) is result


def test_a_sweep_drops_even_what_was_asked_for_when_it_must() -> None:
    sublist = SubList()
    for number in range(1_025):
        insist(sublist, f"foo.{number}")
        sublist.match(f"foo.{number}")
    assert sublist.num_cache == 256
    assert sublist.match("foo.1024").live


def test_a_subject_asked_for_often_gets_past_the_door() -> None:
    sublist = SubList()
    for number in range(600):
        sublist.match(f"once.{number}")
    for number in range(20_000):
        sublist.match(f"once.{number}")
        sublist.match("often")
    assert sublist.match("often").live


def test_unique_reply_subjects_do_not_thrash() -> None:
    """Unique subjects fill half of the cache once; entries in use stay, and nothing is swept."""
    sublist = SubList()
    listed(sublist, "_INBOX.abc.*", "orders.*")
    hot = [sublist.match(f"orders.{number}") for number in range(100)]
    for number in range(50_000):
        assert len(sublist.match(f"_INBOX.abc.{number}")) == 1
    assert sublist.num_cache == 512
    assert all(result.live for result in hot)
    assert sublist.match("orders.7") is hot[7]


def test_an_uncached_result_is_used_again_unless_it_is_held() -> None:
    sublist = SubList(cache=False)
    foo, bar = listed(sublist, "foo", "bar")
    held = sublist.match("foo")
    assert sublist.match("bar") is not held
    assert held.plain == (foo,)
    address = id(sublist.match("foo"))
    assert id(sublist.match("bar")) == address
    assert sublist.match("bar").plain == (bar,)


def test_a_newcomer_joins_subjects_nobody_had_asked_for() -> None:
    sublist = SubList()
    assert len(sublist.match("foo.bar")) == 0
    subs = listed(sublist, "foo.bar", "foo.>", "*.bar")
    assert sublist.match("foo.bar").plain == tuple(subs)
    assert sublist.num_cache_hits == 1


def test_a_large_batch_drops_the_whole_cache() -> None:
    sublist = SubList()
    subs = listed(sublist, *[f"a.{number}" for number in range(2_000)])
    other = sublist.match("b")
    sublist.remove_batch(subs[:10])
    after_small_batch = other.live
    sublist.remove_batch(subs)
    assert (after_small_batch, other.live) == (True, False)
    assert sublist.num_cache == 0


def test_statistics_have_the_names_of_nats_server() -> None:
    sublist = SubList()
    subs = listed(sublist, "foo", "foo", "bar", "*")
    sublist.insert(Subscription("foo", "q"))
    sublist.insert(Subscription("foo", "q"))
    sublist.remove(subs[2])
    for subject in ("foo", "foo", "foo", "bar"):
        sublist.match(subject)
    stats = sublist.stats()
    assert stats.to_json() == {
        "num_subscriptions": 5,
        "num_cache": 2,
        "num_inserts": 6,
        "num_removes": 1,
        "num_matches": 4,
        "cache_hit_rate": 0.5,
        "max_fanout": 4,
        "avg_fanout": 2.5,
    }
    both = stats + SubList().stats() + stats
    assert (both.num_matches, both.max_fanout, both.avg_fanout) == (8, 4, 2.5)
    assert SubList().stats().to_json()["cache_hit_rate"] == 0.0
