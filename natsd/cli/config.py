"""`natsd config check FILE` and `natsd config diff FILE FILE`.

`check` explains in plain words what a configuration file would do. `diff` shows what differs
between two files, and which of the differences need a restart. Secrets are not shown. An error in a
file is one line for each mistake, and exit code 1.
"""

import argparse
import sys
from collections.abc import Sequence

from natsd.config import OptionsError
from natsd.config.load import error_lines
from natsd.config.loaded import LoadedConfig
from natsd.server.start_checks import load_checked


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand; return the exit code."""
    parser = argparse.ArgumentParser(prog="natsd config", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="explain what a configuration file would do")
    check.add_argument("file")
    diff = commands.add_parser("diff", help="show what differs between two configuration files")
    diff.add_argument("old")
    diff.add_argument("new")
    given = parser.parse_args(arguments)
    if given.command == "check":
        return _check(given.file)
    return _diff(given.old, given.new)


def _check(path: str) -> int:
    loaded = _loaded(path)
    if loaded is None:
        return 1
    from natsd.cli.config_report import report

    print("\n".join(report(loaded)))
    return 0


def _diff(old_path: str, new_path: str) -> int:
    old, new = _loaded(old_path), _loaded(new_path)
    if old is None or new is None:
        return 1
    from natsd.cli.config_diff import differences

    lines = differences(old.options, new.options)
    print("\n".join(lines) if lines else "The two configurations are the same.")
    return 0


def _loaded(path: str) -> LoadedConfig | None:
    """Return the configuration, or print its mistakes."""
    try:
        return load_checked(path)
    except OptionsError as error:
        print("\n".join(error_lines(error)), file=sys.stderr)
        return None
