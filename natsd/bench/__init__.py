"""`natsd bench`: load generators, and a side-by-side comparison with other NATS servers.

The servers under test are started as commands that listen on a port, so that natsd and every other
server are measured in the same way: over a socket. Importing this package is cheap, because each
load process imports it when it starts.
"""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `natsd bench` with `argv` (without the program's name) and return the exit status."""
    from natsd.bench.command import main as command_main

    return command_main(argv)
