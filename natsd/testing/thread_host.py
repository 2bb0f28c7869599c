"""A server on a thread and a loop of its own in the test's process.

A test that blocks, or has no loop, does not stop the server: so a synchronous client works, and a
deadlock of the test is the test's own. A start takes about a millisecond.
"""

import asyncio
import threading
from typing import Any, Final

from natsd.server import Server
from natsd.server.threaded import OwnThread
from natsd.testing.launch import Addresses, Launch, addresses_of
from natsd.testing.requests import Reload, Request
from natsd.testing.server_log import ThreadLog

ANSWER_TIMEOUT_S: Final = 30.0


class ThreadHost:
    """Runs a server in a thread; it may be started again after a stop."""

    def __init__(self, log: ThreadLog) -> None:
        self.log = log
        self._server: Server | None = None
        self._thread: OwnThread | None = None
        self._resumed: threading.Event | None = None

    def start(self, launch: Launch) -> Addresses:
        """Start; return where the server is.

        Raises what the start of a `natsd.Server` raises.
        """
        options, config = launch.read()
        self._server = Server(options)
        self._server.config = config
        self._thread = OwnThread(self)
        try:
            self._thread.start_and_wait()
        except BaseException:
            self._server = self._thread = None
            raise
        return addresses_of(self._server)

    async def start_here(self) -> None:
        """Start on the thread's loop."""
        self.log.open(self.server.options)
        try:
            await self.server.start()
        except BaseException:
            self.log.close()
            raise

    async def stop_here(self) -> None:
        """Stop on the thread's loop."""
        try:
            await self.server.stop()
        finally:
            self.log.close()

    @property
    def server(self) -> Server:
        """The running server. Raises RuntimeError if it is stopped."""
        if self._server is None:
            raise RuntimeError("the server is not running")
        return self._server

    @property
    def pid(self) -> int:
        """Pid of a server's own process: there is none. Raises RuntimeError."""
        raise RuntimeError("the server has no process of its own; start it with process=True")

    @property
    def is_running(self) -> bool:
        """Whether the server was started and not stopped since."""
        return self._server is not None

    def stop(self) -> None:
        """Stop in order, and wait for the end; does nothing if the server is stopped."""
        self.resume()
        if self._thread is not None:
            self._thread.stop_and_wait()
        self._server = self._thread = None

    def kill(self) -> None:
        """End the server without a stop; a thread cannot be ended so. Raises RuntimeError."""
        raise RuntimeError("only a process can be killed; start the server with process=True")

    def pause(self) -> None:
        """Hold the server's loop: sockets stay open, and nothing is answered."""
        if self._resumed is None:
            paused, self._resumed = threading.Event(), threading.Event()
            self.server.reactor.loop.call_soon_threadsafe(_hold, paused, self._resumed)
            paused.wait(ANSWER_TIMEOUT_S)

    def resume(self) -> None:
        """Let a paused server go on."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def ask(self, request: Request) -> Any:
        """Return the answer of the running server, or raise its exception."""
        loop = self.server.reactor.loop
        return asyncio.run_coroutine_threadsafe(self._answer(request), loop).result()

    async def _answer(self, request: Request) -> Any:
        """Answer on the server's loop; what the request logs goes to the server's log."""
        self.log.enter()
        answer = await request(self.server)
        if isinstance(request, Reload):
            self.log.follow(self.server.options)
        return answer


def _hold(paused: threading.Event, resumed: threading.Event) -> None:
    paused.set()
    resumed.wait()
