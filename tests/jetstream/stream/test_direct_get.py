"""Direct get (ADR-31): each form of request and every status, recorded from nats-server 2.14."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from natsd.core.wall_time import timestamp
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.stream import Storage
from tests.jetstream.serving import account_of, ask, create, publish, serving, update

Answer = tuple[bytes, bytes]


@pytest.fixture(params=list(Storage))
async def jetstream(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[JetStream]:
    """Yield a JetStream with a stream S of s.0, s.1, s.2 at 1, 2, 3; the second has a header."""
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s.>"], storage=request.param, allow_direct=True)
        await publish(jetstream, "s.0", b"zero")
        await publish(jetstream, "s.1", b"one", b"NATS/1.0\r\nA: b\r\n\r\n")
        await publish(jetstream, "s.2", b"two")
        yield jetstream


async def get(jetstream: JetStream, key: str = "", answers: int = 1, **body: Any) -> list[Answer]:
    subject = "$JS.API.DIRECT.GET.S" + (f".{key}" if key else "")
    payload = json.dumps(body).encode() if body else b""
    return await ask(jetstream, subject, payload, answers=answers)


def headers_of(jetstream: JetStream, sequence: int, own: str = "", more: str = "") -> bytes:
    message = account_of(jetstream).stream("S").store.load_cached(sequence)
    assert message is not None
    return (
        f"NATS/1.0\r\n{own}Nats-Stream: S\r\nNats-Subject: {message.subject}\r\n"
        f"Nats-Sequence: {sequence}\r\nNats-Time-Stamp: {timestamp(message.time_ns)}\r\n{more}\r\n"
    ).encode()


def status(text: str) -> list[Answer]:
    return [(f"NATS/1.0 {text}\r\n\r\n".encode(), b"")]


async def test_the_time_of_a_message(jetstream: JetStream) -> None:
    """The compiled writer of `Nats-Time-Stamp` writes what `wall_time` does, for any time."""
    draw = random.Random(20)
    times = sorted(
        [1, 2**63 - 1, 1_709_208_000 * 10**9, *(draw.randrange(2**63) for _ in range(50))]
    )
    store = account_of(jetstream).stream("S").store
    for time_ns in times:
        store.append("s.t", None, b"", time_ns)
    await publish(jetstream, "s.2", b"makes them visible")
    for sequence in range(4, 4 + len(times)):
        assert await get(jetstream, seq=sequence) == [(headers_of(jetstream, sequence), b"")]


async def test_the_last_message_of_a_subject(jetstream: JetStream) -> None:
    assert await get(jetstream, "s.2") == [(headers_of(jetstream, 3), b"two")]
    assert await get(jetstream, "s.1") == [(headers_of(jetstream, 2, "A: b\r\n"), b"one")]
    await publish(jetstream, "s.2", b"two again")
    assert await get(jetstream, "s.2") == [(headers_of(jetstream, 4), b"two again")]
    await account_of(jetstream).stream("S").delete_message(4)
    assert await get(jetstream, "s.2") == [(headers_of(jetstream, 3), b"two")]
    assert await get(jetstream, "s.*") == [(headers_of(jetstream, 3), b"two")]
    assert await get(jetstream, "s.1", no_hdr=True) == [(b"", b"one")]


@pytest.mark.parametrize("key", ["s.9", "other", "s.*.x", "s"])
async def test_nothing_is_found(jetstream: JetStream, key: str) -> None:
    assert await get(jetstream, key) == status("404 Message Not Found")


@pytest.mark.parametrize(
    ("body", "sequence"),
    [
        ({"seq": 3}, 3),
        ({"last_by_subj": "s.0"}, 1),
        ({"last_by_subj": "s.>"}, 3),
        ({"next_by_subj": "s.*"}, 1),
        ({"next_by_subj": "s.*", "seq": 3}, 3),
        ({"next_by_subj": "s.2", "start_time": "2020-01-01T00:00:00Z"}, 3),
        ({"start_time": "2020-01-01T00:00:00Z"}, 1),
        ({"seq": 1, "no_such_field": True}, 1),
    ],
)
async def test_a_body_says_which(jetstream: JetStream, body: dict[str, Any], sequence: int) -> None:
    [(headers, _)] = await get(jetstream, **body)
    assert headers == headers_of(jetstream, sequence)


@pytest.mark.parametrize(
    ("key", "body", "text"),
    [
        ("", {}, "408 Empty Request"),
        ("", {"batch": 1}, "408 Empty Request"),
        ("", {"seq": 3, "last_by_subj": "s.1"}, "408 Bad Request"),
        ("", {"seq": 3, "start_time": "2020-01-01T00:00:00Z"}, "408 Bad Request"),
        ("", {"last_by_subj": "s.1", "next_by_subj": "s.1"}, "408 Bad Request"),
        ("", {"last_by_subj": "s.1", "batch": 2}, "408 Bad Request"),
        ("", {"next_by_subj": "s.1", "multi_last": ["s.1"]}, "408 Bad Request"),
        (
            "",
            {"multi_last": ["s.1"], "up_to_seq": 1, "up_to_time": "2020-01-01T00:00:00Z"},
            "408 Bad Request",
        ),
        ("s.1", {"seq": 1}, "408 Bad Request"),
        ("s.1", {"batch": 1}, "408 Bad Request"),
        ("", {"seq": "three"}, "408 Malformed Request"),
        ("", {"seq": 9}, "404 Message Not Found"),
        ("", {"start_time": "2090-01-01T00:00:00Z"}, "404 Message Not Found"),
        ("", {"next_by_subj": "x", "batch": 3}, "404 Message Not Found"),
        ("", {"multi_last": ["x", "not..one"]}, "404 No Results"),
        ("", {"multi_last": [""]}, "404 No Results"),
        ("", {"multi_last": [">"], "up_to_time": "2020-01-01T00:00:00Z"}, "404 No Results"),
    ],
)
async def test_statuses(jetstream: JetStream, key: str, body: dict[str, Any], text: str) -> None:
    assert await get(jetstream, key, **body) == status(text)


@pytest.mark.parametrize("subject", ["$JS.API.DIRECT.GET.S", "$JS.API.DIRECT.GET.S.s.1"])
async def test_what_is_no_json_is_malformed(jetstream: JetStream, subject: str) -> None:
    assert await ask(jetstream, subject, b"junk") == status("408 Malformed Request")


@pytest.mark.parametrize(
    ("level", "is_met"),
    [
        (b"4", True),
        (b"-1", True),
        (b"5", False),
        (b"x", False),
        (b"", False),
        (b"9" * 5000, False),
    ],
)
async def test_a_level_may_be_required(jetstream: JetStream, level: bytes, is_met: bool) -> None:
    headers = b"NATS/1.0\r\nNats-Required-Api-Level: " + level + b"\r\n\r\n"
    answer = await ask(jetstream, "$JS.API.DIRECT.GET.S.s.0", b"", headers)
    expected = [(headers_of(jetstream, 1), b"zero")]
    assert answer == (expected if is_met else status("412 Required Api Level"))


async def test_a_batch_ends_with_how_much_is_left(jetstream: JetStream) -> None:
    pending = "Nats-Num-Pending: {}\r\nNats-Last-Sequence: {}\r\n"
    assert await get(jetstream, answers=3, batch=2, seq=1) == [
        (headers_of(jetstream, 1, more=pending.format(2, 0)), b"zero"),
        (headers_of(jetstream, 2, "A: b\r\n", pending.format(1, 1)), b"one"),
        (("NATS/1.0 204 EOB\r\n" + pending.format(1, 2) + "\r\n").encode(), b""),
    ]
    bounded = await get(jetstream, answers=2, batch=5, seq=1, max_bytes=4, no_hdr=True)
    assert [data for _, data in bounded] == [b"zero", b""]


async def test_a_batch_of_less_than_none_says_how_many_there_are(jetstream: JetStream) -> None:
    ((headers, _),) = await get(jetstream, batch=-1, seq=1)
    assert headers.startswith(
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 3\r\nNats-Last-Sequence: 0\r\n"
    )


async def test_the_last_ones_keep_their_headers(jetstream: JetStream) -> None:
    """`no_hdr` applies to the other forms."""
    first, _ = await get(jetstream, answers=2, multi_last=["s.1"], no_hdr=True)
    pending = "Nats-Num-Pending: 0\r\nNats-Last-Sequence: 0\r\n"
    assert first == (headers_of(jetstream, 2, "A: b\r\n", pending), b"one")


async def test_the_last_ones_of_many_subjects(jetstream: JetStream) -> None:
    await publish(jetstream, "s.0", b"new")
    answers = await get(jetstream, answers=4, multi_last=["s.0", "s.>"])
    assert [data for _, data in answers] == [b"one", b"two", b"new", b""]
    assert answers[-1][0] == (
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 4\r\n"
        b"Nats-UpTo-Sequence: 4\r\n\r\n"
    )
    before = await get(jetstream, answers=3, multi_last=["s.>"], up_to_seq=3, batch=2)
    assert [data for _, data in before] == [b"zero", b"one", b""]
    assert b"Num-Pending: 1\r\nNats-Last-Sequence: 2\r\nNats-UpTo-Sequence: 3" in before[-1][0]


async def test_too_many_subjects_are_refused(jetstream: JetStream) -> None:
    client = account_of(jetstream).account.internal_client
    for number in range(1024):
        client.publish(f"s.n.{number}")
    await publish(jetstream, "s.last")
    assert await get(jetstream, multi_last=["s.>"]) == status("413 Too Many Results")


async def test_it_is_allowed_or_not(jetstream: JetStream) -> None:
    account, stream = account_of(jetstream).account, account_of(jetstream).stream("S")

    def is_served(subject: bytes) -> bool:
        return bool(account.publisher.publish(subject, b"", b"_INBOX.any", b""))

    await update(stream, allow_direct=False)
    assert not is_served(b"$JS.API.DIRECT.GET.S.s.1")
    await update(stream, allow_direct=True)
    assert await get(jetstream, "s.2") == [(headers_of(jetstream, 3), b"two")]
    await account_of(jetstream).delete_stream("S")
    assert not is_served(b"$JS.API.DIRECT.GET.S")


async def test_many_at_once_are_all_answered(jetstream: JetStream) -> None:
    client, got = account_of(jetstream).account.internal_client, list[bytes]()
    client.subscribe("inbox", lambda _subject, _reply, _headers, data: got.append(data))
    for number in range(1000):
        client.publish(f"$JS.API.DIRECT.GET.S.s.{number % 3}", reply="inbox")
    [(_, data)] = await get(jetstream, "s.0")
    assert data == b"zero"
    assert got == [b"zero", b"one", b"two"] * 333 + [b"zero"]
