"""What runs a server of a test: a thread (thread_host.py) or a process (process_host.py)."""

from typing import Protocol

from natsd.testing.connection import Connection
from natsd.testing.launch import Launch
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

    def start(self, launch: Launch) -> tuple[str, int]:
        """Start; return the URL for clients and the port of monitoring (0: it is off)."""

    def stop(self) -> None:
        """Stop in order; does nothing if the server is stopped."""

    def kill(self) -> None:
        """End the process at once. Raises RuntimeError if there is none."""

    def pause(self) -> None:
        """Hold the server."""

    def resume(self) -> None:
        """Let a paused server go on."""

    def reload(self, launch: Launch) -> list[str]:
        """Change the settings of the running server; return the changes as texts."""

    def connections(self) -> list[Connection]:
        """Return the open client connections."""
