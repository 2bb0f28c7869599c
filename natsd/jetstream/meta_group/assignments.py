"""Assignments: which streams there are, and which servers have their replicas.

    propose(Assign, Reassign, Remove) ─▶ the meta group's log ─▶ apply, on each server
                                                                  └▶ watcher(before, after)

Promise
- The state is the same on all servers after the same changes. A change names the version of what it
  changes: if that has changed meanwhile, the change does nothing, and its proposer is told.
- Configurations are complete: whoever applies a change decides nothing.
- A server has one member in all groups: `incarnation` says which of those that it has been.
- What is not understood, because a later version wrote it, changes nothing, and nothing that comes
  behind it does (`failure`): this server's log of the meta group is kept until it knows more.

Source: nats-server's `streamAssignment` and the meta operations of server/jetstream_cluster.go.
"""

import logging
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from natsd.jetstream.models import go_json
from natsd.jetstream.models.stream import StreamConfig
from natsd.raft.entry import Entry
from natsd.raft.state_machine import StateMachine
from natsd.store.errors import DamagedEncoding

_logger = logging.getLogger(__name__)

FORMAT: Final = b"\x01"
"""First byte of changes and snapshots."""


class UnknownChange(DamagedEncoding):
    """A change or snapshot of the meta group that this version does not know."""


class Assignment(Struct, frozen=True):
    """A stream and where it is."""

    account: str
    name: str
    config: msgspec.Raw  # complete, as JSON
    created_ns: int  # the same as long as it is the same stream
    servers: tuple[str, ...]  # names of those that have a replica; the first one should lead
    leaving: tuple[str, ...] = ()  # have one until the others have all of it
    group: str = ""  # name of its RAFT group; "": one replica, with which nobody has to agree
    founders: tuple[int, ...] = ()  # members of the group that begin it; others join
    is_adopted: bool = False  # the founder has the stream already
    rescued_from: str = ""  # group of which the founder has the log, with which this one begins
    version: int = 0  # of this assignment; a new stream of the name goes on counting
    read_replicas: tuple[str, ...] = ()  # have a copy that answers direct gets and has no vote
    # Somebody removed a read replica from these servers, and there is no other server for it yet.
    avoided: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What names the stream."""
        return self.account, self.name

    @property
    def holders(self) -> tuple[str, ...]:
        """The servers that have the stream: replicas, those that leave, and read replicas."""
        return self.servers + self.leaving + self.read_replicas

    @property
    def stream_config(self) -> StreamConfig:
        """The configuration."""
        return go_json.decode(StreamConfig, bytes(self.config), strict=False)

    @property
    def replicas(self) -> int:
        """The number of replicas that is wanted."""
        return max(self.size.num_replicas, 1)

    @property
    def size(self) -> "StreamSize":
        """The part of the configuration that says how much the stream may take."""
        return _sizes.decode(self.config)


class StreamSize(Struct, frozen=True):
    """What a stream's configuration says of the room that it needs."""

    num_replicas: int = 1
    storage: str = "file"
    max_bytes: int = -1


_sizes = msgspec.json.Decoder(StreamSize)


class Assign(Struct, frozen=True, tag="assign"):
    """Create a stream: there must be none of the name."""

    stream: Assignment


class Reassign(Struct, frozen=True, tag="reassign"):
    """Give a stream another assignment, in place of that of this version."""

    version: int
    stream: Assignment


class Remove(Struct, frozen=True, tag="remove"):
    """Delete a stream."""

    account: str
    name: str
    version: int


class Introduce(Struct, frozen=True, tag="introduce"):
    """Take a server into the cluster; one that lost its state comes as another member.

    `nonce` is what the server chose when it began to ask: it comes once under each.
    """

    server: str
    nonce: str = ""


class Dismiss(Struct, frozen=True, tag="dismiss"):
    """Remove a server from the cluster; it gets no replicas any more."""

    server: str
    is_lost: bool = False  # streams were rescued without it: if it is back, it is another member


class Introduced(Struct, frozen=True):
    """A server of the cluster; `incarnation` counts the members that it has been."""

    name: str
    incarnation: int
    nonce: str = ""
    is_dismissed: bool = False
    is_lost: bool = False  # it was dismissed because its disk is gone


Change: TypeAlias = Assign | Reassign | Remove | Introduce | Dismiss
Watcher: TypeAlias = Callable[[Assignment | None, Assignment | None], object]
"""Called with a stream's assignment before and after a change; None: there is none.

Both are the same if one of its servers has become another member.
"""

_changes = msgspec.json.Decoder(Change)


class _State(Struct, frozen=True):
    versions: int
    streams: tuple[Assignment, ...]
    servers: tuple[Introduced, ...]


_snapshots = msgspec.json.Decoder(_State)


def encode(change: Change) -> bytes:
    """Return the change as an entry of the log."""
    return FORMAT + msgspec.json.encode(change)


def decode(data: bytes) -> Change:
    """Return the change of an entry. Raises UnknownChange."""
    if data[:1] != FORMAT:
        raise UnknownChange("a change of the meta group has an unknown version")
    try:
        change: Change = _changes.decode(data[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnknownChange(f"a change of the meta group is not understood: {error}") from error
    return change


class Assignments(StateMachine):
    """The state of the meta group on this server."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._streams: dict[tuple[str, str], Assignment] = {}
        self.servers: dict[str, Introduced] = {}
        """The servers of the cluster, and those that were dismissed, by name."""
        self._versions = 0  # given out so far
        self._leading: Callable[[bool], object] | None = None
        self.failure: UnknownChange | None = None
        """Why nothing is applied any more; None: all is well."""

    def find(self, account: str, name: str) -> Assignment | None:
        """Return where a stream is; None: there is none of that name."""
        return self._streams.get((account, name))

    def __iter__(self) -> Iterator[Assignment]:
        return iter(list(self._streams.values()))

    def __len__(self) -> int:
        return len(self._streams)

    def of_account(self, account: str) -> list[Assignment]:
        """Return the streams of an account, by name."""
        found = (each for each in self._streams.values() if each.account == account)
        return sorted(found, key=lambda each: each.name)

    def forget(self) -> None:
        """Know nothing, as before the first start; the watcher is not told."""
        self._streams, self.servers, self._versions = {}, {}, 0
        self.failure = None

    # ---- what the group asks for

    def on_leading(self, listener: Callable[[bool], object]) -> None:
        """Have `listener` called with whether this server leads the meta group."""
        self._leading = listener

    def leads(self, *, is_leader: bool) -> None:
        """Tell the listener."""
        if self._leading is not None:
            self._leading(is_leader)

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Carry out changes; the result of each is the new assignment, or None: it came too late.

        The result of a removal is the assignment that is gone, that of an introduction the server.
        """
        return [self._apply_one(entry.data) for entry in entries]

    def _apply_one(self, data: bytes) -> Assignment | Introduced | None:
        if self.failure is not None:
            return None
        try:
            change = decode(data)
        except UnknownChange as error:
            self._fail(error)
            return None
        return self.make(change)

    def _fail(self, error: UnknownChange) -> None:
        _logger.error("JetStream: %s; update this server", error)
        self.failure = error

    def make(self, change: Change) -> Assignment | Introduced | None:
        """Carry out one change; return what `apply` does."""
        match change:
            case Assign():
                return None if change.stream.key in self._streams else self._put(change.stream)
            case Reassign():
                before = self._of_version(change.stream.key, change.version)
                return None if before is None else self._put(change.stream)
            case Remove():
                before = self._of_version((change.account, change.name), change.version)
                if before is not None:
                    del self._streams[before.key]
                    self._watcher(before, None)
                return before
            case Introduce():
                return self._introduce(change)
            case Dismiss():
                return self._dismiss(change)

    def _of_version(self, key: tuple[str, str], version: int) -> Assignment | None:
        found = self._streams.get(key)
        return found if found is not None and found.version == version else None

    def _introduce(self, change: Introduce) -> Introduced:
        before = self.servers.get(change.server)
        if before is not None and before.nonce == change.nonce and not before.is_dismissed:
            return before
        incarnation = 0 if before is None else before.incarnation + 1
        found = Introduced(change.server, incarnation, change.nonce)
        self.servers[change.server] = found
        if before is not None:  # it is another member of the groups of its streams
            for each in self:
                if change.server in each.holders:
                    self._watcher(each, each)
        return found

    def _dismiss(self, change: Dismiss) -> Introduced | None:
        before = self.servers.get(change.server)
        if before is None or (before.is_dismissed and before.is_lost >= change.is_lost):
            return None
        dismissed = msgspec.structs.replace(before, is_dismissed=True, is_lost=change.is_lost)
        self.servers[change.server] = dismissed
        return dismissed

    def _put(self, after: Assignment) -> Assignment:
        before = self._streams.get(after.key)
        self._versions += 1
        after = msgspec.structs.replace(after, version=self._versions)
        self._streams[after.key] = after
        self._watcher(before, after)
        return after

    def snapshot(self) -> bytes | Callable[[], Awaitable[bytes]]:
        """Return all assignments; after a failure, a function that raises it."""
        if self.failure is not None:
            return partial(_refused, self.failure)
        return self.encoded()

    def encoded(self) -> bytes:
        """Return all assignments as the data of a snapshot."""
        state = _State(self._versions, tuple(self._streams.values()), tuple(self.servers.values()))
        return FORMAT + zlib.compress(msgspec.json.encode(state), 1)

    def restore(self, data: bytes) -> None:
        """Take the assignments of a snapshot; the watcher is told what differs.

        Without data nothing changes: a new group knows nothing, and a server that goes over to the
        rescue of its group keeps what it knew until it gets the snapshot.
        """
        self.failure = None
        if not data:
            return
        try:
            state = _read_snapshot(data)
        except UnknownChange as error:
            self._fail(error)
            return
        before, streams = self._streams, {each.key: each for each in state.streams}
        self._streams, self._versions = streams, state.versions
        self.servers = {each.name: each for each in state.servers}
        for key in before.keys() | streams.keys():
            old, new = before.get(key), streams.get(key)
            if old is not None and new is not None and old.created_ns != new.created_ns:
                self._watcher(old, None)  # another stream of the name
                old = None
            if old != new:
                self._watcher(old, new)


async def _refused(error: UnknownChange) -> bytes:
    raise error


def _read_snapshot(data: bytes) -> _State:
    if data[:1] != FORMAT:
        raise UnknownChange("a snapshot of the meta group has an unknown version")
    try:
        state: _State = _snapshots.decode(zlib.decompress(data[1:]))
    except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error) as error:
        raise UnknownChange(f"a snapshot of the meta group is not understood: {error}") from error
    return state
