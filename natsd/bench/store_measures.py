"""The measurements behind the rows of `natsd bench --store`; each group has its own process."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path

from natsd.bench.sublist import rss_bytes, timed
from natsd.store.commit.volume import Volume
from natsd.store.disk.real_disk import RealDisk
from natsd.store.file_store import FileStore
from natsd.store.log_store import LogStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits
from natsd.trie.in_memory import RecordTrie

DATA = bytes(range(128))
FEW_SUBJECTS = 1_000
MANY_SUBJECTS = 1_000_000
SINGLY_MAX = 1_000_000
BATCH = 500
STREAMS = 1_000
STREAM = "recovery"
READ_BATCH = 1_000
READ_BYTES_MAX = 8 << 20
PICKS = 100_000
RAW_BYTES = 1 << 20
RECORD_BYTES = 28
STRIDE = 7_919  # prime, so that successive subjects are not neighbours in the trie
NOW_NS = 1_700_000_000_000_000_000
TMPFS = Path("/dev/shm")
Values = dict[str, float]
Message = tuple[bytes, bytes | None, bytes]


def run_group(group: str, size: int, place: Path) -> Values:
    """Measure one group and return its values by the keys of the rows."""
    return asyncio.run(GROUPS[group](size, place))


def subject_of(number: int) -> bytes:
    """Return subject `number`, always 30 bytes."""
    return b"orders.eu.%05d.item.%08d" % (number % 100, number)


def batches(size: int, subjects: int) -> Iterator[list[Message]]:
    """Yield `size` messages in batches; where subjects repeat, the same lists are yielded again."""
    if size > subjects:
        ready = list(batches(subjects, subjects))
        for number in range(size // BATCH):
            yield ready[number % len(ready)]
        return
    for start in range(0, size, BATCH):
        yield [(subject_of(n * STRIDE % subjects), None, DATA) for n in range(start, start + BATCH)]


def millions_per_s(count: int, ns: int) -> float:
    """Return the rate in millions per second."""
    return count / ns * 1e3


async def timed_async(work: Callable[[], Awaitable[object]]) -> int:
    """Return how many ns the awaited call of `work` takes."""
    start = time.perf_counter_ns()
    await work()
    return time.perf_counter_ns() - start


def picks_of(size: int) -> list[int]:
    """Return PICKS random numbers below `size`, the same ones in each run."""
    chosen = random.Random(1)
    return [chosen.randrange(size) for _ in range(PICKS)]


# In memory


async def memory(size: int, place: Path) -> Values:
    """Measure appending to memory and reading from it."""
    store = MemStore()

    def append_all() -> None:
        for batch in batches(size, FEW_SUBJECTS):
            store.append_many(batch, NOW_NS)

    values = {"append_memory": millions_per_s(size, timed(append_all))}
    values["read_warm"] = millions_per_s(size, timed(lambda: read_cached(store, size)))
    sequences = [pick + 1 for pick in picks_of(size)]
    values["read_random_us"] = us_each(sequences, store.load_cached)
    singly = min(size, SINGLY_MAX)
    values["append_memory_python"] = millions_per_s(singly, timed(lambda: append_singly(singly)))
    return values


def us_each(arguments: list[int] | list[str], call: Callable[..., object]) -> float:
    """Return the microseconds per call of `call` with one of the arguments."""

    def call_all() -> None:
        for argument in arguments:
            call(argument)

    return timed(call_all) / 1e3 / len(arguments)


def append_singly(size: int) -> None:
    """Append `size` messages to a memory store, one call per message."""
    subjects = [subject_of(n) for n in range(FEW_SUBJECTS)]
    append = MemStore().append
    for number in range(size):
        append(subjects[number % FEW_SUBJECTS], None, DATA, NOW_NS)


def read_cached(store: LogStore, last: int) -> None:
    """Read every message from 1 to `last`, in order."""
    sequence = 1
    while sequence <= last:
        found = store.read_batch_cached(sequence, READ_BATCH, READ_BYTES_MAX)
        assert found is not None
        sequence = found[-1].sequence + 1


async def subjects(size: int, place: Path) -> Values:
    """Measure lookups in a stream's subject index, with one message per subject."""
    count = min(size, MANY_SUBJECTS)
    store = MemStore()
    for batch in batches(count, count):
        store.append_many(batch, NOW_NS)
    names = [subject_of(pick).decode() for pick in picks_of(count)]
    one_percent, everything = "orders.eu.00007.>", "orders.*.*.item.*"
    return {
        "load_last_us": us_each(names, store.load_last_cached),
        "pending_some_ms": await pending_ms(store, one_percent),
        "pending_all_ms": await pending_ms(store, everything),
    }


async def pending_ms(store: LogStore, pattern: str) -> float:
    """Return the milliseconds of one `num_pending` for the pattern."""
    return await timed_async(lambda: store.num_pending(1, pattern)) / 1e6


async def trie(size: int, place: Path) -> Values:
    """Measure the trie alone, and its memory beside that of a dict."""
    count = min(size, MANY_SUBJECTS)
    keys = [subject_of(n * STRIDE % count) for n in range(count)]
    records = RecordTrie(RECORD_BYTES)
    gc.collect()
    before = rss_bytes()
    put_ns = timed(lambda: records.put_many(keys, bytes(RECORD_BYTES)))
    touched = rss_bytes() - before
    get_ns = min(timed(lambda: records.count_of(keys)) for _ in range(3))
    return {
        "trie_put": millions_per_s(count, put_ns),
        "trie_get": millions_per_s(count, get_ns),
        "subject_bytes": touched / count,
        "dict_bytes": dict_bytes(count),
    }


def dict_bytes(count: int) -> float:
    """Return the memory per subject of a dict from subject to a tuple of three numbers."""
    before = rss_bytes()
    kept = {subject_of(n): (n + 2**40, n + 2**41, n + 2**42) for n in range(count)}
    grown = rss_bytes() - before
    return grown / len(kept)


# In files


def volume_of(directory: Path) -> Volume:
    """Open the directory as a volume."""
    return Volume.open(RealDisk(), directory, os.urandom, loop=asyncio.get_running_loop())


async def opened(volume: Volume, name: str = "stream") -> FileStore:
    """Open a file store in the volume."""
    return await FileStore.open(volume, volume.directory / name, Limits(), os.urandom)


async def filled(volume: Volume, size: int) -> FileStore:
    """Return a file store with `size` synced messages."""
    store = await opened(volume)
    for batch in batches(size, FEW_SUBJECTS):
        store.append_many(batch, NOW_NS)
        await store.room()
    await store.synced()
    return store


async def append_ns(directory: Path, size: int) -> int:
    """Return the ns that appending and syncing `size` messages takes."""
    volume = volume_of(directory)
    store = await opened(volume)
    start = time.perf_counter_ns()
    for batch in batches(size, FEW_SUBJECTS):
        store.append_many(batch, NOW_NS)
        await store.room()
    await store.synced()
    taken = time.perf_counter_ns() - start
    await store.close()
    await volume.close()
    return taken


async def codec(size: int, place: Path) -> Values:
    """Measure appending to files on tmpfs, without a disk; empty if there is no /dev/shm."""
    directory = TMPFS / place.name
    if not RealDisk().is_directory(TMPFS):
        return {}
    try:
        return {"append_tmpfs": millions_per_s(size, await append_ns(directory, size))}
    finally:
        RealDisk().rmtree(directory)


async def disk(size: int, place: Path) -> Values:
    """Measure group commit, and its speed as a share of the disk's own."""
    directory = place / "append"
    taken = await append_ns(directory, size)
    total = sum(path.stat().st_size for path in directory.rglob("*.blk"))
    raw = raw_write_ns(place / "raw", total)
    RealDisk().rmtree(directory)
    return {
        "append_disk": millions_per_s(size, taken),
        "append_disk_share": raw / taken,
    }


def raw_write_ns(path: Path, size: int) -> int:
    """Return the ns to write `size` bytes a mebibyte at a time, each synced."""
    piece = os.urandom(RAW_BYTES)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        start = time.perf_counter_ns()
        for offset in range(0, size, RAW_BYTES):
            os.pwrite(fd, piece[: size - offset], offset)
            os.fdatasync(fd)
        return time.perf_counter_ns() - start
    finally:
        os.close(fd)
        path.unlink()


async def streams(size: int, place: Path) -> Values:
    """Measure appends to a thousand streams in turn, all of them synced after each turn."""
    volume = volume_of(place / "streams")
    stores = [await opened(volume, f"stream-{n}") for n in range(STREAMS)]
    turns = max(1, min(size, 200_000) // STREAMS)
    start = time.perf_counter_ns()
    for turn in range(turns):
        for number, store in enumerate(stores):
            store.append(subject_of(turn * STREAMS + number), None, DATA, NOW_NS)
        await asyncio.gather(*(store.synced() for store in stores))
    taken = time.perf_counter_ns() - start
    for store in stores:
        await store.close()
    await volume.close()
    RealDisk().rmtree(place / "streams")
    return {"append_1000": millions_per_s(turns * STREAMS, taken)}


async def recovery(size: int, place: Path) -> Values:
    """Measure opening a store with and without index.db; the files stay for `cold`."""
    directory = place / STREAM
    volume = volume_of(directory)
    await (await filled(volume, size)).close()
    await volume.close()
    values = {"recover_index_s": await open_ns(directory) / 1e9}
    for path in directory.rglob("index.db"):
        path.unlink()
    values["recover_scan"] = millions_per_s(size, await open_ns(directory))
    return values


async def cold(size: int, place: Path) -> Values:
    """Measure reading the files that `recovery` left, in a process that has cached nothing."""
    directory = place / STREAM
    files = sorted(directory.rglob("*.blk"))
    forget(files)
    taken, memory_bytes = await read_cold(directory, size)
    forget(files)
    raw = timed(lambda: raw_read(files))
    RealDisk().rmtree(directory)
    return {
        "read_cold": millions_per_s(size, taken),
        "read_cold_share": raw / taken,
        "message_bytes": memory_bytes,
    }


async def open_ns(directory: Path) -> int:
    """Return the ns to open the store in the directory."""
    volume = volume_of(directory)
    start = time.perf_counter_ns()
    store = await opened(volume)
    taken = time.perf_counter_ns() - start
    await store.close()
    await volume.close()
    return taken


async def read_cold(directory: Path, size: int) -> tuple[int, float]:
    """Return the ns to read all messages, and the bytes of memory that each message keeps.

    Memory that a volume needs whatever its contents is not counted.
    """
    volume = volume_of(directory)
    store = await opened(volume)
    await store.read_batch(size, 1, 1)
    gc.collect()
    before = rss_bytes() - store.cached_bytes
    start = time.perf_counter_ns()
    sequence = 1
    while sequence <= size:
        found = await store.read_batch(sequence, READ_BATCH, READ_BYTES_MAX)
        sequence = found[-1].sequence + 1
    taken = time.perf_counter_ns() - start
    del found
    grown = rss_bytes() - before - store.cached_bytes
    await store.close()
    await volume.close()
    return taken, max(0, grown) / size


def forget(files: list[Path]) -> None:
    """Tell the kernel to drop these files from its cache; does nothing outside Linux."""
    if sys.platform != "linux":
        return
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def raw_read(files: list[Path]) -> None:
    """Read the files, a mebibyte at a time."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(RAW_BYTES):
                pass


GROUPS: dict[str, Callable[[int, Path], Coroutine[None, None, Values]]] = {
    "memory": memory,
    "subjects": subjects,
    "trie": trie,
    "codec": codec,
    "disk": disk,
    "streams": streams,
    "recovery": recovery,
    "cold": cold,
}
