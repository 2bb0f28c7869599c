"""`natsd cluster rescue`: go on with what is left when a majority of servers is lost for good.

- Without `--yes` nothing is changed: the command says what it would do, and what that may cost.
- With it, the order is written into the store directory; the server carries it out at its start.
- The keys of an encrypted directory are those that the server is started with: they are in its
  configuration, or in the same variables of the environment.
- Exit code 0: done, or it can be done with `--yes`. 1: it cannot; the reason is one line on
  standard error.
"""

import argparse
import getpass
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from natsd.cli.commands import command_parser, refuse
from natsd.config import OptionsError
from natsd.config.load import error_lines
from natsd.config.options import Options
from natsd.config.resources import with_store_dir
from natsd.core.wall_time import timestamp
from natsd.jetstream.meta_group.cluster import MEMBER_DIRECTORY
from natsd.jetstream.meta_group.rescue_order import META, RescuedGroup, RescueOrder, write_order
from natsd.jetstream.meta_group.rescue_plan import Plan, Planner, Wish
from natsd.jetstream.meta_group.rescue_survey import (
    Report,
    RescueRefused,
    Survey,
    locked,
    survey,
)
from natsd.jetstream.server_resources import operator_keys
from natsd.server.start_checks import load_checked
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import DirectoryLocked
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import EncryptionError

DESCRIPTION: Final = """\
Make JetStream work again after a majority of servers was lost for good: their disks are gone.

A group that has lost a majority of its servers never elects a leader again. This command has such
groups go on with the servers that are left. Messages that were acknowledged and that these servers
do not have are lost then: if a server can come back, start it instead.

Stop all servers that are left, run this on each of them as the user that runs the server, then with
--yes where it says so, and start them.
"""

EXAMPLES: Final = """\
examples:
  natsd cluster rescue -c n3.conf --lost n1,n2             what would be done; changes nothing
  natsd cluster rescue -c n3.conf --lost n1,n2 --yes       do it when n3 starts
  natsd cluster rescue -c n3.conf --lost n1,n2 --stream '$G/ORDERS'
  natsd cluster rescue -c n5.conf --lost n1,n2,n3 --json > n5.json
  natsd cluster rescue -c n4.conf --lost n1,n2,n3 --others n5.json
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command with the arguments after `rescue`; return the exit code."""
    given = parser().parse_args(arguments)
    try:
        options = load_checked(given.config).options
        root = _store_directory(options)
        with locked(root):
            return _rescue(given, options.server_name, root, operator_keys(options.jetstream))
    except OptionsError as error:
        print("\n".join(error_lines(error)), file=sys.stderr)
        return 1
    except (RescueRefused, DirectoryLocked, EncryptionError) as error:
        return refuse(str(error))
    except OSError as error:
        return refuse(f"{error.filename or given.config}: {error.strerror or error}")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = command_parser("natsd cluster rescue", DESCRIPTION, EXAMPLES)
    result.add_argument(
        "-c",
        "--config",
        type=Path,
        required=True,
        metavar="FILE",
        help="configuration of a server that is left, and is stopped; if it has a key, that comes"
        " from there or from the environment, as for the server",
    )
    result.add_argument(
        "--lost", required=True, metavar="NAMES", help="servers that never come back: n1,n2"
    )
    result.add_argument(
        "--stream",
        action="append",
        default=[],
        metavar="ACCOUNT/NAME",
        help="only this stream; may be repeated (default: all that need it)",
    )
    result.add_argument("--meta", action="store_true", help="only the meta group")
    result.add_argument(
        "--others",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="what --json printed on the other servers that are left",
    )
    result.add_argument(
        "--drop-gone", action="store_true", help="delete streams of which no server is left"
    )
    result.add_argument("--json", action="store_true", help="print one object")
    result.add_argument("--yes", action="store_true", help="do it at the server's next start")
    return result


def _store_directory(options: Options) -> Path:
    """Return JetStream's directory. Raises RescueRefused."""
    if not (options.jetstream.enabled and options.has_cluster and options.server_name):
        raise RescueRefused("the configuration is not that of a server with JetStream in a cluster")
    options = with_store_dir(options)
    store_dir = options.store_dir or options.jetstream.store_dir
    assert store_dir is not None
    return replace(options.jetstream, store_dir=store_dir.absolute()).directory


def _rescue(given: argparse.Namespace, server: str, root: Path, keys: OperatorKeys) -> int:
    found = survey(root, server, keys)
    wish = Wish(
        tuple(sorted({name for name in given.lost.split(",") if name})),
        tuple(map(_stream_key, given.stream)),
        only_meta=given.meta,
        drops_gone=given.drop_gone,
    )
    plan = Planner(found, map(_read_report, given.others), wish, os.urandom).plan()
    if given.json:
        print(json.dumps(_as_object(found, plan), indent=2))
    else:
        print("\n".join(_lines(server, wish, plan)))
    if plan.refusals:
        return refuse(plan.refusals[0])
    if not given.yes:
        _tell(given, "Nothing was changed. Add --yes to do it.")
        return 0
    path = _write(Vault(RealDisk(), root, os.urandom, keys), found, wish, plan)
    _tell(given, f"Ordered. Start {server} now; until then, `rm {path}*` takes it back.")
    return 0


def _stream_key(text: str) -> tuple[str, str]:
    account, slash, name = text.rpartition("/")
    if not (account and slash and name):
        raise RescueRefused(f"{text} is not ACCOUNT/NAME")
    return account, name


class _Printed(msgspec.Struct):
    report: Report


def _read_report(path: Path) -> Report:
    """Return the report in what `--json` has printed. Raises RescueRefused, OSError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Printed).report
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RescueRefused(f"{path} is not what --json prints: {error}") from error


def _write(vault: Vault, found: Survey, wish: Wish, plan: Plan) -> Path:
    """Write the order for the server; return its path. Raises OSError."""
    order = RescueOrder(
        timestamp(time.time_ns()),
        f"{getpass.getuser()}@{socket.gethostname()}",
        found.report.meta,
        plan.new_meta,
        wish.lost,
        plan.dismissed,
        tuple(plan.changes),
        (*plan.groups, *(plan.gone if wish.drops_gone else ())),
    )
    return write_order(vault, vault.root / MEMBER_DIRECTORY, order)


# What is printed


def _as_object(found: Survey, plan: Plan) -> dict[str, Any]:
    return {
        "report": msgspec.to_builtins(found.report),
        "groups": msgspec.to_builtins(plan.groups),
        "gone": msgspec.to_builtins(plan.gone),
        "refused": plan.refusals,
    }


def _lines(server: str, wish: Wish, plan: Plan) -> list[str]:
    lines = [f"Seen from {server}; lost for good: {', '.join(wish.lost)}"]
    for each in plan.groups:
        lines += ["", *_group_lines(each)]
    for each in plan.gone:
        lines += ["", *_gone_lines(each, wish)]
    if plan.kept:
        lines += ["", "Kept by a majority, which makes other replicas:"]
        lines += [f"  {each}" for each in plan.kept]
    if plan.damaged:
        lines += ["", "Not chosen, whatever they have:", *(f"  {each}" for each in plan.damaged)]
    if plan.groups or plan.gone:
        dismissed = ", ".join(plan.dismissed)
        lines += ["", f"Removed from the cluster, as by peer-remove: {dismissed}"]
    return lines


def _group_lines(each: RescuedGroup) -> list[str]:
    lines = [
        f"{each.what}: group {each.group} of {', '.join(each.members)} has no majority",
        f"  goes on with {each.server} alone, whose log ends with entry {each.last_index} of term"
        f" {each.last_term}",
        f"  entries up to {each.committed} are known to be committed; {_uncertain(each)}",
    ]
    if each.what == META:
        return [*lines, "  may be lost: streams created, changed or deleted beyond that"]
    return [
        *lines,
        f"  {each.server} has messages up to sequence {each.last_sequence}",
        "  may be lost: messages, acknowledgements and consumers that were confirmed beyond that;",
        "  how many cannot be known: at most what had not reached this server",
    ]


def _uncertain(each: RescuedGroup) -> str:
    if not each.uncertain:
        return "it has no others"
    return f"the {each.uncertain} beyond that are kept, whether they were or not"


def _gone_lines(each: RescuedGroup, wish: Wish) -> list[str]:
    then = "is deleted" if wish.drops_gone else "stays, without messages; --drop-gone deletes it"
    return [f"{each.what}: GONE, all of its servers are lost: {', '.join(each.members)}; it {then}"]


def _tell(given: argparse.Namespace, text: str) -> None:
    if not given.json:
        print(f"\n{text}")
