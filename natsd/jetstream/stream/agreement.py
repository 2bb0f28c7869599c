"""Agreement: waiting until the replicas of a stream have committed what its leader has changed.

    change ─▶ proposed ─▶ reached() … commit ─▶ returns
                              └──── step_down, close ─▶ NotCommitted

There is one object for each leadership (`Stream.agreement`). Whoever answers a request takes it
before the change is made: a leadership that has ended since agrees to nothing, also if this server
leads again by then.
"""

import asyncio
from collections import deque

from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.stream.state import Proposer


class Agreement:
    """The agreement of a stream's replicas to the changes of one leadership."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._is_over = False

    async def reached(self) -> None:
        """Return once every change so far is committed. Raises NotCommitted."""
        if self._is_over:
            raise NotCommitted
        index = self._proposer.propose_rest()
        if index > self._proposer.committed:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((index, future))
            await future

    def moved(self) -> None:
        """Answer what waits for commands that are committed by now."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._proposer.committed:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)

    def end(self) -> None:
        """Refuse what waits, and what will: the stream does not lead any more."""
        self._is_over = True
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(NotCommitted())
