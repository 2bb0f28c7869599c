"""The files a server leaves for those who watch it: its pid, and the ports it listens on.

- The pid file holds the decimal pid and nothing else.
- The ports file is `<program>_<pid>.ports` in the given directory, JSON as nats-server's:
  `{"nats":["nats://127.0.0.1:4222"],"monitoring":["http://127.0.0.1:8222"]}`. It appears whole.
- Both go when the server stops. A pid file that by then names another process is left alone.
- Neither is written through a link or into a file of another user: see own_files.py.
- What cannot be written is a `FileError` of one line, and the server does not start.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from natsd.clients.listener import host_port, lower_first
from natsd.server.own_files import write_own

UNSPECIFIED = ("", "0.0.0.0", "::")
PID_FILE_MODE = 0o660
PORTS_FILE_MODE = 0o640


class FileError(Exception):
    """A file cannot be written; the text is one line for the user."""


def write_pid_file(path: Path) -> None:
    """Say who we are."""
    try:
        write_own(path, str(os.getpid()).encode(), PID_FILE_MODE)
    except OSError as error:
        raise FileError(f"Could not write pidfile: {_reason(path, error)}") from None


def remove_pid_file(path: Path) -> None:
    """Take the file away if it is still ours."""
    with contextlib.suppress(OSError):
        if path.read_text(encoding="ascii") == str(os.getpid()):
            path.unlink()


def ports_file(directory: Path, program: str | None = None) -> Path:
    """Where the ports file of this process stands."""
    return directory / f"{program or _program()}_{os.getpid()}.ports"


def write_ports_file(path: Path, ports: Mapping[str, list[str]]) -> None:
    """Say where we listen: kind to URLs, e.g. from `reachable_urls`."""
    unfinished = path.with_suffix(".tmp")
    try:
        write_own(unfinished, json.dumps(ports, separators=(",", ":")).encode(), PORTS_FILE_MODE)
        unfinished.replace(path)
    except OSError as error:
        raise FileError(f"Error writing ports file ({path}): {_reason(path, error)}") from None


def remove_ports_file(path: Path) -> None:
    """Take the file away."""
    with contextlib.suppress(OSError):
        path.unlink()


def reachable_urls(scheme: str, host: str, port: int) -> list[str]:
    """The URLs under which host and port can be reached; all of this machine's for 0.0.0.0."""
    if host not in UNSPECIFIED:
        return [f"{scheme}://{host_port(host, port)}"]
    from natsd.server.interfaces import local_addresses

    return [
        f"{scheme}://{host_port(address, port)}"
        for address in local_addresses()
        if host != "0.0.0.0" or ":" not in address
    ]


def _program() -> str:
    """What was started; `python -m natsd` is natsd too."""
    name = Path(sys.argv[0]).name
    return "natsd" if name == "__main__.py" else name


def _reason(path: Path, error: OSError) -> str:
    return f"open {path}: {lower_first(error.strerror or str(error))}"
