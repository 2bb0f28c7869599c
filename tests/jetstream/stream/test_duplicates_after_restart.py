"""Message ids after a restart: from the store's records, and from duplicates.db."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from natsd.core.steps import at_once
from natsd.store.errors import DamagedEncoding
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.stream.publishing import Bench, file_bench
from tests.waiting import Eventually

WINDOW_NS = 100 * SECOND_NS


async def fill(bench: Bench) -> None:
    """Publish messages with the ids 0 to 49, a second apart."""
    for number in range(50):
        bench.publish("s.a", b"x" * 60, Nats_Msg_Id=f"id-{number}")
        bench.clock.now_ns += SECOND_NS
    await bench.ask("s.a", Nats_Msg_Id="last")


def duplicate(sequence: int) -> dict[str, object]:
    return {"stream": "S", "seq": sequence, "duplicate": True}


async def test_ids_are_found_in_the_store(tmp_path: Path) -> None:
    async with file_bench(tmp_path, duplicate_window_ns=WINDOW_NS) as bench:
        await fill(bench)
        now_ns = bench.clock.now_ns
    async with file_bench(tmp_path, duplicate_window_ns=WINDOW_NS) as bench:
        bench.clock.now_ns = now_ns + 60 * SECOND_NS
        await bench.ingest.message_ids.rebuild(bench.clock.now_ns)
        assert bench.ingest.message_ids.last == "last"
        assert len(bench.ingest.message_ids) == 40
        assert await bench.ask("s.a", Nats_Msg_Id="id-49") == duplicate(50)
        assert await bench.ask("s.a", Nats_Msg_Id="id-9") == {"stream": "S", "seq": 52}


async def test_ids_of_removed_messages_were_encoded(tmp_path: Path) -> None:
    async with file_bench(tmp_path, duplicate_window_ns=WINDOW_NS) as bench:
        await fill(bench)
        now_ns = bench.clock.now_ns
        encoded = bench.ingest.message_ids.encode()
        await bench.ask("s.a", Nats_Msg_Id="later")
        await bench.store.delete(10)
        await bench.store.synced()
    async with file_bench(tmp_path, duplicate_window_ns=WINDOW_NS) as bench:
        bench.clock.now_ns = now_ns
        at_once(bench.ingest.message_ids.restore(encoded, now_ns))
        await bench.ingest.message_ids.rebuild(now_ns)
        assert len(bench.ingest.message_ids) == 52
        assert await bench.ask("s.a", Nats_Msg_Id="id-9") == duplicate(10)
        assert await bench.ask("s.a", Nats_Msg_Id="later") == duplicate(52)


async def test_what_was_encoded_may_be_damaged_or_ahead(tmp_path: Path) -> None:
    async with file_bench(tmp_path, duplicate_window_ns=WINDOW_NS) as bench:
        await fill(bench)
        encoded = bench.ingest.message_ids.encode()
    (tmp_path / "other").mkdir()
    async with file_bench(tmp_path / "other", duplicate_window_ns=WINDOW_NS) as bench:
        for damaged in (b"", b"short", encoded[:-1]):
            with pytest.raises(DamagedEncoding):
                at_once(bench.ingest.message_ids.restore(damaged, bench.clock.now_ns))
        at_once(bench.ingest.message_ids.restore(encoded, bench.clock.now_ns))
        await bench.ingest.message_ids.rebuild(bench.clock.now_ns)
        assert len(bench.ingest.message_ids) == 0
        assert await bench.ask("s.a", Nats_Msg_Id="id-0") == {"stream": "S", "seq": 1}


async def test_very_many_are_found_in_the_background(
    tmp_path: Path, eventually: Eventually
) -> None:
    settings: dict[str, Any] = {"duplicate_window_ns": WINDOW_NS, "block_bytes": 1 << 20}
    async with file_bench(tmp_path, **settings, buffered_msgs_max=1 << 20) as bench:
        for _ in range(110_000):
            bench.ingest.publish_internal("s.a", b"", b"")
        await bench.ask("s.a", Nats_Msg_Id="last")
    async with file_bench(tmp_path, **settings) as bench:
        await bench.ingest.message_ids.rebuild(bench.clock.now_ns)
        assert bench.ingest.message_ids.is_recollecting
        assert bench.ingest.message_ids.last == "last"
        busy = await bench.ask("s.a", Nats_Msg_Id="last")
        assert busy["error"]["err_code"] == 10167
        assert await bench.ask("s.a") == {"stream": "S", "seq": 110_002}
        await eventually(lambda: not bench.ingest.message_ids.is_recollecting)
        assert await bench.ask("s.a", Nats_Msg_Id="last") == duplicate(110_001)
