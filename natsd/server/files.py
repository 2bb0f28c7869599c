"""The pid file and the ports file, which a server writes for supervisors.

- The pid file holds the decimal pid and nothing else.
- The ports file is `<program>_<pid>.ports` in the configured directory, with JSON like
  nats-server's: `{"nats":["nats://127.0.0.1:4222"],"monitoring":["http://127.0.0.1:8222"]}`. It is
  written atomically.
- Both are removed when the server stops. A pid file that by then holds another pid is kept.
- Neither is written through a link or into a file of another user (see own_files.py).
- If a file cannot be written, the server does not start: `FileError`, one line.
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
PORTS_FILE_MODE = 0o644


class FileError(Exception):
    """A file cannot be written; the text is one line for the user."""


def write_pid_file(path: Path) -> None:
    """Write this process's pid into the file. Raises FileError."""
    try:
        write_own(path, str(os.getpid()).encode(), PID_FILE_MODE)
    except OSError as error:
        raise FileError(f"Could not write pidfile: {_reason(path, error)}") from None


def remove_pid_file(path: Path) -> None:
    """Remove the pid file if it still holds this process's pid."""
    with contextlib.suppress(OSError):
        if path.read_text(encoding="ascii") == str(os.getpid()):
            path.unlink()


def ports_file(directory: Path, program: str | None = None) -> Path:
    """Return the path of this process's ports file."""
    return directory / f"{program or _program()}_{os.getpid()}.ports"


def write_ports_file(path: Path, ports: Mapping[str, list[str]]) -> None:
    """Write the ports file; `ports` maps "nats", "monitoring", "cluster" and so on to URLs.

    Raises FileError.
    """
    unfinished = path.with_suffix(".tmp")
    try:
        write_own(unfinished, json.dumps(ports, separators=(",", ":")).encode(), PORTS_FILE_MODE)
        unfinished.replace(path)
    except OSError as error:
        raise FileError(f"Error writing ports file ({path}): {_reason(path, error)}") from None


def remove_ports_file(path: Path) -> None:
    """Remove the ports file, if it exists."""
    with contextlib.suppress(OSError):
        path.unlink()


def reachable_urls(scheme: str, host: str, port: int) -> list[str]:
    """Return the URLs at which a listening host and port can be reached.

    For 0.0.0.0 these are all IPv4 addresses of this machine, for "" or `::` the IPv6 ones too.
    """
    if host not in UNSPECIFIED:
        return [f"{scheme}://{host_port(host, port)}"]
    from natsd.server.interfaces import local_addresses

    return [
        f"{scheme}://{host_port(address, port)}"
        for address in local_addresses()
        if host != "0.0.0.0" or ":" not in address
    ]


def _program() -> str:
    """Return the name of the started program; for `python -m natsd` it is `natsd`."""
    name = Path(sys.argv[0]).name
    return "natsd" if name == "__main__.py" else name


def _reason(path: Path, error: OSError) -> str:
    return f"open {path}: {lower_first(error.strerror or str(error))}"
