"""The writer of a stream's index.db: at close, and from time to time while the stream is open.

    first commit       ─▶ index.db: a note that the store exists and that it has blocks

    a commit is taken  ─▶ freeze: small things are copied now, subjects are copied when they change
    it is on disk      ─▶ the subjects in pieces, one slice of the loop each ─▶ index.db is replaced
    the commit failed  ─▶ the frozen state is dropped

Promise
- The written state is that of one commit, and that commit is on disk in the blocks before index.db
  is, whatever `sync_interval` says: recovery trusts the bytes that index.db describes, and writes
  again the bytes behind them.
- The note is made once the first commit is on disk, so that a store that later loses its only
  block does not look new. The note proves nothing else, so it is not synced, and a power cut may
  lose it.
- index.db is due after INTERVAL_S seconds or CHANGES_MAX messages. An idle store has no timer and
  is not due. If index.db cannot be written, the old one stays, and recovery reads more blocks.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from natsd.store.block.stored_blocks import StoredBlocks
from natsd.store.commit.commits import FileCommits
from natsd.store.commit.volume import Volume
from natsd.store.disk.disk import DiskFile
from natsd.store.log.message_log import MessageLog, dump_expiries, pack_blocks
from natsd.store.log.subjects import SubjectSnapshot
from natsd.store.recovery.found_damage import FoundDamage, encode_damage
from natsd.store.recovery.index_db import INDEX_NAME, NEW_SUFFIX, IndexWriter, StoreImage

INTERVAL_S = 120.0
CHANGES_MAX = 1_000_000
KEYS_PER_SLICE = 4_000


@dataclass(slots=True)
class Frozen:
    """A stream's state as of a commit; `subjects` must be released with its `close`."""

    image: StoreImage
    subjects: SubjectSnapshot


class CheckpointWriter:
    """Writer of one stream's index.db, made by FileStore for as long as it is open.

    `is_there` is whether index.db, or a note in its place, exists or is being written.
    """

    def __init__(
        self,
        volume: Volume,
        log: MessageLog,
        blocks: StoredBlocks,
        commits: FileCommits,
        damage: list[FoundDamage],
        clock_s: Callable[[], float],
        *,
        is_there: bool,
    ) -> None:
        self._volume = volume
        self._log = log
        self._blocks = blocks
        self._commits = commits
        self._damage = damage
        self._clock_s = clock_s
        self._written_at_s = clock_s()
        self._written_sequence = log.last_sequence
        self.is_there = is_there
        self._is_writing = False
        self._frozen: Frozen | None = None
        self._new_path = blocks.directory / (INDEX_NAME + NEW_SUFFIX)

    @property
    def is_due(self) -> bool:
        """Whether index.db is old enough to be written again.

        It is after CHANGES_MAX messages, or INTERVAL_S seconds after the last write. Ask it when
        the store has just committed: an idle store need not be written.
        """
        if self._is_writing:
            return False
        changes = self._log.last_sequence - self._written_sequence
        return changes >= CHANGES_MAX or self._clock_s() - self._written_at_s >= INTERVAL_S

    async def write(self) -> None:
        """Write index.db as of the next commit, or as of now if nothing is pending.

        Do nothing if a write is already under way. Raises StoreError and `OSError`.
        """
        if self._is_writing:
            return
        self._is_writing = self.is_there = True
        self._written_at_s = self._clock_s()
        self._written_sequence = self._log.last_sequence
        try:
            if self._commits.log_commits.is_quiet and not self._commits.erasing:
                self._freeze(self._commits.number)
            else:
                self._commits.at_commit = self._freeze
            await self._commits.synced()
            await self._commits.until_on_disk()
            await self._commits.settled()
            if self._frozen is not None:
                await self._write(self._frozen)
        finally:
            self._is_writing = False
            self._commits.at_commit = None
            frozen, self._frozen = self._frozen, None
            if frozen is not None:
                frozen.subjects.close()

    async def note_store(self) -> None:
        """Write a note that the store exists, unless an index.db is already there.

        Call it when the store's first commit is on disk. Raises StoreError and `OSError`.
        """
        if self.is_there:
            return
        note = StoreImage(
            store_id=self._blocks.store_id,
            place=self._blocks.place,
            commit_number=self._commits.number,
            last_sequence=max(1, self._log.first_sequence) - 1,
        )
        writer = self._writer()
        if await self._volume.read(self._fill_blank, writer.begin(note) + writer.end()):
            self.is_there = True
        else:
            await self.write()

    def _fill_blank(self, data: bytes) -> bool:
        """Write `data` if index.db is empty, and return whether it was. Blocks on the disk.

        A file that is not empty is one that recovery did not believe; the caller replaces it as a
        whole.
        """
        path = self._blocks.directory / INDEX_NAME
        with contextlib.closing(self._blocks.disk.open(path, create=True)) as file:
            is_blank = file.size() == 0
            if is_blank:
                file.pwrite(data, 0)
        return is_blank

    def _writer(self) -> IndexWriter:
        seed = int.from_bytes(self._blocks.random_bytes(8), "little")
        return IndexWriter(seed, self._blocks.seal(seed, 0))

    def _freeze(self, number: int) -> None:
        """Copy the log's state: at this moment all its changes are in commit `number`.

        Do nothing while an erasure is unfinished: its messages may be neither on disk nor
        overwritten.
        """
        if self._commits.erasing:
            return
        log = self._log
        subjects = SubjectSnapshot(log.subjects)
        state = log.state()
        image = StoreImage(
            store_id=self._blocks.store_id,
            place=self._blocks.place,
            commit_number=number,
            first_sequence=log.first_sequence,
            last_sequence=log.last_sequence,
            first_time_ns=state.first_time_ns,
            last_time_ns=log.last_time_ns,
            births=log.subjects.births,
            message_count=log.msgs,
            live_bytes=log.live_bytes,
            packed_blocks=pack_blocks(log.all_blocks),
            deleted=log.dead.encode(),
            expiries=dump_expiries(log.expiries),
            damage=encode_damage(self._damage),
        )
        self._frozen = Frozen(image, subjects)

    async def _write(self, frozen: Frozen) -> None:
        writer = self._writer()
        file = await self._volume.read(self._create_new)
        try:
            at = await self._volume.read(file.pwrite, writer.begin(frozen.image), 0)
            while (piece := frozen.subjects.next_piece(KEYS_PER_SLICE)) is not None:
                at += await self._volume.read(file.pwrite, writer.subjects(piece), at)
            await self._volume.read(file.pwrite, writer.end(), at)
            await self._volume.read(file.fsync)
        finally:
            file.close()
        await self._volume.read(self._rename)

    def _create_new(self) -> DiskFile:
        file = self._blocks.disk.open(self._new_path, create=True)
        file.truncate(0)
        return file

    def _rename(self) -> None:
        """Move the new index.db into place. Blocks on the disk.

        If the sync of the directory fails, a restart may find either index.db, and both are true.
        """
        self._blocks.disk.rename(self._new_path, self._blocks.directory / INDEX_NAME)
        self._blocks.disk.sync_dir(self._blocks.directory)
