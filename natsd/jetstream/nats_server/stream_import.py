"""The import of one stream of nats-server into a store directory: messages, consumers, settings.

    meta.inf ─▶ configuration, checked as for a new stream ─┐
    obs/*    ─▶ consumers and their states, checked ────────┼─▶ StreamBuilder ─▶ the stream
    blocks   ─▶ survey ─▶ live messages, block by block ────┘

Promise
- The stream appears completely or not at all; until then it is a directory that a start removes.
- Each message keeps its sequence, time, subject, headers and data; sequences without a message have
  none. Lifetimes come from the messages' headers.
- One block is copied while the next one is read: memory does not grow with the stream.
- What is not taken is reported, one line each. A stream with interest retention is taken only with
  all of its consumers, since messages without interest would be removed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from natsd.core.steps import at_once
from natsd.jetstream.errors import ApiError
from natsd.jetstream.headers import MESSAGE_TTL, header_value
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import InvalidJson, decode
from natsd.jetstream.models.stream import Retention, StreamConfig
from natsd.jetstream.models.times import parse_time
from natsd.jetstream.names import is_valid_asset_name, why_unsupported
from natsd.jetstream.nats_server.survey import Progress, Survey
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.contents import SnapshotConsumer, tracker_of
from natsd.jetstream.snapshot.offline import NotPossible
from natsd.jetstream.stream.config import ConfigRules, check_create
from natsd.jetstream.stream.files import StreamAsset
from natsd.jetstream.stream.lifetimes import NEVER, InvalidLifetime, parse_lifetime
from natsd.store.commit.volume import Volume
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.errors import DamagedEncoding, InvalidConsumerState
from natsd.store.log.message_log import MessageLog
from natsd.store.nats_server.blocks import BlockFile
from natsd.store.nats_server.stream_files import StreamFiles, Unusable, VerifiedBlock

SLICE_BYTES: Final = 256 << 10
REFUSED_MAX: Final = 1_000
_SECOND_NS: Final = 1_000_000_000
_LATEST_NS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FoundConsumer:
    """A consumer of the source."""

    consumer: SnapshotConsumer
    tracker: ConsumerTracker


@dataclass(slots=True)
class FoundStream:
    """A stream of the source without its messages; `not_taken` and `notes` have one line each."""

    asset: StreamAsset
    consumers: list[FoundConsumer] = field(default_factory=list)
    not_taken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_stream(files: StreamFiles) -> FoundStream:
    """Return configuration and consumers of a stream. Raises NotPossible."""
    try:
        created, body = _split(files.meta())
        config = decode(StreamConfig, body)
    except (Unusable, DamagedEncoding) as error:
        raise NotPossible(str(error)) from None
    except InvalidJson as error:
        raise NotPossible(
            f"{files.directory}: its configuration is not understood: {error}"
        ) from None
    found = FoundStream(StreamAsset(config=_checked(files, config), created=created))
    if config.num_replicas > 1:
        found.notes.append(f"{files.directory}: {config.num_replicas} replicas become one")
    _read_consumers(files, found)
    return found


async def copy_stream(
    builder: StreamBuilder,
    volume: Volume,
    files: StreamFiles,
    found: FoundStream,
    survey: Survey,
    progress: Progress,
) -> None:
    """Build the stream from its files; what is not taken is added to `found`.

    Raises NotPossible, StoreError, OSError.
    """
    await builder.begin_stream(found.asset)
    for each in found.consumers:
        try:
            await builder.add_consumer(each.consumer, each.tracker)
        except (DamagedEncoding, NotPossible) as error:
            _leave_out(found, f"{files.directory}: consumer {each.consumer.name!r}: {error}")
    await _copy_messages(builder, volume, files, found, survey, progress)
    await builder.end_at(survey.last_sequence, survey.last_time_ns)


async def _copy_messages(
    builder: StreamBuilder,
    volume: Volume,
    files: StreamFiles,
    found: FoundStream,
    survey: Survey,
    progress: Progress,
) -> None:
    lifetime = _expires_ns if found.asset.config.allow_msg_ttl else None
    refused = list[tuple[int, str]]()
    waiting: asyncio.Task[BlockFile] | None = None
    loop = asyncio.get_running_loop()
    try:
        for at, verified in enumerate(survey.blocks):
            block = await (waiting or volume.read(_load, files, verified))
            waiting = None
            if at + 1 < len(survey.blocks):
                waiting = loop.create_task(volume.read(_load, files, survey.blocks[at + 1]))
            await builder.append(_appending(block, survey, lifetime, refused))
            progress(verified.path.stat().st_size)
    except Unusable as error:
        raise NotPossible(f"{error}, and it could be read before") from None
    finally:
        if waiting is not None:
            await asyncio.gather(waiting, return_exceptions=True)
    for sequence, reason in refused[:REFUSED_MAX]:
        found.not_taken.append(f"{files.directory}: message {sequence}: {reason}")
    if len(refused) > REFUSED_MAX:
        found.not_taken.append(f"{files.directory}: {len(refused) - REFUSED_MAX} further messages")


def _load(files: StreamFiles, verified: VerifiedBlock) -> BlockFile:
    return files.load(*verified).file


def _appending(
    block: BlockFile,
    survey: Survey,
    lifetime: Callable[[bytes, int], int] | None,
    refused: list[tuple[int, str]],
) -> Callable[[MessageLog], Iterator[None]]:
    def append(log: MessageLog) -> Iterator[None]:
        number = 0
        while number >= 0:
            number = block.append_to(
                log,
                survey.removed,
                survey.last_sequence,
                number,
                SLICE_BYTES,
                survey.subjects,
                lifetime,
                refused,
            )
            yield

    return append


def _expires_ns(headers: bytes, time_ns: int) -> int:
    """Return when a message with these headers expires; -1: never, 0: it has no lifetime."""
    value = header_value(headers, MESSAGE_TTL)
    if value is None:
        return 0
    with contextlib.suppress(InvalidLifetime):
        seconds = parse_lifetime(value)
        if seconds == NEVER:
            return -1
        if seconds > 0:
            return min(time_ns + seconds * _SECOND_NS, _LATEST_NS)
    return 0


# Configurations


def _split(meta: bytes) -> tuple[int, bytes]:
    """Return the creation time in a `meta.inf`, and the configuration. Raises DamagedEncoding."""
    try:
        members = msgspec.json.decode(meta)
        if not isinstance(members, dict):
            raise DamagedEncoding("the configuration is no JSON object")
        created = parse_time(members.pop("Created", "0001-01-01T00:00:00Z"))
        members.pop("Name", None)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise DamagedEncoding(f"the configuration is not understood: {error}") from None
    return created, msgspec.json.encode(members)


def _checked(files: StreamFiles, config: StreamConfig) -> StreamConfig:
    """Return the configuration as this server stores it. Raises NotPossible."""
    if config.name != files.name or not is_valid_asset_name(config.name):
        raise NotPossible(f"{files.directory}: it says that its name is {config.name!r}")
    if reason := why_unsupported(config.metadata):
        raise NotPossible(f"{files.directory}: {reason}")
    changed: dict[str, object] = {"num_replicas": 1, "placement": None}
    if config.mirror is not None:
        changed["duplicate_window"] = 0  # old servers stored one, which no mirror may have
    try:
        return at_once(
            check_create(config.model_copy(update=changed), ConfigRules(AccountLimits()))
        )
    except ApiError as error:
        raise NotPossible(f"{files.directory}: {error}") from None


def _read_consumers(files: StreamFiles, found: FoundStream) -> None:
    try:
        names = files.consumers()
    except Unusable as error:
        _leave_out(found, str(error))
        return
    for name in names:
        try:
            found.consumers.append(_read_consumer(files, name))
        except (Unusable, DamagedEncoding, InvalidJson, InvalidConsumerState) as error:
            _leave_out(found, f"{files.directory}: consumer {name!r}: {error}")


def _read_consumer(files: StreamFiles, name: str) -> FoundConsumer:
    created, body = _split(files.consumer_meta(name))
    config = decode(ConsumerConfig, body)
    if reason := why_unsupported(config.metadata):
        raise Unusable(reason)
    config = config.model_copy(update={"num_replicas": 0})
    state = files.consumer_state(name)
    state.validate()
    tracker = tracker_of(config)
    tracker.replace(state)
    return FoundConsumer(SnapshotConsumer(name=name, config=config, created=created), tracker)


def _leave_out(found: FoundStream, line: str) -> None:
    """Note that a consumer is not taken. Raises NotPossible if its stream cannot do without it."""
    if found.asset.config.retention is Retention.INTEREST:
        raise NotPossible(f"{line}; a stream with interest retention needs all of its consumers")
    found.not_taken.append(line)
