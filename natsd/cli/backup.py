"""`natsd backup` and `natsd restore`: backups of the streams of all accounts (docs/backup.md).

- Exit code 0: everything is in the backup, or restored, and verified; 1: something is not, or is
  damaged, one line each; 2: refused or interrupted, with one line that says why. An interrupted
  backup is continued by the next one.
- `--json` prints one object. Progress goes to standard error if that is a terminal.
- Keys are read from files, since other users can see a command line.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import BackupError
from natsd.backup.manifest import Manifest, StreamCopy
from natsd.backup.pruning import prune
from natsd.backup.source import Progress, Source
from natsd.backup.verifying import Verification, Verified
from natsd.cli.commands import command_parser
from natsd.cli.connection import add_connection, options_of
from natsd.jetstream.names import is_valid_asset_name
from natsd.server.log import on_one_line
from natsd.store.crypto.keys import OperatorKeys

if TYPE_CHECKING:
    from natsd.backup.taking import Taken

ACTIONS: Final = ("list", "verify", "prune")
INCOMPLETE: Final = 1
REFUSED: Final = 2

EXAMPLES: Final = """\
examples:
  natsd backup /backups --all-accounts --user sys --password-file sys.pw
  natsd backup /backups --all-accounts --store /var/lib/nats/jetstream    from a stopped server
  natsd backup /backups --creds app.creds                     the streams of one account
  natsd backup list /backups
  natsd backup verify /backups                                read everything back
  natsd backup prune /backups --keep 14
"""
RESTORE_EXAMPLES: Final = """\
examples:
  natsd restore /backups --all-accounts --user sys --password-file sys.pw
  natsd restore /backups --all-accounts --account A --stream ORDERS --as ORDERS_OLD --at 20261101
  natsd restore /backups --store /var/lib/nats/jetstream      into a stopped server
  natsd restore /backups --files /tmp/configuration
"""


def main(arguments: Sequence[str]) -> int:
    """Run `natsd backup` with the arguments after it; return the exit code."""
    if arguments and arguments[0] in ACTIONS:
        given = _action_parser().parse_args(arguments)
        run = {"list": _list, "verify": _verify, "prune": _prune}[given.action]
    else:
        given, run = backup_parser().parse_args(arguments), _backup
    return _guarded(run, given)


def main_restore(arguments: Sequence[str]) -> int:
    """Run `natsd restore` with the arguments after it; return the exit code."""
    return _guarded(_restore, restore_parser().parse_args(arguments))


def _guarded(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    try:
        return run(given)
    except BackupError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or given.directory}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _refuse("stopped; a backup goes on where it stopped when it is run again")


# The command lines


def backup_parser() -> argparse.ArgumentParser:
    """Return the parser of `natsd backup DIR`."""
    text = (
        "Back up streams: only what has changed.\n\n"
        "natsd backup list DIR, natsd backup verify DIR and natsd backup prune DIR look after them."
    )
    result = command_parser("natsd backup", text, EXAMPLES)
    _add_common(result)
    _add_place(result, "take the streams from the files of a stopped server")
    result.add_argument(
        "--account", action="append", default=[], help="only this account; may be repeated"
    )
    result.add_argument(
        "--stream", action="append", default=[], help="only streams of this name; may be repeated"
    )
    result.add_argument(
        "--config", type=Path, metavar="FILE", help="add this configuration, with its secrets"
    )
    verify = result.add_mutually_exclusive_group()
    verify.add_argument("--verify", action="store_true", help="read older pieces back, too")
    verify.add_argument("--no-verify", action="store_true", help="read nothing back")
    return result


def restore_parser() -> argparse.ArgumentParser:
    """Return the parser of `natsd restore DIR`."""
    result = command_parser("natsd restore", "Restore streams from a backup.", RESTORE_EXAMPLES)
    _add_common(result)
    _add_place(result, "restore into the files of a stopped server")
    result.add_argument(
        "--at", metavar="BACKUP", help="id of the backup, or a time (default: last)"
    )
    result.add_argument(
        "--account", action="append", default=[], help="only this account; may be repeated"
    )
    result.add_argument(
        "--stream", action="append", default=[], help="only streams of this name; may be repeated"
    )
    result.add_argument(
        "--as", dest="renamed", metavar="[ACCOUNT/]STREAM", help="another name for one stream"
    )
    result.add_argument("--overwrite", action="store_true", help="replace streams that exist")
    result.add_argument(
        "--files", type=Path, metavar="DIR", help="write the backup's configuration there, only"
    )
    return result


def _action_parser() -> argparse.ArgumentParser:
    result = command_parser("natsd backup", "Look after a directory of backups.", EXAMPLES)
    actions = result.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("list", "show the backups"),
        ("verify", "read backups back"),
        ("prune", "remove old backups"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        _add_common(action)
        if name == "verify":
            action.add_argument("--at", metavar="BACKUP", help="only this one (default: all)")
        if name == "prune":
            action.add_argument("--keep", type=_count, required=True, metavar="N")
    return result


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the backups")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="key of the backups")


def _add_place(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--all-accounts", action="store_true", help="as the system account, or from files"
    )
    parser.add_argument("--store", type=Path, metavar="DIR", help=f"{text} (…/jetstream)")
    parser.add_argument("--store-key-file", type=Path, metavar="FILE", help="key of that store")
    parser.add_argument(
        "--store-prev-key-file", type=Path, metavar="FILE", help="key before the last rotation"
    )
    add_connection(parser)


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError("at least 1 backup is kept")
    return int(text)


# What the commands do


def _open(given: argparse.Namespace, *, is_target: bool) -> Source:
    """Return the server or the files that the flags name. Raises BackupError or OSError."""
    if given.store is not None:
        from natsd.backup.files import StoreFiles

        keys = OperatorKeys(_key(given.store_key_file), _key(given.store_prev_key_file))
        return StoreFiles(given.store.absolute(), keys, is_target=is_target)
    from natsd.backup.server import ServerStreams

    return ServerStreams(options_of(given), is_system=given.all_accounts)


def _backup(given: argparse.Namespace) -> int:
    from natsd.backup.configuration import files_of
    from natsd.backup.taking import BackupRun

    if given.account and not given.all_accounts and given.store is None:
        raise BackupError("--account needs --all-accounts: other credentials are of one account")
    files = list(files_of(given.config)) if given.config else []
    with contextlib.closing(_open(given, is_target=False)) as source:
        directory = BackupDirectory.create(given.directory.absolute(), _key(given.key_file))
        with directory.locked(), _progress() as for_stream:
            if given.store is None and given.all_accounts:
                files += source.jwts()
            run = BackupRun(directory, source, time.time_ns)
            taken = run.run(given.account, given.stream, files, for_stream)
            verified = None
            if not given.no_verify:
                trusted = frozenset() if given.verify else taken.trusted
                verification = Verification(directory, trusted)
                verification.run(taken.manifest, for_stream("verifying"))
                verified = verification.result
    return _report_backup(taken, verified, as_json=given.json)


def _report_backup(taken: "Taken", verified: Verified | None, *, as_json: bool) -> int:
    manifest = taken.manifest
    damage = verified.damage if verified else []
    shown = _summary(manifest) | {
        "received_bytes": taken.sent_bytes,
        "written_bytes": taken.written_bytes,
        "verified": None if verified is None else not damage,
        "problems": [*manifest.problems, *damage],
    }
    if as_json:
        print(json.dumps(shown, indent=2))
    else:
        for line in shown["problems"]:
            _tell(line)
        _tell(
            f"{manifest.id}: {shown['streams']} streams of {shown['accounts']} accounts,"
            f" {shown['messages']} messages, {shown['consumers']} consumers;"
            f" {taken.sent_bytes} bytes received, {taken.written_bytes} written"
        )
    return INCOMPLETE if shown["problems"] else 0


def _list(given: argparse.Namespace) -> int:
    directory = BackupDirectory.open(given.directory.absolute(), _key(given.key_file))
    manifests = [directory.read(each) for each in directory.ids()]
    if given.json:
        shown = [
            _summary(each) | {"contents": msgspec.to_builtins([*map(_content, each.streams)])}
            for each in manifests
        ]
        print(json.dumps({"backups": shown}, indent=2))
        return 0
    for manifest in manifests:
        found = _summary(manifest)
        _tell(
            f"{manifest.id}: {found['streams']} streams of {found['accounts']} accounts,"
            f" {found['messages']} messages, {found['bytes']} bytes, from {manifest.source}"
        )
    return 0


def _verify(given: argparse.Namespace) -> int:
    directory = BackupDirectory.open(given.directory.absolute(), _key(given.key_file))
    ids = [directory.find(given.at).id] if given.at else directory.ids()
    verification = Verification(directory)
    result = verification.result
    with _progress() as for_stream:
        for backup_id in ids:
            try:
                verification.run(directory.read(backup_id), for_stream(backup_id))
            except BackupError as error:
                result.damage.append(str(error))
    damage = list(dict.fromkeys(result.damage))
    if given.json:
        print(json.dumps({"backups": ids, "read_bytes": result.read_bytes, "damage": damage}))
    else:
        for line in damage:
            _tell(line)
        verdict = f"{len(damage)} damaged" if damage else "no damage"
        print(f"{len(ids)} backups, {result.read_bytes} bytes read: {verdict}")
    return INCOMPLETE if damage else 0


def _prune(given: argparse.Namespace) -> int:
    directory = BackupDirectory.open(given.directory.absolute(), _key(given.key_file))
    with directory.locked():
        done = prune(directory, given.keep)
    if given.json:
        print(json.dumps({"removed": done.backups, "pieces": done.pieces, "bytes": done.bytes}))
    else:
        print(f"{len(done.backups)} backups removed, with {done.pieces} pieces, {done.bytes} bytes")
    return 0


def _restore(given: argparse.Namespace) -> int:
    from natsd.backup.configuration import write_files
    from natsd.backup.restoring import Target, restore

    directory = BackupDirectory.open(given.directory.absolute(), _key(given.key_file))
    manifest = directory.find(given.at)
    if given.files is not None:
        count = write_files(directory, manifest, given.files)
        print(json.dumps({"files": count}) if given.json else f"{count} files in {given.files}")
        return 0
    copies = [each for each in manifest.streams if _is_wanted(each, given)]
    if not copies:
        raise BackupError(f"{manifest.id} has no such stream")
    target = Target()
    if given.renamed:
        if len(copies) > 1:
            raise BackupError("--as is for one stream: choose it by --account and --stream")
        account, _, stream = given.renamed.rpartition("/")
        if not is_valid_asset_name(stream):
            raise BackupError(f"--as {given.renamed}: no stream can have this name")
        target = Target(account or None, stream)
    with contextlib.closing(_open(given, is_target=True)) as place, _progress() as for_stream:
        _check_accounts(copies, target, given)
        report = restore(directory, copies, target, place, for_stream, overwrites=given.overwrite)
    if given.json:
        restored = msgspec.to_builtins([*map(_content, report.restored)])
        shown = {"backup": manifest.id, "restored": restored}
        print(json.dumps(shown | {"problems": report.problems, "notes": report.notes}, indent=2))
    else:
        for line in report.problems + report.notes:
            _tell(line)
        messages = sum(each.msgs for each in report.restored)
        print(f"{manifest.id}: {len(report.restored)} streams, {messages} messages restored")
    return INCOMPLETE if report.problems else 0


def _is_wanted(copy: StreamCopy, given: argparse.Namespace) -> bool:
    return (not given.account or copy.account in given.account) and (
        not given.stream or copy.stream in given.stream
    )


def _check_accounts(copies: list[StreamCopy], target: Any, given: argparse.Namespace) -> None:
    """Refuse to mix the streams of several accounts, and streams of unknown ones."""
    accounts = {each.account for each in copies} if target.account is None else {target.account}
    if given.all_accounts or given.store is not None:
        if "" in accounts:
            raise BackupError(
                "the backup is of one account, whose name it does not know:"
                " --as ACCOUNT/STREAM names it, or connect as that account"
            )
    elif len(accounts) > 1:
        names = ", ".join(sorted(accounts))
        raise BackupError(f"streams of {names}: use --all-accounts, or choose one by --account")


def _summary(manifest: Manifest) -> dict[str, Any]:
    streams = manifest.streams
    return {
        "id": manifest.id,
        "source": manifest.source,
        "streams": len(streams),
        "accounts": len({each.account for each in streams}),
        "messages": sum(each.msgs for each in streams),
        "bytes": sum(each.size for each in streams),
        "consumers": sum(each.consumers for each in streams),
        "problems": list(manifest.problems),
    }


def _content(copy: StreamCopy) -> dict[str, Any]:
    return {
        "account": copy.account,
        "stream": copy.stream,
        "kind": copy.kind,
        "messages": copy.msgs,
        "bytes": copy.size,
        "last_sequence": copy.last_sequence,
        "consumers": copy.consumers,
    }


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], Progress]]:
    """Show progress bars if standard error is a terminal.

    Yields a function that takes a title and returns the callback that updates its bar.
    """
    if not sys.stderr.isatty():
        yield lambda _title: lambda _done, _total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("")

        def for_stream(title: str) -> Progress:
            bars.reset(task, description=escape(on_one_line(title)))
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield for_stream


def _key(path: Path | None) -> bytes | None:
    """Return the content of a key file without newlines at its end; None: there is no file."""
    return None if path is None else path.read_bytes().rstrip(b"\r\n")


def _tell(line: str) -> None:
    """Print a line; names and reasons in it are from servers and backups, and may be hostile."""
    print(on_one_line(line))


def _refuse(reason: str) -> int:
    print(f"natsd: {on_one_line(reason)}", file=sys.stderr)
    return REFUSED
