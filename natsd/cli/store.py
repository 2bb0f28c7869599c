"""`natsd store`: commands that check, repair, copy and import the files of a store.

- `check DIR` reports damage and changes nothing. Exit code 0: no damage; 1: there is damage, a file
  could not be read, or the command was refused.
- `repair DIR` sets damaged bytes aside. Exit code 0: a check after the repair finds no damage.
- Each damage is one line: file, kind, offset, length, lost messages. `--json` prints one object
  with the same data.
- `snapshot` writes a stream into a snapshot. Exit code 0: the snapshot holds the whole stream; 1:
  damage left a part of it out, or the command was refused.
- `restore` makes a stream from a snapshot, of natsd or of nats-server (`nats stream backup`).
  Neither command leaves half a snapshot or stream.
- `import` makes streams from nats-server's store directory (store_import.py), and `export` writes
  streams for a nats-server (store_export.py); `snapshot` and `restore` keep what only natsd has.
- Keys are read from files, since other users can see a command line.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.accounts import GLOBAL_ACCOUNT
from natsd.cli.commands import command_parser, refuse
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.disk import DIRECTORY_MODE, DirectoryLocked
from natsd.store.disk.doubled_file import UNFINISHED_SUFFIX
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import StoreError
from natsd.store.maintenance.check import Report, check_volume
from natsd.store.maintenance.repair import repair_volume

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

    from natsd.jetstream.snapshot.offline import Transferred

DESCRIPTION: Final = """\
Look through a store directory that no server uses, for damage of any kind, or copy its streams.
"""

EXAMPLES: Final = """\
examples:
  natsd store check /var/lib/nats/jetstream          tell what is damaged; changes nothing
  natsd store check --json DIR                       the same for programs
  natsd store repair DIR                             set damaged bytes aside, write files anew
  natsd store check --key-file /etc/nats/store.key DIR
  natsd store snapshot DIR/'$G'/streams/ORDERS orders.snapshot
  natsd store restore orders.snapshot DIR
  natsd store restore backup/stream.tar.s2 DIR       what `nats stream backup` saved
  natsd store import /var/lib/nats-server DIR        a nats-server's streams into this store
  natsd store export DIR backup                      its streams for `nats stream restore`
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command with the arguments after `store`; return the exit code."""
    options = parser().parse_args(arguments)
    directory = options.directory.absolute()
    try:
        if options.action == "import":
            return _import(options)
        if not directory.is_dir():
            return refuse(f"{directory} is not a directory")
        operator = OperatorKeys(_key(options.key_file), _key(options.prev_key_file))
        if options.action == "export":
            return _export(options, operator)
        if options.action == "snapshot":
            return _snapshot(directory, options.snapshot, operator, as_json=options.json)
        if options.action == "restore":
            return _restore(options.snapshot, directory, options, operator)
        if options.action == "repair":
            return _repair(directory, operator, as_json=options.json)
        return _check(directory, operator, as_json=options.json)
    except (DirectoryLocked, StoreError) as error:
        return refuse(str(error))
    except OSError as error:
        return refuse(f"{error.filename or directory}: {error.strerror or error}")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = command_parser("natsd store", DESCRIPTION, EXAMPLES)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON object")
    common.add_argument(
        "--key-file", type=Path, metavar="FILE", help="holds the key of encrypted streams"
    )
    common.add_argument(
        "--prev-key-file", type=Path, metavar="FILE", help="holds the key before the last rotation"
    )
    actions = result.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (("check", "tell what is damaged"), ("repair", "set damage aside")):
        action = actions.add_parser(name, help=text, parents=[common])
        _add_directory(action, "the store directory")
    snapshot = actions.add_parser("snapshot", help="a stream into a snapshot", parents=[common])
    _add_directory(snapshot, "the stream's directory")
    snapshot.add_argument("snapshot", type=Path, metavar="SNAPSHOT", help="the file to write")
    restore = actions.add_parser("restore", help="a snapshot's stream back", parents=[common])
    restore.add_argument("snapshot", type=Path, metavar="SNAPSHOT", help="the file to read")
    _add_directory(restore, "the store directory")
    restore.add_argument("--account", default=GLOBAL_ACCOUNT, help="whose stream (default: $G)")
    _add_import(actions, common)
    _add_export(actions, common)
    return result


def _import(options: argparse.Namespace) -> int:
    from natsd.cli.store_import import run_import
    from natsd.jetstream.snapshot.offline import NotPossible

    if not options.source.is_dir():
        return refuse(f"{options.source} is not a directory")
    if not options.dry_run:
        options.directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    operator = OperatorKeys(_key(options.key_file), _key(options.prev_key_file))
    keys = (_key(options.source_key_file), _key(options.source_prev_key_file))
    source_keys = tuple(key for key in keys if key is not None)
    try:
        return run_import(options, operator, source_keys, _progress)
    except NotPossible as error:
        return refuse(str(error))


def _export(options: argparse.Namespace, operator: OperatorKeys) -> int:
    from natsd.cli.store_export import run_export
    from natsd.jetstream.snapshot.offline import NotPossible

    try:
        return run_export(options, operator, _progress)
    except NotPossible as error:
        return refuse(str(error))


def _add_export(actions: "Actions", common: argparse.ArgumentParser) -> None:
    text = "streams for `nats stream restore` into a nats-server"
    parser = actions.add_parser("export", help=text, parents=[common])
    _add_directory(parser, "the store directory")
    parser.add_argument("target", type=Path, metavar="TARGET", help="the directory to write into")
    _add_selection(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    for flag, what in (("--account", "of this account"), ("--stream", "of this name")):
        parser.add_argument(
            flag, action="append", default=[], help=f"only streams {what}; may be repeated"
        )


def _add_import(actions: "Actions", common: argparse.ArgumentParser) -> None:
    text = "nats-server's store directory into this one"
    parser = actions.add_parser("import", help=text, parents=[common])
    parser.add_argument("source", type=Path, metavar="SOURCE", help="nats-server's store directory")
    _add_directory(parser, "the store directory; it is created if it does not exist")
    parser.add_argument(
        "--source-key-file", type=Path, metavar="FILE", help="holds the key of SOURCE"
    )
    parser.add_argument(
        "--source-prev-key-file", type=Path, metavar="FILE", help="holds the key before that one"
    )
    _add_selection(parser)
    parser.add_argument("--dry-run", action="store_true", help="tell what would be imported")


def _add_directory(action: argparse.ArgumentParser, what: str) -> None:
    action.add_argument("directory", type=Path, metavar="DIR", help=what)


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


def _snapshot(directory: Path, snapshot: Path, operator: OperatorKeys, *, as_json: bool) -> int:
    from natsd.jetstream.asset_file import AssetDamaged
    from natsd.jetstream.snapshot.offline import NotPossible, write_snapshot

    unfinished = snapshot.with_name(snapshot.name + UNFINISHED_SUFFIX)
    try:
        with unfinished.open("wb") as out, _progress("writing") as progress:
            done = write_snapshot(RealDisk(), directory, out, operator, os.urandom, progress)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(snapshot)
    except (NotPossible, AssetDamaged) as error:
        return refuse(str(error))
    finally:
        unfinished.unlink(missing_ok=True)
    _print_transferred(done, f"written to {snapshot}", as_json=as_json)
    return 1 if done.damage else 0


def _restore(
    snapshot: Path, directory: Path, options: argparse.Namespace, operator: OperatorKeys
) -> int:
    from natsd.cli.store_import import restore_snapshot
    from natsd.jetstream.snapshot.offline import NotPossible, read_snapshot
    from natsd.store.backup.snappy_frames import S2_IDENTIFIER

    try:
        with snapshot.open("rb") as file, _progress("restoring") as progress:
            if file.peek(len(S2_IDENTIFIER)).startswith(S2_IDENTIFIER):
                return restore_snapshot(file, directory, options, operator, progress)
            done = read_snapshot(
                RealDisk(), file, directory, options.account, operator, os.urandom, progress
            )
    except NotPossible as error:
        return refuse(str(error))
    _print_transferred(done, f"restored to {directory}", as_json=options.json)
    return 0


def _print_transferred(done: "Transferred", what: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(done), indent=2))
        return
    for line in done.damage:
        print(line)
    waiting = f" {done.delayed} delayed," if done.delayed else ""
    print(f"{done.stream}: {done.messages} messages,{waiting} {done.consumers} consumers {what}")


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if standard error is a terminal, and remove it at the end.

    Yields the function that updates it, with the numbers done and total.
    """
    from rich.console import Console
    from rich.progress import Progress

    is_shown = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=not is_shown) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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
    """Return the content of a key file without newlines at its end; None: there is no file."""
    return None if path is None else path.read_bytes().rstrip(b"\r\n")
