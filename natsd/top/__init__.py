"""`natsd top`: what a NATS server does, in a terminal; it reads the server's monitoring port."""

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command with the arguments behind `natsd top`; return the exit code."""
    from natsd.top.command import run

    return run(arguments)
