"""The entries of a stream's snapshot, and their order.

    meta.json                    the stream: configuration, creation time
    obs/<n>/meta.json            each consumer: name, configuration, creation time …
    obs/<n>/state.db             … and its delivered and acknowledged messages
    ids.db                       message ids within the duplicate window, if there are any
    sources.json                 positions of the stream's sources, for another replica only
    delayed/<n>.blk              messages that wait for their Nats-Delay, if there are any …
    delayed/state.json           … and their totals
    msgs/<n>.blk                 messages: blocks as they are on disk, without removed messages
    msgs/state.json              totals of the messages, and the last sequence; the last entry

A message that was acknowledged with a Nats-Delay either waits or has been published: it is in one
part or in the other. If a crash left it in both, the stream's start detects that
(schedules/delays.py).

A receiver that has some of the blocks already can choose the others. Then the snapshot holds only
the chosen blocks, and the entry

    plan.json                    {"<store>": plan}: keys of all blocks (store/backup/block_keys.py)

comes before those of the messages, the number in a block's name is its place in the plan, counted
from 1, and `state.json` has the totals of the blocks that are sent.

The parts are those of nats-server's own format (`fileStore.streamSnapshot`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from natsd.jetstream.consumer.engine_settings import store_options
from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.models.base import Model, TimeNs, Uint64
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.stream.files import StreamAsset
from natsd.store.backup.live_image import LiveImage
from natsd.store.block.stored_blocks import block_name
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.store import StoreState

META: Final = "meta.json"
CONSUMERS: Final = "obs/"
CONSUMER_META: Final = "/meta.json"
CONSUMER_STATE: Final = "/state.db"
IDS: Final = "ids.db"
POSITIONS: Final = "sources.json"
STATE: Final = "state.json"
PLAN: Final = "plan.json"


class SnapshotConsumer(Model):
    """Content of `obs/<n>/meta.json`."""

    name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    created: TimeNs = 0
    resume: Uint64 = 0

    @property
    def asset(self) -> ConsumerAsset:
        """Content for the consumer's own `meta.json`."""
        return ConsumerAsset(config=self.config, created=self.created, resume=self.resume)


@dataclass(frozen=True, slots=True)
class ConsumerImage:
    """A consumer and its encoded state."""

    consumer: SnapshotConsumer
    state: bytes


@dataclass(frozen=True, slots=True)
class StreamImage:
    """Everything of a stream except its messages."""

    asset: StreamAsset
    consumers: tuple[ConsumerImage, ...] = ()
    message_ids: bytes = b""

    def entries(self) -> Iterator[tuple[str, bytes]]:
        """Return names and bodies of the entries, in their order."""
        yield META, encode(self.asset)
        for number, image in enumerate(self.consumers):
            yield f"{CONSUMERS}{number}{CONSUMER_META}", encode(image.consumer)
            yield f"{CONSUMERS}{number}{CONSUMER_STATE}", image.state
        if self.message_ids:
            yield IDS, self.message_ids


class MessageCount:
    """Names for the blocks of one store in a snapshot, and totals of their messages."""

    def __init__(self, store: str, state: StoreState) -> None:
        self._store = store
        self._state = state
        self._blocks = 0
        self.msgs = 0
        self.bytes = 0
        self.lost = 0

    def add(self, image: LiveImage, number: int = 0) -> str:
        """Count a block and return its entry's name; empty if the block holds no message.

        `number` is the number in the name; 0: that of the last block and one more.
        """
        self.lost += image.lost
        if not image.msgs:
            return ""
        self._blocks = number or self._blocks + 1
        self.msgs += image.msgs
        self.bytes += image.bytes
        return f"{self._store}/{block_name(self._blocks)}"

    def state_entry(self) -> tuple[str, bytes]:
        """Return name and body of the entry that follows the blocks."""
        state = StoreState(
            msgs=self.msgs,
            bytes=self.bytes,
            last_sequence=self._state.last_sequence,
            last_time_ns=self._state.last_time_ns,
        )
        return f"{self._store}/{STATE}", msgspec.json.encode(state)


def encode_plan(plans: Mapping[str, bytes]) -> bytes:
    """Return the body of the plan; `plans` are those of the stores, in the order of a snapshot."""
    return msgspec.json.encode(plans)


def decode_plan(body: bytes) -> dict[str, bytes]:
    """Decode a plan. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(body, type=dict[str, bytes])


def is_chosen(choice: bytes, number: int) -> bool:
    """Return whether a choice has the block of that number.

    Blocks are counted from 0 over all stores: bit n % 8 of byte n // 8 is block n.
    """
    at, bit = divmod(number, 8)
    return at < len(choice) and bool(choice[at] >> bit & 1)


def decode_state(body: bytes) -> StoreState:
    """Decode a store's `state.json`. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(body, type=StoreState)


def tracker_of(config: ConsumerConfig) -> ConsumerTracker:
    """Return a new tracker that can decode the state of such a consumer."""
    options = store_options(config)
    return ConsumerTracker(options.ack_policy, options.max_deliver)
