"""Traces of messages that pass from one account into another (ADR-41)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.accounts.shared import Member, account, service, serving, stream
from tests.clients.traces import DESTINATION, ONLY, TO

STREAM = {"stream": "foo.>"}
SERVICE = {"service": "svc"}


def events(reader: Member) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(reader.got().data)["events"]
    for event in found:
        event.pop("ts")
    return found


def came_in(member: Member, name: str, subject: str) -> dict[str, Any]:
    return {"type": "in", "kind": 0, "cid": member.cid, "acc": name, "subj": subject}


def went_out(member: Member, sub: str, **more: Any) -> dict[str, Any]:
    return {"type": "eg", "kind": 0, "cid": member.cid, **more, "sub": sub}


@pytest.mark.parametrize("is_only", [False, True])
@pytest.mark.parametrize("allow_trace", [False, True])
def test_a_stream_import(allow_trace: bool, is_only: bool) -> None:
    shared = stream("A", "foo.>", to="bar.>", allow_trace=allow_trace)
    with serving(A=account(exports=[STREAM]), B=account(shared)) as s:
        publisher, reader, tracer = s.join("A"), s.join("B"), s.join("A")
        reader.subscribe("bar.*")
        tracer.subscribe(TO)
        headers = {DESTINATION: TO} | ({ONLY: "true"} if is_only else {})
        publisher.publish("foo.x", headers)
        expected = [came_in(publisher, "A", "foo.x"), {"type": "se", "acc": "B", "to": "bar.x"}]
        if allow_trace:
            expected.append(went_out(reader, "bar.*", acc="B"))
        assert events(tracer) == expected
        assert len(reader.sync()) == (not is_only)


@pytest.mark.parametrize("is_only", [False, True])
@pytest.mark.parametrize("allow_trace", [False, True])
def test_a_service_import(allow_trace: bool, is_only: bool) -> None:
    export = {**SERVICE, "allow_trace": allow_trace}
    with serving(A=account(exports=[export]), B=account(service("A", "svc", to="my"))) as s:
        responder, requestor, tracer = s.join("A"), s.join("B"), s.join("B")
        responder.subscribe("svc")
        tracer.subscribe(TO)
        requestor.subscribe("in")
        headers = {DESTINATION: TO} | ({ONLY: "true"} if is_only else {})
        requestor.publish("my", headers, reply="in")
        crossing = {"type": "si", "acc": "A", "from": "my", "to": "svc"}
        expected = [came_in(requestor, "B", "my"), crossing]
        if allow_trace:
            expected.append(went_out(responder, "svc", acc="A"))
        assert events(tracer) == expected
        if is_only:
            assert responder.sync() == []
            assert (s.pending("A"), s.awaited("B")) == (0, 0)
            return
        request = responder.got()
        dest = "Nats-Trace-Dest: trace disabled\r\n" in request.headers
        assert dest is not allow_trace
        responder.pub(request.reply, b"yes")
        assert requestor.got().data == b"yes"


def test_a_traced_response_is_not_followed_into_the_requestors_account() -> None:
    with serving(A=account(exports=[SERVICE]), B=account(service("A", "svc"))) as s:
        responder, requestor, tracer = s.join("A"), s.join("B"), s.join("A")
        responder.subscribe("svc")
        tracer.subscribe(TO)
        requestor.subscribe("in")
        requestor.request("svc", "in")
        reply = responder.got().reply
        responder.publish(reply, {DESTINATION: TO})
        crossing = {"type": "si", "acc": "B", "from": reply, "to": "in"}
        assert events(tracer) == [came_in(responder, "A", reply), crossing]
        response = requestor.got()
        assert response.headers == "NATS/1.0\r\nNats-Trace-Dest: trace disabled\r\n\r\n"


def test_a_subject_mapping() -> None:
    with serving(A=account(mappings={"a.*": "b.$1"})) as s:
        publisher, reader = s.join("A"), s.join("A")
        reader.subscribe("b.>")
        tracer = s.join("A")
        tracer.subscribe(TO)
        publisher.publish("a.x", {DESTINATION: TO})
        assert events(tracer) == [
            came_in(publisher, "A", "a.x"),
            {"type": "sm", "to": "b.x"},
            went_out(reader, "b.>"),
        ]
        assert reader.got().subject == "b.x"


def test_a_client_without_echo_does_not_get_its_own_messages_back() -> None:
    with serving(A=account(exports=[STREAM]), B=account(stream("A", "foo.>"))) as s:
        member = s.join("A", echo=False)
        member.subscribe("foo.>")
        member.pub("foo.x")
        assert member.sync() == []


def test_each_account_has_its_own_trace_destination() -> None:
    parent = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    with serving(A=account(msg_trace="t.a"), B=account(msg_trace="t.b"), C=account()) as s:
        for name, seen in (("A", "t.a"), ("B", "t.b")):
            publisher, tracer = s.join(name), s.join(name)
            tracer.subscribe("t.>")
            publisher.publish("x", parent)
            assert tracer.got().subject == seen
        publisher, tracer = s.join("C"), s.join("C")
        tracer.subscribe("t.>")
        publisher.publish("x", parent)
        assert tracer.sync() == []
