"""Limits of a server and its accounts (nats-server's `JetStreamAccountLimits`)."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from natsd.accounts import SYSTEM_ACCOUNT, Account
from natsd.jetstream.errors import ApiError, ErrorId
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.account import AccountLimits, Tier
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.stream import Storage
from natsd.jetstream.stream.publishing import Usage
from natsd.jetstream.tiers import FLAT, NOTHING, UNLIMITED, Tiers
from tests.jetstream.serving import account_of, create, publish, serving, update
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import DEADLINE_S, POLL_S, Eventually

MEMORY, FILE = Storage.MEMORY, Storage.FILE
NO_ROOM = {
    MEMORY: ErrorId.JSMemoryResourcesExceededErr,
    FILE: ErrorId.JSStorageResourcesExceededErr,
}
STORAGES = pytest.mark.parametrize("storage", list(Storage))


async def error_of(jetstream: JetStream, name: str, **settings: Any) -> ErrorId | None:
    """Return the error with which creating such a stream is answered; None: it is created."""
    try:
        await create(jetstream, name, **settings)
    except ApiError as error:
        return error.error_id
    return None


@STORAGES
async def test_streams_reserve_their_max_bytes_of_the_server(
    tmp_path: Path, storage: Storage
) -> None:
    async with serving(tmp_path, max_memory_store=1000, max_file_store=1000) as jetstream:
        a = await create(jetstream, "A", storage=storage, max_bytes=600)
        assert await error_of(jetstream, "B", storage=storage, max_bytes=401) is NO_ROOM[storage]
        assert await error_of(jetstream, "B", storage=storage, max_bytes=400) is None
        assert await error_of(jetstream, "C", storage=storage) is NO_ROOM[storage]
        await update(a, max_bytes=500)
        assert await error_of(jetstream, "C", storage=storage, max_bytes=101) is NO_ROOM[storage]
        with pytest.raises(ApiError):
            await update(a, max_bytes=601)
        await account_of(jetstream).delete_stream("A")
        assert await error_of(jetstream, "C", storage=storage, max_bytes=600) is None
        info = account_of(jetstream).info()
        reserved = info.reserved_memory if storage is MEMORY else info.reserved_storage
        assert reserved == 1000


def test_what_counts_towards_a_tier() -> None:
    tiers = Tiers(Usage(), {"R1": AccountLimits(), "R3": AccountLimits(max_storage=9000)})
    assert tiers.usage_of(0) is tiers.usage_of(1)
    assert tiers.usage_of(3) is tiers.of(3).usage
    assert tiers.usage_of(3).replicas == 3
    assert tiers.usage_of(3, is_read_replica=True) not in [each.usage for each in tiers]
    assert tiers.limits_bytes
    tiers.change({"R3": AccountLimits()})
    assert not tiers.limits_bytes
    flat = Tiers(Usage(), UNLIMITED)
    assert flat.usage_of(3, is_read_replica=True) is flat.usage_of(1)
    assert flat.usage_of(3).replicas == 0
    assert not flat.limits_bytes
    flat.change({FLAT: AccountLimits(max_memory=0)})
    assert flat.limits_bytes


async def test_what_is_reserved_is_reserved_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "A", max_bytes=600)
    async with serving(tmp_path, max_file_store=1000) as jetstream:
        assert await error_of(jetstream, "B", max_bytes=401) is NO_ROOM[FILE]
        assert account_of(jetstream).info().reserved_storage == 600


@STORAGES
async def test_an_accounts_bytes(tmp_path: Path, storage: Storage) -> None:
    limits = AccountLimits(max_memory=1000, max_storage=1000)
    async with serving(tmp_path, limits=limits) as jetstream:
        assert await error_of(jetstream, "A", storage=storage, max_bytes=1001) is NO_ROOM[storage]
        await create(jetstream, "A", subjects=["a"], storage=storage)
        for _ in range(20):
            answer = await publish(jetstream, "a", bytes(100))
        assert answer["error"]["err_code"] == ErrorId.JSAccountResourcesExceededErr.err_code
        info = account_of(jetstream).info()
        assert 800 < (info.memory if storage is MEMORY else info.storage) <= 1000
        await account_of(jetstream).stream("A").purge()
        assert "seq" in await publish(jetstream, "a", bytes(100))


async def test_room_that_another_stream_gives_back_is_found(
    tmp_path: Path, eventually: Eventually
) -> None:
    async with serving(tmp_path, limits=AccountLimits(max_storage=1000)) as jetstream:
        full = await create(jetstream, "A", subjects=["a"])
        await create(jetstream, "B", subjects=["b"])
        while "error" not in await publish(jetstream, "a", bytes(100)):
            pass
        assert "error" in await publish(jetstream, "b", bytes(100))
        await full.purge()
        tiers = account_of(jetstream).tiers
        await eventually(lambda: tiers.file_used == 0)
        assert (await publish(jetstream, "b", bytes(100)))["seq"] == 1


@STORAGES
async def test_the_servers_bytes(tmp_path: Path, storage: Storage) -> None:
    async with serving(tmp_path, max_memory_store=1000, max_file_store=1000) as jetstream:
        await create(jetstream, "A", subjects=["a"], storage=storage)
        for _ in range(20):
            answer = await publish(jetstream, "a", bytes(100))
        assert answer["error"]["err_code"] == ErrorId.JSInsufficientResourcesErr.err_code


async def test_an_accounts_numbers(tmp_path: Path) -> None:
    limits = AccountLimits(max_streams=2, max_consumers=5)
    async with serving(tmp_path, limits=limits) as jetstream:
        await create(jetstream, "A")
        assert await error_of(jetstream, "B", max_consumers=6) is ErrorId.JSMaximumConsumersLimitErr
        await create(jetstream, "B", max_consumers=5)
        assert await error_of(jetstream, "C") is ErrorId.JSMaximumStreamsLimitErr
        await create(jetstream, "A")  # does not raise
        assert account_of(jetstream).info().limits == limits


async def test_an_accounts_rules_for_max_bytes(tmp_path: Path) -> None:
    limits = AccountLimits(
        max_bytes_required=True, memory_max_stream_bytes=10, storage_max_stream_bytes=20
    )
    async with serving(tmp_path, limits=limits) as jetstream:
        required = ErrorId.JSStreamMaxBytesRequired
        assert await error_of(jetstream, "A") is required
        exceeded = ErrorId.JSStreamMaxStreamBytesExceeded
        assert await error_of(jetstream, "A", max_bytes=21) is exceeded
        assert await error_of(jetstream, "A", max_bytes=11, storage=MEMORY) is exceeded
        assert await error_of(jetstream, "A", max_bytes=20) is None


# Tiers: limits by the number of replicas


async def test_a_tier_counts_its_own_streams(tmp_path: Path) -> None:
    """Account info reports a tier on its own, without limits of all tiers together."""
    tiers = {
        "R1": AccountLimits(max_memory=1000, max_storage=500, max_streams=2),
        "R3": AccountLimits(max_storage=9000),
    }
    async with serving(tmp_path, limits=tiers) as jetstream:
        a = await create(jetstream, "A", subjects=["a"], storage=MEMORY, max_bytes=600)
        assert await error_of(jetstream, "B", storage=MEMORY, max_bytes=401) is NO_ROOM[MEMORY]
        assert await error_of(jetstream, "B", max_bytes=501) is NO_ROOM[FILE]
        await create(jetstream, "B", max_bytes=500)
        assert await error_of(jetstream, "C") is ErrorId.JSMaximumStreamsLimitErr
        await publish(jetstream, "a", bytes(100))
        info = account_of(jetstream).info()
        assert list(info.tiers) == ["R1", "R3"]
        assert info.limits == NOTHING
        one, three = info.tiers.values()
        assert (one.limits, three.limits) == (tiers["R1"], tiers["R3"])
        assert (one.streams, one.reserved_memory, one.reserved_storage) == (2, 600, 500)
        assert one.memory == info.memory == (await a.info()).state.bytes
        assert three == Tier(limits=tiers["R3"])
        assert (info.streams, info.reserved_memory, info.reserved_storage) == (2, 600, 500)


async def test_publishes_keep_to_the_limits_of_their_tier(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"R1": AccountLimits(max_memory=1000)}) as jetstream:
        await create(jetstream, "A", subjects=["a"], storage=MEMORY)
        while "error" not in (answer := await publish(jetstream, "a", bytes(100))):
            pass
        assert answer["error"]["err_code"] == ErrorId.JSAccountResourcesExceededErr.err_code


async def test_consumers_keep_to_the_limits_of_their_streams_tier(tmp_path: Path) -> None:
    limits = AccountLimits(max_consumers=1, max_ack_pending=7)
    async with serving(tmp_path, limits={"R1": limits}) as jetstream:
        stream = await create(jetstream, "A")
        config = ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT)
        consumer = await stream.create_consumer(config, "")
        assert consumer.config.max_ack_pending == 7
        with pytest.raises(ApiError) as caught:
            await stream.create_consumer(config.model_copy(update={"durable_name": "D"}), "")
        assert caught.value.error_id is ErrorId.JSMaximumConsumersLimitErr


async def test_without_limits_there_are_no_new_streams(tmp_path: Path) -> None:
    """Existing streams stay readable, and take no messages."""
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "A", subjects=["a"])
        await publish(jetstream, "a")
    async with serving(tmp_path, limits={"R3": AccountLimits()}) as jetstream:
        assert await error_of(jetstream, "B") is ErrorId.JSNoLimitsErr
        assert (await account_of(jetstream).stream("A").info()).state.messages == 1
        refused = await publish(jetstream, "a")
        assert refused["error"]["err_code"] == ErrorId.JSNoLimitsErr.err_code
    async with serving(tmp_path) as jetstream:
        assert (await publish(jetstream, "a"))["seq"] == 2


async def test_flat_limits_count_each_replica(tmp_path: Path) -> None:
    """Each replica's max_bytes counts against flat limits, although replicas are refused."""
    refused = ErrorId.JSStreamReplicasNotSupportedErr
    limits = AccountLimits(max_storage=1000)
    async with serving(tmp_path, limits=limits) as jetstream:
        assert await error_of(jetstream, "A", max_bytes=400, num_replicas=3) is NO_ROOM[FILE]
        assert await error_of(jetstream, "A", max_bytes=300, num_replicas=3) is refused
    async with serving(tmp_path, limits={"R3": limits}) as jetstream:
        assert await error_of(jetstream, "A", max_bytes=400, num_replicas=3) is refused


# A disk that is full or broken


Served = Callable[[], AbstractAsyncContextManager[JetStream]]


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def on_disk(disk: FaultyDisk) -> Served:
    return partial(serving, Path("/data"), disk=disk)


async def test_out_of_space_is_refused_and_over_when_there_is_space(
    disk: FaultyDisk, on_disk: Served
) -> None:
    async with on_disk() as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"before")
        system = jetstream.system_account = Account(
            SYSTEM_ACCOUNT, jetstream.reactor, is_system=True
        )
        told: list[bytes] = []
        system.internal_client.subscribe(
            "$JS.EVENT.ADVISORY.SERVER.OUT_OF_STORAGE", lambda *message: told.append(message[3])
        )
        disk.fail("pwrite", errno.ENOSPC, path=".blk")
        answer = await publish(jetstream, "s", b"x")
        assert "error" in answer
        assert (await stream.info()).state.messages == 1

        async with asyncio.timeout(DEADLINE_S):
            while "error" in (answer := await publish(jetstream, "s", b"after")):  # noqa: ASYNC110 - it polls
                await asyncio.sleep(POLL_S)  # the store tries again after a second
        assert answer["seq"] == 2
        assert (await stream.info()).state.messages == 2
        assert [json.loads(event)["stream"] for event in told] == ["S"]
        system.close()


async def test_a_stream_that_finds_no_space_is_not_there(disk: FaultyDisk, on_disk: Served) -> None:
    async with on_disk() as jetstream:
        disk.fail("pwrite", errno.ENOSPC)
        assert await error_of(jetstream, "S") is NO_ROOM[FILE]
        assert account_of(jetstream).streams == {}
        assert await error_of(jetstream, "S") is None
        await publish(jetstream, "S", b"x")


async def test_a_disk_that_is_nearly_full_takes_no_new_streams(tmp_path: Path) -> None:
    disk = FaultyDisk(capacity_bytes=1 << 20)
    async with serving(Path("/data"), disk=disk) as jetstream:
        assert await error_of(jetstream, "S") is NO_ROOM[FILE]
        assert await error_of(jetstream, "M", storage=MEMORY) is None
