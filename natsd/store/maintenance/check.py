"""A check of a volume: it reports all damage and does not change a byte.

    <volume>/natsd.lock           locked during the check
             journal.0 journal.1  replayed first, as a server would (journal_replay.py)
             …/000001.blk …       a stream: its directory has blocks or index.db
             …/index.db  key.db  meta.json …   with the second files of the small ones
             …/state.db 000001.log   a consumer: its directory has a checkpoint or logs
             …/damaged/           files that were set aside; not checked

Promise
- The check finds what a server would find: it runs the server's own journal replay and recovery of
  streams and consumers, on an in-memory copy of the bytes that they would change
  (overlay_disk.py).
- Every damage is a `Finding` with file, offset, length, and the lost sequences if messages were
  lost. A torn end is no damage, since it was never acknowledged.
- No file is written. The volume stays locked, since files that change cannot be checked.
- One stream's blocks at a time are in memory, and only a window of them.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from natsd.store.block.stored_blocks import BLOCK_SUFFIX, StoredBlocks, block_id_of
from natsd.store.commit.volume import LOCK_NAME
from natsd.store.consumer.consumer_files import (
    CHECKPOINT_FILE,
    DAMAGED_DIRECTORY,
    LOG_SUFFIX,
    recover,
)
from natsd.store.consumer.consumer_state import AckPolicyCode
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.crypto.keys import DataKey, OperatorKeys, Random, open_data_key
from natsd.store.disk.disk import Disk, is_removed
from natsd.store.disk.doubled_file import UNFINISHED_SUFFIX, read_file
from natsd.store.disk.places import place_in
from natsd.store.disk.twin_file import COPY_SUFFIX, read_twins
from natsd.store.errors import ConsumerStateDamaged, EncryptionError
from natsd.store.maintenance.overlay_disk import OverlayDisk
from natsd.store.recovery import full_scan as recovery
from natsd.store.recovery.block_identity import find_store_id, place_of
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.recovery.index_db import (
    INDEX_NAME,
    DamagedIndex,
    StoreImage,
    is_blank,
    read_index,
    seed_of,
)
from natsd.store.wal.replay import replay

TWIN_SUFFIXES: Final = (".json", ".db")
CONSUMERS: Final = "obs"  # directory in a stream's, with one directory for each consumer
STATE: Final = "state"
BLOCK_BYTES_MAX: Final = 8 << 20  # size of new blocks, which recovery needs; none is written


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage in one file; offset and length are in bytes.

    The messages from `first_sequence` to `last_sequence` were lost. Both are 0 if no message was
    lost. A `last_sequence` of 0 with a first one means that the end of the loss is unknown.
    """

    file: str
    offset: int
    length: int
    what: str
    first_sequence: int = 0
    last_sequence: int = 0

    def __str__(self) -> str:
        return str(
            FoundDamage(
                Path(self.file),
                self.offset,
                self.length,
                self.first_sequence,
                self.last_sequence,
                self.what,
            )
        )


@dataclass(slots=True)
class Report:
    """The counts and findings of a check; `unchecked` has one line for each unreadable part."""

    streams: int = 0
    blocks: int = 0
    messages: int = 0
    consumers: int = 0
    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether there is no finding and everything could be checked."""
        return not (self.findings or self.unchecked)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON, with `clean` as an additional key."""
        return {**asdict(self), "clean": self.is_clean}


def check_volume(disk: Disk, root: Path, operator: OperatorKeys, random: Random) -> Report:
    """Check the volume in `root` and return the report. Blocks on the disk.

    `random(n)` gives n random bytes; they only go into copies in memory. Raises DirectoryLocked
    while a server uses the volume, and `OSError`.
    """
    with contextlib.ExitStack() as stack:
        if disk.exists(root / LOCK_NAME):
            stack.callback(disk.lock(root / LOCK_NAME).release)
        return check_unlocked(disk, root, operator, random)


def check_unlocked(disk: Disk, root: Path, operator: OperatorKeys, random: Random) -> Report:
    """Check a volume as `check_volume` does, for a caller that holds the lock already."""
    report = Report()
    overlay = OverlayDisk(disk)
    for damage in replay(overlay, root).damage:
        report.findings.append(Finding(str(damage.path), damage.offset, 0, damage.what))
    for directory in directories_below(overlay, root):
        names = overlay.listdir(directory)
        for name in small_files(names):
            report.findings += check_twins(overlay, root, directory / name)
        if is_stream(names):
            check_stream(overlay, root, directory, operator, random, report)
        report.consumers += is_consumer(names) or is_unused_consumer(directory, names)
        if is_consumer(names):
            check_consumer(overlay, root, directory, random, report)
    return report


def directories_below(disk: Disk, root: Path) -> Iterator[Path]:
    """Yield `root` and every directory below it, sorted.

    Directories are left out that were set aside, are unfinished, or are being removed.
    """
    yield root
    for name in disk.subdirectories(root):
        is_unfinished = name.endswith(UNFINISHED_SUFFIX) or is_removed(name)
        if name != DAMAGED_DIRECTORY and not is_unfinished:
            yield from directories_below(disk, root / name)


def is_stream(names: list[str]) -> bool:
    """Return whether a directory with these names holds a stream's messages."""
    return INDEX_NAME in names or any(map(block_id_of, names))


def is_consumer(names: list[str]) -> bool:
    """Return whether a directory with these names holds a consumer's state."""
    return CHECKPOINT_FILE in names or any(
        name.endswith(LOG_SUFFIX) and name.removesuffix(LOG_SUFFIX).isdecimal() for name in names
    )


def is_unused_consumer(directory: Path, names: list[str]) -> bool:
    """Return whether this is the directory of a consumer that has no state yet."""
    return directory.parent.name == CONSUMERS and STATE not in names


def context_of(root: Path, directory: Path) -> str:
    """Return the place that a stream's key is bound to: that of its directory in the volume."""
    return place_in(root, directory)


def check_stream(
    disk: Disk,
    root: Path,
    directory: Path,
    operator: OperatorKeys,
    random: Random,
    report: Report,
) -> None:
    """Check one stream's key, index and blocks, and add the findings to `report`.

    `disk` is written to, so pass an OverlayDisk.
    """
    report.streams += 1
    names = disk.listdir(directory)
    report.blocks += sum(name.endswith(BLOCK_SUFFIX) for name in names)
    try:
        opened = open_data_key(disk, directory, context_of(root, directory), operator, random)
    except EncryptionError as error:
        report.unchecked.append(str(error))
        return
    data_key = opened.data_key if opened else None
    found = recover_stream(disk, root, directory, data_key, random, report.findings)
    report.messages += found.msgs
    report.findings += [finding_of(damage) for damage in found.damage]


def recover_stream(
    disk: Disk,
    root: Path,
    directory: Path,
    data_key: DataKey | None,
    random: Random,
    findings: list[Finding],
) -> recovery.Recovered:
    """Run the stream's recovery and return its result; add damage of index.db to `findings`."""
    image = read_image(disk, directory, data_key, random, findings)
    blocks = stored_blocks(disk, root, directory, data_key, random)
    blocks.store_id = find_store_id(blocks, image)
    if image is not None and image.store_id not in (0, blocks.store_id):
        findings.append(Finding(str(directory / INDEX_NAME), 0, 0, "of another stream"))
        image = None
    return recovery.recover(blocks, image)


def stored_blocks(
    disk: Disk, root: Path, directory: Path, data_key: DataKey | None, random: Random
) -> StoredBlocks:
    """Return the block files of a stream."""
    blocks = StoredBlocks(
        disk, directory, random, block_bytes_max=BLOCK_BYTES_MAX, data_key=data_key
    )
    blocks.place = place_of(context_of(root, directory))
    return blocks


def read_image(
    disk: Disk, directory: Path, data_key: DataKey | None, random: Random, findings: list[Finding]
) -> StoreImage | None:
    """Return the content of index.db, None if it has none; add its damage to `findings`."""
    path = directory / INDEX_NAME
    data = read_file(disk, path) if disk.exists(path) else b""
    if is_blank(data):
        return None
    try:
        image, _ = read_index(data, data_key.seal(seed_of(data), 0, random) if data_key else None)
    except DamagedIndex as error:
        findings.append(Finding(str(path), error.offset, 0, str(error)))
        return None
    return image


def check_consumer(
    disk: Disk, root: Path, directory: Path, random: Random, report: Report, committed: int = 0
) -> None:
    """Check one consumer's checkpoint and log, and add the findings to `report`.

    `disk` is written to, so pass an OverlayDisk. A log whose end is torn is damaged if the first
    `committed` bytes of it do not verify.
    """
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)  # the checkpoint names the real policy
    try:
        place = context_of(root, directory)
        log, found = recover(disk, directory, tracker, random, place=place)
    except ConsumerStateDamaged as error:
        path = directory / CHECKPOINT_FILE
        length = len(read_file(disk, path)) if disk.exists(path) else 0
        report.findings.append(Finding(str(path), 0, length, str(error)))
        return
    log.file.close()
    if found.torn_at is not None and found.torn_at < committed:
        lost = committed - found.torn_at
        what = "changes missing or damaged"
        report.findings.append(Finding(str(log.generation.path), found.torn_at, lost, what))
    for damage in found.damage:
        cost = "" if damage.harmless else " (changes lost)"
        report.findings.append(
            Finding(str(damage.path), damage.offset, damage.length, f"{damage.what}{cost}")
        )


def small_files(names: list[str]) -> list[str]:
    """Return the names of the small files that are kept as two files (twin_file.py), sorted.

    A consumer's checkpoint is left out, since its recovery checks it.
    """
    found = {name.removesuffix(COPY_SUFFIX) for name in names}
    others = (INDEX_NAME, CHECKPOINT_FILE)
    return sorted(name for name in found if name.endswith(TWIN_SUFFIXES) and name not in others)


def check_twins(disk: Disk, root: Path, path: Path) -> list[Finding]:
    """Return the damage of both files of a small file."""
    damage = read_twins(disk, path, context_of(root, path)).damage
    return [Finding(str(each.path), each.offset, each.length, each.what) for each in damage]


def finding_of(damage: FoundDamage) -> Finding:
    """Return a stream's damage as a finding."""
    return Finding(
        str(damage.path),
        damage.offset,
        damage.length,
        damage.what,
        damage.first_sequence,
        damage.last_sequence,
    )
