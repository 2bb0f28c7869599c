"""Ingest is bounded: publishers wait, and are then answered 429 (docs/store.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg

from natsd import Server
from natsd.jetstream.stream.answers import BUSY_HEADERS
from tests.jetstream.stream.publishing import file_bench, memory_bench
from tests.waiting import Eventually

TOO_MANY = {
    "error": {"code": 429, "err_code": 10167, "description": "too many requests"},
    "stream": "S",
    "seq": 0,
}


@pytest.mark.parametrize("limits", [{"buffered_msgs_max": 100}, {"buffered_bytes_max": 100 * 140}])
async def test_what_is_too_much_is_refused(limits: dict[str, Any], tmp_path: Path) -> None:
    async with file_bench(tmp_path, **limits) as bench:
        replies = [bench.publish("s.a", b"x" * 100) for _ in range(2000)]
        answers = [json.loads(await bench.answer(reply)) for reply in replies]
        stored = [answer for answer in answers if "error" not in answer]
        assert 150 < len(stored) < 1200
        assert [answer["seq"] for answer in stored] == list(range(1, len(stored) + 1))
        assert all(answer == TOO_MANY for answer in answers[len(stored) :])
        refused = bench.answers_to(replies[-1])[0]
        assert refused.headers == BUSY_HEADERS
        assert bench.store.log.last_sequence == len(stored)
        assert "error" not in await bench.ask("s.a")


async def test_clients_that_publish_too_fast_wait(tmp_path: Path, eventually: Eventually) -> None:
    answers: list[bytes] = []

    async def note(message: Msg) -> None:
        answers.append(message.data)

    async with (
        Server(host="127.0.0.1", port=-1) as server,
        file_bench(tmp_path, server=server, buffered_msgs_max=100, block_bytes=0) as bench,
    ):
        clients = [await nats.connect(server.client_url) for _ in range(3)]
        await clients[0].subscribe("acks", cb=note)
        await clients[0].flush()
        for _ in range(2000):
            for client in clients:
                await client.publish("s.a", b"x" * 50, reply="acks")
        await eventually(lambda: len(answers) == 6000, 20)
        assert bench.store.log.last_sequence == 6000
        assert sorted(json.loads(answer)["seq"] for answer in answers) == list(range(1, 6001))
        assert server.counters.stalled_clients > 10
        for client in clients:
            await client.close()


async def test_answers_that_wait_are_bounded(eventually: Eventually) -> None:
    async with memory_bench() as bench:
        taken = 0
        reply = "inbox." + "x" * 4000
        while taken < 20_000 and bench.ingest.num_unanswered == taken:
            bench.publish("s.a", reply=reply)
            taken += 1
        assert 1000 < taken < 4000
        await eventually(lambda: bench.ingest.num_unanswered == 0)
