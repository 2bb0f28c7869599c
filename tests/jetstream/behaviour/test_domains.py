"""A JetStream domain: `$JS.<domain>.API`, and the answers that name the domain (ADR-15)."""

from __future__ import annotations

import hashlib
import json

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.errors import NotFoundError

from tests.jetstream.behaviour import schemas
from tests.jetstream.behaviour.api import Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.puller import Puller

TIMEOUT_S = 5.0
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.fixture
async def nc(start_jetstream: StartJetStream, connect: Connect) -> Client:
    return await connect(await start_jetstream(domain="hub"))


async def ask(nc: Client, subject: str, body: bytes = b"") -> dict[str, object]:
    reply = await nc.request(f"$JS.hub.API.{subject}", body, TIMEOUT_S)
    answer: dict[str, object] = json.loads(reply.data)
    schemas.check(answer)
    return answer


STREAM = b'{"name":"S","subjects":["s"],"storage":"memory","retention":"limits"}'
CONSUMER = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}'
REQUESTS = {
    "INFO": b"",
    "STREAM.UPDATE.S": STREAM,
    "STREAM.INFO.S": b"",
    "STREAM.NAMES": b"",
    "STREAM.LIST": b"",
    "STREAM.MSG.GET.S": b'{"seq":1}',
    "CONSUMER.CREATE.S.C": CONSUMER,
    "CONSUMER.INFO.S.D": b"",
    "CONSUMER.NAMES.S": b"",
    "CONSUMER.LIST.S": b"",
    "CONSUMER.PAUSE.S.D": b"{}",
    "STREAM.MSG.DELETE.S": b'{"seq":1}',
    "STREAM.PURGE.S": b"",
    "CONSUMER.DELETE.S.D": b"",
    "STREAM.DELETE.S": b"",
}


async def test_every_request_is_answered_under_the_domain(nc: Client) -> None:
    """No request under the domain's subjects is answered with an error."""
    await Api(nc).create_stream("S", subjects=["s"])
    await Api(nc).create_consumer("S", "D")
    await Api(nc).publish("s")
    for subject, body in REQUESTS.items():
        answer = await ask(nc, subject, body)
        assert "error" not in answer, (subject, answer)


async def test_the_domain_is_told(nc: Client) -> None:
    """Stream info names the domain; answers to create and about consumers do not."""
    created = await ask(nc, "STREAM.CREATE.S", STREAM)
    assert "domain" not in created
    for subject in ("INFO", "STREAM.INFO.S"):
        assert (await ask(nc, subject))["domain"] == "hub"
    assert (await ask(nc, "STREAM.UPDATE.S", STREAM))["domain"] == "hub"
    listed = await ask(nc, "STREAM.LIST")
    assert isinstance(listed["streams"], list)
    assert listed["streams"][0]["domain"] == "hub"
    assert "domain" not in await ask(nc, "CONSUMER.CREATE.S.C", CONSUMER)
    assert await Api(nc).publish("s") == {"stream": "S", "domain": "hub", "seq": 1}


@pytest.mark.parametrize("domain", ["spoke", "*"])
async def test_another_domain_is_nobody(nc: Client, domain: str) -> None:
    with pytest.raises(NoRespondersError):
        await nc.request(f"$JS.{domain}.API.INFO", timeout=TIMEOUT_S)


async def test_what_no_domain_serves_is_nobody(nc: Client) -> None:
    for subject in ("FOO", "CONSUMER.MSG.NEXT.S.C", "DIRECT.GET.S"):
        with pytest.raises(NoRespondersError):
            await nc.request(f"$JS.hub.API.{subject}", timeout=TIMEOUT_S)


async def test_no_responders_name_the_subject_behind_the_domain(nc: Client) -> None:
    replies = await nc.subscribe("replies")
    await nc.publish("$JS.hub.API.$KV.bucket.key", b"value", reply="replies")
    answer = await replies.next_msg(TIMEOUT_S)
    assert answer.headers is not None
    assert answer.headers["Status"] == "503"
    assert answer.headers["Nats-Subject"] == "$KV.bucket.key"


async def test_messages_are_pulled_and_got_through_the_domain(nc: Client) -> None:
    api = Api(nc)
    await api.create_stream("S", subjects=["s"], allow_direct=True)
    await api.publish("s", b"one")
    await api.create_consumer("S", "C")
    replies = await nc.subscribe("pulled")
    await nc.publish("$JS.hub.API.CONSUMER.MSG.NEXT.S.C", b"1", reply="pulled")
    assert (await replies.next_msg(TIMEOUT_S)).data == b"one"
    for subject, body in (("DIRECT.GET.S.s", b""), ("DIRECT.GET.S", b'{"seq":1}')):
        got = await nc.request(f"$JS.hub.API.{subject}", body, TIMEOUT_S)
        assert got.data == b"one"
        assert got.headers is not None
        assert got.headers["Nats-Stream"] == "S"


@pytest.mark.parametrize("domain", ["hub", "_"])
async def test_an_acknowledgement_may_name_domain_and_account(nc: Client, domain: str) -> None:
    """The longer form with domain and account is accepted (ADR-15); `_` means no domain."""
    api = Api(nc)
    await api.create_stream("S", subjects=["s"])
    await api.publish("s")
    await api.create_consumer("S", "C")
    puller = await Puller.of(nc, "S", "C")
    await puller.ask(batch=1)
    reply = (await puller.message()).reply
    assert reply.startswith("$JS.ACK.S.C.1.1.1.")
    account = "".join(DIGITS[byte % 62] for byte in hashlib.sha256(b"$G").digest()[:8])
    longer = f"$JS.ACK.{domain}.{account}.{reply.removeprefix('$JS.ACK.')}.token"
    if domain == "hub":
        assert (await nc.request(longer, b"+ACK", TIMEOUT_S)).data == b""
        assert (await api.consumer_info("S", "C"))["num_ack_pending"] == 0
    else:
        with pytest.raises(NoRespondersError):
            await nc.request(longer, b"+ACK", TIMEOUT_S)


async def test_a_client_that_names_the_domain(nc: Client) -> None:
    """nats-py's `jetstream(domain=...)` works: streams, consumers, key-value and object stores."""
    js = nc.jetstream(domain="hub")
    await js.add_stream(name="S", subjects=["s"])
    assert (await js.publish("s", b"one")).domain == "hub"
    subscription = await js.pull_subscribe("s", durable="D")
    [message] = await subscription.fetch(1, timeout=TIMEOUT_S)
    await message.ack_sync()
    assert (await js.consumer_info("S", "D")).ack_floor.stream_seq == 1
    bucket = await js.create_key_value(bucket="settings")
    await bucket.put("color", b"red")
    assert (await bucket.get("color")).value == b"red"
    store = await js.create_object_store("files")
    await store.put("a", b"data")
    assert (await store.get("a")).data == b"data"
    await js.delete_stream("S")
    with pytest.raises(NotFoundError):
        await js.stream_info("S")
