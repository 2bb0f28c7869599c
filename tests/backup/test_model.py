"""Backups after random changes: each is restored as the stream was when it was taken."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natsd.backup.directory import BackupDirectory
from natsd.backup.files import StoreFiles
from natsd.backup.restoring import Target, restore
from natsd.backup.taking import BackupRun
from natsd.backup.verifying import Verification
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.store.crypto.keys import OperatorKeys
from tests.backup.live import LiveStreams
from tests.jetstream.serving import account_of, create, publish, serving, update
from tests.store.crash import TORTURE

BLOCK_BYTES = 40_000  # so that a few messages fill a block
BODY_BYTES = 4_000

OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 25)),
    st.tuples(st.just("publish"), st.integers(1, 25)),
    st.tuples(st.just("delete"), st.integers(0, 100)),
    st.tuples(st.just("purge"), st.sampled_from(["s.0", "s.1", "", ""])),
    st.tuples(st.just("fetch"), st.integers(1, 10)),
    st.tuples(st.just("update"), st.integers(0, 9)),
    st.tuples(st.just("recreate"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("back_up"), st.just(0)),
    st.tuples(st.just("back_up"), st.just(0)),
)


@dataclass
class Model:
    """What the stream holds; `number` makes each body another one."""

    description: str = ""
    last: int = 0
    messages: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    delivered: int = 0
    acknowledged: int = 0
    number: int = 0

    def snapshot(self) -> tuple[Any, ...]:
        return self.description, self.last, dict(self.messages), self.delivered, self.acknowledged


class Machine:
    """Random changes to one stream, backups between them, and what each must restore."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.backups = BackupDirectory.create(directory / "backups", None)
        self.model = Model()
        self.expected: dict[str, tuple[Any, ...]] = {}
        self.now_ns = time.time_ns()
        self.written: list[int] = []

    async def run(self, operations: list[tuple[str, Any]]) -> None:
        waiting = [*operations, ("back_up", 0)]
        is_new = True
        while waiting:
            async with serving(self.directory / "a") as jetstream:
                if is_new:
                    await self.start(jetstream)
                    is_new = False
                while waiting:
                    name, value = waiting.pop(0)
                    if name == "restart":
                        break
                    await getattr(self, name)(jetstream, value)
        for backup_id, expected in self.expected.items():
            await self.check(backup_id, expected)

    async def start(self, jetstream: JetStream) -> None:
        stream = await create(jetstream, "S", subjects=["s.*"])
        config = ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT)
        await stream.create_consumer(config, "")

    async def publish(self, jetstream: JetStream, count: int) -> None:
        model = self.model
        for _ in range(count):
            model.number += 1
            subject, body = (
                f"s.{model.number % 3}",
                random.Random(model.number).randbytes(BODY_BYTES),
            )
            model.last = (await publish(jetstream, subject, body))["seq"]
            model.messages[model.last] = subject, body

    async def delete(self, jetstream: JetStream, value: int) -> None:
        if self.model.messages:
            sequence = sorted(self.model.messages)[value % len(self.model.messages)]
            await account_of(jetstream).stream("S").delete_message(sequence)
            del self.model.messages[sequence]

    async def purge(self, jetstream: JetStream, subject: str) -> None:
        await ask_api(jetstream, "STREAM.PURGE.S", {"filter": subject} if subject else {})
        kept = {n: m for n, m in self.model.messages.items() if subject and m[0] != subject}
        self.model.messages = kept
        consumer = account_of(jetstream).stream("S").consumer("C").store.tracker.state()
        self.model.delivered = consumer.delivered.stream
        self.model.acknowledged = consumer.ack_floor.stream

    async def fetch(self, jetstream: JetStream, count: int) -> None:
        model = self.model
        count = min(count, sum(n > model.delivered for n in model.messages))
        client = account_of(jetstream).account.internal_client
        for _ in range(count):
            arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            def received(
                _subject: str,
                reply: str | None,
                _headers: bytes,
                _data: bytes,
                arrived: asyncio.Future[str] = arrived,
            ) -> None:
                arrived.set_result(reply or "")

            inbox = client.subscribe("inbox", received)
            client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"", reply="inbox")
            async with asyncio.timeout(20):
                reply = await arrived
                client.unsubscribe(inbox)
                await client.request(reply, b"+ACK", timeout_s=20)
        state = account_of(jetstream).stream("S").consumer("C").store.tracker.state()
        model.delivered, model.acknowledged = state.delivered.stream, state.ack_floor.stream

    async def update(self, jetstream: JetStream, value: int) -> None:
        self.model.description = f"version {value}"
        stream = account_of(jetstream).stream("S")
        await update(stream, description=self.model.description)

    async def recreate(self, jetstream: JetStream, _value: int) -> None:
        await ask_api(jetstream, "STREAM.DELETE.S", None)
        self.model = Model(number=self.model.number)
        await self.start(jetstream)

    async def back_up(self, jetstream: JetStream, _value: int) -> None:
        self.now_ns += 1_000_000_000
        source = LiveStreams(jetstream)
        self.backups = BackupDirectory.open(self.backups.path, None)
        run = BackupRun(self.backups, source, lambda: self.now_ns)
        taken = await asyncio.to_thread(run.run, [], [], [], lambda _title: lambda _a, _b: None)
        assert not taken.manifest.problems
        self.expected[taken.manifest.id] = self.model.snapshot()
        self.written.append(taken.written_bytes)

    async def check(self, backup_id: str, expected: tuple[Any, ...]) -> None:
        manifest = self.backups.read(backup_id)
        verification = Verification(self.backups)
        verification.run(manifest, lambda _done, _total: None)
        assert not verification.result.damage
        target = self.directory / backup_id
        files = StoreFiles(target / "jetstream", OperatorKeys(), is_target=True)
        report = await asyncio.to_thread(
            restore,
            self.backups,
            list(manifest.streams),
            Target(),
            files,
            lambda _title: lambda _done, _total: None,
            overwrites=False,
        )
        assert not report.problems
        async with serving(target) as jetstream:
            stream = account_of(jetstream).stream("S")
            log = stream.store.log
            found = {}
            for sequence in range(1, log.last_sequence + 1):
                if log.has(sequence):
                    message = await stream.store.load(sequence)
                    found[sequence] = message.subject, message.data
            state = stream.consumer("C").store.tracker.state()
            assert (
                stream.config.description or "",
                log.last_sequence,
                found,
                state.delivered.stream,
                state.ack_floor.stream,
            ) == expected


async def ask_api(jetstream: JetStream, name: str, body: object) -> None:
    client = account_of(jetstream).account.internal_client
    payload = b"" if body is None else json.dumps(body).encode()
    answer = json.loads(await client.request(f"$JS.API.{name}", payload, timeout_s=20))
    assert "error" not in answer, answer


def run_machine(operations: list[tuple[str, Any]]) -> list[int]:
    """Run the operations; return how many bytes each backup wrote."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr("natsd.store.file_store.LARGE_BLOCK_BYTES", BLOCK_BYTES)
        machine = Machine(Path(directory))
        asyncio.run(machine.run(operations))
        return machine.written


@settings(max_examples=4 * TORTURE, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPERATIONS, min_size=3, max_size=10))
def test_each_backup_equals_the_stream_when_it_was_taken(operations: list[tuple[str, Any]]) -> None:
    run_machine(operations)


def test_a_backup_writes_what_has_changed() -> None:
    """Nothing, for no change; one block and the record, for one message; the blocks of deletes."""
    written = run_machine(
        [
            ("publish", 100),
            ("back_up", 0),
            ("back_up", 0),
            ("publish", 1),
            ("back_up", 0),
            ("delete", 0),
            ("restart", 0),
            ("back_up", 0),
            ("recreate", 0),
            ("publish", 5),
        ]
    )
    first, unchanged, published, deleted, recreated = written
    assert first > 100 * BODY_BYTES
    assert unchanged == 0
    for size in (published, deleted):
        assert 0 < size < 4 * BLOCK_BYTES
    assert 0 < recreated < 2 * BLOCK_BYTES
