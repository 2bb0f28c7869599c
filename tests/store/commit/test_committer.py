"""Group commit on real files and event loops: which source is acknowledged, and when."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd.store.commit import committer as committer_module
from natsd.store.commit.commits import CommitSource
from natsd.store.commit.committer import Committer, Sync
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import StoreFull
from natsd.store.wal.entries import Extent
from natsd.store.wal.write_ahead_log import WriteAheadLog
from tests.store.faulty_disk import FaultyDisk
from tests.store.sources import Pieces, count_whole, open_pieces
from tests.waiting import Eventually

DISK = RealDisk()


def new_committer(
    directory: Path, *, sync_interval_s: float = 0, journal: bool = True
) -> Committer:
    return Committer(
        DISK,
        WriteAheadLog(DISK, directory, os.urandom, segment_bytes_max=64 << 10) if journal else None,
        sync_interval_s=sync_interval_s,
        loop=asyncio.get_running_loop(),
    )


def close_files(sources: list[Pieces]) -> None:
    for source in sources:
        source.file.close()


@pytest.mark.both_loops
@pytest.mark.parametrize("count", [1, 3, 40])
async def test_all_is_acknowledged(count: int, tmp_path: Path, eventually: Eventually) -> None:
    committer = new_committer(tmp_path)
    sources = open_pieces(committer, DISK, tmp_path, count)
    for _ in range(20):
        for source in sources:
            source.append(2)
            committer.dirty(source)
        await asyncio.sleep(0)
    await eventually(lambda: all(source.acknowledged == 40 for source in sources))
    await committer.close()
    assert [count_whole(DISK, tmp_path, i) for i in range(count)] == [40] * count
    assert not (tmp_path / "journal.0").exists()
    close_files(sources)


async def test_one_source_has_one_extent_out(tmp_path: Path, eventually: Eventually) -> None:
    """Appends during a commit wait for the next commit of their source: group commit."""
    committer = new_committer(tmp_path)
    (source,) = open_pieces(committer, DISK, tmp_path, 1)
    commits = []
    source.on_disk = commits.append  # type: ignore[method-assign]  # a spy
    for _ in range(1000):
        source.append()
        committer.dirty(source)
    await eventually(lambda: source.written == 1000)
    assert commits == [1]
    await committer.close()
    close_files([source])


async def test_few_are_synced_each_and_many_by_the_journal(
    tmp_path: Path, eventually: Eventually
) -> None:
    committer = new_committer(tmp_path)
    sources = open_pieces(committer, DISK, tmp_path, 30)
    for source in sources[:4]:
        source.append()
        committer.dirty(source)
    await eventually(lambda: all(source.acknowledged == 1 for source in sources[:4]))
    assert not (tmp_path / "journal.0").exists()
    for source in sources:
        source.append()
        committer.dirty(source)
    await eventually(lambda: all(source.acknowledged >= 1 for source in sources))
    assert (tmp_path / "journal.0").stat().st_size >= 30 * 16
    await committer.close()
    close_files(sources)


async def test_a_large_extent_is_not_written_twice(tmp_path: Path, eventually: Eventually) -> None:
    committer = new_committer(tmp_path)
    sources = open_pieces(committer, DISK, tmp_path, 20)
    for source in sources:
        source.append(10_000 if source.source < 10 else 1)
        committer.dirty(source)
    await eventually(lambda: all(source.acknowledged >= 1 for source in sources))
    assert (tmp_path / "journal.0").stat().st_size <= 8192
    await committer.close()
    assert [count_whole(DISK, tmp_path, i) for i in range(20)] == [10_000] * 10 + [1] * 10
    close_files(sources)


async def test_without_a_journal_threads_take_turns(tmp_path: Path, eventually: Eventually) -> None:
    committer = new_committer(tmp_path, journal=False)
    sources = open_pieces(committer, DISK, tmp_path, 30)
    for source in sources:
        source.append()
        committer.dirty(source)
    await eventually(lambda: all(source.acknowledged == 1 for source in sources))
    await committer.close()
    close_files(sources)


async def test_sources_with_nothing_to_write_hold_up_no_other(
    tmp_path: Path, eventually: Eventually
) -> None:
    """Dirty sources without an extent, such as paused ones, do not delay other sources.

    Without a journal each file is synced by itself.
    """
    committer = new_committer(tmp_path, journal=False)
    sources = open_pieces(committer, DISK, tmp_path, 30)
    for source in sources:
        committer.dirty(source)
    for source in sources[20:]:
        source.append()
    await eventually(lambda: all(source.acknowledged == 1 for source in sources[20:]))
    await committer.close()
    close_files(sources)


async def test_with_an_interval_the_ack_comes_first(tmp_path: Path, eventually: Eventually) -> None:
    """With a sync interval, sources are acknowledged after the write and synced by the timer.

    The interval stands for `sync_interval: 2m`. A source with Sync.ALWAYS does not wait for the
    timer.
    """
    committer = new_committer(tmp_path, sync_interval_s=0.01)
    sources = open_pieces(committer, DISK, tmp_path, 10)
    logs = Pieces(DISK, tmp_path / "0010", 10)
    committer.attach(logs, sync=Sync.ALWAYS)
    for source in [*sources, logs]:
        source.append()
        committer.dirty(source)
    await eventually(lambda: logs.acknowledged == 1)
    await eventually(lambda: all(source.written == 1 for source in sources))
    await eventually(lambda: all(source.acknowledged == 1 for source in sources))
    await committer.close()
    close_files([*sources, logs])


async def test_a_source_need_not_wait_where_the_others_do(
    tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source with Sync.LATER is acknowledged after the write, and is on disk later."""
    monkeypatch.setattr(committer_module, "LATER_S", 0.01)
    committer = new_committer(tmp_path)
    (source,) = open_pieces(committer, DISK, tmp_path, 1)
    hasty = Pieces(DISK, tmp_path / "0010", 10)
    committer.attach(hasty, sync=Sync.LATER)
    for each in (source, hasty):
        each.append()
        committer.dirty(each)
    await eventually(lambda: source.acknowledged == 1)
    await eventually(lambda: hasty.written == 1)
    await eventually(lambda: hasty.acknowledged == 1)
    await committer.close()
    close_files([source, hasty])


async def test_all_that_is_acknowledged_can_be_put_on_disk_at_once(
    tmp_path: Path, eventually: Eventually
) -> None:
    committer = new_committer(tmp_path, sync_interval_s=3600)
    sources = open_pieces(committer, DISK, tmp_path, 3)
    for _ in range(2):
        for each in sources:
            each.append()
            committer.dirty(each)
        await eventually(lambda: all(each.written == each.appended for each in sources))
        await asyncio.gather(committer.until_on_disk(), committer.until_on_disk())
        assert [each.acknowledged for each in sources] == [each.appended for each in sources]
    await committer.until_on_disk()
    await committer.close()
    close_files(sources)


async def test_without_a_sync_the_loop_writes_what_is_small(
    tmp_path: Path, eventually: Eventually
) -> None:
    """With a sync interval, small extents are written on the event loop, without a thread.

    Large extents, and those that reserve space, are written by a thread.
    """
    committer = new_committer(tmp_path, sync_interval_s=60)
    (source,) = open_pieces(committer, DISK, tmp_path, 1)

    def written_at_once(count: int) -> bool:
        before = source.written
        source.append(count)
        committer.dirty(source)
        committer.begin_round()
        return source.written == before + count

    async def settled() -> None:
        await eventually(lambda: source.written == source.appended)

    assert not written_at_once(1)  # the first extent reserves space in a new file
    await settled()
    assert written_at_once(1)
    assert not written_at_once(5_000)  # 80 KB
    await settled()
    assert written_at_once(1)
    assert source.acknowledged == 0  # only the timer's sync acknowledges
    await committer.close()
    assert count_whole(DISK, tmp_path, 0) == source.acknowledged == 5_003
    close_files([source])


async def test_many_without_a_sync_are_one_job_and_fail_alone(eventually: Eventually) -> None:
    disk = FaultyDisk()
    committer = Committer(disk, sync_interval_s=60, loop=asyncio.get_running_loop())
    sources = open_pieces(committer, disk, Path("/"), 50)
    disk.fail("pwrite", 5, path="0007")
    for source in sources:
        source.append()
        committer.dirty(source)
    committer.begin_round()
    assert committer._workers.in_flight == 1
    await eventually(lambda: sum(source.written for source in sources) == 49)
    assert [source.source for source in sources if source.errors] == [7]
    for source in sources:
        source.append()
        committer.dirty(source)
    await eventually(lambda: sum(source.written for source in sources) == 98)
    await committer.close()
    assert sum(source.acknowledged for source in sources) == 98


async def test_a_slow_disk_is_left_to_threads(tmp_path: Path, eventually: Eventually) -> None:
    """After a write on the loop that took over 1 ms, threads write for the next second."""
    now_ns = 0

    def clock_ns() -> int:
        nonlocal now_ns
        now_ns += 2_000_000
        return now_ns

    committer = Committer(
        DISK, sync_interval_s=60, loop=asyncio.get_running_loop(), clock_ns=clock_ns
    )
    (source,) = open_pieces(committer, DISK, tmp_path, 1)
    at_once = []
    for _ in range(4):
        source.append()
        committer.dirty(source)
        committer.begin_round()
        at_once.append(source.written == source.appended)
        await eventually(lambda: source.written == source.appended)
    assert at_once == [False, True, False, False]
    await committer.close()
    close_files([source])


async def test_a_file_is_settled_before_it_is_closed(
    tmp_path: Path, eventually: Eventually
) -> None:
    committer = new_committer(tmp_path)
    sources = open_pieces(committer, DISK, tmp_path, 20)
    for source in sources:
        source.append()
        committer.dirty(source)
    await eventually(lambda: all(source.acknowledged == 1 for source in sources))
    for source in sources[:10]:
        await committer.settle(source.file)
        source.file.close()
    await committer.forget(*(source.file.path for source in sources[:5]))
    await committer.forget_below(tmp_path)
    await committer.wipe_journal()
    data = (tmp_path / "journal.0").read_bytes()
    assert not any(data[1024:])
    await committer.close()
    close_files(sources)


async def test_a_detached_source_is_forgotten(tmp_path: Path) -> None:
    committer = new_committer(tmp_path)
    (source,) = open_pieces(committer, DISK, tmp_path, 1)
    source.append()
    committer.dirty(source)
    committer.detach(source)
    await committer.close()
    assert source.acknowledged == 0
    close_files([source])


class Broken(CommitSource):
    """A commit source whose methods raise."""

    def __init__(self, extent: Extent | None) -> None:
        self.extent = extent
        self.failures = 0

    def take_extent(self) -> Extent | None:
        if self.extent is None:
            raise RuntimeError("a bug")
        return self.extent

    def committed(self) -> None:
        raise RuntimeError("another bug")

    def failed(self, error: Exception) -> None:
        self.failures += 1
        raise RuntimeError("one more")


@pytest.mark.parametrize("count", [1, 10])
async def test_a_broken_store_keeps_no_other_from_its_answer(
    count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    committer = new_committer(tmp_path)
    sources = open_pieces(committer, DISK, tmp_path, count)
    file = DISK.open(tmp_path / "broken", create=True)
    broken = [Broken(Extent(file, 0, b"x")), Broken(None)]
    for one in broken:
        committer.attach(one)
        committer.dirty(one)
    for source in sources:
        source.append()
        committer.dirty(source)
    await eventually(lambda: all(source.acknowledged == 1 for source in sources))
    await eventually(lambda: "failed to take the answer" in caplog.text)
    assert "failed to say what it has to write" in caplog.text
    assert [one.failures for one in broken] == [0, 1]
    await committer.close()
    close_files(sources)
    file.close()


@pytest.fixture
def short_probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(committer_module, "PROBE_S", 0.001)
    return iter(())


@pytest.mark.usefixtures("short_probes")
async def test_space_is_looked_for(eventually: Eventually) -> None:
    """Without space a source fails with StoreFull; `resumed` is called once there is space."""
    disk = FaultyDisk(capacity_bytes=100)
    committer = Committer(disk, loop=asyncio.get_running_loop())
    (source,) = open_pieces(committer, disk, Path("/"), 1)
    source.append(10)
    committer.dirty(source)
    await eventually(lambda: bool(source.errors))
    assert isinstance(source.errors[0], StoreFull)
    assert not source.has_space
    await asyncio.sleep(0.01)
    assert not source.has_space
    disk.capacity_bytes = None
    await eventually(lambda: source.has_space)
    source.append(10)
    committer.dirty(source)
    await eventually(lambda: source.acknowledged == 10)
    await committer.close()


def test_without_an_event_loop(tmp_path: Path) -> None:
    committer = Committer(DISK, WriteAheadLog(DISK, tmp_path, os.urandom))
    sources = open_pieces(committer, DISK, tmp_path, 10)
    for source in sources:
        source.append(5)
        committer.dirty(source)
    for source in sources:
        committer.commit_now(source)
        assert source.acknowledged == 5
    committer.settle_now(sources[0].file)
    committer.forget_now(sources[1].file.path)
    committer.close_now()
    close_files(sources)
