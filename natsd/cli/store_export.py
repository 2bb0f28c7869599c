"""`natsd store export DIR TARGET`: streams as directories that `nats stream restore` takes.

Exit code 0: everything that was selected was written; 1: something was not, which the lines before
the last one tell, or the command was refused.
"""

import argparse
import json
import os
import time
from dataclasses import asdict

from natsd.cli.store_import import ShowProgress
from natsd.jetstream.nats_server.store_export import export_store
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk


def run_export(options: argparse.Namespace, operator: OperatorKeys, progress: ShowProgress) -> int:
    """Run the command; return the exit code. Raises what `export_store` raises."""
    with progress("exporting") as show:
        report = export_store(
            RealDisk(),
            options.directory.absolute(),
            options.target,
            options.account,
            options.stream,
            operator,
            os.urandom,
            time.time_ns() // 1_000_000_000,
            show,
        )
    if options.json:
        print(json.dumps({"streams": [asdict(each) for each in report]}, indent=2))
    else:
        for each in report:
            for line in each.damage:
                print(f"damaged: {line}")
            for line in each.not_taken:
                print(f"not written: {line}")
            name = f"{each.account}/{each.stream}"
            counts = f"{each.messages} messages, {each.consumers} consumers"
            print(f"not written: {name}: {each.reason}" if each.reason else f"{name}: {counts}")
        written = sum(not each.reason for each in report)
        print(f"{written} of {len(report)} streams exported to {options.target}")
    return 0 if all(each.is_complete for each in report) else 1
