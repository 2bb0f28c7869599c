"""Answers to publishers, in the order of the checks of `processJetStreamMsgWithBatch`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.stream.publishing import Usage
from natsd.store.store import Discard, Limits
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.stream.publishing import file_bench, memory_bench
from tests.waiting import Eventually


def error(code: int, err_code: int, description: str) -> dict[str, Any]:
    return {
        "error": {"code": code, "err_code": err_code, "description": description},
        "stream": "S",
        "seq": 0,
    }


STORE_FAILED = 503, 10077


async def test_a_message_is_stored_and_acknowledged() -> None:
    async with memory_bench() as bench:
        assert await bench.answer(bench.publish("s.a", b"one")) == b'{"stream":"S","seq":1}'
        assert await bench.answer(bench.publish("s.b", b"two")) == b'{"stream":"S","seq":2}'
        message = bench.store.load_cached(2)
        assert message is not None
        assert (message.subject, message.data, message.time_ns) == ("s.b", b"two", bench.clock())
        assert bench.readers.visible == 2


async def test_the_domain_stands_in_the_ack() -> None:
    async with memory_bench(domain="hub") as bench:
        answer = await bench.answer(bench.publish("s.a"))
        assert answer == b'{"stream":"S","domain":"hub","seq":1}'


async def test_a_file_acknowledges_what_is_on_disk(tmp_path: Path) -> None:
    async with file_bench(tmp_path) as bench:
        replies = [bench.publish("s.a", b"%d" % number) for number in range(50)]
        assert bench.readers.visible == 0
        for number, reply in enumerate(replies, 1):
            assert json.loads(await bench.answer(reply)) == {"stream": "S", "seq": number}
        assert bench.readers.visible == bench.store.durable_sequence == 50
        assert [message.subject for message in bench.received] == replies


async def test_nobody_who_wants_no_ack_gets_one(eventually: Eventually) -> None:
    async with memory_bench(no_ack=True) as bench:
        reply = bench.publish("s.a")
        bench.publish("s.a", Nats_Expected_Stream="other")
        await eventually(lambda: bench.readers.visible == 1)
        assert bench.answers_to(reply) == []
        assert bench.ingest.num_unanswered == 0


async def test_a_duplicate_is_answered_with_its_original() -> None:
    async with memory_bench(duplicate_window_ns=120 * SECOND_NS) as bench:
        await bench.ask("s.a", Nats_Msg_Id="first")
        await bench.ask("s.a", Nats_Msg_Id="second")
        again = await bench.answer(bench.publish("s.b", Nats_Msg_Id="first"))
        assert again == b'{"stream":"S","seq":1,"duplicate": true}'
        bench.clock.now_ns += 120 * SECOND_NS
        assert await bench.ask("s.b", Nats_Msg_Id="first") == {"stream": "S", "seq": 3}


async def test_without_a_window_nothing_is_a_duplicate() -> None:
    async with memory_bench() as bench:
        await bench.ask("s.a", Nats_Msg_Id="first")
        assert await bench.ask("s.a", Nats_Msg_Id="first") == {"stream": "S", "seq": 2}
        assert bench.ingest.message_ids.last == "first"
        assert len(bench.ingest.message_ids) == 0


async def test_ids_are_forgotten_by_themselves(eventually: Eventually) -> None:
    async with memory_bench(duplicate_window_ns=SECOND_NS // 10) as bench:
        await bench.ask("s.a", Nats_Msg_Id="first")
        bench.clock.now_ns += SECOND_NS
        await eventually(lambda: len(bench.ingest.message_ids) == 0)


REFUSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"Nats_Incr": "+1"}, error(400, 10168, "message counters is disabled")),
    ({"Nats_Incr": "x"}, error(400, 10171, "message counter increment is invalid")),
    ({"Nats_Expected_Stream": "T"}, error(400, 10060, "expected stream does not match")),
    ({"Nats_TTL": "5"}, error(400, 10166, "per-message TTL is disabled")),
    ({"Nats_TTL": "never"}, error(400, 10166, "per-message TTL is disabled")),
    ({"Nats_TTL": "1h"}, error(400, 10166, "per-message TTL is disabled")),
    ({"Nats_TTL": "1ms"}, error(400, 10165, "invalid per-message TTL")),
    ({"Nats_TTL": "soon"}, error(400, 10165, "invalid per-message TTL")),
    (
        {"Nats_Expected_Last_Subject_Sequence": "1"},
        error(400, 10071, "wrong last sequence: 2"),
    ),
    (
        {
            "Nats_Expected_Last_Subject_Sequence": "2",
            "Nats_Expected_Last_Subject_Sequence_Subject": "s.other",
        },
        error(400, 10071, "wrong last sequence: 0"),
    ),
    (
        {"Nats_Expected_Last_Subject_Sequence_Subject": "s.other"},
        error(400, 10193, "missing sequence for expected last sequence per subject"),
    ),
    ({"Nats_Expected_Last_Sequence": "7"}, error(400, 10071, "wrong last sequence: 2")),
    ({"Nats_Expected_Last_Sequence": "x"}, error(400, 10071, "wrong last sequence: 2")),
    ({"Nats_Schedule": "@every 1s"}, error(400, 10188, "message schedules is disabled")),
    ({"Nats_Schedule_Next": "soon"}, error(400, 10212, "message schedules invalid scheduler")),
    (
        {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "s.x"},
        error(400, 10188, "message schedules is disabled"),
    ),
    ({"Nats_Scheduler": "s.x"}, error(400, 10212, "message schedules invalid scheduler")),
    ({"Nats_Expected_Last_Msg_Id": "zero"}, error(400, 10070, "wrong last msg ID: <last> & one")),
    ({"Nats_Rollup": "sub"}, error(500, 10111, "rollup not permitted")),
    ({"Nats_Batch_Id": "b"}, error(400, 10174, "atomic publish is disabled")),
]


@pytest.mark.parametrize(("headers", "expected"), REFUSED)
async def test_what_headers_demand(headers: dict[str, Any], expected: dict[str, Any]) -> None:
    async with memory_bench() as bench:
        await bench.ask("s.a")
        await bench.ask("s.a", Nats_Msg_Id="<last> & one")
        assert await bench.ask("s.a", **headers) == expected
        assert len(bench.contents()) == 2


HELD: list[dict[str, Any]] = [
    {"Nats_Expected_Stream": "S"},
    {"Nats_Expected_Last_Sequence": "2"},
    {"Nats_Expected_Last_Subject_Sequence": "2"},
    {"Nats_Expected_Last_Msg_Id": "one"},
    {"Nats_Expected_Last_Sequence": "", "Nats_Msg_Id": ""},
    {
        "Nats_Expected_Last_Subject_Sequence": "0",
        "Nats_Expected_Last_Subject_Sequence_Subject": "s.none",
    },
    {
        "Nats_Expected_Last_Subject_Sequence": "2",
        "Nats_Expected_Last_Subject_Sequence_Subject": "s.*",
    },
    {
        "Nats_Expected_Last_Subject_Sequence": "0",
        "Nats_Expected_Last_Subject_Sequence_Subject": "t.>",
    },
]


@pytest.mark.parametrize("headers", HELD)
async def test_demands_that_hold(headers: dict[str, Any]) -> None:
    async with memory_bench() as bench:
        await bench.ask("s.b")
        await bench.ask("s.a", Nats_Msg_Id="one")
        assert await bench.ask("s.a", **headers) == {"stream": "S", "seq": 3}


async def test_errors_are_written_as_on_nats_server() -> None:
    async with memory_bench() as bench:
        await bench.ask("s.a", Nats_Msg_Id='<"\x7f&é>')
        answer = await bench.answer(bench.publish("s.a", Nats_Expected_Last_Msg_Id="2"))
        assert (
            answer
            == (
                '{"error":{"code":400,"err_code":10070,"description":'
                '"wrong last msg ID: \\u003c\\"\x7f\\u0026é\\u003e"},"stream":"S","seq":0}'
            ).encode()
        )


async def test_a_batch_reply_is_refused() -> None:
    async with memory_bench() as bench:
        reply = bench.publish("s.a", reply="inbox.uuid.10.fail.1.0.$FI")
        expected = error(400, 10205, "batch publish is disabled")
        assert json.loads(await bench.answer(reply)) == expected


async def test_a_sealed_stream_takes_nothing() -> None:
    async with memory_bench(sealed=True) as bench:
        sealed = error(400, 10109, "invalid operation on sealed stream")
        assert await bench.ask("s.a", Nats_Expected_Stream="other") == sealed


async def test_sizes() -> None:
    async with memory_bench(max_msg_size=10) as bench:
        too_large = error(400, 10054, "message size exceeds maximum allowed")
        assert await bench.ask("s.a", b"x" * 11) == too_large
        assert "error" not in await bench.ask("s.a", b"x" * 10)
        assert await bench.ask("s.a", b"", A="long enough") == too_large
    async with memory_bench() as bench:
        headers_too_large = error(400, 10097, "header size exceeds maximum allowed of 64k")
        assert await bench.ask("s.a", A="x" * 65_536) == headers_too_large
        assert "error" not in await bench.ask("s.a", A="x" * 65_000)
        subject_too_large = error(*STORE_FAILED, "message too large")
        assert await bench.ask("s." + "x" * 65_535) == subject_too_large


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(max_msgs=1, discard=Discard.NEW), "maximum messages exceeded"),
        (Limits(max_bytes=60, discard=Discard.NEW), "maximum bytes exceeded"),
        (
            Limits(max_msgs_per_subject=1, discard=Discard.NEW, discard_new_per_subject=True),
            "maximum messages per subject exceeded",
        ),
    ],
)
async def test_discard_new(limits: Limits, text: str) -> None:
    async with memory_bench(limits=limits) as bench:
        await bench.store_all("s.a")
        assert await bench.ask("s.a") == error(*STORE_FAILED, text)


async def test_a_rollup_makes_its_own_room() -> None:
    limits = Limits(max_msgs_per_subject=1, discard=Discard.NEW, discard_new_per_subject=True)
    async with memory_bench(limits=limits, allows_rollup=True) as bench:
        await bench.store_all("s.a")
        assert await bench.ask("s.a", Nats_Rollup="sub") == {"stream": "S", "seq": 2}
        assert bench.contents() == {2: "s.a"}


@pytest.mark.parametrize(
    ("value", "left"),
    [("sub", {2: "s.b", 5: "s.a"}), ("ALL", {5: "s.a"}), ("Sub", {2: "s.b", 5: "s.a"})],
)
async def test_rollups(value: str, left: dict[int, str]) -> None:
    async with memory_bench(allows_rollup=True) as bench:
        await bench.store_all("s.a", "s.b", "s.a", "s.a")
        assert await bench.ask("s.a", Nats_Rollup=value) == {"stream": "S", "seq": 5}
        assert bench.contents() == left
        wrong = error(500, 10111, 'rollup value invalid: "some"')
        assert await bench.ask("s.a", Nats_Rollup="some") == wrong


@pytest.mark.parametrize("value", ["sub", "all"])
async def test_a_rollup_of_many_is_answered_when_they_are_gone(tmp_path: Path, value: str) -> None:
    async with file_bench(tmp_path, allows_rollup=True) as bench:
        for _ in range(300):
            bench.publish("s.a", b"x" * 40)
        first = bench.publish("s.a", Nats_Rollup=value)
        second = bench.publish("s.b")
        assert json.loads(await bench.answer(first))["seq"] == 301
        assert bench.contents() == {301: "s.a", 302: "s.b"}
        assert json.loads(await bench.answer(second))["seq"] == 302
        assert bench.readers.visible >= 301


async def test_the_server_has_no_room() -> None:
    server = Usage(memory_limit=100)
    async with memory_bench(usage=Usage(server)) as bench:
        await bench.store_all("s.a", "s.a", "s.a")
        assert await bench.ask("s.a") == error(503, 10023, "insufficient resources")
        await bench.store.purge()
        await bench.store_all("s.a")


async def test_the_account_has_no_room() -> None:
    account = Usage(Usage(), memory_limit=100)
    async with memory_bench(usage=account) as bench:
        await bench.store_all("s.a", "s.a")
        exceeded = error(400, 10002, "resource limits exceeded for account")
        assert await bench.ask("s.a") == exceeded
        assert account.server is not None
        assert account.memory_used == account.server.memory_used == bench.store.log.live_bytes
        bench.ingest.release_usage()
        assert account.memory_used == account.server.memory_used == 0


async def room_for(usage: Usage, **settings: Any) -> int:
    """Return how many messages are stored before the account has no more room."""
    async with memory_bench(usage=usage, **settings) as bench:
        count = 0
        while "error" not in await bench.ask("s.a"):
            count += 1
        bench.ingest.release_usage()
        return count


async def test_the_account_has_no_room_because_of_other_servers() -> None:
    account = Usage(Usage(), memory_limit=1000)
    alone = await room_for(account)
    account.count_elsewhere(memory=500, file=0)
    assert await room_for(account) == alone // 2
    account.count_elsewhere(memory=2000, file=0)
    assert await room_for(account) == 0
    account.count_elsewhere(memory=0, file=2000)
    assert await room_for(account) == alone
    account.memory_limit = -1
    account.count_elsewhere(memory=1 << 62, file=0)
    async with memory_bench(usage=account) as bench:
        await bench.store_all("s.a")


async def test_a_message_needs_room_for_all_its_copies() -> None:
    async with memory_bench() as bench:
        await bench.store_all("s.a")
        size = bench.ingest.counted_bytes
    flat = Usage(Usage(), memory_limit=3 * size)
    assert await room_for(flat) == 3
    assert await room_for(flat, copies=3) == 1
    assert await room_for(flat, copies=4) == 0
    tier = Usage(Usage(), memory_limit=3 * size, replicas=3)
    tier.count_elsewhere(memory=4 * size, file=0)
    # Of nine copies, five are left: the next message needs three as long as two or fewer are here.
    assert await room_for(tier, copies=4) == 3, "a read replica does not count towards a tier"


async def test_a_status_and_request_info_are_not_stored() -> None:
    async with memory_bench() as bench:
        block = b"NATS/1.0 503 No\r\nA: b\r\nNats-Request-Info: {}\r\nC: d\r\n\r\n"
        bench.publish_block("s.a", b"x", block, "inbox.one")
        await bench.answer("inbox.one")
        bench.publish_block("s.a", b"x", b"NATS/1.0 503\r\n\r\n", "inbox.two")
        await bench.answer("inbox.two")
        first, second = bench.store.load_cached(1), bench.store.load_cached(2)
        assert first is not None
        assert first.headers == b"NATS/1.0\r\nA: b\r\nC: d\r\n\r\n"
        assert second is not None
        assert not second.headers


async def test_a_publish_of_the_server_itself() -> None:
    async with memory_bench() as bench:
        bench.ingest.publish_internal("s.a", b"", b"data", b"inbox.own")
        assert await bench.answer("inbox.own") == b'{"stream":"S","seq":1}'


async def test_a_paused_stream_takes_nothing() -> None:
    async with memory_bench() as bench:
        bench.ingest.pause()
        assert bench.account.publisher.publish(b"s.a", b"") == 0
        bench.ingest.resume()
        await bench.store_all("s.a")
