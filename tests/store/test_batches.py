"""A batch is stored as a whole or not at all, for good, whatever the disk does.

Each commit carries a mark, and a last commit that does not verify is torn and cut (docs/store.md,
"What an acknowledgement means").
"""

import asyncio

import pytest

from natsd.store.errors import MaximumMessageSizeExceeded
from natsd.store.file_store import FileStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import OPTIONS, Machine
from tests.store.test_file_store_model import end_other_tasks, everything

BATCH = [(f"batch.{number}", b"NATS/1.0\r\nA: b\r\n\r\n", bytes(150)) for number in range(12)]
"""A batch that is longer than three blocks."""
CALLS = range(4, 70, 1 if TORTURE > 1 else 3)
SEEDS = range(6 * TORTURE)


async def store_batches(store: FileStore) -> None:
    """Store single messages around two batches; each batch is one commit."""
    for number in range(2):
        store.append("before", None, b"%d" % number, 1)
        await store.synced()
        store.append("with", None, b"%d" % number, 2)
        store.append_together(BATCH, 3)
        store.append("after", None, b"%d" % number, 4)
        await store.synced()
    await store.close()


async def check_whole(store: FileStore) -> None:
    found = [message.subject for message in await everything(store)]
    batched = [subject for subject in found if subject.startswith("batch")]
    assert batched in ([], *([subject for subject, _, _ in BATCH] * n for n in (1, 2)))
    subjects = await store.subject_totals("batch.*")
    assert sorted(batched) == sorted(s for s, msgs in subjects.items() for _ in range(msgs))


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("kind", list(OPTIONS))
def test_power_fails_and_fails_again(kind: str, calls: int) -> None:
    """A batch is whole or absent after a power cut at any call, also during later starts."""

    async def life(machine: Machine) -> None:
        await store_batches(await machine.open())

    async def next_life(machine: Machine) -> None:
        store = await machine.open()
        await check_whole(store)
        store.append("later", None, b"", 5)
        await store.synced()
        await check_whole(store)

    async def scenario(seed: int) -> None:
        machine = Machine(FaultyDisk(seed), Limits(), OPTIONS[kind])
        machine.disk.power_fails_at = calls
        await machine.until_off(life(machine))
        for lives in range(3):
            machine.disk = machine.disk.crash(seed + lives)
            machine.disk.power_fails_at = 5 + (calls * 7 + seed) % 23
            await machine.until_off(next_life(machine))
        machine.disk = machine.disk.crash(seed)
        await next_life(machine)
        await end_other_tasks()

    for seed in SEEDS:
        asyncio.run(scenario(seed))


async def test_a_batch_stands_in_one_block_however_long_it_is() -> None:
    store = MemStore(Limits(), block_bytes=600)
    store.append("before", None, b"", 1)
    assert store.append_together(BATCH, 2) == 1 + len(BATCH)
    store.append("after", None, b"", 3)
    blocks = {store.log.block_with(sequence) for sequence in range(2, 2 + len(BATCH))}
    assert len(blocks) == 1
    assert store.log.block_with(1) not in blocks
    assert store.log.block_with(2 + len(BATCH)) not in blocks


async def test_a_batch_with_one_message_too_large_is_not_there() -> None:
    store = MemStore(Limits(max_msg_size=200))
    with pytest.raises(MaximumMessageSizeExceeded):
        store.append_together([*BATCH, ("large", None, bytes(201))], 1)
    assert store.state().last_sequence == 0
    assert store.append("small", None, bytes(200), 2) == 1
