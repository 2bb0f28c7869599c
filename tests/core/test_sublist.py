"""SubList: the rules of the seed "SubList", and what nats-server's `Sublist` does besides."""

import pytest

from natsd.core.routing import AlreadyListed, InvalidSubject, SubList, Subscription


@pytest.fixture(params=[True, False], ids=["cache", "no cache"])
def sublist(request: pytest.FixtureRequest) -> SubList:
    return SubList(cache=request.param)


def listed(sublist: SubList, *subjects: str) -> list[Subscription]:
    subs = [Subscription(subject) for subject in subjects]
    for sub in subs:
        assert sublist.insert(sub)
    return subs


def subjects_for(sublist: SubList, published: str) -> list[str]:
    return sorted(sub.subject for sub in sublist.match(published).plain)


# Insert


def test_a_new_sublist_is_empty(sublist: SubList) -> None:
    assert len(sublist) == sublist.count == 0
    assert len(sublist.match("foo")) == 0


def test_inserts_are_counted(sublist: SubList) -> None:
    listed(sublist, "foo", "bar", "foo.bar")
    assert sublist.count == 3


def test_inserting_the_same_subscription_again_changes_nothing(sublist: SubList) -> None:
    (sub,) = listed(sublist, "foo")
    assert not sublist.insert(sub)
    assert sublist.count == 1
    assert sublist.match("foo").plain == (sub,)


def test_a_subscription_is_in_one_sublist_at_a_time(sublist: SubList) -> None:
    (sub,) = listed(sublist, "foo")
    other = SubList()
    with pytest.raises(AlreadyListed):
        other.insert(sub)
    assert not other.remove(sub)
    assert sublist.remove(sub)
    assert other.insert(sub)
    other.clear()


@pytest.mark.parametrize("subject", ["", ".", ".foo", "foo.", "foo..bar", "foo.>.bar", ">.foo"])
def test_an_invalid_subject_is_refused_and_leaves_no_trace(sublist: SubList, subject: str) -> None:
    listed(sublist, "foo.bar")
    sub = Subscription(subject)
    with pytest.raises(InvalidSubject):
        sublist.insert(sub)
    assert not sublist.remove(sub)
    assert sublist.count == 1


def test_only_subscriptions_are_listed(sublist: SubList) -> None:
    with pytest.raises(TypeError):
        sublist.insert(None)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        sublist.remove_batch([None])  # type: ignore[list-item]  # on purpose
    with pytest.raises(InvalidSubject):
        sublist.insert(Subscription.__new__(Subscription))


# Match


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ("foo", ["*", ">", "foo"]),
        ("bar", ["*", ">"]),
        ("foo.bar", ["*.*", "*.bar", ">", "foo.*", "foo.>", "foo.bar"]),
        ("foo.baz", ["*.*", ">", "foo.*", "foo.>"]),
        ("foo.bar.baz", ["*.*.baz", ">", "foo.*.*", "foo.>", "foo.bar.>"]),
        ("x.y.z", [">"]),
    ],
)
def test_matching(sublist: SubList, published: str, expected: list[str]) -> None:
    listed(sublist, "foo", "*", ">", "foo.bar", "foo.*", "*.bar", "*.*", "foo.>", "foo.bar.>")
    listed(sublist, "foo.*.*", "*.*.baz", "foo.bar.baz.x", "never.*.this.>")
    assert subjects_for(sublist, published) == expected
    assert subjects_for(sublist, published) == expected  # the second time from the cache


@pytest.mark.parametrize("published", ["", ".", ".foo", "foo.", "foo..bar", "..foo", "foo..."])
def test_empty_tokens_match_nothing(sublist: SubList, published: str) -> None:
    listed(sublist, ">", "*", "foo.>", "*.*", "*.*.*")
    sublist.insert(Subscription(">", "workers"))
    assert len(sublist.match(published)) == 0
    assert not sublist.has_interest(published)
    assert sublist.num_cache == 0


def test_published_wildcards_are_ordinary_tokens(sublist: SubList) -> None:
    """As nats-server answers, `PUB foo.*` reaches `foo.*` and `foo.>`, never `foo.bar`."""
    listed(sublist, "foo.*", "foo.>", "foo.bar", "foo.**", "*")
    for published in ("foo.*", "foo.>", "foo.x"):
        assert subjects_for(sublist, published) == ["foo.*", "foo.>"]
    assert subjects_for(sublist, "foo.**") == ["foo.*", "foo.**", "foo.>"]
    assert subjects_for(sublist, ">") == ["*"]


@pytest.mark.parametrize("subject", ["foo.*-", "foo.>-", "*foo", ">>.x"])
def test_wildcard_characters_inside_a_token_match_only_themselves(
    sublist: SubList, subject: str
) -> None:
    (sub,) = listed(sublist, subject)
    assert sublist.match("foo.bar").plain == ()
    assert sublist.match(subject).plain == (sub,)
    assert sublist.remove(sub)


def test_subjects_are_bytes(sublist: SubList) -> None:
    sub = Subscription(b"a.\xff\x00", sid=b"1")
    sublist.insert(sub)
    assert sublist.match(b"a.\xff\x00").plain == (sub,)
    assert sublist.match(b"a.\xff").plain == ()


# Queue groups


def test_queue_groups_are_merged_by_name_across_nodes(sublist: SubList) -> None:
    subs = [
        Subscription(subject, queue)
        for subject in ("foo.bar", "foo.*", ">")
        for queue in ("a", "b")
    ]
    for sub in subs:
        sublist.insert(sub)
    result = sublist.match("foo.bar")
    assert result.plain == ()
    assert {name: set(group) for name, group in result.queues.items()} == {
        "a": {sub for sub in subs if sub.queue == "a"},
        "b": {sub for sub in subs if sub.queue == "b"},
    }
    assert len(result) == 2


def test_an_emptied_group_is_gone(sublist: SubList) -> None:
    first, second = Subscription("foo", "q"), Subscription("foo", "q")
    sublist.insert(first)
    sublist.insert(second)
    sublist.remove(first)
    assert sublist.match("foo").queues == {"q": (second,)}
    sublist.remove(second)
    assert sublist.match("foo").queues == {}


@pytest.mark.parametrize("names", [1, 16, 17, 64, 65, 500])
def test_any_number_of_groups(sublist: SubList, names: int) -> None:
    sublist.match("foo.bar")
    for number in range(names):
        sublist.insert(Subscription("foo.bar", f"q{number}"))
        sublist.insert(Subscription("foo.*", f"q{number}"))
    groups = sublist.match("foo.bar").queues
    assert len(groups) == names
    assert all(len(group) == 2 for group in groups.values())


def test_a_remote_queue_subscription_stands_there_as_often_as_its_weight(sublist: SubList) -> None:
    local = [Subscription("foo", "bar") for _ in range(2)]
    remote = [Subscription("foo", "bar", weight=10) for _ in range(2)]
    sublist.match("foo")
    for sub in local + remote:
        sublist.insert(sub)
    assert sublist.count == 4
    assert len(sublist.match("foo").queues["bar"]) == 22
    assert sublist.num_interest("foo") == (0, 4)

    sublist.remove(local[0])
    sublist.remove(remote[0])
    assert len(sublist.match("foo").queues["bar"]) == 11

    sublist.update_weight(remote[1], 1)
    assert len(sublist.match("foo").queues["bar"]) == 2
    sublist.update_weight(remote[1], 0)
    assert sublist.match("foo").queues == {"bar": (local[1],)}
    sublist.remove(local[1])
    assert sublist.match("foo").queues == {}


def test_a_weight_is_bounded() -> None:
    assert Subscription("foo", "q", weight=2**31 - 1).weight == 65_536
    assert Subscription("foo", "q", weight=-1).weight == 0


# Remove


def test_removal_takes_out_exactly_one(sublist: SubList) -> None:
    subs = listed(sublist, "a.b.c", "a.b.c", "a.b.d", "a.*.c", "a.>")
    for sub in subs:
        assert sub in sublist.match("a.b.d" if sub.subject == "a.b.d" else "a.b.c").plain
        assert sublist.remove(sub)
        assert sub not in sublist.match("a.b.c").plain
    assert sublist.count == 0


def test_removing_what_was_never_inserted_is_no_error(sublist: SubList) -> None:
    listed(sublist, "foo", "foo.bar")
    assert not sublist.remove(Subscription("foo"))
    assert not sublist.remove(Subscription("never"))
    assert not sublist.remove(Subscription("foo..bar"))
    assert sublist.count == 2


def test_a_subscription_can_come_back(sublist: SubList) -> None:
    (sub,) = listed(sublist, "foo.*")
    for _ in range(3):
        assert sublist.remove(sub)
        assert sublist.match("foo.bar").plain == ()
        assert sublist.insert(sub)
        assert sublist.match("foo.bar").plain == (sub,)


def test_removing_many_from_one_subject_leaves_the_rest(sublist: SubList) -> None:
    subs = listed(sublist, *["foo"] * 300)
    for sub in subs[::2]:
        sublist.remove(sub)
        assert sub not in sublist
    assert set(sublist.match("foo").plain) == set(subs[1::2])


@pytest.mark.parametrize("count", [2, 2_000])
def test_a_batch_removes_what_is_there(sublist: SubList, count: int) -> None:
    subs = listed(sublist, *[f"foo.{number}" for number in range(count)])
    (kept,) = listed(sublist, "foo.*")
    sublist.match("foo.1")
    assert sublist.remove_batch([Subscription("not.there"), *subs, subs[0]]) == count
    assert sublist.subscriptions() == [kept]
    assert sublist.match("foo.1").plain == (kept,)


def test_clear_lets_go_of_everything(sublist: SubList) -> None:
    subs = listed(sublist, "a", "a.b", "*", ">")
    held = sublist.match("a")
    sublist.clear()
    assert sublist.count == 0
    assert sublist.match("a").plain == ()
    assert set(held.plain) == {subs[0], subs[2], subs[3]}
    assert all(sublist.insert(sub) for sub in subs)


# Interest


def test_interest(sublist: SubList) -> None:
    listed(sublist, "foo", "foo.*", "bar.>", "*.x.*")
    interesting = ["foo", "foo.bar", "bar.baz.x", "a.x.b"]
    boring = ["foo.bar.baz", "bar", "a.x", "", "foo."]
    for _ in range(2):  # the second time from the cache
        assert all(sublist.has_interest(subject) for subject in interesting)
        assert not any(sublist.has_interest(subject) for subject in boring)
        for subject in interesting + boring:
            sublist.match(subject)


def test_interest_is_counted_by_kind(sublist: SubList) -> None:
    listed(sublist, "foo", "foo", "*", ">")
    sublist.insert(Subscription("foo", "a"))
    sublist.insert(Subscription(">", "b", weight=7))
    assert sublist.num_interest("foo") == (4, 2)
    assert sublist.num_interest("bar") == (2, 1)
    assert sublist.num_interest("foo..bar") == (0, 0)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("foo", ["foo"]),
        ("*", ["bar", "foo"]),
        ("baz", []),
        ("foo.*", ["foo.bar", "foo.baz"]),
        ("*.*", ["foo.bar", "foo.baz"]),
        ("*.bar", ["foo.bar"]),
        ("bar.*", []),
        ("foo.>", ["foo.bar", "foo.bar.baz", "foo.baz"]),
        (">", ["bar", "foo", "foo.bar", "foo.bar.baz", "foo.baz", "up.*.*.>"]),
        ("up.1.*.*.>", ["up.*.*.>"]),
        ("up.1.2.3", ["up.*.*.>"]),
        ("up.1.2", []),
        ("foo..bar", []),
    ],
)
def test_reverse_match(sublist: SubList, pattern: str, expected: list[str]) -> None:
    listed(sublist, "foo", "bar", "foo.bar", "foo.baz", "foo.bar.baz", "up.*.*.>")
    found = sublist.reverse_match(pattern)
    assert sorted(sub.subject for sub in found.plain) == expected
    assert not found.live


def test_all_subscriptions_are_listed(sublist: SubList) -> None:
    subs = listed(sublist, "foo", "foo.bar", "foo.*", ">")
    subs += [Subscription("foo", "q"), Subscription("foo", "q"), Subscription("foo", "r")]
    for sub in subs[4:]:
        sublist.insert(sub)
    found = sublist.subscriptions()
    assert len(found) == len(subs)
    assert set(found) == set(subs)


@pytest.mark.parametrize("most", [1, 3, 7, 1000])
def test_subscriptions_are_listed_in_pages(sublist: SubList, most: int) -> None:
    """Pages have each subscription once, in the order of the whole list, if none comes or goes."""
    subs = listed(
        sublist, "foo", "foo.bar", "foo.*", ">", "foo.*.>", "*", *(f"x.{n}" for n in "ab")
    )
    for queue in ("q", "q", "r", None):
        subs.append(Subscription("foo", queue))
        sublist.insert(subs[-1])
    paged = list[Subscription]()
    for first in range(0, len(subs), most):
        paged += sublist.subscriptions(first, most)
    assert paged == sublist.subscriptions()
    assert {*paged} == {*subs}
    assert sublist.subscriptions(len(subs), most) == []
    assert sublist.subscriptions(0, 0) == []


# Long and many


@pytest.mark.parametrize("count", [255, 256, 2_000])
def test_subjects_of_many_tokens(sublist: SubList, count: int) -> None:
    """nats-server limits tokens only by the control line: 4,096 bytes hold 2,000 tokens."""
    long = ".".join(["x"] * count)
    stars = ".".join(["*"] * count)
    subs = listed(sublist, long, stars, stars[:-1] + ">", "x.>", "x.*", long + ".x")
    assert set(sublist.match(long).plain) == set(subs[:4])
    assert set(sublist.reverse_match(stars).plain) == set(subs[:4])
    assert len(sublist.subscriptions()) == len(subs)
    assert sublist.remove_batch(subs) == len(subs)


def test_long_tokens(sublist: SubList) -> None:
    subs = listed(sublist, "a" * 4_096, "a" * 4_095, "b." + "a" * 4_000)
    assert sublist.match("a" * 4_096).plain == (subs[0],)
    assert sublist.match("b." + "a" * 4_000).plain == (subs[2],)
