"""A replica that lacks something of what the log of its group goes on from.

    another replica has it           fetch it; meanwhile this member begins no election
    no replica has it, in memory     a member that lacks it leads the group, and begins anew

Promise
- A stream in memory survives the loss of a minority of its replicas. The leader of the group begins
  anew only if a majority says that it lacks the stream, and if nobody says that it has it: either
  all replicas were heard, or the others are silent for PATIENCE_S. A replica lacks the stream after
  each restart, unless its log goes back to the first command.
- A stream that begins anew has lost the messages that came before the last RAFT snapshot of the
  replica that begins. Their removal is a command: a replica that has them, and comes later, removes
  them too. Sequences go on, and consumers stay where they were.
- A stream with files never begins anew: a replica that has them must come back.

nats-server keeps the RAFT log of a stream in memory in memory too, and begins with sequence 1.
"""

import asyncio
import logging
from typing import Final

from natsd.jetstream.commands.commands import Command, PurgeMessages, RemoveDelayed
from natsd.jetstream.commands.encoding import encode
from natsd.jetstream.replicas.catch_up import CatchUp
from natsd.jetstream.replicas.manifest import Manifest
from natsd.jetstream.replicas.opening import note_incomplete
from natsd.jetstream.replicas.stream_image import BuiltStream, build_in_memory
from natsd.jetstream.stream.publishing import join_commands
from natsd.jetstream.stream.stream import Stream
from natsd.raft.entry import NOBODY
from natsd.raft.errors import RaftError
from natsd.raft.group import RaftGroup
from natsd.raft.quorum import majority
from natsd.store.errors import StoreError

_logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
LOOK_S: Final = 1.0
LEADERLESS_S: Final = 5.0
"""After so long without a leader, one that lacks the stream may be needed."""
PATIENCE_S: Final = 30.0


async def fetch(catch_up: CatchUp, stream: Stream, applied: int) -> BuiltStream:
    """Return a stream that has so many commands, as soon as there is one."""
    while True:
        try:
            if stream.is_filed:
                await note_incomplete(stream.account, stream.name)
            return await catch_up.fetch(stream, applied)
        except (StoreError, OSError) as error:
            _logger.warning("JetStream: stream %s catches up later: %s", stream.name, error)
            await asyncio.sleep(RETRY_S)


class Lack:
    """What a replica lacks at its start, and how it gets it."""

    def __init__(
        self, group: RaftGroup, catch_up: CatchUp, stream: Stream, manifest: Manifest
    ) -> None:
        """Begin to mend `stream`, which lacks something of what the manifest says."""
        self._group = group
        self._catch_up = catch_up
        self._stream = stream
        self._manifest = manifest
        self._loop = asyncio.get_running_loop()
        self._led_at = self._loop.time()  # when there was a leader for the last time
        self._leads_since = 0.0  # 0: this member does not lead

    async def mend(self) -> BuiltStream:
        """Return a stream that has what the manifest says, or what is left of it."""
        fetching = self._loop.create_task(
            fetch(self._catch_up, self._stream, self._manifest.applied)
        )
        try:
            while True:
                done, _ = await asyncio.wait({fetching}, timeout=LOOK_S)
                if done:
                    return fetching.result()
                built = None if self._stream.is_filed else await self._look()
                if built is not None:
                    return built
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    async def _look(self) -> BuiltStream | None:
        """Lead the group if nobody else can; return the stream that begins anew, if it does."""
        group, now = self._group, self._loop.time()
        if group.is_leader:
            self._leads_since = self._leads_since or now
            return await self._lead(now)
        self._leads_since = 0.0
        if group.leader != NOBODY:
            self._led_at = now
        group.node.is_observer = now - self._led_at < LEADERLESS_S
        return None

    async def _lead(self, now: float) -> BuiltStream | None:
        group = self._group
        self._led_at = now
        answers = await self._catch_up.ask(self._manifest.applied)
        voters = group.membership.voters
        if any(answers.values()):  # it can be fetched
            return None
        if not self._manifest.image:  # nothing is known of it
            return None
        lacking = [each for each in voters if each == group.node.id or each in answers]
        are_all_heard = len(lacking) == len(voters)
        is_patient = now - self._leads_since < PATIENCE_S
        if len(lacking) < majority(len(voters)) or (is_patient and not are_all_heard):
            return None
        return await self._begin_anew()

    async def _begin_anew(self) -> BuiltStream | None:
        manifest, stream = self._manifest, self._stream
        built = await build_in_memory(stream, manifest.entries())
        removed: list[Command] = [PurgeMessages(_up_to(manifest.last_sequence))]
        if built.delayed is not None:
            removed.append(RemoveDelayed(_up_to(built.delayed.log.last_sequence)))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._group.propose(join_commands([encode(each) for each in removed]))
        except (RaftError, TimeoutError) as error:
            _logger.warning("JetStream: stream %s waits: %s", stream.name, error)
            return None
        _logger.error(
            "JetStream: stream %s: no replica has the messages up to %d any more: they are lost",
            stream.name,
            manifest.last_sequence,
        )
        return built


def _up_to(last: int) -> tuple[tuple[int, int], ...]:
    return ((1, last),) if last else ()
