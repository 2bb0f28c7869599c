"""The files of a consumer's state: their layout, their recovery, and the handling of damage.

    obs/<consumer>/state.db     checkpoint, two files (twin_file.py), body:
                                0 log id u32 · 4 log version u32 · 8 seed of the log u64
                                16 changes before the log u64 · 24 the state (consumer_tracker.pyx)
                   000007.log   the changes since, in batches (consumer_log.pxd); its id is 7
                   damaged/     damaged logs that were set aside, unchanged

Promise
- The checkpoint decides: only the log that it names counts, and every other log is a leftover. A
  log is on disk before the checkpoint that names it.
- `recover` cuts a torn tail. Whatever it found is on disk before anything is served: an earlier
  process may have ended after a failed sync, so the log is written again and synced.
- Damage is reported with file and offset, the damaged log is set aside, and the state goes on in a
  new log. Behind a gap, only acks of messages that are known to be pending count. The old log keeps
  its name until a checkpoint holds what was read from it.
- A log of version 1 is read, and replaced by a new checkpoint and a new log. Its checkpoint has 0
  as the version.
- A consumer whose state never changed has no files, or, after a crash during the first write of
  them, no checkpoint and no entry in a log (`is_blank`): its creator knows where it begins.
- Otherwise, without a checkpoint that verifies there is no state; then no file is changed.

All functions here block on the disk and raise OSError.
"""

import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from natsd.store.consumer.tracking import (
    LOG_VERSION,
    ConsumerTracker,
    LogScan,
    encode_log_header,
    scan_log,
)
from natsd.store.disk.disk import Disk, DiskFile, make_directories
from natsd.store.disk.doubled_file import UNFINISHED_SUFFIX, read_contents
from natsd.store.disk.holes import write_again
from natsd.store.disk.twin_file import read_twins, replace_twins, twins_exist
from natsd.store.errors import ConsumerStateDamaged, DamagedEncoding

CHECKPOINT_FILE: Final = "state.db"
CHECKPOINT_MAGIC: Final = b"NATSDOCP"
CHECKPOINT: Final = struct.Struct("<IIQQ")
LOG_SUFFIX: Final = ".log"
LOG_HEADER_BYTES: Final = 64
DAMAGED_DIRECTORY: Final = "damaged"
# The log of a state that changed before it had files: its number tells that it was used.
FIRST_USED_LOG: Final = 2

Random: TypeAlias = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class FileDamage:
    """Bytes that do not verify; `harmless` means that nothing was lost with them.

    Offset and length are in bytes.
    """

    path: Path
    offset: int
    length: int
    what: str
    harmless: bool

    def __str__(self) -> str:
        cost = "nothing lost" if self.harmless else "changes lost"
        return f"{self.path}: {self.length} bytes at {self.offset}: {self.what} ({cost})"


@dataclass(frozen=True, slots=True)
class Generation:
    """A log together with what the checkpoint that names it says about it.

    `total` is the number of changes before the log. `place` is the consumer's path in the store
    directory; it differs from `path` while the consumer is built elsewhere.
    """

    log_id: int
    seed: int
    total: int
    path: Path
    place: str
    version: int = LOG_VERSION

    @property
    def checkpoint(self) -> bytes:
        """Head of the checkpoint's body, without the state."""
        return CHECKPOINT.pack(self.log_id, self.version, self.seed, self.total)

    def following(self, total: int, random: Random) -> "Generation":
        """Return the next generation, which begins after `total` changes."""
        return first_generation(self.path.parent, random, self.log_id + 1, total, place=self.place)


@dataclass(slots=True)
class Recovery:
    """What opening a consumer's files has found."""

    damage: list[FileDamage] = field(default_factory=list)
    torn_at: int | None = None  # offset in the log where a torn end was cut; None: none
    late_acks: int = 0  # acks behind a gap that counted
    set_aside: Path | None = None  # where the damaged log is now; None: none was damaged


@dataclass(frozen=True, slots=True)
class OpenLog:
    """A log that can be appended to at offset `end`; it ends after `total` changes in all."""

    generation: Generation
    file: DiskFile
    end: int
    total: int


def first_generation(
    directory: Path, random: Random, log_id: int = 1, total: int = 0, *, place: str
) -> Generation:
    """Return a generation with a new random seed, whose log is not written yet."""
    seed = int.from_bytes(random(8), "little")
    return Generation(log_id, seed, total, directory / f"{log_id:06}{LOG_SUFFIX}", place)


def write_generation(disk: Disk, generation: Generation, state: bytes) -> OpenLog:
    """Write a new, empty log, then the checkpoint that names it; both are on disk on return."""
    file = disk.open(generation.path, create=True)
    try:
        file.truncate(0)
        header = encode_log_header(generation.log_id, generation.seed, generation.total)
        file.pwrite(header, 0)
        file.fsync()
        path = generation.path.with_name(CHECKPOINT_FILE)
        # Replacing the checkpoint syncs the directory, and with it the name of the log.
        body = generation.checkpoint + state
        replace_twins(disk, path, CHECKPOINT_MAGIC, body, _checkpoint_place(generation.place))
    except BaseException:
        file.close()
        raise
    return OpenLog(generation, file, LOG_HEADER_BYTES, generation.total)


def create(
    disk: Disk, directory: Path, tracker: ConsumerTracker, random: Random, *, place: str
) -> OpenLog:
    """Create the files of a new consumer; for `place` see Generation."""
    make_directories(disk, directory)
    first = first_generation(directory, random, place=place)
    return write_generation(disk, first, tracker.encode())


def write_first_change(
    disk: Disk, directory: Path, state: bytes, total: int, random: Random, *, place: str
) -> OpenLog:
    """Create the files of a state that changed `total` times before it had any.

    The directory's parent, the consumer's own, must exist: if the consumer is being deleted, it is
    not made anew.
    """
    with contextlib.suppress(FileExistsError):  # an earlier try, or process, ended after this step
        disk.mkdir(directory)
    disk.sync_dir(directory.parent)
    first = first_generation(directory, random, FIRST_USED_LOG, total, place=place)
    return write_generation(disk, first, state)


def is_state_used(disk: Disk, directory: Path) -> bool:
    """Return whether the state was changed since its creation.

    A delivery counts as a change, and so does a close of a state with files.
    """
    if not disk.exists(directory):
        return False
    logs = _logs(disk, directory)
    first = f"{1:06}{LOG_SUFFIX}"
    return any(name != first for name in logs) or _has_entries(disk, directory, logs)


def is_blank(disk: Disk, directory: Path) -> bool:
    """Return whether no checkpoint was ever written: there is none, and no log has an entry."""
    if not disk.exists(directory):
        return True
    if twins_exist(disk, directory / CHECKPOINT_FILE):
        return False
    return not _has_entries(disk, directory, _logs(disk, directory))


def _logs(disk: Disk, directory: Path) -> list[str]:
    return [name for name in disk.listdir(directory) if name.endswith(LOG_SUFFIX)]


def _has_entries(disk: Disk, directory: Path, logs: list[str]) -> bool:
    return any(
        read_contents(disk, directory / name).data[LOG_HEADER_BYTES:].strip(b"\0") for name in logs
    )


def recover(
    disk: Disk, directory: Path, tracker: ConsumerTracker, random: Random, *, place: str
) -> tuple[OpenLog, Recovery]:
    """Bring an empty tracker to the state on disk; return the open log and what was found.

    Raises ConsumerStateDamaged if no checkpoint verifies.
    """
    recovery = Recovery()
    generation = _read_checkpoint(disk, directory, tracker, recovery, place)
    _remove_leftovers(disk, directory, generation)
    scan = _read_log(disk, generation, recovery)
    if scan is not None:
        tracker.replay(scan.entries)
        recovery.late_acks = tracker.replay_late(scan.late)
    if scan is None or recovery.damage or generation.version != LOG_VERSION:
        total = generation.total if scan is None else scan.total
        if recovery.damage:
            recovery.set_aside = _keep_damaged(disk, generation)
        log = write_generation(disk, generation.following(total, random), tracker.encode())
        _remove_leftovers(disk, directory, log.generation)
        return log, recovery
    if scan.torn:
        recovery.torn_at = scan.end
    file = disk.open(generation.path)
    try:
        _settle_log(file, generation, scan)
    except BaseException:
        file.close()
        raise
    return OpenLog(generation, file, scan.end, scan.total), recovery


def _settle_log(file: DiskFile, generation: Generation, scan: LogScan) -> None:
    """Cut the log behind the last whole batch, and put the entries that were found on disk."""
    if scan.torn:
        file.truncate(scan.end)
    elif scan.total == generation.total:
        return
    write_again(file, LOG_HEADER_BYTES, scan.end)
    file.fsync()


def _read_checkpoint(
    disk: Disk, directory: Path, tracker: ConsumerTracker, recovery: Recovery, place: str
) -> Generation:
    path = directory / CHECKPOINT_FILE
    if not twins_exist(disk, path):
        raise ConsumerStateDamaged(f"{path} is missing")
    found = read_twins(disk, path, _checkpoint_place(place))
    bodies = [each.body for each in found.versions if each.magic == CHECKPOINT_MAGIC]
    if not bodies:
        raise ConsumerStateDamaged(f"{path} is damaged: no copy of the state verifies")
    try:
        log_id, version, seed, total = CHECKPOINT.unpack_from(bodies[0])
        tracker.decode(bodies[0][CHECKPOINT.size :])
    except (struct.error, DamagedEncoding) as error:
        raise ConsumerStateDamaged(f"{path} is damaged: {error}") from None
    recovery.damage += [
        FileDamage(each.path, each.offset, each.length, each.what, harmless=True)
        for each in found.damage
    ]
    log = directory / f"{log_id:06}{LOG_SUFFIX}"
    return Generation(log_id, seed, total, log, place, version)


def _checkpoint_place(place: str) -> str:
    return f"{place}/{CHECKPOINT_FILE}"


def _remove_leftovers(disk: Disk, directory: Path, generation: Generation) -> None:
    """Remove all logs but the generation's own, and files that were never finished."""
    for name in disk.listdir(directory):
        is_log = name.endswith(LOG_SUFFIX) and name != generation.path.name
        if is_log or name.endswith(UNFINISHED_SUFFIX):
            disk.unlink(directory / name)


def _read_log(disk: Disk, generation: Generation, recovery: Recovery) -> LogScan | None:
    path = generation.path
    if not disk.exists(path):
        recovery.damage.append(FileDamage(path, 0, 0, "log is missing", harmless=False))
        return None
    found = read_contents(disk, path)
    data = found.data
    header = encode_log_header(generation.log_id, generation.seed, generation.total)
    if data[:LOG_HEADER_BYTES] != header and generation.version == LOG_VERSION:
        what = "header does not verify"
        recovery.damage.append(FileDamage(path, 0, LOG_HEADER_BYTES, what, harmless=True))
    scan = scan_log(data, generation.seed, generation.total, generation.version)
    recovery.damage += [FileDamage(path, *damage) for damage in scan.damage]
    if found.holes_end > scan.end:  # an unreadable page is damage, not a torn end
        lost = found.holes_end - scan.end
        recovery.damage.append(FileDamage(path, scan.end, lost, "cannot be read", harmless=False))
    return scan


def _keep_damaged(disk: Disk, generation: Generation) -> Path | None:
    """Give a damaged log a second name in the directory `damaged`; return that path.

    No recovery reads that directory. The log keeps its own name until a checkpoint holds what could
    be read of it. Returns None if there is no log.
    """
    if not disk.exists(generation.path):
        return None
    directory = generation.path.parent / DAMAGED_DIRECTORY
    make_directories(disk, directory)
    aside = directory / generation.path.name
    with contextlib.suppress(FileExistsError):  # an earlier process ended after this step
        disk.link(generation.path, aside)
    disk.sync_dir(directory)
    return aside


def remove_log(disk: Disk, log: OpenLog) -> None:
    """Remove a log that no checkpoint names any more; if that fails, the next recovery does it."""
    with contextlib.suppress(OSError):
        log.file.close()
        disk.unlink(log.generation.path)
