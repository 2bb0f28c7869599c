"""The command line: `natsd [flags]` and its subcommands.

The subcommands are `natsd top`, `natsd bench`, `natsd store`, `natsd backup`, `natsd restore`,
`natsd pipeline`, `natsd config`, `natsd cluster`, `natsd help` and `natsd version`.
`main` reads the flags and calls the command. It imports only the modules that the command needs, so
that a start is quick. An error is one line on standard error and exit code 1.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from natsd.cli.flags import CommandLine, FlagError, read_command_line

if TYPE_CHECKING:
    from natsd.config import Options, OptionsError
    from natsd.config.loaded import LoadedConfig

SECRETS: Final = ("user", "password", "token", "cluster.listen", "cluster.routes")
"""Settings of the command line that the title of the process may not show."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run natsd with the given arguments (None: those of the process); return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run_command(given)
        print(end="", flush=True)  # what is still buffered may find that out, too
    except BrokenPipeError:  # nobody reads the output any more, as in `natsd top --json | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the exit complains
        return 1
    return code


def _run_command(given: list[str]) -> int:
    if given[:1] == ["top"]:
        from natsd import top

        return top.main(given[1:])
    if given[:1] == ["bench"]:
        from natsd import bench

        return bench.main(given[1:])
    if given[:1] == ["store"]:
        from natsd.cli import store

        return store.main(given[1:])
    if given[:1] == ["backup"]:
        from natsd.cli import backup

        return backup.main(given[1:])
    if given[:1] == ["restore"]:
        from natsd.cli import backup

        return backup.main_restore(given[1:])
    if given[:1] == ["pipeline"]:
        from natsd.cli import pipeline

        return pipeline.main(given[1:])
    if given[:1] == ["config"]:
        from natsd.cli import config

        return config.main(given[1:])
    if given[:1] == ["cluster"]:
        from natsd.cli import cluster

        return cluster.main(given[1:])
    try:
        line = read_command_line(given)
    except FlagError as error:
        return _refuse_usage(error)
    return _act(line)


def _act(line: CommandLine) -> int:
    word = line.words[0].lower() if line.words else ""
    if "version" in line.actions or (word == "version" and "help" not in line.actions):
        return _show_version()
    if "help" in line.actions or word == "help":
        return _show_help()
    if "help_tls" in line.actions:
        return _show_tls_help()
    if word:
        return _refuse(f'unrecognized command: "{line.words[0]}" (natsd -h shows the commands)')
    if "signal" in line.settings:
        return _signal(line.settings["signal"])
    return _serve(line.settings)


def _show_version() -> int:
    from natsd.core.program import is_stand_in
    from natsd.version import NATS_VERSION_TEXT, VERSION_TEXT

    print(NATS_VERSION_TEXT if is_stand_in() else VERSION_TEXT)
    return 0


def _show_help() -> int:
    from natsd.cli.usage import usage
    from natsd.core.program import is_stand_in

    print(usage(is_stand_in=is_stand_in()))
    return 0


def _show_tls_help() -> int:
    from natsd.cli.tls_usage import tls_usage

    print(tls_usage())
    return 0


def _signal(request: str) -> int:
    from natsd.cli.signals import SignalError, send_signal

    try:
        send_signal(request)
    except SignalError as error:
        return _refuse(str(error))
    return 0


def _serve(settings: dict[str, Any]) -> int:
    """Start the daemon, or test the configuration if `-t` is given."""
    path = settings.pop("config", "")
    is_test = settings.pop("test", False)
    if is_test and not path:
        return _refuse("must specify [-c, --config] option to check configuration file syntax")
    if not path:
        return _serve_flags(settings)
    from natsd.config import OptionsError
    from natsd.server.start_checks import load_checked

    try:
        loaded = load_checked(path, settings)
    except OptionsError as error:
        return _refuse_options(error)
    for warning in loaded.warnings:
        print(warning, file=sys.stderr)
    if is_test:
        if loaded.warnings:
            return 1
        from natsd.core.program import program_name

        print(
            f"{program_name()}: configuration file {path} is valid ({loaded.digest})",
            file=sys.stderr,
        )
        return 0
    return _run(loaded.options, loaded, settings)


def _serve_flags(settings: dict[str, Any]) -> int:
    """Start the daemon without a configuration file."""
    from natsd.config import OptionsError, make_options
    from natsd.config.key_environment import with_secrets

    try:
        flags = with_secrets(settings, os.environ)
        if any("." in name for name in flags):
            from natsd.config.overrides import with_flags
            from natsd.server.start_checks import check_start

            options = with_flags(None, flags)
            check_start(options)
        else:
            options = make_options(**flags)
    except OptionsError as error:
        return _refuse_options(error)
    return _run(options, None, settings)


def _run(options: "Options", loaded: "LoadedConfig | None", settings: dict[str, Any]) -> int:
    if any(name in settings for name in SECRETS):
        from natsd.cli.redaction import redact_command_line

        redact_command_line(sys.argv)
    _take_name()
    from natsd.cli.daemon import run

    return run(options, loaded)


def _take_name() -> None:
    """Show the process under the program's name, by which `-sl` finds it: `python -m` has another.

    Only Linux has the file.
    """
    from natsd.core.program import program_name

    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(program_name())


def _refuse_usage(error: FlagError) -> int:
    """Print the error of a flag; nats-server prints its usage too, and has exit code 0."""
    from natsd.core.program import is_stand_in

    if not is_stand_in():
        return _refuse(f"{error} (natsd -h shows the flags)")
    print(error, file=sys.stderr)
    _show_help()
    return 0


def _refuse_options(error: "OptionsError") -> int:
    """Print each mistake in a line."""
    from natsd.core.program import program_name

    lines = [line for each in error.every for line in [_located(each)]]
    print(f"{program_name()}: " + "\n".join(lines), file=sys.stderr)
    return 1


def _located(error: "OptionsError") -> str:
    position = error.position
    return f"{position}: {error}" if position and position.line else str(error)


def _refuse(reason: str) -> int:
    from natsd.core.program import program_name

    print(f"{program_name()}: {reason}", file=sys.stderr)
    return 1
