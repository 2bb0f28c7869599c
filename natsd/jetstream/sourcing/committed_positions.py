"""Positions of a replicated stream's sources, as of what its replicas have committed.

    leader      commit of a Publish ──┐
    follower    apply of a Publish ───┴─▶ note ─▶ the highest sequence of each source

Every replica knows the positions, also of messages that were removed since: whichever leads next
asks for the messages behind them. They are in `sources.db` from each RAFT snapshot on, and in what
a replica gets that was left behind; later ones come again with the commands of the RAFT log.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from natsd.jetstream.headers import header_value
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.sourcing.origin import index_name
from natsd.jetstream.sourcing.positions import (
    Positions,
    find_positions,
    parse_source,
    read_positions,
)
from natsd.jetstream.stream.files import FiledStream
from natsd.jetstream.stream.state import StreamReaders
from natsd.store.log_store import LogStore

STREAM_SOURCE: Final = "Nats-Stream-Source"

if TYPE_CHECKING:
    from natsd.jetstream.server_resources import ServerResources


class PositionedStream(FiledStream, Protocol):
    """A replica of a stream, as far as the positions of its sources need it."""

    config: StreamConfig
    readers: StreamReaders
    store: LogStore
    jetstream: "ServerResources"


class CommittedPositions:
    """The positions of one stream's sources, by index name."""

    def __init__(self, stream: PositionedStream) -> None:
        self._stream = stream
        self._sequences: dict[str, int] = {}
        self._unknown: set[str] = set()  # sources whose messages are gone, without a file
        self.configure(stream.config)

    def configure(self, config: StreamConfig) -> None:
        """Note the positions of these sources from now on."""
        self._names = frozenset(index_name(each) for each in config.sources)
        self.is_any = bool(self._names)
        """Whether the stream has sources."""

    def note(self, headers: bytes) -> None:
        """Note the position that the headers of a committed message say."""
        value = header_value(headers, STREAM_SOURCE)
        if value:
            name, sequence = parse_source(value.decode("utf-8", "surrogateescape"))
            self._take({name: sequence})

    def _take(self, sequences: Mapping[str, int]) -> None:
        for name, sequence in sequences.items():
            if name in self._names and sequence > self._sequences.get(name, 0):
                self._sequences[name] = sequence
                self._unknown.discard(name)

    def position_of(self, name: str) -> int | None:
        """Return the last sequence of a source; 0: it has sent nothing; None: it is unknown."""
        return None if name in self._unknown else self._sequences.get(name, 0)

    def now(self) -> Positions:
        """Return the content of `sources.db`."""
        stream, names = self._stream, self._names - self._unknown
        return Positions(
            upto=min(stream.readers.committed, stream.store.durable_sequence),
            sequences={name: self._sequences.get(name, 0) for name in names},
        )

    def take(self, positions: Positions) -> None:
        """Go on from the positions of another replica."""
        self._take(positions.sequences)

    async def recall(self) -> None:
        """Find the positions of a stream whose files exist. Raises StoreError, OSError."""
        stream, names = self._stream, self._names
        if not names or not stream.is_filed:
            return
        volume = stream.jetstream.volume
        kept = await volume.read(read_positions, stream.jetstream.vault, stream.directory)
        found = await find_positions(stream.store, names, kept)
        if kept is None and stream.readers.log.last_sequence:
            self._unknown = set(names - found.keys())
        self._take(found)
