"""Random histories of a leader that steps down: it goes back exactly to what is committed.

Changes are made ahead of the commit, which comes late and in parts. When the leader steps down, its
state is compared with that of a follower that only got the committed commands; then it leads again.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.commands.commands import Command
from natsd.jetstream.commands.encoding import decode, encode
from natsd.jetstream.errors import ApiError
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.stream.leading import lead, step_down
from natsd.jetstream.stream.stream import Stream
from natsd.store.errors import StoreError
from tests.jetstream.clock import Clock
from tests.jetstream.commands.replay import following, state_of
from tests.jetstream.commands.test_histories import History, create_stream, publishes, steps
from tests.jetstream.serving import DEADLINE_S, serving
from tests.store.crash import TORTURE

PATIENCE = 6  # turns that a change may take before the history goes on
TURN_S = 0.001
CONFIGURING = ("limits", "consumer", "change", "pause", "drop")
"""Changes that the meta layer makes one after the other, and not while the leader changes."""


class Log:
    """The log of the replicas: what was proposed, and how much of it is committed."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.created = stream.config
        self.encoded: list[bytes] = []
        self.committed = 0

    def propose(self, command: Command) -> None:
        self.encoded.append(encode(command))

    def commit(self, percent: int) -> None:
        self.committed += (len(self.encoded) - self.committed) * percent // 100
        self.stream.commit(self.committed)

    def forget_uncommitted(self) -> list[Command]:
        del self.encoded[self.committed :]
        return [decode(each) for each in self.encoded]


class Leader(History):
    """A history whose changes need not be committed before the next one is made."""

    def __init__(self, jetstream: JetStream, stream: Stream, clock: Clock, log: Log) -> None:
        super().__init__(jetstream, stream, clock)
        self.log = log
        self.running: set[asyncio.Task[None]] = set()

    async def step(self, what: str, one: Any, other: Any) -> None:
        self.clock.now_ns += 1_000_000
        work = asyncio.ensure_future(self._try(what, one, other))
        self.running.add(work)
        work.add_done_callback(self.running.discard)
        for _ in range(PATIENCE):
            await asyncio.sleep(TURN_S)
            if work.done():
                break
        if what in CONFIGURING:
            async with asyncio.timeout(DEADLINE_S):
                while not work.done():
                    self.log.commit(100)  # the change waits for resets, which wait for their commit
                    await asyncio.sleep(TURN_S)
                await work

    async def _try(self, what: str, one: Any, other: Any) -> None:
        with contextlib.suppress(ApiError, StoreError):
            await getattr(self, what)(one, other)

    async def commit(self, percent: int, _: None) -> None:
        self.log.commit(percent)

    async def change_leader(self, directory: Path) -> None:
        """Step down, compare with a follower, and lead again."""
        follower = await (await step_down(self.stream)).apply_again()
        for work in list(self.running):
            work.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        commands = self.log.forget_uncommitted()
        assert follower.applied == len(commands)
        found = await state_of(self.stream, self.clock.now_ns)
        async with following(self.log.created, self.stream.created_ns, directory) as other:
            for index, command in enumerate(commands, 1):
                await other.apply(index, command)
            expected = await state_of(other.stream, self.clock.now_ns)
        for part, value in expected.items():
            assert found[part] == value, part
        await lead(follower, self.log)


async def run(
    history: list[tuple[str, Any, Any]], retention: str, storage: str, directory: Path
) -> None:
    clock = Clock()
    logs: list[Log] = []

    def committer_of(stream: Stream) -> Log:
        logs.append(Log(stream))
        return logs[-1]

    async with serving(directory / "leader", clock=clock) as jetstream:
        jetstream.committer_of = committer_of
        stream = await create_stream(jetstream, retention, storage)
        leader = Leader(jetstream, stream, clock, logs[0])
        terms = 0
        for what, one, other in [*history, ("change_leader", None, None)]:
            if what == "change_leader":
                terms += 1
                await leader.change_leader(directory / f"follower {terms}")
            else:
                await leader.step(what, one, other)


commits = st.tuples(st.just("commit"), st.sampled_from([30, 50, 80, 100]), st.none())
changes = st.tuples(st.just("change_leader"), st.none(), st.none())


@settings(deadline=None, max_examples=20 * TORTURE)
@given(
    st.lists(
        st.one_of(publishes, publishes, steps, steps, steps, commits, commits, changes),
        min_size=8,
        max_size=40,
    ),
    st.sampled_from(["limits", "limits", "interest", "workqueue"]),
    st.sampled_from(["file", "memory"]),
)
def test_a_leader_that_steps_down_has_what_is_committed(
    history: list[tuple[str, Any, Any]], retention: str, storage: str
) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(run(history, retention, storage, Path(directory)))
