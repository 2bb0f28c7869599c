"""What is proposed and not committed is seen by checks, not by readers, and can be undone.

The committer of these tests commits when the test says so.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from natsd.jetstream.commands.commands import Command, CreateConsumer, PublishBatch
from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.commands.encoding import decode, encode
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.stream.leading import step_down
from natsd.jetstream.stream.stream import Stream
from natsd.store import log_store
from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import StoreError
from tests.jetstream.commands.replay import following, state_of
from tests.jetstream.serving import DEADLINE_S, account_of, create, serving
from tests.waiting import eventually_within

INBOX = "_INBOX.answers"


class LateCommitter:
    """A committer that keeps commands, and commits them when the test says so."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.encoded: list[bytes] = []

    def propose(self, command: Command) -> None:
        self.encoded.append(encode(command))

    def commit(self, index: int) -> None:
        self.stream.commit(index)


class Led:
    """A stream with a late committer, and the answers to its publishers."""

    def __init__(self, jetstream: JetStream, stream: Stream, committer: LateCommitter) -> None:
        self.stream = stream
        self.committer = committer
        self.client = account_of(jetstream).account.internal_client
        self.answers: list[dict[str, Any]] = []
        self.delivered: list[bytes] = []
        self.client.subscribe(INBOX, self._answered)
        self.client.subscribe("deliver", self._took)

    def _answered(self, _subject: str, _reply: str | None, _head: bytes, data: bytes) -> None:
        self.answers.append(json.loads(data))

    def _took(self, _subject: str, _reply: str | None, _head: bytes, data: bytes) -> None:
        if data:
            self.delivered.append(data)

    def publish(self, data: bytes, lines: bytes = b"") -> None:
        block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""
        self.client.publish("s.a", data, reply=INBOX, headers=block)

    async def settle(self) -> None:
        """Let all that may happen without a commit of the replicas happen."""
        for _ in range(20):
            await asyncio.sleep(0.002)


async def lead(jetstream: JetStream, storage: str, **settings: Any) -> Led:
    committers: list[LateCommitter] = []

    def committer_of(stream: Stream) -> LateCommitter:
        committers.append(LateCommitter(stream))
        return committers[-1]

    jetstream.committer_of = committer_of
    stream = await create(jetstream, "S", subjects=["s.*"], storage=storage, **settings)
    return Led(jetstream, stream, committers[0])


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_checks_see_what_is_proposed_and_readers_what_is_committed(
    tmp_path: Path, storage: str
) -> None:
    async with serving(tmp_path) as jetstream:
        led = await lead(jetstream, storage)
        config = {"name": "C", "deliver_subject": "deliver", "ack_policy": "none"}
        await led.stream.create_consumer(ConsumerConfig.model_validate(config), "")
        before = led.stream.readers.proposer.proposed  # type: ignore[union-attr]  # it has one
        led.committer.commit(before)
        led.publish(b"one", b"Nats-Msg-Id: 1\r\n")
        led.publish(b"two", b"Nats-Expected-Last-Sequence: 1\r\n")
        led.publish(b"one", b"Nats-Msg-Id: 1\r\n")
        led.publish(b"no", b"Nats-Expected-Last-Sequence: 1\r\n")
        await led.settle()
        assert led.stream.readers.log.last_sequence == 2
        assert (led.answers, led.delivered) == ([], [])
        assert (await led.stream.info()).state.messages == 0
        led.committer.commit(before + 1)
        await led.settle()
        assert led.stream.readers.visible <= 1
        led.committer.commit(before + 2)
        await eventually_within(lambda: led.delivered == [b"one", b"two"])
        await eventually_within(lambda: len(led.answers) == 4)
        assert [answer.get("duplicate", False) for answer in led.answers] == [
            False,
            False,
            True,
            False,
        ]
        assert led.answers[3]["error"]["err_code"] == 10071


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_what_is_not_committed_is_undone(tmp_path: Path, storage: str) -> None:
    async with serving(tmp_path / "leader") as jetstream:
        led = await lead(jetstream, storage)
        stream, committer = led.stream, led.committer
        led.publish(b"one", b"Nats-Msg-Id: 1\r\n")
        led.publish(b"two")
        await led.settle()
        committer.commit(2)
        await eventually_within(lambda: len(led.answers) == 2)
        led.publish(b"three", b"Nats-Msg-Id: 3\r\n")
        await stream.store.delete(1)  # proposed before the third is committed
        led.publish(b"four")
        await led.settle()
        committer.commit(4)
        kept = [decode(each) for each in committer.encoded]
        assert stream.readers.log.last_sequence == 4
        follower = await (await step_down(stream)).apply_again()
        assert follower.applied == 4
        assert stream.readers.log.last_sequence == 3
        async with following(stream.config, stream.created_ns, tmp_path / "follower") as other:
            for index in range(1, 5):
                await other.apply(index, kept[index - 1])
            assert await state_of(other.stream) == await state_of(stream)
        await stream.store.synced()
        await eventually_within(lambda: len(led.answers) == 4)
        assert ["error" in answer for answer in led.answers] == [False, False, False, True]
        assert led.answers[3]["error"]["err_code"] == 10008


async def test_with_one_replica_all_is_agreed(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s.*"])
        assert stream.agreement is None
        await stream.agreed()


async def test_what_happens_during_a_batch_is_agreed_with_the_batch(tmp_path: Path) -> None:
    """A large batch is appended in slices, and so long everything is part of its command."""
    async with serving(tmp_path) as jetstream:
        led = await lead(jetstream, "file", allow_atomic=True)
        stream, committer = led.stream, led.committer
        for number in range(1, 21):
            lines = b"Nats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n" % number
            lines += b"Nats-Batch-Commit: 1\r\n" if number == 20 else b""
            led.client.publish(
                "s.a", bytes(400_000), reply=INBOX, headers=b"NATS/1.0\r\n" + lines + b"\r\n"
            )
        while not stream.readers.log.last_sequence:  # noqa: ASYNC110 - a few turns
            await asyncio.sleep(0)
        assert not committer.encoded
        await stream.create_consumer(ConsumerConfig(name="C", mem_storage=True), "create")
        agreed = asyncio.create_task(stream.agreed())
        await eventually_within(lambda: committer.encoded)
        batch = decode(committer.encoded[0])
        assert isinstance(batch, PublishBatch)
        assert any(isinstance(each, CreateConsumer) for each in batch.commands)
        assert not agreed.done()
        committer.commit(len(committer.encoded))
        await agreed


async def test_a_leader_that_steps_down_agrees_to_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        led = await lead(jetstream, "memory")
        agreement = led.stream.agreement
        assert agreement is not None
        led.publish(b"one")
        await led.settle()
        agreed = asyncio.create_task(agreement.reached())
        await led.settle()
        assert not agreed.done()
        await step_down(led.stream)
        with pytest.raises(NotCommitted):
            await agreed
        with pytest.raises(NotCommitted):
            await agreement.reached()


async def test_a_former_leader_lets_nothing_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expired messages are removed in slices, between which the stream steps down."""
    monkeypatch.setattr(log_store, "EXPIRY_SLICE", 1000)
    async with serving(tmp_path) as jetstream:
        led = await lead(jetstream, "memory", allow_msg_ttl=True)
        stream, committer = led.stream, led.committer
        for _ in range(5000):
            led.publish(b"", b"Nats-TTL: 1s\r\n")
        await led.settle()
        committer.commit(5000)
        log = stream.readers.log
        async with asyncio.timeout(DEADLINE_S):
            while log.msgs == 5000:  # noqa: ASYNC110 - a few turns
                await asyncio.sleep(0)
        assert 0 < log.msgs < 5000
        committer.commit(len(committer.encoded))
        kept = log.msgs
        await (await step_down(stream)).apply_again()
        await led.settle()
        assert log.msgs == kept


async def test_a_former_leader_deletes_nothing(tmp_path: Path) -> None:
    """The block of the message has to be read first, and meanwhile the stream steps down."""
    async with serving(tmp_path) as jetstream:
        led = await lead(jetstream, "file")
        stream, store = led.stream, led.stream.store
        led.publish(b"one")
        await led.settle()
        led.committer.commit(1)
        await eventually_within(lambda: led.answers)
        log = stream.readers.log

        class Cold:
            """The log while the block of the message is not in memory."""

            def delete(self, _sequence: int, *, erase: bool) -> bool:
                raise ColdBlock(log.block_with(1))

        async def step_down_and_fetch(_block: object) -> None:
            store._log = log
            await step_down(stream)

        store._log = Cold()  # type: ignore[assignment]  # as far as it is needed
        with patch.object(store, "fetch", step_down_and_fetch), pytest.raises(StoreError):
            await store.delete(1)
        assert stream.readers.log.has(1)


async def test_a_former_leader_forgets_open_batches(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        led = await lead(jetstream, "file", allow_atomic=True, allow_batched=True)
        led.publish(b"one", b"Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\n")
        await led.settle()
        assert jetstream.atomic_batches.count == 1
        await step_down(led.stream)
        assert jetstream.atomic_batches.count == 0
        assert led.stream.ingest.fast_batches is None
