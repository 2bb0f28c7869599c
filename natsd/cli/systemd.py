"""What natsd tells systemd: that it is ready, reloads, stops, still needs time, and is alive.

    READY=1 ─ RELOADING=1, MONOTONIC_USEC=… ─ READY=1 ─ STOPPING=1        and STATUS=… with each
    EXTEND_TIMEOUT_USEC=…   every `EXTEND_EVERY_S` of a start or a stop, which may be long
    WATCHDOG=1              twice in the time after which systemd restarts a service that is silent

- Messages are datagrams to the socket that `NOTIFY_SOCKET` names; without it this module is not
  imported. Its variables are taken from the environment, so that child processes do not have them.
- Everything is sent by the event loop, so that systemd restarts a server whose loop hangs. Nothing
  blocks: what the socket cannot take yet is sent a moment later.

Source: the manual pages sd_notify(3) and systemd.service(5).
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Final, Self

EXTEND_EVERY_S: Final = 5.0
EXTEND_BY_S: Final = 30.0
RETRY_S: Final = 0.05
STATUS_CHARACTERS_MAX: Final = 500
WAITING_MAX: Final = 100
"""Messages that wait for the socket; if there are more, the oldest are dropped."""
_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """The connection to systemd, from the start of the event loop until `close`."""

    def __init__(self, path: str, watchdog_s: float = 0.0) -> None:
        """Create the socket. `path` begins with "@" if it is abstract; no watchdog: 0."""
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._waiting: deque[str] = deque(maxlen=WAITING_MAX)
        self._watchdog_s = watchdog_s
        self._is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self | None:
        """Take systemd's variables from the environment; None: no systemd listens.

        Must be called on the event loop.
        """
        path, interval, pid = [environment.pop(name, "") for name in _VARIABLES]
        if not path.startswith(("/", "@")) or len(path) < len("/x"):
            return None
        is_for_this = not pid or pid == str(os.getpid())
        has_watchdog = is_for_this and interval.isdecimal()
        return cls(path, int(interval) / 1e6 if has_watchdog else 0.0)

    def starting(self) -> None:
        """Ask for time until the server is ready."""
        self._send(_status("Starting"))
        self._extend()

    def ready(self, status: str) -> None:
        """Say that clients can connect, and from then on that the loop is alive.

        Does nothing if the server stops already.
        """
        if self._is_stopping:
            return
        self._stop_timer("extend")
        self._send(f"READY=1\n{_status(status)}")
        if self._watchdog_s and "watchdog" not in self._timers:
            self._watch()

    def stopping(self, status: str) -> None:
        """Say that the server ends, and ask for time until it has ended."""
        self._is_stopping = True
        self._send(f"STOPPING=1\n{_status(status)}")
        self._extend()

    def failed(self, reason: str) -> None:
        """Say why the server does not start."""
        self._send(_status(reason))

    def reloading(self) -> None:
        """Say that a reload begins; `ready` says that it is over."""
        status = _status("Reloading the configuration")
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\n{status}")

    def close(self) -> None:
        """Close the socket; nothing is sent any more."""
        for name in list(self._timers):
            self._stop_timer(name)
        self._socket.close()

    def _extend(self) -> None:
        self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_BY_S * 1e6:.0f}")
        self._set_timer("extend", EXTEND_EVERY_S, self._extend)

    def _watch(self) -> None:
        self._send("WATCHDOG=1")
        self._set_timer("watchdog", self._watchdog_s / 2, self._watch)

    def _send(self, text: str) -> None:
        self._waiting.append(text)
        self._flush()

    def _flush(self) -> None:
        """Send what waits; if the socket is full, try again a moment later."""
        try:
            while self._waiting:
                self._socket.sendto(self._waiting[0].encode("utf-8", "replace"), self._address)
                self._waiting.popleft()
        except BlockingIOError:
            self._set_timer("flush", RETRY_S, self._flush)
        except OSError:
            self._waiting.clear()  # nobody listens

    def _set_timer(self, name: str, delay_s: float, action: Callable[[], None]) -> None:
        self._stop_timer(name)
        self._timers[name] = self._loop.call_later(delay_s, action)

    def _stop_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _status(text: str) -> str:
    """Return the assignment that shows a text, as one line."""
    return "STATUS=" + " ".join(text[:STATUS_CHARACTERS_MAX].splitlines())
