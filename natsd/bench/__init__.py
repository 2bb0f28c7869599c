"""`natsd bench`: load generators and side-by-side comparison with other NATS servers.

The package knows natsd only as a command line that listens on a port, so that every server
is measured through the same door. Importing it is cheap: load workers start with it.
"""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `natsd bench` with `argv` (without the program's name); return the exit status."""
    from natsd.bench.command import main as command_main

    return command_main(argv)
