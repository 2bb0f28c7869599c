"""`natsd cluster`: a cluster on this machine, for development and for tests by hand.

- `up N` makes a cluster of N servers, or makes an existing one whole: it starts what does not run,
  and adds servers. It waits for the full mesh, and prints where the servers are.
- `rescue` is for real clusters: it goes on with what is left after a majority of servers was lost
  for good (cluster_rescue.py).
- The servers outlive the command; `--foreground` shows their logs, and stops them on Ctrl-C.
- Exit code 0: done; of `status`: all servers run, in a full mesh. 1: they do not, or there was an
  error, which is one line on standard error.
"""

import argparse
import contextlib
import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from natsd.cli.cluster_logs import Logs
from natsd.cli.cluster_table import as_json, table
from natsd.cli.commands import command_parser, refuse
from natsd.local_cluster.cluster import LocalCluster, lock, missing_in
from natsd.local_cluster.errors import LocalClusterError
from natsd.local_cluster.member import Member
from natsd.local_cluster.plan import FREE, LOOPBACK, NAME, PORT, Plan
from natsd.local_cluster.process import NATSD

SERVERS: Final = 3
DIRECTORY: Final = Path("natsd-cluster")
LOG_LINES: Final = 50
LOG_POLL_S: Final = 0.1
RESCUE: Final = "rescue"

EXAMPLES: Final = """\
examples:
  natsd cluster up 3                    three servers: ports 4222, 4223, 4224
  natsd cluster up 3 --port -1          on free ports
  natsd cluster up --foreground         with their logs, until Ctrl-C
  natsd cluster up 5                    two servers more
  natsd cluster status
  natsd cluster kill n2                 as kill -9 does; `natsd cluster up` starts it again
  natsd cluster restart n1 n2 n3        one after the other
  natsd cluster logs n1 -f
  natsd cluster down
  natsd cluster rescue -h               when a majority of servers is lost for good, on any machine
"""

Action = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str]) -> int:
    """Run the command with the arguments after `cluster`; return the exit code."""
    if list(arguments[:1]) == [RESCUE]:
        from natsd.cli import cluster_rescue  # it loads JetStream

        return cluster_rescue.main(arguments[1:])
    given = parser().parse_args(arguments)
    action: Action = given.run
    try:
        return action(given)
    except LocalClusterError as error:
        return refuse(str(error))
    except OSError as error:
        return refuse(f"{error.filename or given.dir}: {error.strerror or error}")
    except KeyboardInterrupt:
        return refuse("interrupted; `natsd cluster status` shows what runs")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = command_parser("natsd cluster", "Run a cluster of servers on this machine.", EXAMPLES)
    actions = result.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(name: str, run: Action, text: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "--dir", type=Path, default=DIRECTORY, help="the cluster's files (default: %(default)s)"
        )
        action.set_defaults(run=run)
        return action

    _add_up(add("up", _up, "start a cluster, or what is missing of it"))
    status = add("status", _status, "show the servers and their routes")
    status.add_argument("--json", action="store_true", help="print one object")
    down = add("down", _down, "stop the servers")
    down.add_argument("--kill", action="store_true", help="end them at once, as kill -9 does")
    restart = add("restart", _restart, "stop servers and start them again, one after the other")
    restart.add_argument("names", nargs="+", metavar="NAME")
    _add_program(restart)
    for name, run, text in (
        ("kill", _kill, "end servers at once, as kill -9 does"),
        ("pause", _pause, "hold servers, as kill -STOP does: nothing is answered"),
        ("resume", _resume, "let paused servers go on"),
    ):
        add(name, run, text).add_argument("names", nargs="+", metavar="NAME")
    logs = add("logs", _logs, "show what servers have logged")
    logs.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    logs.add_argument(
        "-n",
        "--lines",
        type=int,
        default=LOG_LINES,
        help="last lines of each (default: %(default)s)",
    )
    actions.add_parser(RESCUE, help="go on after a majority of servers was lost for good")
    return result


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "count", type=int, nargs="?", help=f"servers (default: {SERVERS}, or those that there are)"
    )
    up.add_argument("--name", help=f"name of the cluster (default: {NAME})")
    up.add_argument(
        "--port",
        type=int,
        help=f"clients' port of the first server (default: {PORT}); {FREE}: only free ports",
    )
    up.add_argument("--host", metavar="ADDRESS", help=f"address to listen on (default: {LOOPBACK})")
    up.add_argument(
        "--include", type=Path, metavar="FILE", help="configuration that all new servers include"
    )
    up.add_argument(
        "--foreground", action="store_true", help="show the logs; Ctrl-C stops the servers"
    )
    _add_program(up)


def _add_program(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--program", metavar="PATH", help="server to start in place of natsd, such as nats-server"
    )


# The actions


def _up(given: argparse.Namespace) -> int:
    if given.include is not None and not given.include.is_file():
        raise LocalClusterError(f"{given.include} is not a file")
    with lock(given.dir):
        if LocalCluster.is_in(given.dir):
            cluster = _existing(given)
            logs = Logs(cluster.members)
            cluster.start(program=_program(given))
        else:
            plan = _with_flags(Plan(), given)
            count = SERVERS if given.count is None else given.count
            cluster = LocalCluster.create(given.dir, plan, count)
            logs = Logs(cluster.members)
            cluster.start_new(plan, _program(given))
        cluster.wait_for_mesh()
    print(table(cluster, cluster.look()), flush=True)
    return _stay(cluster, logs) if given.foreground else 0


def _existing(given: argparse.Namespace) -> LocalCluster:
    """Return the cluster that is there, with as many servers as are wanted."""
    cluster = LocalCluster.open(given.dir)
    if given.name not in (None, cluster.name):
        raise LocalClusterError(f"{cluster.directory} has the cluster {cluster.name}; use --dir")
    count = len(cluster.members) if given.count is None else given.count
    if count < len(cluster.members):
        raise LocalClusterError(f"{cluster.name} has {len(cluster.members)} servers, not {count}")
    if count > len(cluster.members):
        cluster.grow(_with_flags(cluster.plan_for_more(), given), count)
    return cluster


def _with_flags(plan: Plan, given: argparse.Namespace) -> Plan:
    """Return the plan with what the command line says."""
    flags = {name: getattr(given, name) for name in ("name", "host", "port", "include")}
    return replace(plan, **{name: value for name, value in flags.items() if value is not None})


def _stay(cluster: LocalCluster, logs: Logs) -> int:
    """Show the logs until all servers have ended, or stop them on Ctrl-C and SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while any(member.process.pid is not None for member in cluster.members):
            logs.show_new()
            time.sleep(LOG_POLL_S)
    except KeyboardInterrupt:
        with cluster.locked():
            cluster.stop()
    logs.show_new()
    return 0


def _status(given: argparse.Namespace) -> int:
    cluster = LocalCluster.open(given.dir)
    seen = cluster.look()
    print(json.dumps(as_json(cluster, seen), indent=2) if given.json else table(cluster, seen))
    return 0 if all(each.answers for each in seen) and not missing_in(seen) else 1


def _down(given: argparse.Namespace) -> int:
    cluster = LocalCluster.open(given.dir)
    with cluster.locked():
        ended = cluster.kill() if given.kill else cluster.stop()
    names = ", ".join(member.name for member in ended)
    print(f"stopped {names}" if ended else f"{cluster.name} is not running")
    return 0


def _restart(given: argparse.Namespace) -> int:
    cluster = LocalCluster.open(given.dir)
    with cluster.locked():
        for member in [cluster.member(name) for name in given.names]:
            cluster.stop([member])
            cluster.start([member], _program(given))
            cluster.wait_for_mesh()
            print(f"{member.name} is running, pid {member.process.pid}", flush=True)
    return 0


def _kill(given: argparse.Namespace) -> int:
    for member in _running(given):
        member.process.kill()
    return 0


def _pause(given: argparse.Namespace) -> int:
    for member in _running(given):
        member.process.pause()
    return 0


def _resume(given: argparse.Namespace) -> int:
    for member in _running(given):
        member.process.resume()
    return 0


def _running(given: argparse.Namespace) -> list[Member]:
    """Return the named servers. Raises LocalClusterError if one does not run."""
    cluster = LocalCluster.open(given.dir)
    members = [cluster.member(name) for name in given.names]
    for member in members:
        if member.process.pid is None:
            raise LocalClusterError(f"{member.name} is not running")
    return members


def _logs(given: argparse.Namespace) -> int:
    cluster = LocalCluster.open(given.dir)
    logs = Logs([cluster.member(name) for name in given.names] or cluster.members)
    logs.show_last(given.lines)
    with contextlib.suppress(KeyboardInterrupt):
        while given.follow:
            time.sleep(LOG_POLL_S)
            logs.show_new()
    return 0


def _program(given: argparse.Namespace) -> Sequence[str]:
    """Return the command of the server's program."""
    return (given.program,) if given.program else NATSD
