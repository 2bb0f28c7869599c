"""What the commands behind `natsd` share: how a command line is described, and a refusal."""

import argparse
import sys


def command_parser(name: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return the parser of a command, whose help shows both texts with their line breaks."""
    return argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def refuse(reason: str) -> int:
    """Print why a command does not do what it was asked for; return its exit code."""
    print(f"natsd: {reason}", file=sys.stderr)
    return 1
