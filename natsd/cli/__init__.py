"""The command line: `natsd [flags]` and its subcommands.

The subcommands are `natsd bench`, `natsd store`, `natsd pipeline`, `natsd help`, `natsd version`.
`main` reads the flags and calls the command. It imports only the modules that the command needs, so
that a start is quick. An error is one line on standard error and exit code 1.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

from natsd.cli.flags import CommandLine, FlagError, read_command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run natsd with the given arguments (None: those of the process); return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["bench"]:
        from natsd import bench

        return bench.main(given[1:])
    if given[:1] == ["store"]:
        from natsd.cli import store

        return store.main(given[1:])
    if given[:1] == ["pipeline"]:
        from natsd.cli import pipeline

        return pipeline.main(given[1:])
    try:
        line = read_command_line(given)
    except FlagError as error:
        return _refuse(f"{error} (natsd -h shows the flags)")
    return _act(line)


def _act(line: CommandLine) -> int:
    word = line.words[0].lower() if line.words else ""
    if "version" in line.actions or (word == "version" and "help" not in line.actions):
        return _show_version()
    if "help" in line.actions or word == "help":
        return _show_help()
    if word:
        return _refuse(f'unrecognized command: "{line.words[0]}" (natsd -h shows the commands)')
    if "signal" in line.settings:
        return _signal(line.settings["signal"])
    return _serve(line.settings)


def _show_version() -> int:
    from natsd.version import NATS_VERSION_TEXT, VERSION_TEXT

    is_stand_in = os.path.basename(sys.argv[0]) == "nats-server"
    print(NATS_VERSION_TEXT if is_stand_in else VERSION_TEXT)
    return 0


def _show_help() -> int:
    from natsd.cli.usage import usage

    print(usage())
    return 0


def _signal(request: str) -> int:
    from natsd.cli.signals import SignalError, send_signal

    try:
        send_signal(request)
    except SignalError as error:
        return _refuse(str(error))
    return 0


def _serve(settings: dict[str, Any]) -> int:
    from natsd.cli.secrets import with_secrets
    from natsd.config import OptionsError, make_options

    try:
        options = make_options(**with_secrets(settings, os.environ))
    except OptionsError as error:
        return _refuse(str(error))
    from natsd.cli.daemon import run

    return run(options)


def _refuse(reason: str) -> int:
    print(f"natsd: {reason}", file=sys.stderr)
    return 1
