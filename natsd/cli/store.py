"""`natsd store check DIR` and `natsd store repair DIR`: what is damaged, and what is done about it.

- `check` changes nothing. Exit code 0: all is whole; 1: there is damage, or something could not be
  read, or the command was refused.
- `repair` exits 0 when what it left is whole, as a check behind it finds.
- One line for each damage: file, what, offset, length, the messages it cost. `--json` prints the
  same as one object.
- Keys are read from files, since a command line can be seen by others.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from natsd.store.check import Report, check_volume
from natsd.store.disk import DirectoryLocked, RealDisk
from natsd.store.keys import OperatorKeys
from natsd.store.repair import repair_volume

DESCRIPTION: Final = """\
Look through a store directory that no server uses, for damage of any kind.
"""

EXAMPLES: Final = """\
examples:
  natsd store check /var/lib/nats/jetstream          tell what is damaged; changes nothing
  natsd store check --json DIR                       the same for programs
  natsd store repair DIR                             set damaged bytes aside, write files anew
  natsd store check --key-file /etc/nats/store.key DIR
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = parser().parse_args(arguments)
    directory = options.directory.absolute()
    if not directory.is_dir():
        return _refuse(f"{directory} is not a directory")
    try:
        operator = OperatorKeys(_key(options.key_file), _key(options.prev_key_file))
        if options.action == "repair":
            return _repair(directory, operator, as_json=options.json)
        return _check(directory, operator, as_json=options.json)
    except DirectoryLocked as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or directory}: {error.strerror or error}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="natsd store",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("action", choices=["check", "repair"])
    result.add_argument("directory", type=Path, metavar="DIR", help="the store directory")
    result.add_argument("--json", action="store_true", help="print one JSON object")
    result.add_argument(
        "--key-file", type=Path, metavar="FILE", help="holds the key of encrypted streams"
    )
    result.add_argument(
        "--prev-key-file", type=Path, metavar="FILE", help="holds the key before the last rotation"
    )
    return result


def _check(directory: Path, operator: OperatorKeys, *, as_json: bool) -> int:
    report = check_volume(RealDisk(), directory, operator, os.urandom)
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _print_report(report)
    return 0 if report.is_clean else 1


def _repair(directory: Path, operator: OperatorKeys, *, as_json: bool) -> int:
    repaired = repair_volume(RealDisk(), directory, operator, os.urandom)
    report = check_volume(RealDisk(), directory, operator, os.urandom)
    if as_json:
        print(json.dumps({**asdict(repaired), "check": report.as_json()}, indent=2))
    else:
        for line in repaired.done:
            print(line)
        for line in repaired.unrepaired:
            print(f"not repaired: {line}")
        _print_report(report)
    return 0 if report.is_clean and not repaired.unrepaired else 1


def _print_report(report: Report) -> None:
    for finding in report.findings:
        print(finding)
    for line in report.unchecked:
        print(f"not checked: {line}")
    verdict = "no damage" if report.is_clean else f"{len(report.findings)} damaged"
    print(
        f"{report.streams} streams, {report.blocks} blocks, {report.messages} messages,"
        f" {report.consumers} consumers: {verdict}"
    )


def _key(path: Path | None) -> bytes | None:
    """What the file holds, without the newline that editors leave at its end."""
    return None if path is None else path.read_bytes().rstrip(b"\r\n")


def _refuse(reason: str) -> int:
    print(f"natsd: {reason}", file=sys.stderr)
    return 1
