"""What runs a server of a test: a thread (thread_host.py) or a process (process_host.py)."""

from typing import Any, Protocol

from natsd.testing.launch import Addresses, Launch
from natsd.testing.requests import Request
from natsd.testing.server_log import ServerLog


class Host(Protocol):
    """Runs one server; it may be started again after a stop."""

    @property
    def log(self) -> ServerLog:
        """What the server logs."""

    @property
    def pid(self) -> int:
        """Pid of the server's process. Raises RuntimeError if there is none."""

    @property
    def is_running(self) -> bool:
        """Whether the server runs."""

    def start(self, launch: Launch) -> Addresses:
        """Start; return where the server is."""

    def stop(self) -> None:
        """Stop in order; does nothing if the server is stopped."""

    def kill(self) -> None:
        """End the process at once. Raises RuntimeError if there is none."""

    def pause(self) -> None:
        """Hold the server."""

    def resume(self) -> None:
        """Let a paused server go on."""

    def ask(self, request: Request) -> Any:
        """Return the answer of the running server, or raise its exception."""
