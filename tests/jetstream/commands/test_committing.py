"""What is proposed and not committed is seen by checks, not by readers, and can be undone.

The committer of these tests commits when the test says so.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.commands.commands import Command
from natsd.jetstream.commands.encoding import decode, encode
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.stream.leading import step_down
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.commands.replay import following, state_of
from tests.jetstream.serving import account_of, create, serving
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


async def lead(jetstream: JetStream, storage: str) -> Led:
    committers: list[LateCommitter] = []

    def committer_of(stream: Stream) -> LateCommitter:
        committers.append(LateCommitter(stream))
        return committers[-1]

    jetstream.committer_of = committer_of
    stream = await create(jetstream, "S", subjects=["s.*"], storage=storage)
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
        follower = await step_down(stream)
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
