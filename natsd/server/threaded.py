"""A server on an event loop and a thread of its own, for programs that have no loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol


class Startable(Protocol):
    """What is run: started, waited for and stopped on the thread's loop."""

    async def start_here(self) -> None: ...
    async def stop_here(self) -> None: ...


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class OwnThread:
    """Runs a server in a daemon thread, from `start` to `stop`."""

    def __init__(self, server: Startable) -> None:
        self._server = server
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        """Start, and wait until connections are accepted; raises what starting raised."""
        self._ready.clear()
        self._thread = threading.Thread(target=self._run, name="natsd", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop, and wait until nothing is left."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self.join()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._failure = None
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            await self._server.start_here()
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._stop.wait()
        await self._server.stop_here()
