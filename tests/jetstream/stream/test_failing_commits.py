"""A failed commit is reported to its publishers, and leaves nothing behind (docs/store.md)."""

from __future__ import annotations

import errno
import json
from pathlib import Path

from tests.jetstream.clock import SECOND_NS
from tests.jetstream.stream.publishing import file_bench
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import Eventually

FULL = {"code": 503, "err_code": 10023, "description": "insufficient resources"}


async def test_publishers_hear_that_the_disk_is_full(eventually: Eventually) -> None:
    disk = FaultyDisk(seed=1)
    async with file_bench(
        Path("/data"), disk=disk, duplicate_window_ns=60 * SECOND_NS, allows_rollup=True
    ) as bench:
        await bench.ask("s.a", Nats_Msg_Id="first")
        disk.fail("pwrite", errno.ENOSPC, path=".blk")
        replies = [bench.publish("s.a", b"x", Nats_Msg_Id=f"{number}") for number in range(3)]
        again = bench.publish("s.a", b"x", Nats_Msg_Id="1")
        for reply in [*replies, again]:
            assert json.loads(await bench.answer(reply))["error"] == FULL
        assert bench.readers.visible == 1
        assert bench.ingest.message_ids.last == "first"
        assert len(bench.ingest.message_ids) == 1
        assert [message.subject for message in bench.received][1:] == [*replies, again]
        await eventually(lambda: bench.store.log.last_sequence == 1)
        stored = {"stream": "S", "seq": 2}
        answers = [await bench.ask("s.a", Nats_Msg_Id="1") for _ in range(1)]
        while answers[-1] != stored:
            assert answers[-1]["error"] == FULL
            answers.append(await bench.ask("s.a", Nats_Msg_Id="1"))


async def test_after_a_failed_sync_nothing_is_taken(eventually: Eventually) -> None:
    disk = FaultyDisk(seed=1)
    async with file_bench(Path("/data"), disk=disk) as bench:
        await bench.ask("s.a")
        disk.fail("fdatasync", errno.EIO)
        answer = await bench.ask("s.a")
        assert answer["error"]["err_code"] == 10077
        assert bench.store.log.last_sequence == 1
        assert (await bench.ask("s.a"))["error"]["err_code"] == 10077
