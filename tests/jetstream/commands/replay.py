"""A recorder of a stream's commands, and a follower to which they are applied.

recorder = Recorder(stream)                       # a CommandCommitter
…
commands = await check_replay(recorder, tmp_path)  # compares the follower's state
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from natsd.jetstream.commands.commands import Command, Release
from natsd.jetstream.commands.encoding import decode, encode
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.follower import Follower
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.serving import account_of, serving

MESSAGE_ID = struct.Struct("<QqI")


class Recorder:
    """A committer that keeps each command encoded, and commits it at once."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.config: StreamConfig = stream.config
        self.created_ns = stream.created_ns
        self.encoded: list[bytes] = []

    def propose(self, command: Command) -> None:
        self.encoded.append(encode(command))
        self.stream.commit(len(self.encoded))

    def commands(self) -> list[Command]:
        """Return all commands, with the removals that were not proposed yet."""
        assert self.stream.readers.proposer is not None
        self.stream.readers.proposer.propose_removals(Release)
        return [decode(each) for each in self.encoded]


@asynccontextmanager
async def following(
    config: StreamConfig, created_ns: int, directory: Path
) -> AsyncIterator[Follower]:
    """Yield a follower of a new stream, in a JetStream of its own."""
    async with serving(directory) as jetstream:
        account = account_of(jetstream)
        stream = await Stream.create(account, config, created_ns)
        account.streams[config.name] = stream
        yield Follower(stream)


@asynccontextmanager
async def replayed(
    recorder: Recorder, commands: list[Command], directory: Path
) -> AsyncIterator[Follower]:
    """Yield a follower to which the recorded commands were applied."""
    async with following(recorder.config, recorder.created_ns, directory) as follower:
        for index, command in enumerate(commands, 1):
            await follower.apply(index, command)
        yield follower


async def state_of(stream: Stream, now_ns: int = 0) -> dict[str, Any]:
    """Return all of the stream's state that does not depend on where its blocks end.

    Message ids are those in the window at the last message, or at `now_ns` if that is later.
    """
    log = stream.readers.log
    last = log.last_sequence
    state = stream.store.state(with_deleted=True)
    delays = stream.scheduled.delays if stream.scheduled is not None else None
    return {
        "messages": [await stream.store.load(s) for s in range(1, last + 1) if log.has(s)],
        "state": state,
        "deleted": list(state.deleted.runs()) if state.deleted is not None else None,
        "subjects": await stream.store.subject_totals(">"),
        "config": stream.config,
        "message ids": message_ids(stream, now_ns),
        "delayed": sorted(delays._waiting.values()) if delays is not None else [],
        "consumers": {
            name: (
                consumer.config,
                consumer.created_ns,
                consumer._resume,
                consumer.store.state(),
                consumer.store.tracker.encode(),
            )
            for name, consumer in sorted(stream.consumers.items())
        },
    }


def message_ids(stream: Stream, now_ns: int) -> list[tuple[int, int, bytes]]:
    """Return (sequence, time, id) of the ids that are within the window."""
    encoded = stream.ingest.message_ids.encode()[8:]
    since_ns = max(stream.readers.log.last_time_ns, now_ns) - stream.config.duplicate_window
    found, at = [], 0
    while at < len(encoded):
        sequence, time_ns, length = MESSAGE_ID.unpack_from(encoded, at)
        at += MESSAGE_ID.size + length
        if time_ns > since_ns:
            found.append((sequence, time_ns, encoded[at - length : at]))
    return found


async def check_replay(recorder: Recorder, directory: Path) -> list[Command]:
    """Check that the commands make the same state on another server; return the commands."""
    commands: list[Command] = []
    expected: dict[str, Any] = {}
    while not commands or recorder.commands() != commands:  # the stream changed meanwhile
        commands = recorder.commands()
        expected = await state_of(recorder.stream)
        if not commands:
            break
    async with replayed(recorder, commands, directory) as follower:
        found = await state_of(follower.stream)
    assert found.keys() == expected.keys()
    for part, value in expected.items():
        assert found[part] == value, part
    return commands
