"""A stream of natsd as the snapshot that `nats stream restore` sends to a nats-server.

    stream.tar.s2   S2 frames, with snappy's blocks, around a tar file: meta.inf, meta.sum,
                    msgs/N.blk, and for each consumer obs/<consumer>/meta.inf, meta.sum, o.dat
    backup.json     the stream's configuration and state

Promise
- Each message has its sequence, time, subject, headers and data. The last sequence is kept by a
  tombstone where no message has it.
- nats-server's files have no place for some things: messages that wait for their `Nats-Delay`, the
  times of pending messages below a second, and the ids in the duplicate window of removed messages.
- Messages that a consumer has read but delivers later (ordered work) are pending, as if they had
  been delivered; terminated ones count as acknowledged. No message is lost by that.

Source: nats-server's `streamSnapshot` and `RestoreStream`; jsm.go's `backup.json`.
"""

import tarfile
from dataclasses import replace
from typing import Final

import msgspec

from natsd.jetstream.models.go_json import decode, encode_value
from natsd.jetstream.models.stream import StreamState
from natsd.jetstream.models.times import format_time
from natsd.jetstream.snapshot.contents import (
    CONSUMER_META,
    CONSUMERS,
    META,
    STATE,
    SnapshotConsumer,
    decode_state,
    tracker_of,
)
from natsd.jetstream.stream.files import MESSAGES, StreamAsset
from natsd.store.backup.snappy_frames import S2_IDENTIFIER, FramePacker
from natsd.store.backup.snapshots import open_image
from natsd.store.block.stored_blocks import BLOCK_SUFFIX
from natsd.store.consumer.consumer_state import ConsumerState, Pending
from natsd.store.nats_server.blocks import (
    BlockFile,
    encode_block,
    encode_tombstone,
    highway_hash,
)
from natsd.store.nats_server.consumer_file import encode_consumer
from natsd.store.nats_server.stream_files import CONSUMER_STATE, META_SUM, hash_key
from natsd.store.nats_server.stream_files import META as STREAM_META

_TAR_BYTES: Final = 512
_MODE: Final = 0o600


class NatsServerWriter:
    """Writer of one snapshot for nats-server; `now_s` are seconds since 1970.

    `left_out` has the sequences of the messages that nats-server's files cannot hold.
    """

    def __init__(self, now_s: int) -> None:
        self.left_out: list[int] = []
        self._now_s = now_s
        self._frames = FramePacker()
        self._asset: StreamAsset | None = None
        self._consumer: SnapshotConsumer | None = None
        self._consumers = self._blocks = 0
        self._state = StreamState()

    def begin(self) -> bytes:
        """Return the first bytes of the snapshot."""
        return S2_IDENTIFIER

    def entry(self, name: str, body: bytes) -> bytes:
        """Return the bytes for an entry of natsd's snapshot; empty if there is no place for it."""
        if name == META:
            self._asset = decode(StreamAsset, body)
            return self._meta("", self._name, self._asset.created, self._asset.config.model_dump())
        if name.startswith(CONSUMERS) and name.endswith(CONSUMER_META):
            self._consumer = decode(SnapshotConsumer, body)
            return b""
        if name.startswith(CONSUMERS):
            return self._consumer_files(body)
        if name.startswith(f"{MESSAGES}/") and name.endswith(BLOCK_SUFFIX):
            return self._block(body)
        return self._last(body) if name == f"{MESSAGES}/{STATE}" else b""

    def end(self) -> bytes:
        """Return the last bytes of the snapshot."""
        return self._frames.packing(bytes(2 * _TAR_BYTES))()

    def backup(self) -> bytes:
        """Return `backup.json`, after the last entry."""
        assert self._asset is not None
        state = self._state.model_copy(update={"consumer_count": self._consumers})
        members = {"config": self._asset.config.model_dump(), "state": state.model_dump()}
        return msgspec.json.format(encode_value(members), indent=2)

    @property
    def _name(self) -> str:
        assert self._asset is not None
        return self._asset.config.name

    def _meta(self, directory: str, hashed: str, created: int, config: dict[str, object]) -> bytes:
        meta = encode_value({"Created": format_time(created), **config})
        checksum = highway_hash(hash_key(hashed), meta).hex().encode()
        return self._file(directory + STREAM_META, meta) + self._file(
            directory + META_SUM, checksum
        )

    def _consumer_files(self, body: bytes) -> bytes:
        consumer = self._consumer
        assert consumer is not None
        tracker = tracker_of(consumer.config)
        tracker.decode(body)
        self._consumers += 1
        directory = f"{CONSUMERS}{consumer.name}/"
        config = {"Name": consumer.name, **consumer.config.model_dump()}
        meta = self._meta(directory, f"{self._name}/{consumer.name}", consumer.created, config)
        state = encode_consumer(_plain_state(tracker.state()), self._now_s)
        return meta + self._file(directory + CONSUMER_STATE, state)

    def _block(self, body: bytes) -> bytes:
        self._blocks += 1
        key = hash_key(f"{self._name}-{self._blocks}")
        records, left_out = encode_block(open_image(body), key)
        self.left_out += left_out
        block, before = BlockFile(records, key, is_verified=True), self._state
        self._state = StreamState(
            messages=before.messages + block.messages,
            bytes=before.bytes + block.live_bytes,
            first_seq=before.first_seq or block.first_sequence,
            last_seq=block.last_sequence or before.last_seq,
        )
        return self._file(f"{MESSAGES}/{self._blocks}{BLOCK_SUFFIX}", records)

    def _last(self, body: bytes) -> bytes:
        """Return a block with a tombstone if the last sequence is that of no message."""
        state, written = decode_state(body), self._state
        self._state = written.model_copy(
            update={
                "first_seq": written.first_seq or state.last_sequence + 1,
                "last_seq": state.last_sequence,
                "last_ts": state.last_time_ns,
            }
        )
        if state.last_sequence == written.last_seq:
            return b""
        key = hash_key(f"{self._name}-{self._blocks + 1}")
        record = encode_tombstone(state.last_sequence, state.last_time_ns, key)
        return self._file(f"{MESSAGES}/{self._blocks + 1}{BLOCK_SUFFIX}", record)

    def _file(self, name: str, body: bytes) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(body), _MODE
        behind = bytes(-len(body) % _TAR_BYTES)
        return self._frames.packing(info.tobuf(tarfile.PAX_FORMAT), body, behind)()


def _plain_state(state: ConsumerState) -> ConsumerState:
    """Return the state without what nats-server does not know: held and terminated messages."""
    pending = {key: each for key, each in state.pending.items() if key not in state.terminated}
    for first, last in state.held or ():
        for sequence in range(first, last + 1):
            pending[sequence] = Pending(max(state.delivered.consumer, 1), 0)
    return replace(state, pending=pending, held=None, terminated=frozenset())
