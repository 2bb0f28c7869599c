"""Group commit on a disk that loses power and fails calls: acknowledged messages survive.

A message is on disk before it is acknowledged, a failed sync is never repeated as if it had
succeeded, and without space a file is cut back to its last commit (docs/store.md, "What an
acknowledgement means").
"""

import contextlib
import errno
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from natsd.store.commit.committer import Committer
from natsd.store.disk.disk import make_directories
from natsd.store.errors import StoreError, StoreFull, StoreReadOnly
from natsd.store.wal.replay import replay
from natsd.store.wal.write_ahead_log import WriteAheadLog
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk, PowerLoss
from tests.store.sources import Pieces, count_whole, open_pieces

pytestmark = pytest.mark.torture

ROOT = Path("/volume")
SEGMENT_BYTES = 6 * 1024  # room for a dozen batches, so that checkpoints are frequent


def new_disk(seed: int) -> FaultyDisk:
    disk = FaultyDisk(seed)
    make_directories(disk, ROOT)
    return disk


def new_committer(disk: FaultyDisk, seed: int = 0, *, sync_interval_s: float = 0) -> Committer:
    chance = random.Random(seed)
    journal = WriteAheadLog(disk, ROOT, chance.randbytes, segment_bytes_max=SEGMENT_BYTES)
    return Committer(disk, journal, sync_interval_s=sync_interval_s)


def append_to_some(
    committer: Committer, sources: list[Pieces], chance: random.Random, rounds: int
) -> None:
    """Append pieces to random sources and commit them, `rounds` times."""
    for _ in range(rounds):
        chosen = chance.sample(sources, chance.randint(1, len(sources)))
        for source in chosen:
            source.append(chance.randint(1, 40))
            committer.dirty(source)
        for source in chosen:
            with contextlib.suppress(StoreError):  # the source keeps the error
                committer.commit_now(source)
        if chance.random() < 0.2:
            committer.sync_now()


def append_to_all(committer: Committer, sources: list[Pieces], count: int) -> None:
    """Append `count` pieces to each source, and commit them all."""
    for source in sources:
        source.append(count)
        committer.dirty(source)
    for source in sources:
        committer.commit_now(source)


def check(disk: FaultyDisk, sources: list[Pieces]) -> None:
    """Assert that all acknowledged pieces are on the disk."""
    found = [count_whole(disk, ROOT, source.source) for source in sources]
    missing = [
        f"source {s.source}: {s.acknowledged} acknowledged, {n} there"
        for s, n in zip(sources, found, strict=True)
        if n < s.acknowledged
    ]
    assert missing == []


@settings(max_examples=150 * TORTURE, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, 14),
    calls=st.integers(0, 1500),
    calls_of_replay=st.integers(0, 60),
    sync_interval_s=st.sampled_from([0, 0, 120]),
)
@example(seed=1, count=60, calls=700, calls_of_replay=9, sync_interval_s=120)
@example(seed=2, count=60, calls=700, calls_of_replay=9, sync_interval_s=0)
def test_power_fails_at_any_call(
    seed: int, count: int, calls: int, calls_of_replay: int, sync_interval_s: float
) -> None:
    """Acknowledged pieces survive a power cut at any call, and another one during the replay."""
    disk = new_disk(seed)
    sources: list[Pieces] = []
    disk.power_fails_at = calls
    try:
        committer = new_committer(disk, seed, sync_interval_s=sync_interval_s)
        sources = open_pieces(committer, disk, ROOT, count)
        append_to_some(committer, sources, random.Random(seed), rounds=30)
        committer.close_now()
    except PowerLoss:
        pass
    disk = disk.crash(seed)
    disk.power_fails_at = calls_of_replay
    try:
        replay(disk, ROOT)
    except PowerLoss:
        disk = disk.crash(seed + 1)
        replay(disk, ROOT)
    disk.power_fails_at = None
    check(disk, sources)
    assert not disk.exists(ROOT / "journal.0")
    assert not disk.exists(ROOT / "journal.1")


@settings(max_examples=150 * TORTURE, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, 14),
    faults=st.lists(
        st.tuples(
            st.sampled_from(["pwrite", "fdatasync", "allocate", "sync_dir", "truncate", "open"]),
            st.sampled_from([errno.EIO, errno.ENOSPC, 0]),
            st.integers(0, 80),
        ),
        max_size=4,
    ),
)
@example(seed=1, count=8, faults=[("fdatasync", errno.EIO, 20)])
@example(seed=1 << 32, count=14, faults=[("fdatasync", errno.EIO, n) for n in (6, 4, 0)])
@example(seed=1, count=8, faults=[("pwrite", errno.ENOSPC, 20), ("truncate", errno.EIO, 0)])
def test_calls_fail_and_then_the_power(
    seed: int, count: int, faults: list[tuple[str, int, int]]
) -> None:
    """Pieces are acknowledged only once they are on disk, whichever calls of the disk fail."""
    disk = new_disk(seed)
    committer = new_committer(disk, seed)
    sources = open_pieces(committer, disk, ROOT, count)
    for call, number, after in faults:
        if number or call == "pwrite":
            disk.fail(call, number, after=after)
    append_to_some(committer, sources, random.Random(seed), rounds=30)
    for source in sources:
        assert len([e for e in source.errors if isinstance(e, StoreReadOnly)]) <= 1
    disk = disk.crash(seed)
    replay(disk, ROOT)
    check(disk, sources)


@settings(max_examples=100 * TORTURE, deadline=None)
@given(seed=st.integers(0, 1 << 32), calls=st.integers(0, 1200))
def test_files_come_and_go(seed: int, calls: int) -> None:
    """A new file under a removed file's name never gets the old file's bytes."""
    disk = new_disk(seed)
    chance = random.Random(seed)
    sources: list[Pieces] = []
    removed: set[int] = set()
    disk.power_fails_at = calls
    try:
        committer = new_committer(disk, seed)
        sources = open_pieces(committer, disk, ROOT, 8)
        for _ in range(10):
            append_to_some(committer, sources, chance, rounds=3)
            gone = sources[chance.randrange(8)]
            if chance.random() < 0.5:
                committer.settle_now(gone.file)
                gone.file.close()
            committer.forget_now(gone.file.path)
            committer.detach(gone)
            gone.acknowledged = 0
            disk.unlink(gone.file.path)
            disk.sync_dir(ROOT)
            removed.add(gone.source)
            # The new file has other bytes at the same offsets.
            new = Pieces(disk, gone.file.path, gone.source)
            removed.discard(gone.source)
            sources[gone.source] = new
            committer.attach(new)
    except PowerLoss:
        pass
    disk = disk.crash(seed)
    replay(disk, ROOT)
    check(disk, sources)
    for number in removed:
        assert not disk.exists(ROOT / f"{number:04}")


def test_a_forgotten_file_does_not_come_back() -> None:
    disk = new_disk(1)
    committer = new_committer(disk)
    sources = open_pieces(committer, disk, ROOT, 8)
    append_to_some(committer, sources, random.Random(1), rounds=1)
    for source in sources:
        source.append(3)
        committer.dirty(source)
    committer.commit_now(sources[0])
    committer.forget_now(ROOT / "0003")
    disk.unlink(ROOT / "0003")
    disk.sync_dir(ROOT)
    disk = disk.crash(0)
    replayed = replay(disk, ROOT)
    assert replayed.damage == []
    assert ROOT / "0002" in replayed.files
    assert not disk.exists(ROOT / "0003")


def test_acknowledged_before_the_sync_is_safe_after_it() -> None:
    """With `sync_interval: 2m` a power cut loses only what the timer has not synced yet."""
    disk = new_disk(1)
    committer = new_committer(disk, sync_interval_s=120)
    sources = open_pieces(committer, disk, ROOT, 10)
    append_to_all(committer, sources, 5)
    assert [(source.acknowledged, source.written) for source in sources] == [(0, 5)] * 10
    committer.sync_now()
    assert [(source.acknowledged, source.written) for source in sources] == [(5, 5)] * 10
    append_to_all(committer, sources, 100)
    assert not disk.exists(ROOT / "journal.0")
    disk = disk.crash(5)
    check(disk, sources)
    assert any(count_whole(disk, ROOT, s.source) < s.written for s in sources)


def test_no_space_is_found_again() -> None:
    """Without space a commit raises StoreFull and the file is cut back; later commits succeed."""
    disk = new_disk(1)
    committer = new_committer(disk)
    (source,) = open_pieces(committer, disk, ROOT, 1)
    source.append(100)
    committer.dirty(source)
    committer.commit_now(source)
    disk.capacity_bytes = 4500
    source.append(300)
    committer.dirty(source)
    with pytest.raises(StoreFull):
        committer.commit_now(source)
    assert (source.acknowledged, source.has_space) == (100, False)
    assert source.file.size() == 1600
    with pytest.raises(StoreFull):
        committer.commit_now(source)
    disk.capacity_bytes = None
    committer.commit_now(source)
    assert source.has_space
    source.append(300)
    committer.dirty(source)
    committer.commit_now(source)
    assert source.acknowledged == 400
    disk = disk.crash(1)
    check(disk, [source])


def test_a_failed_sync_is_never_repeated() -> None:
    disk = new_disk(1)
    committer = new_committer(disk)
    (source,) = open_pieces(committer, disk, ROOT, 1)
    disk.fail("fdatasync", errno.EIO)
    source.append()
    committer.dirty(source)
    with pytest.raises(StoreReadOnly):
        committer.commit_now(source)
    calls = len(disk.calls)
    source.append()
    committer.dirty(source)
    with pytest.raises(StoreReadOnly):
        committer.commit_now(source)
    assert len(disk.calls) == calls
    assert source.acknowledged == 0


def test_a_sync_that_says_no_space_is_a_failed_sync() -> None:
    disk = new_disk(1)
    committer = new_committer(disk)
    (source,) = open_pieces(committer, disk, ROOT, 1)
    disk.fail("fdatasync", errno.ENOSPC)
    source.append()
    committer.dirty(source)
    with pytest.raises(StoreReadOnly):
        committer.commit_now(source)


def test_stores_fail_alone() -> None:
    disk = new_disk(1)
    committer = new_committer(disk)
    sources = open_pieces(committer, disk, ROOT, 10)
    disk.fail("pwrite", errno.EIO, path="0004")
    disk.fail("allocate", errno.ENOSPC, path="0007")
    for source in sources:
        source.append()
        committer.dirty(source)
    for source in sources:
        if source.source not in (4, 7):
            committer.commit_now(source)
    assert [s.acknowledged for s in sources] == [1, 1, 1, 1, 0, 1, 1, 0, 1, 1]
    assert isinstance(sources[4].errors[0], StoreReadOnly)
    assert isinstance(sources[7].errors[0], StoreFull)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_journal_fails_nobody(number: int) -> None:
    disk = new_disk(1)
    committer = new_committer(disk)
    sources = open_pieces(committer, disk, ROOT, 10)
    append_to_some(committer, sources, random.Random(1), rounds=2)
    disk.fail("pwrite", number, path="journal.0")
    append_to_some(committer, sources, random.Random(2), rounds=5)
    assert all(source.errors == [] for source in sources)
    assert all(source.acknowledged == source.appended for source in sources)
    disk = disk.crash(1)
    replay(disk, ROOT)
    check(disk, sources)


def test_a_checkpoint_that_fails_keeps_the_journal() -> None:
    """A journal whose checkpoint fails is kept, since it may be the only copy of its pieces."""
    for seed in range(30):
        disk = new_disk(seed)
        committer = new_committer(disk)
        sources = open_pieces(committer, disk, ROOT, 10)
        append_to_all(committer, sources, 3)
        disk.fail("fdatasync", errno.EIO, path="0005")
        committer.close_now()
        assert [type(error) for error in sources[5].errors] == [StoreReadOnly]
        assert disk.exists(ROOT / "journal.0")
        disk = disk.crash(seed)
        replay(disk, ROOT)
        check(disk, sources)
