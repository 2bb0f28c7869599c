"""Accepts connections: a batch per turn of the loop, with a pause when the system has no
descriptors left.

Source: the pause doubles from 10 ms to 1 s, as in nats-server.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("natsd.server")

BATCH: Final = 64
PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 1.0
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Calls `accepted(descriptor, ip, port)` for each connection; owns the listener."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        accepted: Callable[[int, str, int], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._accepted = accepted
        self._pause_s = PAUSE_MIN_S
        self._timer: asyncio.TimerHandle | None = None
        # Accepted sockets inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
                # accept() would make an object of each descriptor, which costs more than the rest.
                descriptor, address = self._listener._accept()  # type: ignore[attr-defined]  # typeshed leaves it out
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return
                raise
            self._pause_s = PAUSE_MIN_S
            self._accepted(descriptor, plain_ip(address[0]), address[1])

    def _pause(self, error: OSError) -> None:
        """No descriptor left: let others close theirs first."""
        logger.error(
            "Temporary Client Accept Error (%s), sleeping %dms", error, self._pause_s * 1000
        )
        self._loop.remove_reader(self._listener.fileno())
        self._timer = self._loop.call_later(self._pause_s, self._resume)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener.fileno(), self._accept)


def plain_ip(ip: str) -> str:
    """An IPv4 address that came through an IPv6 socket, as IPv4; no zone of link-local ones."""
    ip = ip.removeprefix("::ffff:") if "." in ip else ip
    return ip.partition("%")[0]
