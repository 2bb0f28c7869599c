"""A server on its own thread and event loop, for programs without a loop or with a busy one.

- A start returns when the server has started, or raises. A failed or cancelled start is undone.
- Any thread may ask the server to stop, including the server's own, any number of times.
- The thread is a daemon thread: a program that does not stop its server ends all the same.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

T = TypeVar("T")


class Startable(Protocol):
    """A server that an OwnThread starts and stops on its loop."""

    async def start_here(self) -> None:
        """Start on the running loop."""
        ...

    async def stop_here(self) -> None:
        """Stop on the loop of the start."""
        ...


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if uvloop is installed; None: asyncio's default."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class OwnThread:
    """A daemon thread that runs a server, for asynchronous and for synchronous callers."""

    def __init__(self, server: Startable) -> None:
        self._server = server
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ended: Future[None] | None = None

    async def start(self) -> None:
        """Start, and wait until connections are accepted; raises the exception of the start."""
        started = self._begin()
        try:
            await asyncio.wrap_future(started)
        except BaseException:
            self._stop_when_done(started)
            await self.wait_ended()
            raise

    def start_and_wait(self) -> None:
        """Start like `start`, but block the calling thread until connections are accepted."""
        started = self._begin()
        try:
            started.result()
        except BaseException:
            self._stop_when_done(started)
            self._join()
            raise

    def ask_to_stop(self) -> None:
        """Ask the server to stop and return at once; does nothing if it has stopped."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._stop.set)

    def stop_and_wait(self) -> None:
        """Stop, and block the calling thread until the server's thread has ended."""
        self.ask_to_stop()
        self._join()

    async def wait_ended(self) -> None:
        """Wait until the server's thread has ended."""
        if self._ended is not None:
            await asyncio.wrap_future(self._ended)
            self._join()

    def call(self, function: Callable[[], T]) -> T:
        """Call the function in the server's thread, block until then, and return its result.

        Raises what the function raises, or RuntimeError if the server has stopped.
        """

        async def called() -> T:
            return function()

        if self._loop is None:
            raise RuntimeError("the server is not running")
        return asyncio.run_coroutine_threadsafe(called(), self._loop).result()

    def is_current(self) -> bool:
        """Return whether the caller runs in the server's thread."""
        return self._thread is threading.current_thread()

    def _begin(self) -> Future[None]:
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("the server is running")
        started, self._ended = _promise(), _promise()
        self._thread = threading.Thread(
            target=self._run, args=(started, self._ended), name="natsd", daemon=True
        )
        self._thread.start()
        return started

    def _stop_when_done(self, started: Future[None]) -> None:
        started.add_done_callback(lambda _: self.ask_to_stop())

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self, started: Future[None], ended: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            ended.set_result(None)

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await self._server.start_here()
        started.set_result(None)
        await self._stop.wait()
        await self._server.stop_here()


def _promise() -> Future[None]:
    """Return a future that its waiters cannot cancel."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future
