"""EMFILE and ENOMEM at every system call of a complete JetStream (docs/store.md).

Requests are refused or carried out, acknowledged messages stay, and everything goes on without a
restart. Each case is one kind of stream, one errno and one window of failing calls, from the n-th
call on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import pytest

from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.errors import ApiError
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.requests import StreamMsgGetRequest
from natsd.store.errors import StoreError
from tests.jetstream.power import ROOT
from tests.jetstream.serving import account_of, create, publish, serving, update
from tests.jetstream.test_faults import killed
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import end_other_tasks
from tests.store.test_passing_faults import CALLS, expect_passing, short_pauses
from tests.waiting import DEADLINE_S, eventually_within

pytestmark = pytest.mark.torture

STEP = max(1, 60 // TORTURE)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compressed": {"compression": "s2", "max_bytes": 100_000},
    "interest": {"retention": "interest"},
    "workqueue": {"retention": "workqueue"},
    "small": {"max_bytes": 30_000},
    "encrypted": {"max_bytes": 100_000},
}
OPTIONS: dict[str, dict[str, Any]] = {"encrypted": {"key": "a key"}}
REFUSED = (ApiError, StoreError, TimeoutError)


@dataclass
class Program:
    """A program that uses a stream and keeps the acknowledged messages."""

    kind: str
    stored: dict[int, bytes] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    consumed: set[int] = field(default_factory=set)

    async def run(self, jetstream: JetStream) -> None:
        await self.tried(create(jetstream, "S", subjects=["s.*"], **KINDS[self.kind]))
        await self.tried(self.consumer(jetstream))
        for number in range(40):
            await self.tried(self.publish(jetstream, number))
            if number == 20:
                await self.tried(self.change(jetstream))
            if number == 25:
                self.removed.add(3)
                await self.tried(self.delete(jetstream, 3))
            if number == 30:
                await self.tried(self.consumer(jetstream, description="new"))
            if number in (15, 35):
                await self.tried(self.consume(jetstream))
        await self.tried(create(jetstream, "OTHER", subjects=["o"]))
        await self.tried(account_of(jetstream).delete_stream("OTHER"))

    async def tried(self, work: Any) -> None:
        try:
            await work
        except REFUSED:
            return

    async def publish(self, jetstream: JetStream, number: int) -> None:
        if "S" not in account_of(jetstream).streams:
            return  # no answer would come
        data = b"%d" % (number % 10) * 1000
        answer = await publish(jetstream, f"s.{number % 5}", data)
        if "error" not in answer:
            self.stored[answer["seq"]] = data

    async def change(self, jetstream: JetStream) -> None:
        await update(account_of(jetstream).stream("S"), description="new")

    async def delete(self, jetstream: JetStream, sequence: int) -> None:
        await account_of(jetstream).stream("S").delete_message(sequence)

    async def consumer(self, jetstream: JetStream, **fields: Any) -> None:
        given = {"durable_name": "C", "ack_policy": "explicit"} | fields
        stream = account_of(jetstream).stream("S")
        await stream.create_consumer(ConsumerConfig.model_validate(given), "")

    async def consume(self, jetstream: JetStream) -> None:
        """Fetch some messages and acknowledge every other one."""
        client = account_of(jetstream).account.internal_client
        taken: list[int] = []

        def take(_subject: str, reply: str | None, _headers: bytes, _data: bytes) -> None:
            if reply is not None:
                sequence = int(reply.split(".")[5])
                taken.append(sequence)
                if sequence % 2 == 0:
                    self.consumed.add(sequence)
                    client.publish(reply, b"+ACK")

        subscription = client.subscribe("inbox", take)
        body = json.dumps({"batch": 10, "no_wait": True}).encode()
        client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, reply="inbox")
        for _ in range(30):
            await asyncio.sleep(0)
        client.unsubscribe(subscription)

    async def go_on(self, jetstream: JetStream) -> None:
        """Check that all operations are carried out within a while."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await create(jetstream, "S", subjects=["s.*"], **KINDS[self.kind])
                except ApiError:  # the earlier call has created it with the new description
                    if "S" not in account_of(jetstream).streams:
                        await asyncio.sleep(0.01)
                        continue
                before = len(self.stored)
                await self.tried(self.consumer(jetstream, description="new"))
                await self.publish(jetstream, 99)
                if len(self.stored) > before and "C" in account_of(jetstream).stream("S").consumers:
                    return
                await asyncio.sleep(0.01)

    async def check(self, jetstream: JetStream) -> None:
        stream = account_of(jetstream).stream("S")
        assert account_of(jetstream).offline == {}
        state = stream.store.state()
        assert state.last_sequence >= max(self.stored)
        may_go = set(self.removed)
        if self.kind in ("interest", "workqueue"):
            may_go |= self.consumed
        for sequence, data in self.stored.items():
            if self.kind == "interest" and sequence < min(self.consumed, default=1 << 60):
                continue  # published before the consumer existed
            if self.kind == "small" and sequence < state.first_sequence:
                continue
            try:
                message = await stream.get_message(StreamMsgGetRequest(seq=sequence))
            except ApiError:
                assert sequence in may_go, (sequence, state)
            else:
                assert message.data == data


async def explore(kind: str, number: int, after: int, times: int) -> bool:
    """Run one case and return whether any call failed."""
    program, options = Program(kind), OPTIONS.get(kind, {})
    is_reached = False

    async def use(jetstream: JetStream) -> None:
        nonlocal is_reached
        disk.fail(CALLS[number], number, after=after, times=times)
        await program.run(jetstream)
        is_reached = disk.has_failed_one
        disk.heal()
        await program.go_on(jetstream)
        await program.check(jetstream)

    disk = FaultyDisk()
    after_crash = (await killed(disk, use, **options)).crash(after)
    async with serving(ROOT, disk=after_crash, **options) as jetstream:
        await program.check(jetstream)
        await program.go_on(jetstream)
    await end_other_tasks()
    return is_reached


@pytest.mark.parametrize("number", CALLS)
@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_a_served_stream(
    kind: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with short_pauses(), mock.patch("natsd.jetstream.recovery.RETRY_S", 0.001):
        cases = 0
        for times in (1, 6):
            after = times * 7 % STEP
            while await explore(kind, number, after, times):
                cases += 1
                after += STEP
    assert cases
    unexpected = [r for r in caplog.records if r.levelno >= logging.ERROR and r.exc_info]
    assert not unexpected, unexpected[0].message


def is_served(account: JetStreamAccount) -> bool:
    return "S" in account.streams and not account.offline


@pytest.mark.parametrize("number", CALLS)
@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_a_start(kind: str, number: int) -> None:
    """Streams that could not be opened are opened later.

    If the volume does not open, nothing is served and nothing is lost.
    """
    options = OPTIONS.get(kind, {})
    program = Program(kind)
    left = await killed(FaultyDisk(), program.run, **options)
    with short_pauses(), mock.patch("natsd.jetstream.recovery.RETRY_S", 0.001):
        after, is_reached = 1, True
        while is_reached:
            disk = left.kill()
            left.is_off = False
            disk.fail(CALLS[number], number, after=after, times=2)
            try:
                async with serving(ROOT, disk=disk, **options) as jetstream:
                    is_reached = disk.has_failed_one
                    account = account_of(jetstream)
                    await eventually_within(partial(is_served, account))
                    await program.check(jetstream)
                    await Program(kind).go_on(jetstream)
            except OSError as error:
                expect_passing(error)
            await end_other_tasks()
            after += max(1, STEP // 4)
