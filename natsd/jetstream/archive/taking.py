"""A stream as of one moment: its messages frozen, and everything else copied.

What consumers delivered and what was acknowledged is copied before the messages are frozen: a
message that a consumer knows of and that went meanwhile is forgotten when it is restored, and none
that waits is missed.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from natsd.jetstream.archive.contents import ArchivedConsumer, ConsumerImage, StreamImage
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.stream import StreamState
from natsd.jetstream.stream.files import StreamAsset
from natsd.jetstream.stream.info import state_of
from natsd.store.file_store import FileStore
from natsd.store.frozen_store import FrozenStore

if TYPE_CHECKING:
    from natsd.jetstream.stream.stream import Stream


@dataclass(frozen=True, slots=True)
class TakenStream:
    """`frozen` is to be released."""

    frozen: FrozenStore
    image: StreamImage
    state: StreamState


async def freeze_stream(stream: "Stream", directory: Path, *, with_consumers: bool) -> TakenStream:
    """A file stream as of now; the directory holds what is needed until it is released. Raises
    StoreError, OSError."""
    store = stream.store
    assert isinstance(store, FileStore)
    consumers = tuple(await _consumers(stream)) if with_consumers else ()
    message_ids: list[bytes] = []
    frozen = await store.freeze(directory, lambda: message_ids.append(stream.encode_message_ids()))
    asset = StreamAsset(config=stream.config, created=stream.created_ns)
    state = state_of(frozen.state, stream.damage, len(stream.consumers))
    return TakenStream(frozen, StreamImage(asset, consumers, message_ids[0]), state)


async def _consumers(stream: "Stream") -> list[ConsumerImage]:
    """Those that have files, each in a turn of the loop."""
    images = []
    for consumer in list(stream.consumers.values()):
        if consumer.directory is not None:
            asset = consumer.asset
            archived = ArchivedConsumer(
                name=consumer.name, config=asset.config, created=asset.created, resume=asset.resume
            )
            images.append(ConsumerImage(archived, consumer.store.tracker.encode()))
            await asyncio.sleep(0)
    return images


async def check_messages(frozen: FrozenStore) -> None:
    """Read all of them. Raises ApiError 10064 when some do not verify."""
    lost = 0
    for index in range(frozen.num_blocks):
        lost += (await frozen.image(index, keep=True)).lost
    if lost:
        text = f"snapshot check detected {lost} bad messages"
        raise api_error(ErrorId.JSStreamSnapshotErrF, err=text)
