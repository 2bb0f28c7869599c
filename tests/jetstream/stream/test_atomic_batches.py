"""Atomic batches at a stream's ingest (ADR-50): rules against a model, memory, failed commits."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.stream.batching import AtomicBatches, FastBatches
from natsd.jetstream.stream.checks import InflightBatches
from natsd.store.store import Discard, Limits
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.stream.publishing import Bench, file_bench, memory_bench
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import Eventually

SIZE_MAX = 5
DUPLICATE, WRONG_SEQUENCE, NOT_IN_A_BATCH, ROLLUP, FULL, LARGE = (
    10201,
    10071,
    10164,
    10111,
    10077,
    10199,
)


def offer(bench: Bench, *, msgs_max: int = SIZE_MAX, staged_bytes_max: int = 1 << 20) -> list[Any]:
    """Let the bench's stream accept batches and return the list of abandoned ones."""
    told: list[Any] = []
    inflight = InflightBatches(
        per_stream_max=10,
        total_max=10,
        msgs_max=msgs_max,
        timeout_ns=10 * SECOND_NS,
        staged_bytes_max=staged_bytes_max,
    )
    bench.ingest.atomic_batches = AtomicBatches(
        bench.ingest, inflight, lambda batch_id, reason: told.append((batch_id, reason))
    )
    return told


def put(
    bench: Bench, batch_id: str, number: int, subject: str, data: bytes = b"", **headers: str
) -> str:
    """Publish one message of a batch and return its reply subject."""
    named = {"Nats_Batch_Id": batch_id, "Nats_Batch_Sequence": f"{number}", **headers}
    return bench.publish(subject, data, **named)


# ---- against a model


@dataclass(frozen=True)
class Wanted:
    """A message to publish."""

    subject: str
    message_id: str
    expected_last: int | None
    expected_of_subject: int | None
    rollup: str

    def headers(self) -> dict[str, str]:
        given: dict[str, object] = {
            "Nats_Msg_Id": self.message_id,
            "Nats_Expected_Last_Sequence": self.expected_last,
            "Nats_Expected_Last_Subject_Sequence": self.expected_of_subject,
            "Nats_Rollup": self.rollup,
        }
        return {name: f"{value}" for name, value in given.items() if value not in (None, "")}


wanted = st.builds(
    Wanted,
    subject=st.sampled_from(["s.a", "s.b", "s.c"]),
    message_id=st.sampled_from(["", "", "", "1", "2", "3", "4"]),
    expected_last=st.sampled_from([None] * 8 + list(range(6))),
    expected_of_subject=st.sampled_from([None] * 8 + list(range(4))),
    rollup=st.sampled_from([""] * 8 + ["sub", "all"]),
)
batches = st.lists(wanted, min_size=1, max_size=SIZE_MAX + 1)


@dataclass
class Plain:
    """A model of the stream and of the effect of a batch."""

    max_msgs: int
    contents: dict[int, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    last: int = 0

    def last_of(self, subject: str) -> int:
        return max((s for s, each in self.contents.items() if each == subject), default=0)

    def error(self, batch: list[Wanted]) -> int:
        """Return the code of the first broken rule; 0: no rule is broken."""
        if len(batch) > SIZE_MAX:
            return LARGE
        for place, message in enumerate(batch):
            if code := self._error_of(message, batch[:place]):
                return code
        return 0

    def _error_of(self, message: Wanted, before: list[Wanted]) -> int:
        ids = self.ids | {each.message_id for each in before}
        written = {each.subject for each in before}
        if message.message_id and message.message_id in ids:
            return DUPLICATE
        if message.expected_last is not None:
            if message.expected_last != self.last + len(before):
                return WRONG_SEQUENCE
            if before:
                return NOT_IN_A_BATCH
        if message.expected_of_subject is not None:
            if message.subject in written:
                return NOT_IN_A_BATCH
            if message.expected_of_subject != self.last_of(message.subject):
                return WRONG_SEQUENCE
        if (message.rollup == "sub" and message.subject in written) or (
            message.rollup == "all" and before
        ):
            return ROLLUP
        if self.max_msgs and len(self.contents) + len(before) + 1 > self.max_msgs:
            return FULL
        return 0

    def apply(self, batch: list[Wanted]) -> None:
        for message in batch:
            self.last += 1
            kept = {
                sequence: subject
                for sequence, subject in self.contents.items()
                if not message.rollup or (message.rollup == "sub" and subject != message.subject)
            }
            self.contents = {**kept, self.last: message.subject}
            if message.message_id:
                self.ids.add(message.message_id)


@asynccontextmanager
async def bench_of(directory: Path | None, max_msgs: int) -> AsyncIterator[Bench]:
    limits = Limits(max_msgs=max_msgs or -1, discard=Discard.NEW if max_msgs else Discard.OLD)
    chosen = {"limits": limits, "allows_rollup": True, "duplicate_window_ns": 60 * SECOND_NS}
    if directory is None:
        async with memory_bench(**chosen) as bench:
            yield bench
    else:
        disk = FaultyDisk(seed=1)
        async with file_bench(directory, disk=disk, **chosen) as bench:
            yield bench


@settings(max_examples=150 * TORTURE, deadline=None)
@given(
    asked=st.lists(batches, max_size=8),
    max_msgs=st.sampled_from([0, 0, 7]),
    is_filed=st.booleans(),
    ends_with_eob=st.booleans(),
)
def test_all_of_a_batch_or_nothing(
    asked: list[list[Wanted]], max_msgs: int, is_filed: bool, ends_with_eob: bool
) -> None:
    async def scenario() -> None:
        plain = Plain(max_msgs)
        async with bench_of(Path("/data") if is_filed else None, max_msgs) as bench:
            offer(bench)
            for number, batch in enumerate(asked):
                answer = await publish_batch(bench, f"b{number}", batch, ends_with_eob)
                code = plain.error(batch)
                assert answer.get("error", {}).get("err_code", 0) == code
                if not code:
                    plain.apply(batch)
                    assert (answer["seq"], answer["count"]) == (plain.last, len(batch))
                assert bench.contents() == plain.contents
                assert bench.store.log.last_sequence == plain.last
                assert len(bench.ingest.atomic_batches or ()) == 0

    asyncio.run(scenario())


async def publish_batch(bench: Bench, batch_id: str, batch: list[Wanted], eob: bool) -> Any:
    """Publish a batch and return the answer that ends it."""
    for number, message in enumerate(batch, 1):
        commit = {} if eob or number < len(batch) else {"Nats_Batch_Commit": "1"}
        reply = put(bench, batch_id, number, message.subject, **message.headers(), **commit)
        answer = await bench.answer(reply)
        if answer:
            return json.loads(answer)
    reply = put(bench, batch_id, len(batch) + 1, "s.none", Nats_Batch_Commit="eob")
    return json.loads(await bench.answer(reply))


# ---- memory


async def test_what_is_staged_is_bounded(eventually: Eventually) -> None:
    """A batch beyond the limit is abandoned with 429; others go on."""
    async with memory_bench(buffered_bytes_max=100_000) as bench:
        told = offer(bench, msgs_max=1000)
        replies = [put(bench, "large", number, "s.a", bytes(30_000)) for number in range(1, 5)]
        answers = [json.loads(await bench.answer(reply) or b"{}") for reply in replies]
        refused = [answer["error"]["err_code"] for answer in answers if answer]
        assert refused[0] == 10167
        await eventually(lambda: told == [("large", "large")])
        put(bench, "small", 1, "s.a", bytes(1000))
        reply = put(bench, "small", 2, "s.a", Nats_Batch_Commit="1")
        assert json.loads(await bench.answer(reply))["count"] == 2


async def test_so_is_what_all_streams_stage(eventually: Eventually) -> None:
    async with memory_bench() as bench:
        told = offer(bench, msgs_max=1000, staged_bytes_max=50_000)
        for number in range(1, 4):
            put(bench, "large", number, "s.a", bytes(30_000))
        await eventually(lambda: told == [("large", "large")])


async def test_idle_batches_are_given_up(eventually: Eventually) -> None:
    async with memory_bench() as bench:
        told = offer(bench)
        await bench.answer(put(bench, "first", 1, "s.a"))
        bench.clock.now_ns += 6 * SECOND_NS
        await bench.answer(put(bench, "second", 1, "s.a"))
        bench.clock.now_ns += 6 * SECOND_NS
        await eventually(lambda: told == [("first", "timeout")])
        assert "count" in json.loads(
            await bench.answer(put(bench, "second", 2, "s.a", Nats_Batch_Commit="1"))
        )


# ---- failing commits


async def test_a_commit_that_fails_leaves_nothing_of_a_batch(eventually: Eventually) -> None:
    disk = FaultyDisk(seed=1)
    async with file_bench(Path("/data"), disk=disk, duplicate_window_ns=60 * SECOND_NS) as bench:
        offer(bench)
        await bench.ask("s.a")
        disk.fail("pwrite", errno.ENOSPC, path=".blk")
        await bench.answer(put(bench, "b", 1, "s.a", Nats_Msg_Id="1"))
        reply = put(bench, "b", 2, "s.a", Nats_Batch_Commit="1")
        answer = json.loads(await bench.answer(reply))
        assert answer["error"]["err_code"] == 10023
        assert bench.store.log.last_sequence == bench.readers.visible == 1
        assert len(bench.ingest.message_ids) == 0
        while True:  # until the store has looked for space
            await bench.answer(put(bench, "b", 1, "s.a", Nats_Msg_Id="1"))
            reply = put(bench, "b", 2, "s.a", Nats_Batch_Commit="1")
            answer = json.loads(await bench.answer(reply))
            if "count" in answer:
                break
        assert answer["seq"] == 3


async def test_a_fast_batch_hears_of_it_and_ends(eventually: Eventually) -> None:
    disk = FaultyDisk(seed=1)
    async with file_bench(Path("/data"), disk=disk) as bench:
        inflight = InflightBatches(
            per_stream_max=10, total_max=10, msgs_max=0, timeout_ns=10 * SECOND_NS
        )
        fast = bench.ingest.fast_batches = FastBatches(bench.ingest, inflight)
        first = bench.publish("s.a", reply="inbox.f.1.fail.1.0.$FI")
        await eventually(lambda: len(bench.answers_to(first)) == 2)
        acks = [json.loads(each.data) for each in bench.answers_to(first)]
        assert [ack["seq"] for ack in acks] == [0, 1]
        disk.fail("fdatasync", errno.EIO)
        reply = bench.publish("s.a", reply="inbox.f.1.fail.2.1.$FI")
        assert json.loads(await bench.answer(reply))["error"]["err_code"] == 10077
        assert len(fast) == inflight.count == 0
        assert bench.store.log.last_sequence == 1


async def test_nothing_under_way_outlives_its_stream() -> None:
    async with memory_bench() as bench:
        offer(bench)
        batches = bench.ingest.atomic_batches
        assert isinstance(batches, AtomicBatches)
        await bench.answer(put(bench, "b", 1, "s.a"))
        assert len(batches) == 1
        bench.ingest.close()
        assert len(batches) == 0
