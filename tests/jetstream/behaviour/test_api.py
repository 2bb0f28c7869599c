"""Answers of the API: empty and odd requests, levels, strictness, paging and account info."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from nats.errors import NoRespondersError

from tests.jetstream.behaviour.api import SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

EMPTY_BODY_ONLY = (
    "INFO",
    "STREAM.DELETE.S",
    "CONSUMER.INFO.S.C",
    "CONSUMER.DELETE.S.C",
)


@pytest.mark.parametrize("subject", EMPTY_BODY_ONLY)
async def test_no_body_wanted(api: Api, subject: str) -> None:
    """A body where none belongs is answered 10038."""
    await api.create_stream("S")
    await api.create_consumer("S", "C")
    response = json.loads((await api.raw(subject, b'{"x":1}')).data)
    if subject == "INFO":
        assert "error" not in response
    else:
        assert response["error"]["err_code"] == 10038


BODIES = (b"{", b"[]", b'"x"', b"1", b"\x00\xff", b"null x", b'{"name":1}', b"{}{}", b" ")
JSON_SUBJECTS = (
    "STREAM.CREATE.S",
    "STREAM.UPDATE.S",
    "STREAM.PURGE.S",
    "STREAM.MSG.GET.S",
    "STREAM.MSG.DELETE.S",
    "CONSUMER.CREATE.S.C",
    "CONSUMER.CREATE.S",
    "CONSUMER.DURABLE.CREATE.S.C",
    "CONSUMER.PAUSE.S.C",
    "STREAM.NAMES",
    "STREAM.LIST",
    "CONSUMER.NAMES.S",
    "CONSUMER.LIST.S",
)


@pytest.mark.parametrize("subject", JSON_SUBJECTS)
async def test_what_is_no_request(api: Api, subject: str) -> None:
    """Broken requests are answered 10025 or similar, and change nothing."""
    await api.create_stream("S")
    await api.create_consumer("S", "C")
    before = await api.ok("STREAM.INFO.S"), await api.consumer_info("S", "C")
    for body in BODIES:
        response = await api.request(subject, body)
        if "error" in response:
            assert response["error"]["code"] in (400, 404, 500), (body, response)
    after = await api.ok("STREAM.INFO.S"), await api.consumer_info("S", "C")
    for one, other in zip(before, after, strict=True):
        assert one["config"] == other["config"]


async def test_unknown_fields(api: Api) -> None:
    """In strict mode an unknown field is answered 10025 with the field's name."""
    text = await api.fails("STREAM.CREATE.S", 10025, {"name": "S", "colour": "red"})
    assert text == 'invalid JSON: json: unknown field "colour"'
    await api.create_stream("S")
    body = {"stream_name": "S", "config": {"durable_name": "C", "shape": "round"}}
    text = await api.fails("CONSUMER.CREATE.S.C", 10025, body)
    assert text == 'invalid JSON: json: unknown field "shape"'


async def test_wrong_types(api: Api) -> None:
    text = await api.fails("STREAM.CREATE.S", 10025, {"name": "S", "max_msgs": "many"})
    assert text.startswith("invalid JSON: json: cannot unmarshal string into Go struct field")
    await api.fails("STREAM.CREATE.S", 10025, {"name": "S", "retention": "forever"})
    await api.fails("STREAM.CREATE.S", 10025, {"name": "S", "max_msgs": 1.5})
    await api.fails("STREAM.CREATE.S", 10025, {"name": "S", "max_msgs": 2**70})


async def test_names(api: Api) -> None:
    """The rules for stream names hold, and the subject and the body must name the same stream."""
    await api.fails("STREAM.CREATE.S", 10056, {"name": "T"})
    await api.refuses_stream("x" * 256, 10052)
    for name in ("A/B", "A\\B"):
        await api.fails(f"STREAM.CREATE.{name}", 10128, {"name": name})
    await api.create_stream("x" * 255, subjects=["long"])
    assert (await api.publish("long"))["stream"] == "x" * 255
    await api.create_stream("Ünï-code_1", subjects=["u"])


async def test_level_asked_for(api: Api) -> None:
    """A required API level above the server's is refused (10185, ADR-44)."""
    high, low = {"Nats-Required-Api-Level": "5000"}, {"Nats-Required-Api-Level": "1"}
    await api.ok("INFO", b"", low)
    await api.fails("INFO", 10185, b"", high)
    await api.fails("STREAM.CREATE.S", 10185, {"name": "S"}, high)
    await api.fails("STREAM.NAMES", 10185, b"", high)
    await api.fails("STREAM.INFO.S", 10185, b"", high)
    await api.fails("STREAM.INFO.S", 10185, b"", {"Nats-Required-Api-Level": "x"})


async def test_nobody_answers(api: Api) -> None:
    """A subject that is no request of the API has no responder, or no answer."""
    for subject in ("NOTHING", "STREAM.EXPLODE.S", "STREAM.CREATE", "STREAM.CREATE.A.B"):
        with pytest.raises(Exception, match=r"no responders|timeout"):
            await api.nc.request(f"$JS.API.{subject}", b"", 0.3)
    for subject in ("DIRECT.GET", "DIRECT.GETS", "DIRECT.GET.S", "CONSUMER.MSG.NEXT.S"):
        with pytest.raises(NoRespondersError):
            await api.nc.request(f"$JS.API.{subject}", b"", 20)


async def test_without_a_reply(api: Api) -> None:
    """A request without a reply subject is carried out or ignored without an answer."""
    for _ in range(100):
        await api.nc.publish("$JS.API.STREAM.NAMES")
        await api.nc.publish("$JS.API.STREAM.CREATE.S", b"{")
    await api.ok("INFO")


async def test_many_at_once(api: Api) -> None:
    answers = await asyncio.gather(
        *(api.create_stream(f"S{number}", subjects=[f"s{number}"]) for number in range(200))
    )
    assert len(answers) == 200
    info = await api.ok("INFO")
    assert info["streams"] == 200
    names = await api.ok("STREAM.NAMES")
    assert len(names["streams"]) == 200


async def test_account(api: Api) -> None:
    """INFO shows the limits and the use of the account."""
    empty = await api.ok("INFO")
    assert (empty["streams"], empty["consumers"]) == (0, 0)
    await api.create_stream("M")
    await api.create_stream("F", storage="file", max_bytes=1_000_000)
    await api.create_consumer("M", "C")
    await api.publish("m", b"x" * 1000)
    await api.publish("f", b"x" * 1000)
    await api.fails("STREAM.INFO.X", 10059)
    info = await api.ok("INFO")
    assert info["memory"] == (await api.stream_state("M"))["bytes"]
    assert info["storage"] == (await api.stream_state("F"))["bytes"]
    assert (info["streams"], info["consumers"]) == (2, 1)
    assert (info["reserved_memory"], info["reserved_storage"]) == (0, 1_000_000)
    assert info["limits"] == {
        "max_memory": -1,
        "max_storage": -1,
        "max_streams": -1,
        "max_consumers": -1,
        "max_ack_pending": -1,
        "memory_max_stream_bytes": -1,
        "storage_max_stream_bytes": -1,
        "max_bytes_required": False,
    }
    assert info["api"]["level"] == 4
    assert info["api"]["total"] > empty["api"]["total"]
    assert info["api"]["errors"] >= 1


async def test_usage_goes_with_the_stream(api: Api) -> None:
    await api.create_stream("M")
    await api.fill("m", 10, b"x" * 100)
    await api.ok("STREAM.PURGE.M", {"keep": 1})
    assert (await api.ok("INFO"))["memory"] == (await api.stream_state("M"))["bytes"]
    await api.ok("STREAM.DELETE.M")
    assert (await api.ok("INFO"))["memory"] == 0


async def test_domain(start_jetstream: StartJetStream, connect: Connect) -> None:
    """`$JS.<domain>.API` is the same API, and its answers name the domain."""
    server = await start_jetstream(domain="hub")
    nc = await connect(server)
    api = Api(nc)
    assert (await api.ok("INFO"))["domain"] == "hub"
    reply = await nc.request("$JS.hub.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}', 5)
    assert json.loads(reply.data)["did_create"] is True
    assert await api.publish("s") == {"stream": "S", "domain": "hub", "seq": 1}
    js = nc.jetstream(domain="hub")
    assert (await js.stream_info("S")).state.messages == 1
    subscription = await js.pull_subscribe("s", durable="D")
    (message,) = await subscription.fetch(1, timeout=5)
    await message.ack_sync()


async def test_pedantic(api: Api) -> None:
    """In pedantic mode no configuration is corrected silently (10157)."""
    body = {"name": "S", "duplicate_window": 5 * SECOND, "max_age": SECOND, "pedantic": True}
    response = await api.request("STREAM.CREATE.S", body)
    assert response["error"]["err_code"] in (10052, 10157)
    await api.create_stream("S")
    config: dict[str, Any] = {"durable_name": "C", "backoff": [SECOND], "max_deliver": 3}
    consumer = {"stream_name": "S", "config": {**config, "ack_wait": 9 * SECOND}, "pedantic": True}
    await api.fails("CONSUMER.CREATE.S.C", 10157, consumer)


REFUSED_STREAMS: dict[str, tuple[int, dict[str, Any]]] = {
    "overlap with itself": (10052, {"subjects": ["a.*", "a.b"]}),
    "twice": (10052, {"subjects": ["a", "a"]}),
    "bad subject": (10052, {"subjects": ["a..b"]}),
    "api": (10052, {"subjects": ["$JS.API.>"]}),
    "all": (10052, {"subjects": [">"]}),
    "replicas": (10074, {"num_replicas": 3}),
    "too many replicas": (10052, {"num_replicas": 6}),
    "short age": (10052, {"max_age": 1000}),
    "window longer than age": (10052, {"max_age": SECOND, "duplicate_window": 2 * SECOND}),
    "negative window": (10052, {"duplicate_window": -1}),
    "per subject without limit": (10052, {"discard": "new", "discard_new_per_subject": True}),
    "per subject, discard old": (
        10052,
        {"max_msgs_per_subject": 1, "discard_new_per_subject": True},
    ),
    "description": (10052, {"description": "x" * 5000}),
    "rollup without purge": (10052, {"allow_rollup_hdrs": True, "deny_purge": True}),
    "sealed": (10052, {"sealed": True}),
    "metadata": (10052, {"metadata": {"k": "x" * 200_000}}),
    "mirror direct": (10052, {"mirror_direct": True}),
}


@pytest.mark.parametrize("case", REFUSED_STREAMS)
async def test_stream_refused(api: Api, case: str) -> None:
    """Invalid configurations of a new stream are refused (nats-server's `checkStreamCfg`)."""
    code, config = REFUSED_STREAMS[case]
    await api.refuses_stream("S", code, **config)
    assert (await api.ok("STREAM.NAMES"))["total"] == 0
