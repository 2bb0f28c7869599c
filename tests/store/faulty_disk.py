"""A simulated disk in memory that loses power, tears writes and fails calls, from a seed.

    disk = FaultyDisk(seed=7)              a Disk like any other; the directory "/" exists
    disk.fail("fdatasync", errno.EIO)      the next such call fails (also: path=, after=, times=)
    disk.fail(ANY_CALL, errno.EIO)         the next call fails, whichever it is
    disk.spoil(path, offset=4096)          that sector cannot be read until it is written again
    disk.capacity_bytes = 10_000           a write beyond it is cut short, the next raises ENOSPC
    disk.power_fails_at = 12               12 more calls succeed; all after them raise PowerLoss
    after = disk.crash(seed=3)             the disk as it is when power is back; `disk` stays off
    after = disk.kill()                    the process dies, but not the machine: the page cache
                                           stays, and a later `after.crash()` may still lose it

A crash leaves the following; each choice is drawn from the seed:

- Each 512-byte sector that was not synced holds its bytes on disk, or any version written since the
  last sync. Sectors are independent of each other. A file's size is the synced one, or any size
  since.
- Each create, rename, mkdir and unlink whose directory was not synced is done or not, each
  independently of the others. A rename is done wholly or not at all.
- Each sector that a failed sync covered is on disk or lost. No later sync writes it, although reads
  still return it, also in the next process.
- Spoiled sectors stay spoiled.
"""

import asyncio
import copy
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from natsd.store.disk.disk import Buffer, CommitWorkers, DirectoryLocked, DiskFile, ShortWrite

SECTOR = 512
VERSIONS_MAX = 4
# With these errors a directory could not be opened, so no sync of it was tried.
NOT_OPENED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# All calls that may fail on a real disk.
ANY_CALL = frozenset(
    {
        "allocate",
        "fdatasync",
        "fsync",
        "link",
        "listdir",
        "lock",
        "mkdir",
        "open",
        "pread",
        "pwrite",
        "rename",
        "rmtree",
        "sync_dir",
        "truncate",
        "unlink",
    }
)


class PowerLoss(Exception):
    """The power is off: the code that meets this exception belongs to a dead process."""


@dataclass(eq=False)
class Node:
    """A file: its bytes as processes see them, and as the disk holds them."""

    now: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    versions: dict[int, list[bytes]] = field(default_factory=dict)  # unsynced, by sector
    sizes: list[int] = field(default_factory=list)  # unsynced sizes in bytes
    spoiled: set[int] = field(default_factory=set)  # sectors that cannot be read

    def sector(self, number: int) -> bytes:
        """Return the bytes of one sector as processes see them."""
        return bytes(self.now[number * SECTOR : (number + 1) * SECTOR])

    def changed(self, start: int, end: int) -> None:
        """Mark the sectors of the bytes from `start` up to `end` as dirty."""
        for number in range(start // SECTOR, -(-end // SECTOR)):
            self.spoiled.discard(number)
            versions = self.versions.setdefault(number, [])
            versions.append(self.sector(number))
            del versions[:-VERSIONS_MAX]

    def write(self, data: bytes, offset: int) -> None:
        """Write the bytes; the file grows if they reach beyond its end."""
        if offset + len(data) > len(self.now):
            self.resize(offset + len(data))
        elif offset + len(data) > len(self.disk):
            self.sizes.append(len(self.now))
        self.now[offset : offset + len(data)] = data
        self.changed(offset, offset + len(data))

    def resize(self, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros."""
        old = len(self.now)
        if size < old:
            del self.now[size:]
            self.changed(size, old)
        else:
            self.now += bytes(size - old)
            self.changed(old, size)
        self.sizes.append(size)

    def settle(self, choose: Callable[[list[bytes]], bytes], size: int) -> None:
        """Put one chosen version of each dirty sector, and the given size, on the disk."""
        self.disk += bytes(max(0, size - len(self.disk)))
        del self.disk[size:]
        for number, versions in self.versions.items():
            at = number * SECTOR
            room = min(SECTOR, size - at)
            if room > 0:
                old = bytes(self.disk[at : at + room])
                chosen = choose([old, *versions])
                self.disk[at : at + room] = chosen.ljust(SECTOR, b"\0")[:room]
        self.versions.clear()
        self.sizes.clear()

    def sync(self) -> None:
        """Put the newest version of everything on the disk."""
        self.settle(lambda versions: versions[-1], len(self.now) if self.sizes else len(self.disk))

    def fail_to_sync(self, chance: random.Random) -> None:
        """Put a random version of each dirty sector on the disk, and drop the others."""
        self.settle(chance.choice, chance.choice([len(self.disk), *self.sizes]))

    def after_crash(self, chance: random.Random) -> "Node":
        """Return the file as it is found after a power cut."""
        survivor = Node(
            bytearray(self.now), bytearray(self.disk), dict(self.versions), self.sizes[:]
        )
        survivor.fail_to_sync(chance)
        return Node(bytearray(survivor.disk), survivor.disk, spoiled=set(self.spoiled))

    def read(self, n: int, offset: int) -> bytes | None:
        """Return up to `n` bytes, or None if one of their sectors is spoiled."""
        end = min(offset + n, len(self.now))
        if not self.spoiled.isdisjoint(range(offset // SECTOR, -(-end // SECTOR))):
            return None
        return bytes(self.now[offset:end])


Entry = Node | None  # None: the path is a directory
Change = dict[Path, Entry | bool]  # new entries by path; False: the path is removed


@dataclass
class Rule:
    """A call that is to fail.

    `number` is the errno, or 0 for a write that is cut short; `after` counts the matching calls
    that succeed before, and `times` the calls that fail. A negative `times` lets the calls fail for
    ever.
    """

    calls: frozenset[str]
    number: int
    path: str
    after: int
    times: int


class FaultyDisk:
    """The simulated disk that the module's docstring describes; its calls are thread-safe."""

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.chance = random.Random(seed)
        self.capacity_bytes = capacity_bytes
        self.power_fails_at: int | None = None
        self.is_off = False
        self.calls: list[str] = []
        self._rules: list[Rule] = []
        self._has_failed = False
        self._now: dict[Path, Entry] = {Path("/"): None}
        self._disk: dict[Path, Entry] = {Path("/"): None}
        self._pending: list[tuple[set[Path], Change]] = []
        self._locked: set[Path] = set()
        self._mutex = threading.RLock()

    # ---- faults

    def fail(
        self,
        call: str | frozenset[str],
        number: int,
        *,
        path: str = "",
        after: int = 0,
        times: int = 1,
    ) -> None:
        """Fail the next `times` matching calls with this errno, after `after` successful ones.

        `path` is the end of the paths that match. If `number` is 0, a write is cut short instead.
        """
        calls = frozenset({call}) if isinstance(call, str) else call
        self._rules.append(Rule(calls, number, path, after, times))

    @property
    def has_failed_one(self) -> bool:
        """Whether a call has failed because of `fail`."""
        return self._has_failed

    def heal(self) -> None:
        """Let all calls succeed again."""
        self._rules.clear()

    def spoil(self, path: Path, *, offset: int = 0, length: int = 1) -> None:
        """Let reads of these bytes' sectors fail with EIO until the sectors are written again."""
        node = self._now[path]
        assert node is not None, f"{path} is a directory"
        node.spoiled.update(range(offset // SECTOR, -(-(offset + length) // SECTOR)))

    def kill(self) -> "FaultyDisk":
        """Return the disk as the next process finds it; calls on this one raise PowerLoss."""
        after = FaultyDisk(capacity_bytes=self.capacity_bytes)
        with self._mutex:
            self.is_off = True
            after.chance.setstate(self.chance.getstate())
            state = copy.deepcopy((self._now, self._disk, self._pending))
            after._now, after._disk, after._pending = state
        return after

    def crash(self, seed: int = 0) -> "FaultyDisk":
        """Return the disk as it is when power is back; calls on this one raise PowerLoss."""
        chance = random.Random(seed)
        after = FaultyDisk(seed, capacity_bytes=self.capacity_bytes)
        with self._mutex:
            self.is_off = True
            found = dict(self._disk)
            for _, change in self._pending:
                if chance.random() < 0.5:
                    apply(found, change)
            # One node may have two names if only a part of several renames survived.
            nodes: dict[int, Node] = {}
            for path, entry in found.items():
                if not all(parent in found for parent in path.parents):
                    continue
                if entry is not None:
                    entry = nodes.setdefault(id(entry), entry.after_crash(chance))
                after._now[path] = after._disk[path] = entry
        return after

    @contextmanager
    def call(self, name: str, path: Path) -> Iterator[int | None]:
        """Count one call; raise PowerLoss or the requested error, or yield 0 for a short write."""
        with self._mutex:
            if self.power_fails_at is not None:
                self.power_fails_at -= 1
                self.is_off = self.is_off or self.power_fails_at < 0
            if self.is_off:
                raise PowerLoss(name)
            self.calls.append(name)
            number = self._fault(name, path)
            if number and not name.endswith("sync"):
                raise OSError(number, os.strerror(number), str(path))
            yield number

    def _fault(self, name: str, path: Path) -> int | None:
        for rule in self._rules:
            if name in rule.calls and str(path).endswith(rule.path):
                if rule.after == 0:
                    self._has_failed = True
                    rule.times -= 1
                    if rule.times == 0:
                        self._rules.remove(rule)
                    return rule.number
                rule.after -= 1
        return None

    def room_for(self, extra: int) -> int:
        """Return how many of `extra` more bytes fit on the disk."""
        if self.capacity_bytes is None:
            return extra
        nodes = {id(entry): entry for entry in self._now.values() if entry is not None}
        used = sum(len(node.now) for node in nodes.values())
        return max(0, min(extra, self.capacity_bytes - used))

    # ---- Disk

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> "FaultyFile":
        """Open a file; `create` makes a missing one, `exclusive` refuses an existing one."""
        with self.call("open", path):
            if path not in self._now:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
                self._need_directory(path.parent)
                self._change({path.parent}, {path: Node()})
            elif create and exclusive:
                raise FileExistsError(errno.EEXIST, "File exists", str(path))
            node = self._now[path]
            if node is None:
                raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
            return FaultyFile(self, path, node, is_writable=write)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, or a directory with all that is below it."""
        with self.call("rename", source):
            self._need(source)
            self._need_directory(target.parent)
            moved: Change = {source: False, target: self._now[source]}
            for path in list(self._now):
                if source in path.parents:
                    moved[path] = False
                    moved[target / path.relative_to(source)] = self._now[path]
            self._change({source.parent, target.parent}, moved)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        with self.call("link", source):
            self._need(source)
            self._need_directory(target.parent)
            if target in self._now:
                raise FileExistsError(errno.EEXIST, "File exists", str(target))
            self._change({target.parent}, {target: self._now[source]})

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        with self.call("unlink", path):
            self._need(path)
            self._change({path.parent}, {path: False})

    def mkdir(self, path: Path) -> None:
        """Make a directory."""
        with self.call("mkdir", path):
            if path in self._now:
                raise FileExistsError(errno.EEXIST, "File exists", str(path))
            self._need_directory(path.parent)
            self._change({path.parent}, {path: None})

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        with self.call("rmdir", path):
            self._need_directory(path)
            if any(path in each.parents for each in self._now):
                raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
            self._change({path.parent}, {path: False})

    def sync_dir(self, path: Path) -> None:
        """Put the changes of this directory's entries on the disk."""
        with self.call("sync_dir", path):
            self._need_directory(path)
            left = []
            for directories, change in self._pending:
                directories.discard(path)
                if directories:
                    left.append((directories, change))
                else:
                    apply(self._disk, change)
            self._pending = left

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        with self.call("listdir", path):
            self._need_directory(path)
            return sorted(p.name for p in self._now if p.parent == path and p != path)

    def exists(self, path: Path) -> bool:
        """Return whether the path exists."""
        with self.call("exists", path):
            return path in self._now

    def is_directory(self, path: Path) -> bool:
        """Return whether the path is a directory."""
        with self.call("is_directory", path):
            return path in self._now and self._now[path] is None

    def subdirectories(self, path: Path) -> list[str]:
        """Return the names of all directories in this one."""
        return [name for name in self.listdir(path) if self.is_directory(path / name)]

    def rmtree(self, path: Path) -> None:
        """Remove a path and all that is below it, if it exists."""
        with self.call("rmtree", path):
            below = [p for p in self._now if p == path or path in p.parents]
            for one in sorted(below, key=lambda p: -len(p.parts)):
                self._change({path.parent}, {one: False})

    def lock(self, path: Path) -> "FaultyLock":
        """Lock a path; raises DirectoryLocked if the path is locked already."""
        with self.call("lock", path):
            if path in self._locked:
                raise DirectoryLocked(path, 1)
            self._need_directory(path.parent)
            self._locked.add(path)
            return FaultyLock(self._locked, path)

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes of the disk; 1 << 50 if its capacity is unlimited."""
        with self.call("free_bytes", path):
            return self.room_for(1 << 50)

    def commit_workers(self, threads: int) -> CommitWorkers:
        """Return workers that run the steps of jobs without threads."""
        return FaultyWorkers(self, threads)

    def _need(self, path: Path) -> None:
        if path not in self._now:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))

    def _need_directory(self, path: Path) -> None:
        self._need(path)
        if self._now[path] is not None:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))

    def _change(self, directories: set[Path], change: Change) -> None:
        apply(self._now, change)
        self._pending.append((directories, change))


def apply(entries: dict[Path, Entry], change: Change) -> None:
    """Apply a change to the entries of a disk."""
    for path, entry in change.items():
        if entry is False:
            entries.pop(path, None)
        else:
            assert not isinstance(entry, bool)
            entries[path] = entry


class FaultyLock:
    """The lock of a path, which is held until it is released."""

    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        self._locked.discard(self._path)


class FaultyFile:
    """An open file of a FaultyDisk."""

    def __init__(self, disk: FaultyDisk, path: Path, node: Node, *, is_writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._is_writable = is_writable
        self._is_open = True

    @contextmanager
    def _call(self, name: str) -> Iterator[int | None]:
        with self._disk.call(name, self.path) as fault:
            if not self._is_open or (name in ("pwrite", "truncate") and not self._is_writable):
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
            yield fault

    def pread(self, n: int, offset: int) -> bytes:
        """Return up to `n` bytes at `offset`; raises OSError (EIO) for a spoiled sector."""
        with self._call("pread"):
            data = self._node.read(n, offset)
            if data is None:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
            return data

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Write the bytes and return their number; raises ShortWrite if only some of them fit."""
        with self._call("pwrite") as fault:
            whole = bytes(data)
            beyond = max(0, offset + len(whole) - len(self._node.now))
            fits = len(whole) - beyond + self._disk.room_for(beyond)
            if fault == 0:
                fits = min(fits, self._disk.chance.randrange(len(whole) + 1) - 1)
            if fits <= 0 and whole:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            self._node.write(whole[:fits], offset)
            if fits < len(whole):
                raise ShortWrite(self.path, len(whole), fits)
            return len(whole)

    def fdatasync(self) -> None:
        """Put the file's bytes and size on the disk."""
        with self._call("fdatasync") as fault:
            self._sync(fault)

    def fsync(self) -> None:
        """Put the file's bytes and size on the disk, as `fdatasync` does."""
        with self._call("fsync") as fault:
            self._sync(fault)

    def _sync(self, fault: int | None) -> None:
        if fault:
            self._node.fail_to_sync(self._disk.chance)
            raise OSError(fault, os.strerror(fault), str(self.path))
        self._node.sync()

    def allocate(self, offset: int, length: int) -> None:
        """Extend the file with zeros to `offset + length` bytes, or raise OSError (ENOSPC)."""
        with self._call("allocate"):
            extra = offset + length - len(self._node.now)
            if extra > 0:
                if self._disk.room_for(extra) < extra:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
                self._node.resize(offset + length)

    def truncate(self, size: int) -> None:
        """Set the file's size in bytes."""
        with self._call("truncate"):
            self._node.resize(size)

    def size(self) -> int:
        """Return the file's size in bytes."""
        with self._call("size"):
            return len(self._node.now)

    def fileno(self) -> None:
        """Return None: a simulated file has no descriptor."""
        return None

    def close(self) -> None:
        """Close the file; later calls raise OSError (EBADF)."""
        self._is_open = False


Step = Callable[[], object]
IsTriedSync = Callable[[OSError], bool]  # tells whether a failed step was a sync that was tried


class FaultyJob:
    """Steps of one commit, like natsd.store.commit.commits's CommitJob."""

    def __init__(self, disk: FaultyDisk, token: object) -> None:
        self.token = token
        self.error: OSError | None = None
        self.failed_sync = False
        self.failures: list[tuple[int, OSError, bool]] = []
        self.steps: list[tuple[int | None, IsTriedSync, Step]] = []
        self._disk = disk
        self._parts = 0
        self._part: int | None = None

    def begin_part(self) -> None:
        """Begin the next part: its steps fail without the other parts' steps."""
        self._part = self._parts
        self._parts += 1

    def end_parts(self) -> None:
        """End the parts; the steps that follow are done only if no part failed."""
        self._part = None

    def _add(self, step: Step, is_tried_sync: IsTriedSync = lambda _: False) -> None:
        self.steps.append((self._part, is_tried_sync, step))

    def allocate(self, file: DiskFile, offset: int, length: int) -> None:
        """Add a step that reserves space."""
        self._add(lambda: file.allocate(offset, length))

    def write(self, file: DiskFile, data: Buffer, offset: int) -> None:
        """Add a step that writes the bytes at `offset`."""
        self._add(lambda: file.pwrite(data, offset))

    def write_zeros(self, file: DiskFile, offset: int, length: int) -> None:
        """Add a step that writes zeros."""
        self._add(lambda: file.pwrite(bytes(length), offset))

    def datasync(self, file: DiskFile) -> None:
        """Add a step that syncs the file."""
        self._add(file.fdatasync, lambda _: True)

    def sync_directory(self, path: Path) -> None:
        """Add a step that syncs a directory."""
        self._add(lambda: self._disk.sync_dir(path), lambda error: error.errno not in NOT_OPENED)

    def truncate(self, file: DiskFile, size: int) -> None:
        """Add a step that sets the file's size."""
        self._add(lambda: file.truncate(size))

    def make_directory(self, path: Path) -> None:
        """Add a step that creates a directory."""
        self._add(lambda: self._disk.mkdir(path))

    def put_file(self, path: Path, data: Buffer) -> None:
        """Add the steps that create the file, write it and sync it."""
        files: list[DiskFile] = []
        self._add(lambda: files.append(self._disk.open(path, create=True)))
        self._add(lambda: files[0].truncate(0))
        self._add(lambda: files[0].pwrite(data, 0))
        self._add(lambda: files[0].fsync(), lambda _: True)
        self._add(lambda: files[0].close())

    def rename(self, source: Path, target: Path) -> None:
        """Add a step that renames a file."""
        self._add(lambda: self._disk.rename(source, target))

    def run_step(self) -> bool:
        """Do the next step and return whether the job is over."""
        if not self.steps:
            return True
        part, is_tried_sync, step = self.steps.pop(0)
        try:
            step()
        except OSError as error:
            is_sync = is_tried_sync(error)
            if self.error is None:
                self.error, self.failed_sync = error, is_sync
            if part is None:
                return True
            self.failures.append((part, error, is_sync))
            self.steps = [each for each in self.steps if each[0] != part]
        return not self.steps or (self.steps[0][0] is None and self.error is not None)


class FaultyWorkers:
    """Workers that do the steps of up to `threads` jobs in an order drawn from the disk's seed.

    They use no threads: the steps are done in `wait`, or in a callback of the event loop. When the
    power fails, `wait` raises PowerLoss, and no job completes any more.
    """

    def __init__(self, disk: FaultyDisk, threads: int) -> None:
        self._disk = disk
        self._threads = threads
        self._running: list[FaultyJob] = []
        self._done: list[FaultyJob] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callback: Callable[[], object] | None = None
        self.in_flight = 0

    def job(self, token: object = None) -> FaultyJob:
        """Return a new, empty job."""
        return FaultyJob(self._disk, token)

    def submit(self, job: FaultyJob) -> None:
        """Let the workers run the job."""
        self._running.append(job)
        self.in_flight += 1
        if self._loop is not None:
            self._loop.call_soon(self._turn)

    def take_completed(self) -> list[FaultyJob]:
        """Return the jobs that have ended since the last call."""
        done, self._done = self._done, []
        self.in_flight -= len(done)
        return done

    def wait(self, timeout_s: float = -1) -> None:
        """Run steps until a job has ended or none is left; `timeout_s` is ignored."""
        while self._running and not self._done:
            self._run_some()

    def watch(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[[], object],
        reactor: object = None,
    ) -> None:
        """Run jobs in turns of the event loop, and call `callback` after jobs have ended."""
        self._loop, self._callback = loop, callback

    def unwatch(self) -> None:
        """Stop running jobs in the event loop."""
        self._loop = self._callback = None

    def close(self) -> None:
        """Run all submitted jobs to their end."""
        while self._running:
            self._run_some()

    def _turn(self) -> None:
        if not self._running and not self._done:
            return
        try:
            self.wait()
        except PowerLoss:
            return
        if self._callback is not None:
            self._callback()
        if self._running and self._loop is not None:
            self._loop.call_soon(self._turn)

    def _run_some(self) -> None:
        job = self._disk.chance.choice(self._running[: self._threads])
        if job.run_step():
            self._running.remove(job)
            self._done.append(job)
