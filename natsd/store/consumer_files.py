"""The files of a consumer's state: which there are, what they say, what is done about damage.

    obs/<consumer>/state.db     checkpoint, two files (twin_file.py), body:
                                0 log id u32 · 4 zero u32 · 8 seed of the log u64
                                16 changes before the log u64 · 24 the state (consumer_tracker.pyx)
                   000007.log   the changes since, in extents (consumer_log.pxd); its id is 7
                   damaged/     logs that were found damaged, as they were found

Promise
- The checkpoint decides: the one log that it names counts, every other is a leftover. A log is on
  disk before the checkpoint that names it.
- `recover` cuts a torn tail, and has what it found on disk before anybody is shown it: a process
  before may have ended after a sync that failed, so the log is written again and synced.
- Damage is reported with file and offset, the damaged log is set aside, and the state goes on in a
  new one: what parity gives back is kept, and behind a gap nothing counts but acks of what is known
  to be pending. The old log keeps its name until a checkpoint holds what was read of it.
- Without a checkpoint that verifies there is no state: nothing is changed then.

Everything here blocks and raises OSError.
"""

import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from natsd.store.consumer_log import LogScan, encode_log_header, scan_log
from natsd.store.consumer_tracker import ConsumerTracker
from natsd.store.disk import Disk, DiskFile, make_directories
from natsd.store.doubled_file import UNFINISHED_SUFFIX, read_contents
from natsd.store.errors import ConsumerStateDamaged, DamagedEncoding
from natsd.store.holes import write_again
from natsd.store.twin_file import read_twins, replace_twins, twins_exist

CHECKPOINT_FILE: Final = "state.db"
CHECKPOINT_MAGIC: Final = b"NATSDOCP"
CHECKPOINT: Final = struct.Struct("<IIQQ")
LOG_SUFFIX: Final = ".log"
LOG_HEADER_BYTES: Final = 64
DAMAGED_DIRECTORY: Final = "damaged"

Random: TypeAlias = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class FileDamage:
    """Bytes that do not verify. `harmless`: nothing was lost by them."""

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
    """A log, and what the checkpoint that names it says of it. `place`: the consumer's directory
    in the store directory, which is not that of `path` while it is built elsewhere."""

    log_id: int
    seed: int
    total: int
    path: Path
    place: str

    @property
    def checkpoint(self) -> bytes:
        return CHECKPOINT.pack(self.log_id, 0, self.seed, self.total)

    def following(self, total: int, random: Random) -> "Generation":
        """The next one, which begins when there were `total` changes."""
        return first_generation(self.path.parent, random, self.log_id + 1, total, place=self.place)


@dataclass(slots=True)
class Recovery:
    """What opening found; `set_aside` is where the damaged log is now."""

    damage: list[FileDamage] = field(default_factory=list)
    torn_at: int | None = None
    late_acks: int = 0
    set_aside: Path | None = None


@dataclass(frozen=True, slots=True)
class OpenLog:
    """A log that can be appended to: at `end`, after `total` changes in all."""

    generation: Generation
    file: DiskFile
    end: int
    total: int


def first_generation(
    directory: Path, random: Random, log_id: int = 1, total: int = 0, *, place: str
) -> Generation:
    """A log that is nowhere yet, with a seed of its own."""
    seed = int.from_bytes(random(8), "little")
    return Generation(log_id, seed, total, directory / f"{log_id:06}{LOG_SUFFIX}", place)


def write_generation(disk: Disk, generation: Generation, state: bytes) -> OpenLog:
    """A new, empty log, then the checkpoint that names it; both are on disk on return."""
    file = disk.open(generation.path, create=True)
    try:
        file.truncate(0)
        header = encode_log_header(generation.log_id, generation.seed, generation.total)
        file.pwrite(header, 0)
        file.fsync()
        path = generation.path.with_name(CHECKPOINT_FILE)
        # This syncs the directory, and with it the name of the log.
        body = generation.checkpoint + state
        replace_twins(disk, path, CHECKPOINT_MAGIC, body, _checkpoint_place(generation.place))
    except BaseException:
        file.close()
        raise
    return OpenLog(generation, file, LOG_HEADER_BYTES, generation.total)


def create(
    disk: Disk, directory: Path, tracker: ConsumerTracker, random: Random, *, place: str
) -> OpenLog:
    """The files of a new consumer. `place`: see Generation."""
    make_directories(disk, directory)
    first = first_generation(directory, random, place=place)
    return write_generation(disk, first, tracker.encode())


def is_state_used(disk: Disk, directory: Path) -> bool:
    """Whether anything was written to the state since it was created: a delivery, or the mark of a
    close."""
    if not disk.exists(directory):
        return False
    logs = [name for name in disk.listdir(directory) if name.endswith(LOG_SUFFIX)]
    first = f"{1:06}{LOG_SUFFIX}"
    if any(name != first for name in logs):
        return True
    return bool(
        logs and read_contents(disk, directory / first).data[LOG_HEADER_BYTES:].strip(b"\0")
    )


def recover(
    disk: Disk, directory: Path, tracker: ConsumerTracker, random: Random, *, place: str
) -> tuple[OpenLog, Recovery]:
    """Bring an empty tracker to what is on disk. Raises ConsumerStateDamaged."""
    recovery = Recovery()
    generation = _read_checkpoint(disk, directory, tracker, recovery, place)
    _remove_leftovers(disk, directory, generation)
    scan = _read_log(disk, generation, recovery)
    if scan is not None:
        tracker.replay(scan.entries)
        recovery.late_acks = tracker.replay_late(scan.late)
    if scan is None or recovery.damage:
        total = generation.total if scan is None else scan.total
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
    """Have the entries that were found on disk, and nothing behind the last mark."""
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
        log_id, _, seed, total = CHECKPOINT.unpack_from(bodies[0])
        tracker.decode(bodies[0][CHECKPOINT.size :])
    except (struct.error, DamagedEncoding) as error:
        raise ConsumerStateDamaged(f"{path} is damaged: {error}") from None
    recovery.damage += [
        FileDamage(each.path, each.offset, each.length, each.what, harmless=True)
        for each in found.damage
    ]
    return Generation(log_id, seed, total, directory / f"{log_id:06}{LOG_SUFFIX}", place)


def _checkpoint_place(place: str) -> str:
    return f"{place}/{CHECKPOINT_FILE}"


def _remove_leftovers(disk: Disk, directory: Path, generation: Generation) -> None:
    """Logs before and behind the one that counts, and files that were never finished."""
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
    if data[:LOG_HEADER_BYTES] != header:
        what = "header does not verify"
        recovery.damage.append(FileDamage(path, 0, LOG_HEADER_BYTES, what, harmless=True))
    scan = scan_log(data, generation.seed, generation.total)
    recovery.damage += [FileDamage(path, *damage) for damage in scan.damage]
    if found.holes_end > scan.end:  # what stood there was no torn end
        lost = found.holes_end - scan.end
        recovery.damage.append(FileDamage(path, scan.end, lost, "cannot be read", harmless=False))
    return scan


def _keep_damaged(disk: Disk, generation: Generation) -> Path | None:
    """Give a damaged log a second name where no recovery looks. It keeps its own until a checkpoint
    holds what could be read of it."""
    if not disk.exists(generation.path):
        return None
    directory = generation.path.parent / DAMAGED_DIRECTORY
    make_directories(disk, directory)
    aside = directory / generation.path.name
    with contextlib.suppress(FileExistsError):  # the process before got as far as this
        disk.link(generation.path, aside)
    disk.sync_dir(directory)
    return aside


def remove_log(disk: Disk, log: OpenLog) -> None:
    """A log that no checkpoint names any more; if it cannot be removed now, recovery will."""
    with contextlib.suppress(OSError):
        log.file.close()
        disk.unlink(log.generation.path)
