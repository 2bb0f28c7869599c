"""Requests and answers of the API: routing, bodies, levels, pages, domains and failures.

nats-server's counterpart is `apiDispatch`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natsd.accounts import SYSTEM_ACCOUNT, Account
from natsd.jetstream.api import router as router_module
from natsd.jetstream.api.answer import ITEMS_PER_SLICE, encode_answer
from natsd.jetstream.api.invalid_requests import InvalidRequests
from natsd.jetstream.api.request import NoBody, Request
from natsd.jetstream.api.table import ROUTES, Route, Served
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerInfo, SequenceInfo
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.models.response import Paged
from natsd.jetstream.models.responses import (
    AccountInfoResponse,
    ConsumerListResponse,
    StreamCreateResponse,
    StreamInfoResponse,
    StreamListResponse,
)
from natsd.jetstream.models.stream import StreamConfig, StreamInfo, StreamSourceInfo, StreamState
from tests.jetstream.api.schemas import check
from tests.jetstream.serving import account_of, ask, create, publish, serving
from tests.waiting import Eventually

LEVEL = b"NATS/1.0\r\nNats-Required-Api-Level: %s\r\n\r\n"


@pytest.fixture
async def jetstream(tmp_path: Path) -> AsyncIterator[JetStream]:
    async with serving(tmp_path) as jetstream:
        yield jetstream


async def request(
    jetstream: JetStream, subject: str, body: object = b"", headers: bytes = b""
) -> dict[str, Any]:
    """Return the answer to a request; it must be valid by its schema."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answers = await ask(jetstream, f"$JS.API.{subject}", data, headers)
    answer: dict[str, Any] = json.loads(answers[0][1])
    check(answer)
    return answer


def error_of(answer: dict[str, Any]) -> int:
    return int(answer.get("error", {}).get("err_code", 0))


# The table


def test_each_row_is_one_subject() -> None:
    assert len({route.subject for route in ROUTES}) == len(ROUTES)
    for route in ROUTES:
        assert (route.handler is None) or route.served is not Served.ASSET
        assert route.response().type.startswith("io.nats.jetstream.api.v1.")


def test_arguments_are_what_stands_for_the_wildcards() -> None:
    row = {route.subject: route for route in ROUTES}
    assert row["INFO"].arguments("INFO") == ()
    assert row["CONSUMER.INFO.*.*"].arguments("CONSUMER.INFO.S.C") == ("S", "C")
    created = row["CONSUMER.CREATE.*.>"].arguments("CONSUMER.CREATE.S.C.a.>")
    assert created == ("S", "C.a.>")


# Every kind of request, once


async def test_a_life(jetstream: JetStream) -> None:
    made = await request(jetstream, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    assert made["did_create"] and made["config"]["metadata"]["_nats.level"] == "4"
    for number in range(3):
        await publish(jetstream, f"s.{number}", b"x", b"NATS/1.0\r\nA: b\r\n\r\n")
    changed = {"name": "S", "subjects": ["s.>"], "max_msgs": 2}
    assert (await request(jetstream, "STREAM.UPDATE.S", changed))["config"]["max_msgs"] == 2
    info = await request(jetstream, "STREAM.INFO.S", {"subjects_filter": ">"})
    assert info["state"]["subjects"] == {"s.1": 1, "s.2": 1}
    assert (info["total"], info["offset"], info["limit"]) == (2, 0, 100_000)
    got = await request(jetstream, "STREAM.MSG.GET.S", {"last_by_subj": "s.2"})
    assert got["message"]["seq"] == 3 and got["message"]["data"] == "eA=="
    assert got["message"]["hdrs"]
    bare = await request(jetstream, "STREAM.MSG.GET.S", {"seq": 3, "no_hdr": True})
    assert "hdrs" not in bare["message"]
    assert (await request(jetstream, "STREAM.MSG.DELETE.S", {"seq": 2}))["success"]
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "s.*"}
    body = {"stream_name": "S", "config": config}
    made = await request(jetstream, "CONSUMER.CREATE.S.C.s.*", body)
    assert made["config"]["metadata"]["_nats.level"] == "4"
    assert (await request(jetstream, "CONSUMER.INFO.S.C"))["num_pending"] == 1
    assert (await request(jetstream, "CONSUMER.DURABLE.CREATE.S.C", body))["name"] == "C"
    ephemeral = await request(jetstream, "CONSUMER.CREATE.S", {"stream_name": "S"})
    names = (await request(jetstream, "CONSUMER.NAMES.S"))["consumers"]
    assert names == sorted(["C", ephemeral["name"]])
    assert [
        each["name"] for each in (await request(jetstream, "CONSUMER.LIST.S"))["consumers"]
    ] == (names)
    paused = await request(jetstream, "CONSUMER.PAUSE.S.C", {"pause_until": "2200-01-01T00:00:00Z"})
    assert paused["paused"] and paused["pause_remaining"] > 0
    assert not (await request(jetstream, "CONSUMER.PAUSE.S.C"))["paused"]
    assert (await request(jetstream, "CONSUMER.DELETE.S.C"))["success"]
    assert (await request(jetstream, "STREAM.PURGE.S"))["purged"] == 1
    assert (await request(jetstream, "STREAM.DELETE.S"))["success"]
    assert error_of(await request(jetstream, "STREAM.INFO.S")) == 10059
    account = await request(jetstream, "INFO")
    assert account["api"] == {"level": 4, "total": 16, "errors": 1}  # MSG.GET is not counted


# Bodies


@pytest.mark.parametrize(
    ("subject", "body", "code"),
    [
        ("INFO", b"whatever", 0),
        ("STREAM.DELETE.S", b"{}", 0),
        ("STREAM.DELETE.S", b'{"x":1}', 10038),
        ("CONSUMER.INFO.S.C", b"x", 10038),
        ("STREAM.INFO.S", b"not JSON", 0),
        ("STREAM.INFO.S", b"[1]", 10025),
        ("STREAM.NAMES", b'{"nope":1}', 10025),
        ("STREAM.MSG.GET.S", b"", 10003),
        ("STREAM.MSG.GET.S", b"{}", 10003),
        ("STREAM.MSG.GET.S", b"x", 10025),
        ("STREAM.MSG.GET.S", b'{"seq":1,"batch":2}', 10003),
        ("STREAM.MSG.GET.T", b'{"seq":1,"last_by_subj":"x"}', 10003),
        ("STREAM.PURGE.T", b'{"seq":1,"keep":1}', 10003),
        ("STREAM.CREATE.S", b"", 10056),
        ("CONSUMER.CREATE.S", b"", 10056),
        ("STREAM.PEER.REMOVE.S", b"x", 10010),
        ("CONSUMER.LEADER.STEPDOWN.S.C", b"", 10010),
        ("CONSUMER.UNPIN.S.C", b"", 10025),
        ("STREAM.RESTORE.S", b"", 10003),
    ],
)
async def test_bodies(jetstream: JetStream, subject: str, body: bytes, code: int) -> None:
    await create(jetstream, "S", storage="memory")
    assert error_of(await request(jetstream, subject, body)) == code


async def test_unknown_fields_when_not_strict(tmp_path: Path) -> None:
    async with serving(tmp_path, strict=False) as jetstream:
        assert not error_of(await request(jetstream, "STREAM.CREATE.S", {"name": "S", "nope": 1}))


SUBJECTS = sorted(
    route.subject.replace("*", "S").replace(">", "C.a")
    for route in ROUTES
    if route.served in (Served.CHANGE, Served.INFO)
)
BODIES = st.binary(max_size=40) | st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**64) | st.text(max_size=4),
    lambda children: (
        st.lists(children, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["name", "config", "stream_name", "seq", "subjects", "mirror", "action"]
            ),
            children,
            max_size=3,
        )
    ),
    max_leaves=5,
).map(lambda value: json.dumps(value).encode())


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(SUBJECTS), BODIES), max_size=8))
def test_any_bytes_are_answered(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[str, bytes]]
) -> None:
    """Any bytes are answered as the schema says, and the server goes on."""

    async def run() -> None:
        async with serving(tmp_path_factory.mktemp("store")) as jetstream:
            await create(jetstream, "S", storage="memory")
            for subject, body in requests:
                answer = await request(jetstream, subject, body)
                assert error_of(answer) != 10051, answer
            assert not error_of(await request(jetstream, "INFO"))
            assert jetstream.api_counters.inflight == 0

    asyncio.run(run())


# Levels


@pytest.mark.parametrize(
    ("level", "code"),
    [
        (b"0", 0),
        (b"4", 0),
        (b"+4", 0),
        (b"-1", 0),
        (b"004", 0),
        (b"", 0),
        (b"5", 10185),
        (b"x", 10185),
        (b"3 ", 10185),
        (b"1_0", 10185),
        (b"0_1", 10185),
        (b"-" + b"9" * 5000, 10185),
        ("\u0663".encode(), 10185),
    ],
)
async def test_level_required(jetstream: JetStream, level: bytes, code: int) -> None:
    assert error_of(await request(jetstream, "INFO", b"", LEVEL % level)) == code


# Pages


async def test_pages_of_streams(jetstream: JetStream) -> None:
    for name in ("B", "A", "C"):
        await create(jetstream, name, subjects=[f"{name}.>"], storage="memory")
    for subject, shown in (("STREAM.NAMES", lambda each: each), ("STREAM.LIST", name_of)):
        answer = await request(jetstream, subject, {"offset": 1})
        assert [shown(each) for each in answer["streams"]] == ["B", "C"]
        assert (answer["total"], answer["offset"]) == (3, 1)
        assert (await request(jetstream, subject, {"offset": 9}))["offset"] == 3
        assert (await request(jetstream, subject, {"offset": -9}))["offset"] == 0
        answer = await request(jetstream, subject, {"subject": "*.x"})
        assert len(answer["streams"]) == 3
        answer = await request(jetstream, subject, {"subject": "A.x"})
        assert [shown(each) for each in answer["streams"]] == ["A"]
        assert answer["total"] == 1
    assert (await request(jetstream, "STREAM.NAMES", {"subject": "z"}))["streams"] is None
    assert (await request(jetstream, "STREAM.LIST", {"subject": "z"}))["streams"] == []


def name_of(info: dict[str, Any]) -> str:
    return str(info["config"]["name"])


# Without an answer, without JetStream, with a domain


async def test_without_a_reply_it_is_done_all_the_same(
    jetstream: JetStream, eventually: Eventually
) -> None:
    account = account_of(jetstream)
    account.account.internal_client.publish("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    await eventually(lambda: "S" in account.streams)


async def test_an_account_without_jetstream(tmp_path: Path) -> None:
    """Requests are answered 10039; what is no request gets no answer, as elsewhere."""
    async with serving(tmp_path, domain="hub") as jetstream:
        account = Account("A", jetstream.reactor)
        jetstream.api.refuse(account)
        for subject in ("$JS.API.INFO", "$JS.API.STREAM.CREATE.S", "$JS.hub.API.STREAM.NAMES"):
            answer = json.loads(await account.internal_client.request(subject))
            check(answer)
            assert error_of(answer) == 10039
        for subject in ("FOO", "META.LEADER.STEPDOWN", "ACCOUNT.PURGE.$G"):
            with pytest.raises(TimeoutError):
                await account.internal_client.request(f"$JS.API.{subject}", timeout_s=0.01)
        publisher = account.publisher
        assert publisher.publish(b"$JS.API.STREAM.INFO.S", reply=b"answer") == 1
        assert publisher.publish(b"$JS.API.DIRECT.GET.S", reply=b"answer") == 0
        jetstream.api.forget(account)
        assert publisher.publish(b"$JS.API.STREAM.INFO.S", reply=b"answer") == 0
        account.close()


async def test_the_system_account_has_no_streams(jetstream: JetStream) -> None:
    """Any subject is answered: 10039, and 10010 where only a cluster could carry it out."""
    system = Account(SYSTEM_ACCOUNT, jetstream.reactor, is_system=True)
    jetstream.api.refuse(system)

    async def ask_system(subject: str) -> tuple[str, int]:
        answer = json.loads(await system.internal_client.request(f"$JS.API.{subject}"))
        check(answer)
        return answer["type"].rpartition(".")[2], error_of(answer)

    assert await ask_system("INFO") == ("account_info_response", 10039)
    for subject in ("STREAM.CREATE.S", "DIRECT.GET.S", "CONSUMER.MSG.NEXT.S.C", "FOO"):
        assert await ask_system(subject) == ("system_response", 10039)
    for subject in ("META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.STREAM.MOVE.A.S"):
        assert await ask_system(subject) == ("system_response", 10010)
    await jetstream.api.close()
    system.close()


async def test_the_system_account_purges_an_account(jetstream: JetStream) -> None:
    """All streams of the account are deleted; only the system account may ask for it."""
    system = Account(SYSTEM_ACCOUNT, jetstream.reactor, is_system=True)
    jetstream.api.refuse(system)

    async def purge(name: str) -> dict[str, Any]:
        data = await system.internal_client.request(f"$JS.API.ACCOUNT.PURGE.{name}")
        answer: dict[str, Any] = json.loads(data)
        check(answer)
        return answer

    for name in "AB":
        await create(jetstream, name)
    assert (await purge("nobody"))["initiated"] is True
    assert error_of(await purge("a/b")) == 10051
    assert sorted(account_of(jetstream).streams) == ["A", "B"]
    assert (await purge("$G"))["initiated"] is True
    assert not account_of(jetstream).streams
    await jetstream.api.close()
    system.close()


async def test_a_domain_has_its_own_subjects(tmp_path: Path) -> None:
    async with serving(tmp_path, domain="hub") as jetstream:
        await create(jetstream, "S", storage="memory", allow_direct=True, subjects=["$KV.B.>"])
        _, data = (await ask(jetstream, "$JS.hub.API.STREAM.INFO.S"))[0]
        assert json.loads(data)["domain"] == "hub"
        acked = json.loads((await ask(jetstream, "$JS.hub.API.$KV.B.key", b"v"))[0][1])
        assert acked == {"stream": "S", "domain": "hub", "seq": 1}
        _, data = (await ask(jetstream, "$JS.hub.API.DIRECT.GET.S.$KV.B.key"))[0]
        assert data == b"v"
        head, _ = (await ask(jetstream, "$JS.hub.API.CONSUMER.MSG.NEXT.S.nobody"))[0]
        assert head.startswith(b"NATS/1.0 503")


async def test_what_is_no_request_is_not_answered_and_not_counted(tmp_path: Path) -> None:
    """There is no answer, as from nats-server; a missing stream or consumer is answered 503."""
    silent = ("FOO", "STREAM.INFO", "STREAM.INFO.A.B", "META.LEADER.STEPDOWN", "ACCOUNT.PURGE.$G")
    refused = ("DIRECT.GET.X", "DIRECT.GET.X.s", "CONSUMER.MSG.NEXT.S.C")
    async with serving(tmp_path, domain="hub") as jetstream:
        internal, answers = account_of(jetstream).account.internal_client, list[str]()
        internal.subscribe("answers.>", lambda subject, *_: answers.append(subject))
        for subject in silent:
            internal.publish(f"$JS.API.{subject}", reply=f"answers.{subject}")
            assert account_of(jetstream).account.sublist.has_interest(f"$JS.API.{subject}")
            if subject != "FOO":
                internal.publish(f"$JS.hub.API.{subject}", reply=f"answers.{subject}")
        for subject in refused:
            head, _ = (await ask(jetstream, f"$JS.hub.API.{subject}"))[0]
            assert head.startswith(b"NATS/1.0 503")
        assert not account_of(jetstream).account.sublist.has_interest("$JS.hub.API.FOO")
        await request(jetstream, "INFO")
        assert answers == []
        assert jetstream.api_counters.total == 1


async def test_a_body_that_cannot_be_read_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as jetstream:
        for _ in range(3):
            answer = await request(jetstream, "STREAM.CREATE.X", b"{bad")
            assert error_of(answer) == 10025
        answer = await request(jetstream, "STREAM.CREATE.X", {"name": "X", "foo": 1})
        assert error_of(answer) == 10025
        await create(jetstream, "S")
    found = [text for text in caplog.messages if text.startswith("Invalid JetStream request")]
    warnings = list(dict.fromkeys(found))
    head = "Invalid JetStream request '$G > $JS.API.STREAM.CREATE.X': "
    assert warnings == [
        head + "invalid character 'b' looking for beginning of object key string at offset 2",
        head + 'json: unknown field "foo"',
    ]


def test_the_same_warning_is_repeated_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    invalid = InvalidRequests(lambda: now_s[0])
    for _ in range(5):
        invalid.warn("$G", "s", ValueError("x"))
        now_s[0] += 0.5
    assert len(caplog.messages) == 3
    for number in range(500):
        invalid.warn("$G", f"s.{number}", ValueError("x"))
    assert len(caplog.messages) < 100


def test_a_long_value_is_not_written_whole(caplog: pytest.LogCaptureFixture) -> None:
    """The error for an unreadable number does not repeat all of its digits."""
    invalid = InvalidRequests(lambda: 0.0)
    for digit in range(10):
        invalid.warn("$G", "s", ValueError(str(digit) * 800_000))
    assert max(map(len, caplog.messages)) < 1_100
    assert len(set(caplog.messages)) == 10


# Failures and floods


def with_handler(monkeypatch: pytest.MonkeyPatch, handler: Any) -> None:
    """Answer INFO with `handler` in accounts that are served from now on."""
    table = [
        replace(route, handler=handler) if route.subject == "INFO" else route for route in ROUTES
    ]
    monkeypatch.setattr(router_module, "ROUTES", tuple[Route, ...](table))


async def test_a_handler_that_fails_is_logged_and_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_request: Request[NoBody]) -> AccountInfoResponse:
        raise ZeroDivisionError("by accident")

    with_handler(monkeypatch, fails)
    async with serving(tmp_path) as jetstream:
        answer = await request(jetstream, "INFO")
        assert answer["error"] == {
            "code": 500,
            "err_code": 10051,
            "description": "internal error",
        }
        assert "by accident" in caplog.text
        assert not error_of(await request(jetstream, "STREAM.NAMES"))


async def test_a_flood_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """A full queue is emptied (nats-server's `apiDispatch`); info requests have their own queue."""
    goes_on = asyncio.Event()

    async def waits(_request: Request[NoBody]) -> AccountInfoResponse:
        await goes_on.wait()
        return AccountInfoResponse()

    with_handler(monkeypatch, waits)
    async with serving(tmp_path, info_queue_limit=5, request_queue_limit=7) as jetstream:
        client, answers = account_of(jetstream).account.internal_client, list[bytes]()
        system = jetstream.system_account = Account(
            SYSTEM_ACCOUNT, jetstream.reactor, is_system=True
        )
        told = list[bytes]()
        system.internal_client.subscribe(
            "$JS.EVENT.ADVISORY.API.LIMIT_REACHED", lambda *message: told.append(message[3])
        )
        client.subscribe("answers", lambda _subject, _reply, _head, data: answers.append(data))
        for _ in range(router_module.AT_ONCE + 5):
            client.publish("$JS.API.INFO", reply="answers")
        await eventually(lambda: jetstream.api.dropped == 5)
        assert not error_of(await request(jetstream, "STREAM.CREATE.S", {"name": "S"}))
        assert jetstream.api_counters.inflight == router_module.AT_ONCE
        goes_on.set()
        await eventually(lambda: len(answers) == router_module.AT_ONCE)
        assert jetstream.api_counters.inflight == 0
        await eventually(lambda: told)
        assert json.loads(told[0])["dropped"] == 5
        system.close()


# Long answers


async def test_long_answers_are_the_same_in_slices() -> None:
    info = StreamInfo(config=StreamConfig(name='","streams":[]'), created=1, state=StreamState())
    listed = StreamListResponse(page=Paged(total=40), streams=[info] * 40)
    assert await encode_answer(listed) == encode(listed)
    consumer = ConsumerInfo(
        stream_name="S",
        name="C",
        created="",
        delivered=SequenceInfo(consumer_seq=1, stream_seq=2, last_active="<"),
        ack_floor=SequenceInfo(consumer_seq=0, stream_seq=0),
        num_ack_pending=1,
        num_redelivered=0,
        num_waiting=0,
        num_pending=0,
        ts="",
    )
    consumers = ConsumerListResponse(consumers=[consumer] * 40)
    assert await encode_answer(consumers) == encode(consumers)
    counts = {f"<{number}>": number for number in range(2 * ITEMS_PER_SLICE + 1)}
    state = StreamState(subjects=counts, deleted=list(range(1, 2 * ITEMS_PER_SLICE)))
    long = info.model_copy(
        update={"state": state, "sources": [StreamSourceInfo(name=f"O{n}") for n in range(1000)]}
    )
    for answer in (StreamInfoResponse(info=long), StreamCreateResponse(info=long)):
        assert await encode_answer(answer) == encode(answer)
    listed = StreamListResponse(page=Paged(total=2), streams=[info, long])
    assert await encode_answer(listed) == encode(listed)
