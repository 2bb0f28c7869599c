"""Streams of other accounts: subscriptions that get messages of an exporting account."""

from __future__ import annotations

import pytest

from tests.accounts.shared import account, service, serving, stream

EXPORTS = [{"stream": "foo.>"}]


@pytest.mark.parametrize(
    ("shared", "subscribed", "published", "seen"),
    [
        ({}, "foo.>", "foo.x.y", "foo.x.y"),
        ({}, ">", "foo.x", "foo.x"),
        ({}, "*.x", "foo.x", "foo.x"),
        ({"prefix": "a"}, "a.foo.*", "foo.x", "a.foo.x"),
        ({"prefix": "a."}, "a.>", "foo.x", "a.foo.x"),
        ({"to": "bar.>"}, "bar.*.y", "foo.x.y", "bar.x.y"),
        ({"to": "bar.>"}, "bar.x", "foo.x", "bar.x"),
        ({"prefix": "a"}, "foo.x", "foo.x", None),
        ({"to": "bar.>"}, "bar.x", "foo.y", None),
    ],
)
def test_which_subscriptions_get_which_messages(
    shared: dict[str, str], subscribed: str, published: str, seen: str | None
) -> None:
    with serving(A=account(exports=EXPORTS), B=account(stream("A", "foo.>", **shared))) as s:
        publisher, reader = s.join("A"), s.join("B")
        reader.subscribe(subscribed)
        publisher.pub(published)
        publisher.sync()
        assert reader.sync() == ([] if seen is None else [b"MSG %b 1 2\r\nhi\r\n" % seen.encode()])


def test_wildcards_change_places() -> None:
    shared = stream("A", "foo.*.*", to="bar.$2.$1")
    with serving(A=account(exports=EXPORTS), B=account(shared)) as s:
        publisher, reader = s.join("A"), s.join("B")
        reader.subscribe("bar.y.*")
        publisher.pub("foo.x.y")
        publisher.pub("foo.y.x")
        publisher.sync()
        assert reader.sync() == [b"MSG bar.y.x 1 2\r\nhi\r\n"]


def test_messages_of_an_account_stay_there_without_an_import() -> None:
    with serving(A=account(exports=EXPORTS), B=account()) as s:
        publisher, reader = s.join("A"), s.join("B")
        reader.subscribe(">")
        publisher.pub("foo.x")
        publisher.sync()
        assert reader.sync() == []


def test_an_imported_stream_is_not_exported_again() -> None:
    with serving(
        A=account(exports=EXPORTS),
        B=account(stream("A", "foo.>", to="bar.>"), exports=[{"stream": "bar.>"}]),
        C=account(stream("B", "bar.>")),
    ) as s:
        publisher, reader, beyond = s.join("A"), s.join("B"), s.join("C")
        reader.subscribe(">")
        beyond.subscribe(">")
        publisher.pub("foo.x")
        reader.read_message()
        assert beyond.sync() == []
        reader.pub("bar.own")
        reader.sync()
        assert beyond.sync() == [b"MSG bar.own 1 2\r\nhi\r\n"]


def test_auto_unsubscribe_counts_imported_and_own_messages() -> None:
    with serving(A=account(exports=EXPORTS), B=account(stream("A", "foo.>"))) as s:
        publisher, reader = s.join("A"), s.join("B")
        reader.send(b"SUB foo.* 1\r\nUNSUB 1 3\r\n")
        reader.pub("foo.own")
        assert len(reader.sync()) == 1
        for _ in range(4):
            publisher.pub("foo.x")
        publisher.sync()
        assert len(reader.sync()) == 2
        assert len(s.server.accounts["A"].sublist) == len(s.server.accounts["B"].sublist)


def test_subscriptions_leave_the_exporting_account_with_their_connection() -> None:
    with serving(A=account(exports=EXPORTS), B=account(stream("A", "foo.>"))) as s:
        sublist = s.server.accounts["A"].sublist
        before = len(sublist)
        reader = s.join("B")
        for sid in range(1, 51):
            reader.send(b"SUB foo.%d %d\r\n" % (sid, sid))
        reader.sync()
        assert len(sublist) == before + 50
        reader.send(b"UNSUB 7\r\n")
        reader.sync()
        assert len(sublist) == before + 49
        reader.close()
        watcher = s.join("B")
        while len(sublist) != before:
            watcher.sync()


def test_queue_groups_of_both_accounts_are_one() -> None:
    with serving(A=account(exports=EXPORTS), B=account(stream("A", "foo.>"))) as s:
        publisher = s.join("A")
        members = [s.join("A"), s.join("B"), s.join("B")]
        for member in members:
            member.subscribe("foo.x", queue="q")
        for _ in range(200):
            publisher.pub("foo.x")
        publisher.sync()
        counts = [len(member.sync()) for member in members]
        assert sum(counts) == 200
        assert all(counts)


def test_headers_are_delivered_as_they_are() -> None:
    with serving(A=account(exports=EXPORTS), B=account(stream("A", "foo.>", to="bar.>"))) as s:
        publisher, reader = s.join("A"), s.join("B")
        reader.subscribe("bar.x")
        publisher.publish("foo.x", {"K": "v"}, b"data")
        assert reader.read_message() == b"HMSG bar.x 1 18 22\r\nNATS/1.0\r\nK: v\r\n\r\ndata\r\n"


def test_a_large_message_reaches_all_importers() -> None:
    with serving(
        A=account(exports=EXPORTS),
        B=account(stream("A", "foo.>", prefix="b")),
        C=account(stream("A", "foo.>", prefix="c")),
    ) as s:
        publisher, readers = s.join("A"), [s.join("B"), s.join("C")]
        for reader in readers:
            reader.subscribe(">")
        data = b"x" * 300_000
        publisher.pub("foo.x", data)
        for reader, name in zip(readers, ("b", "c"), strict=True):
            got = reader.got()
            assert (got.subject, got.data) == (f"{name}.foo.x", data)


def test_interest_of_importers_is_interest_in_the_exporting_account() -> None:
    with serving(A=account(exports=EXPORTS), B=account(stream("A", "foo.>", to="bar.>"))) as s:
        seen: list[tuple[bytes, bytes | None, int, int]] = []
        sublist = s.server.accounts["A"].sublist
        s.call(lambda: sublist.observe(lambda *change: seen.append(change)))
        reader = s.join("B")
        reader.subscribe("bar.x", 1)
        reader.subscribe("bar.x", 2)
        reader.send(b"UNSUB 1\r\nUNSUB 2\r\n")
        reader.sync()
        assert seen == [
            (b"foo.x", None, 0, 1),
            (b"foo.x", None, 1, 2),
            (b"foo.x", None, 2, 1),
            (b"foo.x", None, 1, 0),
        ]


def test_what_came_through_a_service_import_is_not_passed_on() -> None:
    with serving(
        A=account(exports=[{"service": "foo.s"}, {"stream": "foo.>"}]),
        B=account(service("A", "foo.s"), stream("A", "foo.>", prefix="a")),
    ) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("foo.>")
        requestor.subscribe("a.>")
        requestor.pub("foo.s")
        assert responder.got().subject == "foo.s"
        assert requestor.sync() == []
