"""`natsd store import SOURCE DIR`: the streams of a nats-server store directory into natsd's.

Exit code 0: everything that was selected was taken; 1: something was not, which the lines before
the last one tell, or the command was refused. It can be repeated: streams that are in the store
already stay as they are, and count as not taken.
"""

import argparse
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import IO

from natsd.jetstream.nats_server.store_import import (
    ImportedStream,
    ImportReport,
    Selection,
    import_snapshot,
    import_store,
)
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk

ShowProgress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]


def run_import(
    options: argparse.Namespace,
    operator: OperatorKeys,
    source_keys: tuple[bytes, ...],
    progress: ShowProgress,
) -> int:
    """Run the command; return the exit code. Raises what `import_store` raises."""
    selection = Selection(
        options.source.absolute(), source_keys, options.account, options.stream, options.dry_run
    )
    with progress("importing") as show:
        report = import_store(
            RealDisk(), selection, options.directory.absolute(), operator, os.urandom, show
        )
    if options.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        _print(report, options.directory, is_dry=options.dry_run)
    return 0 if report.is_complete else 1


def restore_snapshot(
    snapshot: IO[bytes],
    directory: Path,
    options: argparse.Namespace,
    operator: OperatorKeys,
    show: Callable[[int, int], None],
) -> int:
    """Restore a snapshot that nats-server made; return the exit code.

    Raises what `import_snapshot` raises.
    """
    done = import_snapshot(
        RealDisk(), snapshot, directory, options.account, operator, os.urandom, show
    )
    if options.json:
        print(json.dumps(asdict(done), indent=2))
    else:
        _print_stream(done)
    return 0 if done.is_complete else 1


def _print(report: ImportReport, directory: Path, *, is_dry: bool) -> None:
    for line in report.skipped:
        print(f"not taken: {line}")
    for each in report.streams:
        _print_stream(each)
    taken = [each for each in report.streams if not each.reason]
    messages = sum(each.messages for each in taken)
    consumers = sum(each.consumers for each in taken)
    what = "would be imported to" if is_dry else "imported to"
    print(
        f"{len(taken)} of {len(report.streams)} streams, {messages} messages,"
        f" {consumers} consumers {what} {directory}"
    )


def _print_stream(stream: ImportedStream) -> None:
    for line in stream.damage:
        print(f"damaged: {line}")
    for line in stream.not_taken:
        print(f"not taken: {line}")
    for line in stream.notes:
        print(f"note: {line}")
    name = f"{stream.account}/{stream.stream}"
    if stream.reason:
        print(f"not taken: {name}: {stream.reason}")
    else:
        print(f"{name}: {stream.messages} messages, {stream.consumers} consumers")
