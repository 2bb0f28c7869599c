"""Sourcing: the origins of a stream, and the position in each.

    configuration ─▶ links, one per origin ─▶ receivers ─▶ the stream's log
                        │ start position
    sources.db, messages ┘

Promise
- The links are those of the configuration: new ones begin, removed ones end, and the others
  continue.
- A mirror continues after its last sequence, a source after its last message in the stream, found
  in `sources.db` and the messages stored since (positions.py). The file is written every
  KEPT_EVERY_NS while messages arrive, before messages are removed by request, and at a stop: so
  the position is known even if the message has been removed from the stream. Replicas note the
  positions that are committed instead (committed_positions.py).
- A stream may have a thousand sources: links begin, change and end in steps.
- A stream without origins has no links, no alarm and no file.

Source: nats-server's `startingSequenceForSources`, which also defines the start of a source whose
position is unknown.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from natsd.core.steps import Steps
from natsd.jetstream.models.stream import StreamConfig, StreamSource, StreamSourceInfo
from natsd.jetstream.sourcing.committed_positions import CommittedPositions
from natsd.jetstream.sourcing.link import FilledByLink, Link
from natsd.jetstream.sourcing.origin import FilledStream, Origin, OriginStart, index_name
from natsd.jetstream.sourcing.positions import (
    Positions,
    find_positions,
    keep_positions,
    read_positions,
)
from natsd.jetstream.sourcing.troubles import Troubles
from natsd.jetstream.stream.direct_get import DirectGets, ReadStream
from natsd.jetstream.stream.state import Alarm
from natsd.store.errors import StoreError

_logger = logging.getLogger(__name__)

KEPT_EVERY_NS: Final = 2_000_000_000
MIRROR: Final = ""
"""Key of the mirror's link; the other links have an index name."""


class SourcedStream(FilledByLink, ReadStream, Protocol):
    """A stream, as far as its mirror or sources need it."""

    config: StreamConfig
    committed_positions: CommittedPositions | None
    """Positions as of what the replicas have committed; None: the stream has one replica."""

    @property
    def is_filed(self) -> bool:
        """Whether the stream has files."""

    @property
    def directory(self) -> Path:
        """The directory of the stream's files, if it has any."""


class Sourcing:
    """Mirror or sources of one stream; `begin` is called when the server has recovered all.

    A stream with replicas has one of these for each time that it leads.
    """

    def __init__(self, stream: SourcedStream) -> None:
        self.stream = stream
        self._links: dict[str, Link] = {}
        self._order: Sequence[str] = ()  # the links' names, in the order of the configuration
        self._found: dict[str, int | None] = {}  # index name ─▶ position; None: unknown
        self._finding: asyncio.Task[None] | None = None
        self._kept: Positions | None = None  # content of `sources.db`
        self._was_read = not stream.is_filed  # `sources.db` was read
        self._stood_before: set[str] = set()  # sources configured when the stream was recovered
        self._alarm = Alarm(stream.jetstream.scheduler, self._keep_again)
        self._keeping: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._direct: DirectGets | None = None
        self._is_open = self._has_ended = self._was_ended = False
        self._changes = 0
        self._is_changing = False  # some links have not begun yet
        self.troubles = Troubles(stream.name, stream.jetstream.scheduler)
        self.placing = asyncio.Lock()  # one link at a time looks for its start position

    # Start and stop

    def begin(self) -> Steps[None]:
        """Start to fill the stream; does nothing after `end`."""
        if self._has_ended:
            return
        self._is_open = True
        if self.stream.readers.log.last_sequence:
            self._stood_before = {index_name(each) for each in self.stream.config.sources}
        yield from self.configure(self.stream.config)

    def configure(self, config: StreamConfig) -> Steps[None]:
        """Set up the links of the configuration.

        Removed links end before new ones begin. A second call replaces a running one.
        """
        if not self._is_open:
            return
        self._changes += 1
        mine = self._changes
        self._is_changing = True
        wanted = yield from origins_of(config, self._target())
        self._order = tuple(wanted)
        gone = [name for name in self._links if name not in wanted]
        for names in (gone, wanted):
            for name in names:
                yield
                if mine != self._changes or not self._is_open:
                    return
                self._have(name, wanted.get(name))
        self._is_changing = False
        self._set_direct(config)
        if config.sources and self.stream.is_filed and self.stream.committed_positions is None:
            self._alarm.set(self.stream.jetstream.scheduler.now_ns() + KEPT_EVERY_NS)
        else:
            self._alarm.cancel()

    def _have(self, name: str, origin: Origin | None) -> None:
        """Begin or change the link to the origin; None: end it."""
        link = self._links.get(name)
        if origin is None:
            if link is not None:
                self._links.pop(name).end(is_gone=True)
                self._found.pop(name, None)
        elif link is not None:
            link.change(origin)
        else:
            self._links[name] = Link(self, origin)
            self._links[name].begin()

    async def ended(self) -> None:
        """Wait until nothing is written any more; called after `end`."""
        async with self._writing:
            self._was_ended = True

    async def removed(self, rename: Callable[[], Awaitable[Path]]) -> Path:
        """Rename the stream's directory by `rename` while nothing is written in it.

        Nothing is written afterwards. Raises the errors of `rename`.
        """
        async with self._writing:
            path = await rename()
            self._was_ended = True
            return path

    def end(self, *, is_gone: bool = False) -> Steps[None]:
        """End all links, in steps; `is_gone`: the stream is deleted."""
        self._is_open, self._has_ended = False, True
        self._alarm.cancel()
        self.troubles.tell()
        if self._finding is not None:
            self._finding.cancel()
        for link in self._links.values():
            link.end(is_gone=is_gone)
            yield
        self.close_direct()

    def _target(self) -> FilledStream:
        stream = self.stream
        return FilledStream(stream.name, stream.account.name, stream.jetstream.options.domain)

    # Queries

    def mirror_info(self) -> StreamSourceInfo | None:
        """Return the state of the mirror; None if the stream is none."""
        link = self._links.get(MIRROR)
        return None if link is None else link.info()

    def sources_info(self) -> list[StreamSourceInfo]:
        """Return the state of each source, in the order of the configuration."""
        names = (name for name in self._order if name != MIRROR and name in self._links)
        return [self._links[name].info() for name in names]

    # Direct gets for the origin

    def _set_direct(self, config: StreamConfig) -> None:
        wanted = config.mirror is not None and config.mirror_direct
        if not wanted:
            self.close_direct()
        link = self._links.get(MIRROR)
        if wanted and link is not None and link.receiver.has_caught_up:
            self.caught_up(link)

    def caught_up(self, link: Link) -> None:
        """Answer direct gets for the origin: the mirror has nearly all of its messages."""
        config = self.stream.config
        if config.mirror is None or not config.mirror_direct or not link.origin.is_mirror:
            return
        self._open_direct(config.mirror.name)

    def follow(self, config: StreamConfig) -> None:
        """Answer direct gets for the origin as a follower, if `config` says so.

        Only the leader knows how many messages the mirror lacks.
        """
        if config.mirror is not None and config.mirror_direct:
            self._open_direct(config.mirror.name)
        else:
            self.close_direct()

    def _open_direct(self, origin: str) -> None:
        if self._direct is None:
            self._direct = DirectGets(self.stream, origin)
        self._direct.open()

    def close_direct(self) -> None:
        """Answer no direct gets for the origin any more."""
        if self._direct is not None:
            self._direct.close()
            self._direct = None

    # Start positions

    async def start_of(self, link: Link) -> tuple[int, OriginStart]:
        """Return the last sequence received from the origin (0: none), and where to start.

        Raises StoreError.
        """
        log, source = self.stream.readers.log, link.origin.source
        if link.origin.is_mirror:
            last = log.last_sequence
            return last, OriginStart(last + 1) if last else first_start(source)
        if link.is_placed:
            position: int | None = link.receiver.sequence
        else:
            position = await self._position_of(index_name(source))
        if position:
            return position, OriginStart(position + 1)
        state = self.stream.store.state()
        is_unknown = position is None and source.opt_start_seq == 0 and state.last_time_ns > 0
        if is_unknown and (source.opt_start_time is not None or state.first_sequence > 1):
            # Messages came, but their position is unknown: start as nats-server does.
            return 0, OriginStart(time_ns=max(source.opt_start_time or 0, state.last_time_ns))
        return 0, first_start(source)

    async def _position_of(self, name: str) -> int | None:
        """Return the source's position; one search serves all links that wait for theirs."""
        while name not in self._found:
            if self._finding is None:
                self._finding = asyncio.get_running_loop().create_task(self._find())
            await asyncio.shield(self._finding)
        return self._found[name]

    def placed(self, link: Link) -> None:
        """Forget the found position: the link's receiver has it now."""
        self._found.pop(index_name(link.origin.source), None)

    async def _find(self) -> None:
        try:
            await self.stream.ingest.message_ids.recollected()
            names = [
                name
                for name, link in self._links.items()
                if not (link.is_placed or link.origin.is_mirror or name in self._found)
            ]
            committed = self.stream.committed_positions
            if committed is not None:
                self._found |= {name: committed.position_of(name) for name in names}
                return
            await self._read()
            found = await find_positions(self.stream.store, names, self._kept)
            # A new source has sent nothing; the position of an older one may be lost.
            unknown = self._stood_before if self._kept is None else ()
            self._found |= {name: found.get(name, None if name in unknown else 0) for name in names}
        finally:
            self._finding = None

    async def _read(self) -> None:
        if self._was_read:
            return
        volume = self.stream.jetstream.volume
        self._kept = await volume.read(
            read_positions, self.stream.jetstream.vault, self.stream.directory
        )
        self._was_read = True

    # Positions on disk

    def _keep_again(self, now_ns: int) -> None:
        if self._is_open and self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep_quietly())
        self._alarm.set(now_ns + KEPT_EVERY_NS)

    async def _keep_quietly(self) -> None:
        try:
            await self.keep()
        finally:
            self._keeping = None

    async def keep(self) -> None:
        """Write the positions to disk; a failure is logged."""
        try:
            await self.write()
        except (StoreError, OSError) as error:
            _logger.warning("JetStream: sources of %s: %s", self.stream.name, error)

    async def write(self) -> None:
        """Write the positions to disk, unless the file has them. Raises StoreError, OSError."""
        async with self._writing:
            positions = self._positions()
            if self._was_ended or positions is None or positions == self._kept:
                return
            readers, volume = self.stream.readers, self.stream.jetstream.volume
            rollbacks = readers.rollbacks
            if self.stream.committed_positions is None:
                await self.stream.store.synced()
            if readers.rollbacks != rollbacks:
                return
            directory = self.stream.directory
            await volume.read(keep_positions, self.stream.jetstream.vault, directory, positions)
            self._kept = positions

    def _positions(self) -> Positions | None:
        """Return the current positions; None if there are none, or if some are not known yet."""
        committed = self.stream.committed_positions
        if not self.stream.is_filed:
            return None
        if committed is not None:
            return committed.now() if committed.is_any else None
        sequences: dict[str, int] = {}
        if MIRROR in self._links or not self._links:
            return None
        if self._is_changing:
            return None
        for name, link in self._links.items():
            if link.is_placed:
                sequences[name] = link.receiver.sequence
            elif name not in self._found:
                return None
            elif (position := self._found[name]) is not None:
                sequences[name] = position
        return Positions(upto=self.stream.readers.log.last_sequence, sequences=sequences)


def origins_of(config: StreamConfig, target: FilledStream) -> Steps[dict[str, Origin]]:
    """Return the origins by index name; a mirror's key is MIRROR."""
    if config.mirror is not None:
        return {MIRROR: Origin(config.mirror, target, is_mirror=True)}
    counts = Counter(source.name for source in config.sources)
    origins = dict[str, Origin]()
    for source in config.sources:
        is_shared = counts[source.name] > 1
        origins[index_name(source)] = Origin(source, target, is_mirror=False, is_shared=is_shared)
        yield
    return origins


def first_start(source: StreamSource) -> OriginStart:
    """Return the configured start of a source without earlier messages."""
    if source.opt_start_seq:
        return OriginStart(source.opt_start_seq)
    return OriginStart(time_ns=source.opt_start_time or 0)
