"""What stands in an archive of a stream (store/archive.py), and in which order.

    meta.json                    the stream: configuration, time of creation
    obs/<n>/meta.json            each consumer: name, configuration, time of creation …
    obs/<n>/state.db             … and what it delivered and what was acknowledged
    ids.db                       message ids within the duplicate window, if there are any
    delayed/<n>.blk              messages that wait for their Nats-Delay, if there are any …
    delayed/state.json           … and what they add up to
    msgs/<n>.blk                 messages: blocks as they are on disk, without what was removed
    msgs/state.json              what the messages add up to, and the last sequence; last

A message that was acknowledged with a Nats-Delay waits, or has been published: it is in the one
part or in the other. Where a crash left it in both, the stream's start finds that out
(schedules/delays.py).

Source: reference §6.14, for what nats-server puts into its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from natsd.jetstream.consumer.engine_settings import store_options
from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.models.base import Model, TimeNs, Uint64
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.stream.files import StreamAsset
from natsd.store.consumer_tracker import ConsumerTracker
from natsd.store.live_image import LiveImage
from natsd.store.store import StoreState
from natsd.store.stored_blocks import block_name

META: Final = "meta.json"
CONSUMERS: Final = "obs/"
CONSUMER_META: Final = "/meta.json"
CONSUMER_STATE: Final = "/state.db"
IDS: Final = "ids.db"
STATE: Final = "state.json"


class ArchivedConsumer(Model):
    """What `obs/<n>/meta.json` says."""

    name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    created: TimeNs = 0
    resume: Uint64 = 0

    @property
    def asset(self) -> ConsumerAsset:
        """What its own `meta.json` is to say."""
        return ConsumerAsset(config=self.config, created=self.created, resume=self.resume)


@dataclass(frozen=True, slots=True)
class ConsumerImage:
    """A consumer, and its encoded state."""

    consumer: ArchivedConsumer
    state: bytes


@dataclass(frozen=True, slots=True)
class StreamImage:
    """All of a stream but its messages."""

    asset: StreamAsset
    consumers: tuple[ConsumerImage, ...] = ()
    message_ids: bytes = b""

    def entries(self) -> Iterator[tuple[str, bytes]]:
        """Names and bodies, in order."""
        yield META, encode(self.asset)
        for number, image in enumerate(self.consumers):
            yield f"{CONSUMERS}{number}{CONSUMER_META}", encode(image.consumer)
            yield f"{CONSUMERS}{number}{CONSUMER_STATE}", image.state
        if self.message_ids:
            yield IDS, self.message_ids


class MessageCount:
    """Names the blocks of one of a stream's stores, and knows what they add up to."""

    def __init__(self, store: str, state: StoreState) -> None:
        self._store = store
        self._state = state
        self._blocks = 0
        self.msgs = 0
        self.bytes = 0
        self.lost = 0

    def add(self, image: LiveImage) -> str:
        """The name of the next block; empty if it holds nothing."""
        self.lost += image.lost
        if not image.msgs:
            return ""
        self._blocks += 1
        self.msgs += image.msgs
        self.bytes += image.bytes
        return f"{self._store}/{block_name(self._blocks)}"

    def state_entry(self) -> tuple[str, bytes]:
        """The entry behind the blocks."""
        state = StoreState(
            msgs=self.msgs,
            bytes=self.bytes,
            last_sequence=self._state.last_sequence,
            last_time_ns=self._state.last_time_ns,
        )
        return f"{self._store}/{STATE}", msgspec.json.encode(state)


def decode_state(body: bytes) -> StoreState:
    """What a store's `state.json` says; raises msgspec.MsgspecError."""
    return msgspec.json.decode(body, type=StoreState)


def tracker_of(config: ConsumerConfig) -> ConsumerTracker:
    """One that takes a state of such a consumer."""
    options = store_options(config)
    return ConsumerTracker(options.ack_policy, options.max_deliver)
