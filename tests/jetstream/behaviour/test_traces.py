"""Traced messages that streams accept or refuse (ADR-41)."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tests.jetstream.behaviour.api import Api
from tests.jetstream.behaviour.conftest import AnyTarget, Connect

TO: Final = "t.here"
DEADLINE_S: Final = 20.0
DISABLED: Final = "trace disabled"


class Traced:
    """A client that publishes traced messages, and reads the traces and answers."""

    def __init__(self, nc: Client, traces: Subscription, answers: Subscription) -> None:
        self.nc = nc
        self.traces = traces
        self.answers = answers

    async def publish(
        self,
        subject: str,
        headers: dict[str, str] | None = None,
        data: bytes = b"hello",
        *,
        only: bool,
        reply: str = "a.answer",
    ) -> list[dict[str, Any]]:
        """Publish a traced message and return the events without times and connection data."""
        asked = {"Nats-Trace-Dest": TO, **(headers or {})} | (
            {"Nats-Trace-Only": "true"} if only else {}
        )
        await self.nc.publish(subject, data, reply, headers=asked)
        trace = json.loads((await self.traces.next_msg(DEADLINE_S)).data)
        for event in trace["events"]:
            for name in ("ts", "kind", "cid", "acc", "name"):
                event.pop(name, None)
        events: list[dict[str, Any]] = trace["events"]
        assert events.pop(0) == {"type": "in", "subj": subject}
        return events

    async def answer(self) -> Msg:
        return await self.answers.next_msg(DEADLINE_S)

    async def no_answer(self, api: Api) -> None:
        """Check that no answer came before the answer to a later request."""
        await api.ok("INFO")
        await self.nc.flush()
        assert self.answers.pending_msgs == 0


@pytest.fixture
async def traced(server: AnyTarget, connect: Connect) -> Traced:
    nc = await connect(server)
    return Traced(nc, await nc.subscribe("t.>"), await nc.subscribe("a.>"))


async def stored(api: Api, stream: str = "S", sequence: int = 1) -> tuple[str, str]:
    """Return a message's subject and header block."""
    message = (await api.ok(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))["message"]
    return message["subject"], base64.b64decode(message.get("hdrs", "")).decode()


async def count(api: Api, stream: str = "S") -> tuple[int, int]:
    state = await api.stream_state(stream)
    return state["messages"], state["last_seq"]


async def test_trace_only_stores_nothing_and_is_not_answered(api: Api, traced: Traced) -> None:
    await api.create_stream("S", subjects=["foo"], subject_transform={"src": "foo", "dest": "bar"})
    expected = [{"type": "js", "stream": "S", "subject": "bar"}]
    assert await traced.publish("foo", only=True) == expected
    await traced.no_answer(api)
    assert await count(api) == (0, 0)
    assert await traced.publish("foo", {"X": "y"}, only=False) == expected
    assert json.loads((await traced.answer()).data) == {"stream": "S", "seq": 1}
    subject, headers = await stored(api)
    assert subject == "bar"
    assert headers == f"NATS/1.0\r\nNats-Trace-Dest: {DISABLED}\r\nX: y\r\n\r\n"


LAST_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence"
OF_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
LAST: Final = "Nats-Expected-Last-Sequence"
LARGEST: Final = 2**64 - 1


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"Nats-Expected-Stream": "X"}, "expected stream does not match"),
        ({"Nats-Msg-Id": "MyId"}, "msgid is duplicate"),
        ({LAST_SUBJECT: "10"}, "last sequence by subject mismatch: 10 vs 1"),
        ({LAST_SUBJECT: "x"}, f"last sequence by subject mismatch: {LARGEST} vs 1"),
        ({LAST_SUBJECT: "9", OF_SUBJECT: "b.*"}, "last sequence by subject mismatch: 9 vs 0"),
        (
            {OF_SUBJECT: "bar"},
            "missing sequence for expected last sequence per subject (10193)",
        ),
        ({LAST: "10"}, "last sequence mismatch: 10 vs 2"),
        ({LAST_SUBJECT: "1", LAST: "7"}, "last sequence mismatch: 7 vs 2"),
        ({LAST_SUBJECT: "2", LAST: "7"}, "last sequence by subject mismatch: 2 vs 1"),
        ({"Nats-Expected-Last-Msg-Id": "other"}, 'last msgid mismatch: "other" vs ""'),
        ({"Nats-Rollup": "wrong"}, 'rollup value invalid: "wrong"'),
        ({"Nats-TTL": "1h"}, "message TTL disabled"),
        ({"Nats-Incr": "+1"}, "message counters is disabled (10168)"),
        ({"Nats-Schedule": "@at 2030-01-01T00:00:00Z"}, "message schedules is disabled (10188)"),
        ({"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}, "atomic publish is disabled (10174)"),
    ],
)
async def test_why_a_stream_refuses(
    api: Api, traced: Traced, headers: dict[str, str], error: str
) -> None:
    await api.create_stream("S", subjects=["foo", "bar"], allow_rollup_hdrs=True)
    await traced.nc.publish("foo", b"1", "a.answer", headers={"Nats-Msg-Id": "MyId"})
    await traced.nc.publish("bar", b"2", "a.answer")
    await traced.answer()
    await traced.answer()
    for only in (True, False):
        assert await traced.publish("foo", headers, only=only) == [
            {"type": "js", "stream": "S", "error": error}
        ]
        answer = json.loads((await traced.answer()).data)
        assert "error" in answer or answer["duplicate"]
    assert await count(api) == (2, 2)


@pytest.mark.parametrize(
    ("settings", "headers", "data", "error"),
    [
        ({"max_msg_size": 100}, {}, b"x" * 200, "maximum payload exceeded"),
        ({}, {"Nats-Rollup": "sub"}, b"", "rollup not permitted"),
        ({}, {"X": "y" * 70_000}, b"", "maximum payload exceeded"),
        (
            {"allow_msg_counter": True},
            {},
            b"",
            "message counter increment is missing (10169)",
        ),
        (
            {"allow_msg_counter": True},
            {"Nats-Incr": "+5"},
            b"x",
            "message counter has payload (10170)",
        ),
        (
            {"allow_msg_schedules": True},
            {"Nats-Schedule": "@at x", "Nats-Schedule-Target": "bar"},
            b"",
            "message schedules pattern is invalid (10189)",
        ),
    ],
)
async def test_what_a_stream_does_not_take(
    api: Api,
    traced: Traced,
    settings: dict[str, Any],
    headers: dict[str, str],
    data: bytes,
    error: str,
) -> None:
    await api.create_stream("S", subjects=["foo", "bar"], **settings)
    for only in (True, False):
        assert await traced.publish("foo", headers, data, only=only) == [
            {"type": "js", "stream": "S", "error": error}
        ]
        assert "error" in json.loads((await traced.answer()).data)
    assert await count(api) == (0, 0)


@pytest.mark.parametrize(
    ("settings", "headers", "error"),
    [
        ({"max_msgs": 1, "discard": "new"}, {}, "maximum messages exceeded"),
        ({"max_bytes": 10, "discard": "new"}, {}, "maximum bytes exceeded"),
        (
            {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
            {},
            "maximum messages per subject exceeded",
        ),
        ({"allow_msg_ttl": True}, {"Nats-TTL": "bad"}, "invalid per-message TTL (10165)"),
    ],
)
async def test_what_a_stream_has_no_room_for(
    api: Api, traced: Traced, settings: dict[str, Any], headers: dict[str, str], error: str
) -> None:
    """nats-server reports this only for messages to be stored, not with trace-only."""
    await api.create_stream("S", subjects=["foo"], **settings)
    if "max_msgs" in settings or "max_msgs_per_subject" in settings:
        await api.publish("foo", b"1")
    before = await count(api)
    assert await traced.publish("foo", headers, only=False) == [
        {"type": "js", "stream": "S", "subject": "foo", "error": error}
    ]
    assert "error" in json.loads((await traced.answer()).data)
    assert await count(api) == before


@pytest.mark.natsd_only
async def test_trace_only_tells_that_there_is_no_room(api: Api, traced: Traced) -> None:
    await api.create_stream("S", subjects=["foo"], max_bytes=10, discard="new")
    (event,) = await traced.publish("foo", only=True)
    assert event["error"] == "maximum bytes exceeded"
    assert json.loads((await traced.answer()).data)["error"]["err_code"] == 10077


async def test_a_sealed_stream(api: Api, traced: Traced) -> None:
    config = (await api.create_stream("S", subjects=["foo"]))["config"]
    await api.ok("STREAM.UPDATE.S", config | {"sealed": True})
    for only in (True, False):
        (event,) = await traced.publish("foo", only=only)
        assert event["error"] == "invalid operation on sealed stream (10109)"
        assert json.loads((await traced.answer()).data)["error"]["err_code"] == 10109


async def test_a_stream_that_does_not_answer(api: Api, traced: Traced) -> None:
    await api.create_stream("S", subjects=["foo"], no_ack=True)
    for only in (True, False):
        (event,) = await traced.publish("foo", {LAST: "10"}, only=only)
        assert event["error"] == "last sequence mismatch: 10 vs 0"
    (event,) = await traced.publish("foo", only=False)
    assert event == {"type": "js", "stream": "S", "subject": "foo"}
    await traced.no_answer(api)
    assert await count(api) == (1, 1)


async def test_a_stream_without_interest(api: Api, traced: Traced) -> None:
    await api.create_stream("S", subjects=["foo"], retention="interest")
    for only in (True, False):
        assert await traced.publish("foo", only=only) == [
            {"type": "js", "stream": "S", "subject": "foo", "nointerest": True}
        ]
        assert await count(api) == ((0, 0) if only else (0, 1))


async def test_counters(api: Api, traced: Traced) -> None:
    await api.create_stream("S", subjects=["foo"], allow_msg_counter=True)
    for only in (True, False):
        assert await traced.publish("foo", {"Nats-Incr": "+5"}, b"", only=only) == [
            {"type": "js", "stream": "S", "subject": "foo"}
        ]
    assert json.loads((await traced.answer()).data)["val"] == "5"


async def test_other_readers_are_told_of_too(
    api: Api, traced: Traced, server: AnyTarget, connect: Connect
) -> None:
    await api.create_stream("S", subjects=["foo"])
    reader = await connect(server)
    plain, queued = await reader.subscribe("foo"), await reader.subscribe("foo", "g")
    await reader.flush()
    events = [
        {"type": "js", "stream": "S", "subject": "foo"},
        {"type": "eg", "sub": "foo"},
        {"type": "eg", "sub": "foo", "queue": "g"},
    ]
    for only in (True, False):
        found = await traced.publish("foo", only=only)
        assert sorted(found, key=str) == sorted(events, key=str)
    for subscription in (plain, queued):
        message = await subscription.next_msg(DEADLINE_S)
        assert message.headers == {"Nats-Trace-Dest": TO}
        assert subscription.pending_msgs == 0


async def test_what_goes_on_from_a_stream_is_not_traced_again(
    api: Api, traced: Traced, server: AnyTarget, connect: Connect
) -> None:
    await api.create_stream("S", subjects=["foo"], republish={"src": ">", "dest": "rep.>"})
    await api.ok("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}})
    await api.ok("STREAM.CREATE.C", {"name": "C", "sources": [{"name": "S"}]})
    await api.ok(
        "CONSUMER.CREATE.S.P",
        {"stream_name": "S", "config": {"durable_name": "P", "deliver_subject": "deliver"}},
    )
    reader = await connect(server)
    again, delivered = await reader.subscribe("rep.>"), await reader.subscribe("deliver")
    await reader.flush()
    await traced.publish("foo", only=True)
    await traced.publish("foo", only=False)
    for subscription in (again, delivered):
        headers = (await subscription.next_msg(DEADLINE_S)).headers
        assert headers is not None
        assert headers["Nats-Trace-Dest"] == DISABLED
    for stream in ("M", "C"):
        await api.until_messages(stream, 1)
        assert f"\r\nNats-Trace-Dest: {DISABLED}\r\n" in (await stored(api, stream))[1]
    await traced.nc.flush()
    assert traced.traces.pending_msgs == 0


async def test_batches(api: Api, traced: Traced) -> None:
    await api.create_stream("S", subjects=["foo"], allow_atomic=True)
    batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    event = {"type": "js", "stream": "S", "subject": "foo"}
    assert await traced.publish("foo", batch, only=True) == [event]
    assert await count(api) == (0, 0)
    assert await traced.publish("foo", batch, only=False) == [event]
    answer = json.loads((await traced.answer()).data)
    assert answer == {"stream": "S", "seq": 1, "batch": "b", "count": 1}
    (event,) = await traced.publish("foo", batch | {"Nats-Batch-Sequence": "7"}, only=False)
    assert event["error"] == "atomic publish batch is incomplete (10176)"


@pytest.mark.natsd_only
async def test_a_batch_takes_nothing_of_a_trace_only_message(api: Api, traced: Traced) -> None:
    """nats-server takes a trace-only message as the batch's first message."""
    await api.create_stream("S", subjects=["foo"], allow_atomic=True)
    first = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
    await traced.publish("foo", first, only=True)
    await traced.no_answer(api)
    second = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    (event,) = await traced.publish("foo", second, only=False)
    assert event["error"] == "atomic publish batch is incomplete (10176)"


@pytest.mark.natsd_only
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_fast_batches(api: Api, traced: Traced, is_allowed: bool) -> None:
    await api.create_stream("S", subjects=["foo"], allow_batched=is_allowed)
    reply = "a.id.5.fail.1.2.$FI"
    event: dict[str, Any] = {"type": "js", "stream": "S"}
    event |= {"subject": "foo"} if is_allowed else {"error": "batch publish is disabled (10205)"}
    for only in (True, False):
        assert await traced.publish("foo", only=only, reply=reply) == [event]
        assert await count(api) == ((1, 1) if is_allowed and not only else (0, 0))


async def test_requests_are_services_of_the_system_account(api: Api, traced: Traced) -> None:
    """Requests are traced as services of the system account.

    With trace-only they are not carried out: there are no responders.
    """
    await api.create_stream("S", subjects=["foo"])
    await api.publish("foo")
    subject = "$JS.API.STREAM.PURGE.S"
    service = {"type": "si", "from": subject, "to": subject}
    assert await traced.publish(subject, None, b"", only=True) == [service]
    headers = (await traced.answer()).headers
    assert headers is not None
    assert headers["Status"] == "503"
    assert await count(api) == (1, 1)
    assert await traced.publish(subject, None, b"", only=False) == [service]
    assert json.loads((await traced.answer()).data)["purged"] == 1


@pytest.mark.natsd_only
async def test_trace_only_acknowledges_and_asks_for_nothing(api: Api, traced: Traced) -> None:
    """nats-server carries out both."""
    await api.create_stream("S", subjects=["foo"], allow_direct=True)
    await api.ok(
        "CONSUMER.CREATE.S.C",
        {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}},
    )
    await api.publish("foo")
    for subject, data in (("CONSUMER.MSG.NEXT.S.C", b"1"), ("DIRECT.GET.S.foo", b"")):
        assert await traced.publish(f"$JS.API.{subject}", None, data, only=True) == []
    await traced.no_answer(api)
    await traced.nc.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", "a.next")
    message = await traced.answer()
    assert await traced.publish(message.reply, None, b"+ACK", only=True) == []
    await traced.no_answer(api)
    assert (await api.ok("CONSUMER.INFO.S.C"))["num_ack_pending"] == 1
    assert await traced.publish(message.reply, None, b"+ACK", only=False) == []
    await traced.answer()
    assert (await api.ok("CONSUMER.INFO.S.C"))["num_ack_pending"] == 0
