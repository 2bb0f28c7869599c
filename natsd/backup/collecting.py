"""The entries of a snapshot on their way into pieces; blocks that are there are not asked for.

    plan.json ──▶ choose: which blocks are to be sent
    entries   ──▶ take: small bodies into the record, the others into pieces
    finish    ──▶ the record, with the totals of all blocks, chosen or known

Promise
- Pieces are packed and written in threads; at most WRITTEN_AT_ONCE bodies wait for that, and
  `take` returns after WAIT_S at the latest, so that the sender is not left without an answer.
- A block is opened and counted before it is accepted: a record counts what its pieces hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import IO, Any, Final

import msgspec

from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import StreamFailed
from natsd.backup.manifest import (
    INLINE_BYTES,
    Body,
    Entry,
    Kind,
    StreamCopy,
    StreamRecord,
    encode,
)
from natsd.backup.pieces import StoredPiece
from natsd.jetstream.snapshot.contents import (
    CONSUMER_META,
    CONSUMERS,
    META,
    PLAN,
    STATE,
    decode_plan,
    decode_state,
)
from natsd.jetstream.stream.files import DELAYED, MESSAGES
from natsd.store.backup.block_keys import PlannedBlock, read_plan
from natsd.store.backup.snapshots import open_image
from natsd.store.block.stored_blocks import BLOCK_SUFFIX, block_id_of, block_name
from natsd.store.errors import DamagedEncoding
from natsd.store.store import StoreState

THREADS: Final = 2
WRITTEN_AT_ONCE: Final = 4
WAIT_S: Final = 2.0
RAW: Final = "raw/"
RAW_BYTES: Final = 8 << 20


class Collector:
    """The record of one stream in the making."""

    def __init__(
        self, directory: BackupDirectory, known: Mapping[bytes, Entry], journal: IO[bytes]
    ) -> None:
        """`known` are blocks that the directory has, by their keys."""
        self._directory = directory
        self._known = known
        self._journal = journal
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="backup")
        self._work: dict[Future[Entry], tuple[str, int]] = {}
        self._plans: dict[str, list[PlannedBlock]] = {}
        self._blocks: dict[tuple[str, int], Entry] = {}  # by store, and number from 1
        self._head: list[Entry] = []
        self._states: dict[str, StoreState] = {}
        self._config = b""
        self._raw = bytearray()
        self._raw_entries: list[Entry] = []
        self.sent_bytes = 0  # of bodies that were taken

    def close(self) -> None:
        """End the threads; call it in any case."""
        self._pool.shutdown(cancel_futures=True)

    # Entries of natsd's format

    def choose(self, body: bytes) -> bytes:
        """Take the plan and return the choice: a bit for each block that is to be sent.

        Raises StreamFailed.
        """
        try:
            plans = decode_plan(body)
            self._plans = {store: list(read_plan(plan)) for store, plan in plans.items()}
        except (msgspec.MsgspecError, DamagedEncoding) as error:
            raise StreamFailed(f"the plan of the snapshot: {error}") from None
        bits, number = bytearray(), 0
        for store, blocks in self._plans.items():
            for place, block in enumerate(blocks, 1):
                if not number % 8:
                    bits.append(0)
                entry = self._known.get(block.key)
                if entry is not None and self._is_usable(entry):
                    self._blocks[store, place] = entry
                elif block.msgs:
                    bits[-1] |= 1 << number % 8
                number += 1
        return bytes(bits)

    def _is_usable(self, entry: Entry) -> bool:
        body = entry.body
        if entry.lost:
            return False  # the messages may be readable again
        return not body.piece or self._directory.pieces.has(StoredPiece(body.piece, body.stored))

    def take(self, name: str, body: bytes) -> None:
        """Take an entry. Raises StreamFailed or OSError."""
        self.sent_bytes += len(body)
        store, _, rest = name.partition("/")
        if name == PLAN:
            raise StreamFailed("the plan of the snapshot came where it was not expected")
        if store in (MESSAGES, DELAYED) and rest == STATE:
            self._states[store] = _state_of(name, body)
        elif store in (MESSAGES, DELAYED) and rest.endswith(BLOCK_SUFFIX):
            self._start(store, block_id_of(rest) or 0, body)
        else:
            if name == META:
                self._config = _config_of(body)
            self._head.append(Entry(name, self._stored(body)))

    def _start(self, store: str, number: int, body: bytes) -> None:
        key, expected = b"", 0
        if store in self._plans:
            if not 1 <= number <= len(self._plans[store]):
                raise StreamFailed("the snapshot has a block that is not in its plan")
            key, expected = self._plans[store][number - 1]
        self._work[self._pool.submit(self._make_block, key, expected, body)] = store, number
        if len(self._work) > WRITTEN_AT_ONCE:
            wait(self._work, WAIT_S, FIRST_COMPLETED)
        self._collect()

    def _collect(self) -> None:
        """Note the blocks that are stored. Raises StreamFailed or OSError."""
        for future in [each for each in self._work if each.done()]:
            place = self._work.pop(future)
            entry = self._blocks[place] = future.result()
            if entry.key and entry.body.piece:
                self._journal.write(encode(entry) + b"\n")

    def _make_block(self, key: bytes, expected: int, body: bytes) -> Entry:
        """Count and store a block; in a thread."""
        try:
            block = open_image(body)
        except DamagedEncoding as error:
            raise StreamFailed(str(error)) from None
        count = block.message_count
        lost = max(expected - count, 0)
        return Entry("", self._stored(body), key, count, block.live_bytes, lost)

    def _stored(self, body: bytes) -> Body:
        return Body(body) if len(body) <= INLINE_BYTES else self._piece(body)

    def _piece(self, body: bytes) -> Body:
        """Store a body as a piece, however short: unchanged records are in no manifest again."""
        piece = self._directory.pieces.put(body)
        return Body(piece=piece.name, stored=piece.stored)

    # Bytes of another format

    def take_raw(self, part: bytes) -> None:
        """Take the next bytes of a snapshot of nats-server. Raises OSError."""
        self.sent_bytes += len(part)
        self._raw += part
        if len(self._raw) >= RAW_BYTES:
            self._cut_raw()

    def _cut_raw(self) -> None:
        name = f"{RAW}{len(self._raw_entries) + 1}"
        self._raw_entries.append(Entry(name, self._stored(bytes(self._raw))))
        self._raw.clear()

    # The end

    def finish(
        self, account: str, stream: str, config: object = None, state: Any = None
    ) -> StreamCopy:
        """Store the record, and return what the manifest says about the stream.

        `config` and `state` are those of the answer to the request; natsd's snapshot has them
        itself. Raises StreamFailed or OSError.
        """
        if self._raw or self._raw_entries:
            return self._finish_raw(account, stream, config, state or {})
        while self._work:
            wait(self._work, WAIT_S, FIRST_COMPLETED)
            self._collect()
        if MESSAGES not in self._states or not self._config:
            raise StreamFailed("the snapshot is not whole")
        entries = list(self._head)
        for store in (DELAYED, MESSAGES):
            blocks = [entry for (of, _), entry in sorted(self._blocks.items()) if of == store]
            entries += self._entries_of(store, [each for each in blocks if each.msgs])
        record = StreamRecord(Kind.SNAPSHOT, self._config, b"{}", tuple(entries))
        return StreamCopy(
            account,
            stream,
            self._piece(encode(record)),
            msgs=sum(each.msgs for each in entries if each.name.startswith(MESSAGES)),
            size=sum(each.size for each in entries),
            last_sequence=self._states[MESSAGES].last_sequence,
            consumers=sum(is_consumer(each.name) for each in entries),
            lost=self._lost(),
        )

    def _lost(self) -> int:
        """Return how many messages should live in the blocks and are not in the record."""
        lost = sum(each.lost for each in self._blocks.values())
        for store, blocks in self._plans.items():
            missing = [n for n in range(1, len(blocks) + 1) if (store, n) not in self._blocks]
            lost += sum(blocks[number - 1].msgs for number in missing)
        return lost

    def _entries_of(self, store: str, blocks: list[Entry]) -> list[Entry]:
        """Return the entries of a store: its blocks, numbered from 1, and its totals."""
        if store == DELAYED and not blocks:
            return []
        named = [
            msgspec.structs.replace(each, name=f"{store}/{block_name(number)}")
            for number, each in enumerate(blocks, 1)
        ]
        state = self._states.get(store, StoreState())
        totals = StoreState(
            msgs=sum(each.msgs for each in blocks),
            bytes=sum(each.size for each in blocks),
            last_sequence=state.last_sequence,
            last_time_ns=state.last_time_ns,
        )
        return [*named, Entry(f"{store}/{STATE}", Body(msgspec.json.encode(totals)))]

    def finish_memory(self, account: str, stream: str, config: object) -> StreamCopy:
        """Store the record of a stream in memory, which has no snapshots: its configuration."""
        record = StreamRecord(Kind.MEMORY, json.dumps(config).encode(), b"{}")
        return StreamCopy(account, stream, self._piece(encode(record)), Kind.MEMORY)

    def _finish_raw(self, account: str, stream: str, config: object, state: Any) -> StreamCopy:
        if self._raw:
            self._cut_raw()
        record = StreamRecord(
            Kind.FOREIGN,
            json.dumps(config).encode(),
            json.dumps(state).encode(),
            tuple(self._raw_entries),
        )
        return StreamCopy(
            account,
            stream,
            self._piece(encode(record)),
            Kind.FOREIGN,
            msgs=int(state.get("messages", 0)),
            size=int(state.get("bytes", 0)),
            last_sequence=int(state.get("last_seq", 0)),
            consumers=int(state.get("consumer_count", 0)),
        )


def is_consumer(name: str) -> bool:
    """Return whether the entry of that name holds a consumer's configuration."""
    return name.startswith(CONSUMERS) and name.endswith(CONSUMER_META)


def _state_of(name: str, body: bytes) -> StoreState:
    """Return the totals of a store. Raises StreamFailed."""
    try:
        return decode_state(body)
    except msgspec.MsgspecError as error:
        raise StreamFailed(f"{name} of the snapshot is not understood: {error}") from None


def _config_of(body: bytes) -> bytes:
    """Return the stream's configuration as JSON. Raises StreamFailed."""
    try:
        return json.dumps(json.loads(body)["config"]).encode()
    except (ValueError, KeyError, TypeError):
        raise StreamFailed(f"{META} of the snapshot is not understood") from None
