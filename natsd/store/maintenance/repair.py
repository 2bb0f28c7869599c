"""Repair of a damaged volume: afterwards it opens clean, with all data that can still be read.

    <directory>/000004.blk                  written anew with every message that verifies
                damaged/000004.blk.81920    the damaged bytes at offset 81920, as they were
                damaged/repaired.log        the changes made in this directory, one line each

Promise
- Bytes that do not verify are set aside before anything is changed. A file without damage is not
  touched, and no file is touched while a server holds the volume's lock.
- Each file is replaced at once or not at all; a repair that was cut short can be run again.
- Messages that are lost stay lost: their sequences are not used again. Removals in damaged bytes
  are lost as well: the messages that they removed may be there again.
- index.db is removed if it, or a block it describes, was damaged: the next opening makes it anew
  from the blocks.
- A small file of which no copy verifies, such as a key file, is listed in `unrepaired`. But a
  consumer's checkpoint of which no copy verifies is set aside, so that the consumer begins anew.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from natsd.store.block.blocks import MsgBlock, Scan, rewrite
from natsd.store.block.stored_blocks import IDENTITY, Read, StoredBlocks, block_id_of, is_followed
from natsd.store.commit.volume import LOCK_NAME
from natsd.store.consumer.consumer_files import (
    CHECKPOINT_FILE,
    DAMAGED_DIRECTORY,
    LOG_SUFFIX,
    recover,
)
from natsd.store.consumer.consumer_state import AckPolicyCode
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.crypto.keys import KEY_FILE, OperatorKeys, Random, open_data_key
from natsd.store.disk.disk import Disk, make_directories
from natsd.store.disk.doubled_file import read_file, replace_file
from natsd.store.disk.twin_file import read_twins, replace_twins
from natsd.store.errors import ConsumerStateDamaged, EncryptionError
from natsd.store.maintenance import check
from natsd.store.maintenance.check import Finding
from natsd.store.maintenance.overlay_disk import OverlayDisk
from natsd.store.recovery.block_identity import why_refused
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.recovery.full_scan import Recovered
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.sequence_set import SequenceSet
from natsd.store.wal.replay import replay
from natsd.store.wal.write_ahead_log import SEGMENT_NAMES

REPORT_FILE: Final = "repaired.log"


@dataclass(slots=True)
class Repaired:
    """The result: lines for the changes made, and lines for what could not be repaired."""

    done: list[str] = field(default_factory=list)
    unrepaired: list[str] = field(default_factory=list)


def repair_volume(disk: Disk, root: Path, operator: OperatorKeys, random: Random) -> Repaired:
    """Repair the volume in `root`. Blocks on the disk. Raises DirectoryLocked and `OSError`."""
    lock = disk.lock(root / LOCK_NAME)
    try:
        return _Repair(disk, root, operator, random).run()
    finally:
        lock.release()


class _Repair:
    """One pass over a volume."""

    def __init__(self, disk: Disk, root: Path, operator: OperatorKeys, random: Random) -> None:
        self.disk = disk
        self.root = root
        self.operator = operator
        self.random = random
        self.result = Repaired()
        self.found = Recovered()  # of the stream being repaired

    def run(self) -> Repaired:
        """Repair the journal, and every small file, stream and consumer of the volume."""
        self._journal()
        for directory in list(check.directories_below(self.disk, self.root)):
            names = self.disk.listdir(directory)
            for name in check.small_files(names):
                self._twins(directory / name)
            if check.is_stream(names):
                self._stream(directory)
            if check.is_consumer(names):
                self._consumer(directory)
        return self.result

    def _note(self, directory: Path, line: str) -> None:
        """Add the line to the result, and to the report beside the bytes set aside."""
        self.result.done.append(line)
        aside = directory / DAMAGED_DIRECTORY
        make_directories(self.disk, aside)
        file = self.disk.open(aside / REPORT_FILE, create=True)
        try:
            file.pwrite(f"{line}\n".encode(), file.size())
            file.fsync()
        finally:
            file.close()
        self.disk.sync_dir(aside)

    def _set_aside(self, path: Path, offset: int, data: bytes) -> Path:
        directory = path.parent / DAMAGED_DIRECTORY
        make_directories(self.disk, directory)
        aside = directory / f"{path.name}.{offset}"
        replace_file(self.disk, aside, data)
        return aside

    # The journal

    def _journal(self) -> None:
        """Replay the journal as a server does at its start; damaged segments are kept."""
        segments = [self.root / name for name in SEGMENT_NAMES]
        damaged = {damage.path for damage in replay(OverlayDisk(self.disk), self.root).damage}
        for path in sorted(damaged):
            aside = self._set_aside(path, 0, read_file(self.disk, path))
            self._note(self.root, f"{path}: damaged, kept as {aside}; the rest of it was replayed")
        if any(map(self.disk.exists, segments)):
            replay(self.disk, self.root)

    # A stream

    def _stream(self, directory: Path) -> None:
        context = check.context_of(self.root, directory)
        try:
            opened = open_data_key(self.disk, directory, context, self.operator, self.random)
        except EncryptionError as error:
            self.result.unrepaired.append(str(error))
            return
        data_key = opened.data_key if opened else None
        findings: list[Finding] = []
        found = check.recover_stream(
            OverlayDisk(self.disk), self.root, directory, data_key, self.random, findings
        )
        by_path: dict[Path, list[FoundDamage]] = {}
        for damage in found.damage:
            by_path.setdefault(damage.path, []).append(damage)
        blocks = check.stored_blocks(self.disk, self.root, directory, data_key, self.random)
        self.found = found
        for path, damaged in by_path.items():
            self._block(blocks, path, damaged)
        if findings or by_path:
            self._drop_index(directory, findings)

    def _block(self, blocks: StoredBlocks, path: Path, damaged: list[FoundDamage]) -> None:
        """Set the damaged bytes aside and write the block anew without them."""
        data = read_file(self.disk, path) if self.disk.exists(path) else b""
        for damage in damaged:
            kept = ""
            if data:
                piece = data[damage.offset : damage.offset + damage.length]
                kept = f"; kept as {self._set_aside(path, damage.offset, piece)}"
            self._note(path.parent, f"{damage}{kept}")
        block_id = block_id_of(path.name)
        assert block_id is not None, "recovery reads blocks only"
        read = blocks.scan(data, block_id, proven=-1)
        refused = why_refused(read.scan, block_id, self.found.store_id)
        if read.scan.readable and read.scan.commit_number and not refused:
            logical = self._rewritten(read, damaged)
            what = f"written anew with {read.scan.message_count} messages"
        elif damaged[0].first_sequence and damaged[0].last_sequence:
            logical = self._placeholder(block_id, damaged[0])
            what = "nothing of it can be read; its sequences are kept reserved"
        else:
            self.disk.unlink(path)
            self.disk.sync_dir(path.parent)
            self._note(path.parent, f"{path}: nothing of it can be read, removed")
            return
        block = MsgBlock.from_scan(Scan(logical), check.BLOCK_BYTES_MAX)
        compress = _is_compressed(read, data)
        new = blocks.sealed_bytes(logical, block, compress=compress, is_followed=is_followed(data))
        replace_file(self.disk, path, new)
        self._note(path.parent, f"{path}: {what}")

    def _rewritten(self, read: Read, damaged: list[FoundDamage]) -> bytes:
        scan = read.scan
        last = max(scan.last_sequence, *(each.last_sequence for each in damaged))
        is_last = self.found.blocks and self.found.blocks[-1].block.block_id == scan.block_id
        return rewrite(
            scan,
            SequenceSet(),
            seed=self._seed(),
            commit_number=max(scan.commit_number, self.found.commit_number if is_last else 0),
            first_sequence=scan.first_sequence,
            last_sequence=self.found.last_sequence if is_last else last,
            tombstones=[(erased, encoded) for _, erased, encoded in scan.tombstones],
            created_ns=scan.created_ns,
        )

    def _placeholder(self, block_id: int, damage: FoundDamage) -> bytes:
        """Return a block that reserves the sequences of the lost one."""
        first, last = damage.first_sequence, damage.last_sequence
        salt = IDENTITY.pack(self.found.store_id, first - 1)
        block = MsgBlock(block_id, self._seed(), first, check.BLOCK_BYTES_MAX, salt=salt)
        block.skip(first, last - first + 1)
        extent = block.take_extent(
            self.found.commit_number, self.found.first_sequence, closing=True
        )
        assert extent is not None
        return bytes(memoryview(extent))

    def _seed(self) -> int:
        return int.from_bytes(self.random(8), "little")

    def _drop_index(self, directory: Path, findings: list[Finding]) -> None:
        path = directory / INDEX_NAME
        if not self.disk.exists(path):
            return
        for finding in findings:
            aside = self._set_aside(path, 0, read_file(self.disk, path))
            self._note(directory, f"{finding}; kept as {aside}")
        self.disk.unlink(path)
        self.disk.sync_dir(directory)
        self._note(directory, f"{path}: removed, it is made anew from the blocks")

    def _twins(self, path: Path) -> None:
        place = check.context_of(self.root, path)
        found = read_twins(self.disk, path, place)
        if not found.damage:
            return
        if not found.versions:
            if path.name != KEY_FILE:  # opening the key file reports it
                self.result.unrepaired.append(f"{path} is damaged: no copy of it verifies")
            return
        for damage in found.damage:
            kept = ""
            if self.disk.exists(damage.path):
                data = read_file(self.disk, damage.path)[damage.offset :]
                piece = data[: damage.length or len(data)]
                kept = f", kept as {self._set_aside(damage.path, damage.offset, piece)}"
            self._note(path.parent, f"{damage}{kept}")
        newest = found.versions[0]
        replace_twins(self.disk, path, newest.magic, newest.body, place)
        self._note(path.parent, f"{path}: written anew from the copy that is whole")

    # A consumer

    def _consumer(self, directory: Path) -> None:
        """Set damaged bytes aside, then let the consumer's own recovery write its files anew."""
        dry, place = ConsumerTracker(AckPolicyCode.EXPLICIT), check.context_of(self.root, directory)
        try:
            _, found = recover(OverlayDisk(self.disk), directory, dry, self.random, place=place)
        except ConsumerStateDamaged as error:
            self._abandon(directory, error)
            return
        if not found.damage:
            return
        for damage in found.damage:
            piece = b""
            if self.disk.exists(damage.path):
                piece = read_file(self.disk, damage.path)[damage.offset :][: damage.length]
            aside = self._set_aside(damage.path, damage.offset, piece)
            self._note(directory, f"{damage}; kept as {aside}")
        tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
        log, found = recover(self.disk, directory, tracker, self.random, place=place)
        log.file.close()
        path = directory / CHECKPOINT_FILE
        self._note(directory, f"{path}: written anew, the log is kept as {found.set_aside}")

    def _abandon(self, directory: Path, error: ConsumerStateDamaged) -> None:
        aside = directory / DAMAGED_DIRECTORY
        make_directories(self.disk, aside)
        for name in self.disk.listdir(directory):
            if name.startswith(CHECKPOINT_FILE) or name.endswith(LOG_SUFFIX):
                self.disk.rename(directory / name, aside / name)
        self.disk.sync_dir(aside)
        self.disk.sync_dir(directory)
        self._note(directory, f"{error}; its files are kept in {aside}, it begins anew")


def _is_compressed(read: Read, data: bytes) -> bool:
    """Return whether any piece of the block's file is compressed."""
    if read.unwrapped is None:
        return False
    spans = read.unwrapped.spans
    return any(data[span.physical + 4] & 1 for span in spans if span.physical)
