"""Settings of accounts change while messages flow."""

from __future__ import annotations

from tests.accounts.shared import account, service, serving, stream

EXPORTS = [{"stream": "foo.>"}, {"service": "svc"}]


def test_an_export_that_becomes_private_is_lost_at_once_and_comes_back() -> None:
    imports = account(stream("A", "foo.>"), service("A", "svc"))
    with serving(A=account(exports=EXPORTS), B=imports, C=account()) as s:
        inside, outside = s.join("A"), s.join("B")
        outside.subscribe("foo.>")
        outside.subscribe("in", 2)
        inside.subscribe("svc")
        private = [{"stream": "foo.>", "accounts": ["C"]}, {"service": "svc", "accounts": ["C"]}]
        for exports, is_allowed in (
            (EXPORTS, True),
            (private, False),
            (EXPORTS, True),
            ([], False),
        ):
            s.configure(A=account(exports=exports))
            inside.pub("foo.x")
            inside.sync()
            assert len(outside.sync()) == is_allowed
            outside.request("svc", "in")
            answers = outside.sync()
            assert len(inside.sync()) == is_allowed
            assert [b"503" in answer for answer in answers] == ([] if is_allowed else [True])


def test_an_import_that_did_not_change_drops_nothing() -> None:
    imports = stream("A", "foo.>")
    with serving(A=account(exports=EXPORTS), B=account(imports), C=account()) as s:
        publisher, reader = s.join("A"), s.join("B")
        reader.subscribe("foo.>")
        links = s.server.links
        assert links is not None
        before = s.server.accounts["A"].sublist.match("foo.x").plain
        s.configure(B=account(imports, service("A", "svc")))
        s.configure(
            A=account(exports=[*EXPORTS, {"stream": "more"}]), C=account(stream("A", "more"))
        )
        assert s.server.accounts["A"].sublist.match("foo.x").plain == before
        publisher.pub("foo.x")
        publisher.sync()
        assert len(reader.sync()) == 1


def test_a_request_under_way_is_answered_after_a_change() -> None:
    with serving(A=account(exports=EXPORTS), B=account(service("A", "svc"))) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("svc")
        requestor.subscribe("in")
        requestor.request("svc", "in")
        request = responder.got()
        s.configure(A=account(exports=[{"service": "svc", "response_type": "stream"}]))
        responder.pub(request.reply, b"yes")
        assert requestor.got().data == b"yes"


def test_a_deleted_account_takes_its_imports_and_exports_along() -> None:
    with serving(
        A=account(exports=EXPORTS),
        B=account(stream("A", "foo.>"), service("A", "svc"), exports=[{"stream": "b.>"}]),
        C=account(stream("B", "b.>")),
    ) as s:
        a, b, c = s.join("A"), s.join("B"), s.join("C")
        b.subscribe("foo.>")
        c.subscribe("b.>")
        a.subscribe("svc")
        sizes = [len(s.server.accounts[name].sublist) for name in "AC"]
        links = s.server.links
        assert links is not None
        s.call(lambda: links.remove(["B"]))
        a.pub("foo.x")
        b.pub("b.x")
        b.pub("svc")
        assert [peer.sync() for peer in (a, b, c)] == [[], [], []]
        assert len(s.server.accounts["A"].sublist) == sizes[0] - 1
        assert s.server.accounts["B"].entry is None


def test_mappings_come_and_go_for_connected_clients() -> None:
    with serving(A=account(), B=account(mappings={"x": "y"})) as s:
        member = s.join("A")
        member.subscribe(">")
        for mappings, seen in (
            ({}, "a.1"),
            ({"a.*": "b.$1"}, "b.1"),
            ({"a.1": "c"}, "c"),
            ({}, "a.1"),
        ):
            s.configure(A=account(mappings=mappings))
            member.pub("a.1")
            assert member.got().subject == seen


def test_many_subscriptions_are_linked_and_unlinked_in_slices() -> None:
    count = 3000
    with serving(A=account(exports=EXPORTS), B=account(), C=account(mappings={"x": "y"})) as s:
        reader = s.join("B")
        reader.send(b"".join(b"SUB foo.%d %d\r\n" % (sid, sid) for sid in range(1, count + 1)))
        reader.sync()
        sublist = s.server.accounts["A"].sublist
        before = len(sublist)
        s.configure(B=account(stream("A", "foo.>")))
        while len(sublist) != before + count:
            reader.sync()
        s.configure(B=account())
        publisher = s.join("A")
        publisher.pub(f"foo.{count}")
        publisher.sync()
        assert reader.sync() == []
        while len(sublist) != before:
            reader.sync()
