"""Metrics of the latency of exported services (nats-server's ServiceLatency)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from natsd.accounts.service_latency import triggering_headers
from tests.accounts.shared import Member, account, service, serving

EXPORT = {"service": "svc", "latency": "lat"}


def metric(reader: Member) -> dict[str, Any]:
    """Return the next metric, without what differs from run to run."""
    got: dict[str, Any] = json.loads(reader.got().data)
    assert got.pop("type") == "io.nats.server.metric.v1.service_latency"
    assert len(got.pop("id")) == 22
    assert got.pop("timestamp").endswith("Z")
    assert got.pop("start").endswith("Z")
    for side in ("requestor", "responder"):
        if side in got:
            assert got[side].pop("rtt") > 0
    return got


def test_an_answered_request_has_status_200_and_its_times() -> None:
    with serving(A=account(exports=[EXPORT]), B=account(service("A", "svc"))) as s:
        responder, requestor, reader = s.join("A", name="r"), s.join("B"), s.join("A")
        responder.subscribe("svc")
        reader.subscribe("lat")
        requestor.subscribe("in")
        requestor.request("svc", "in")
        responder.pub(responder.got().reply, b"yes")
        found = metric(reader)
        assert list(found) == ["status", "requestor", "responder", "service", "system", "total"]
        assert (found["status"], found["requestor"]) == (200, {"acc": "B"})
        told = found["responder"]
        assert (told["id"], told["acc"], told["name"]) == (responder.cid, "A", "r")
        assert found["total"] >= found["service"] >= 0
        assert found["system"] >= 0


def test_an_import_that_shares_tells_of_the_requestor() -> None:
    with serving(A=account(exports=[EXPORT]), B=account(service("A", "svc", share=True))) as s:
        responder, requestor, reader = s.join("A"), s.join("B", name="q"), s.join("A")
        responder.subscribe("svc")
        reader.subscribe("lat")
        requestor.subscribe("in")
        requestor.request("svc", "in")
        responder.pub(responder.got().reply, b"yes")
        told = metric(reader)["requestor"]
        assert (told["id"], told["name"], told["kind"]) == (requestor.cid, "q", "Client")


def test_requests_that_are_not_answered() -> None:
    short = {"service": "slow", "threshold": "30ms", "latency": "lat"}
    with serving(
        A=account(exports=[EXPORT, short]), B=account(service("A", "svc"), service("A", "slow"))
    ) as s:
        responder, requestor, reader = s.join("A"), s.join("B"), s.join("A")
        reader.subscribe("lat")
        requestor.subscribe("in")
        requestor.request("svc", "in")
        assert metric(reader) == failed(503, "Service Unavailable")
        requestor.pub("svc")
        assert metric(reader) == failed(400, "Bad Request")
        responder.subscribe("svc")
        responder.subscribe("slow", 2)
        requestor.send(b"SUB in.2 2\r\nPUB svc in.2 1\r\n?\r\nPING\r\n")
        responder.read_message()
        requestor.send(b"UNSUB 2\r\n")
        assert metric(reader) == failed(408, "Request Timeout")
        requestor.request("slow", "in")
        assert metric(reader) == failed(504, "Service Timeout")


def failed(status: int, description: str) -> dict[str, Any]:
    return {
        "status": status,
        "description": description,
        "requestor": {"acc": "B"},
        "service": 0,
        "system": 0,
        "total": 0,
    }


def test_headers_decide_if_the_sampling_says_so() -> None:
    export = {"service": "svc", "latency": {"sampling": "headers", "subject": "lat"}}
    with serving(A=account(exports=[export]), B=account(service("A", "svc"))) as s:
        responder, requestor, reader = s.join("A"), s.join("B"), s.join("A")
        responder.subscribe("svc")
        reader.subscribe("lat")
        requestor.subscribe("in")
        for headers in ({}, {"X-B3-Sampled": "0"}, {"X-B3-Sampled": "1", "Other": "x"}):
            requestor.publish("svc", headers or {"Other": "x"}, reply="in")
            responder.pub(responder.got().reply, b"yes")
            requestor.read_message()
        assert metric(reader)["header"] == {"X-B3-Sampled": ["1"]}
        responder.sync()
        assert reader.sync() == []


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"


@pytest.mark.parametrize(
    ("headers", "chosen"),
    [
        ({}, {}),
        (
            {"Uber-Trace-Id": "1:2:3:1", "Uberctx-X": "y"},
            {"Uber-Trace-Id": "1:2:3:1", "Uberctx-X": "y"},
        ),
        ({"Uber-Trace-Id": "1:2:3:0"}, {}),
        ({"Uber-Trace-Id": "1:2:3"}, {}),
        ({"X-B3-TraceId": "80f198ee56343ba8"}, {"X-B3-Traceid": "80f198ee56343ba8"}),
        ({"X-B3-TraceId": "80f198ee56343ba8", "X-B3-Sampled": "0"}, {}),
        (
            {"b3": "80f198ee56343ba8-e457b5a2e4d86bd1-1"},
            {"B3": "80f198ee56343ba8-e457b5a2e4d86bd1-1"},
        ),
        ({"b3": "0"}, {}),
        ({"b3": "80f198ee56343ba8-e457b5a2e4d86bd1-0"}, {}),
        (
            {"traceparent": PARENT + "1", "tracestate": "s"},
            {"Traceparent": PARENT + "1", "Tracestate": "s"},
        ),
        ({"traceparent": PARENT + "0"}, {}),
        ({"traceparent": "nonsense"}, {}),
    ],
)
def test_which_headers_request_a_measurement(
    headers: dict[str, str], chosen: dict[str, str]
) -> None:
    block = "NATS/1.0\r\n" + "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    found = triggering_headers((block + "\r\n").encode())
    assert found == {name: [text] for name, text in chosen.items()}
