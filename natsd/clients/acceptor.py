"""The acceptor: accepts connections, a batch per turn of the loop, and spares file descriptors.

    descriptor   0 ──────── clients, files ──────── descriptors_max ── kept for files ── limit
    a connection            accepted               refused             a pause, then again

Promise
- Connections do not take the last descriptors: a connection whose descriptor is `descriptors_max`
  or higher is refused, so that the store can open its files.
- If no descriptor is left, nothing is accepted for a pause that doubles from 10 ms to 1 s, as in
  nats-server's `acceptError`. The loop does not spin, and accepting resumes by itself.
- Both cases are logged at most once a minute, with advice.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("natsd.server")

BATCH: Final = 64
"""Connections accepted in one turn of the loop, at most."""
PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 1.0
TOLD_EVERY_S: Final = 60.0
"""Seconds between two log lines about refused connections, at least."""
ADVICE: Final = "raise the limit of open files (ulimit -n, LimitNOFILE=) or lower max_connections"

Accepted = Callable[[int, str, int], None]
"""Called with the descriptor, IP address and port of a connection."""


class Acceptor:
    """Accepts the connections of a listener, which it owns and closes.

    It calls `accepted(descriptor, ip, port)` for each connection, or `refused` with the same
    arguments. The called function owns the descriptor.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        accepted: Accepted,
        refused: Accepted,
        descriptors_max: int = sys.maxsize,
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._accepted = accepted
        self._refused = refused
        self._descriptors_max = descriptors_max
        self._pause_s = PAUSE_MIN_S
        self._timer: asyncio.TimerHandle | None = None
        self._told_at_s = -TOLD_EVERY_S
        loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(BATCH):
            try:
                # accept() would make a socket object, which costs more than all the rest.
                descriptor, address = self._listener._accept()  # type: ignore[attr-defined]  # typeshed leaves it out
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._pause_s = PAUSE_MIN_S
            self._give(descriptor, plain_ip(address[0]), address[1])

    def _give(self, descriptor: int, ip: str, port: int) -> None:
        if descriptor >= self._descriptors_max:
            self._tell(f"Client connections are refused: {descriptor} descriptors are in use")
            self._refused(descriptor, ip, port)
            return
        try:
            self._accepted(descriptor, ip, port)
        except OSError as error:  # epoll cannot watch another socket
            self._tell(f"Client connections are refused: {error}")

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a while, because no descriptor is left."""
        pause_ms = round(self._pause_s * 1000)
        self._tell(f"Temporary Client Accept Error ({error}), sleeping {pause_ms}ms")
        self._loop.remove_reader(self._listener.fileno())
        self._timer = self._loop.call_later(self._pause_s, self._resume)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def _tell(self, what: str) -> None:
        """Log an error with advice, at most once per TOLD_EVERY_S."""
        now_s = self._loop.time()
        if now_s - self._told_at_s >= TOLD_EVERY_S:
            self._told_at_s = now_s
            logger.error("%s; %s", what, ADVICE)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener.fileno(), self._accept)


def refuse(descriptor: int, words: bytes) -> None:
    """Send `words` to a refused connection, as far as its socket takes them, and close it."""
    try:
        os.set_blocking(descriptor, False)
        os.write(descriptor, words)
    except OSError:
        logger.debug("A refused connection did not wait for the reason")
    finally:
        os.close(descriptor)


def plain_ip(ip: str) -> str:
    """Return an IP address without a link-local zone, and an IPv4-mapped one as plain IPv4."""
    ip = ip.removeprefix("::ffff:") if "." in ip else ip
    return ip.partition("%")[0]
