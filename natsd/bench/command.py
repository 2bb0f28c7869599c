"""The `natsd bench` command: its options, and the steps of a run."""

import argparse
import contextlib
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from natsd.bench import cores, plot, report
from natsd.bench.arms import AnyArm, ArmError, Confinable, command_arm, remote_arm
from natsd.bench.compare import Comparison, Plan, RowResult
from natsd.bench.machine import Machine, clients_max, core_count
from natsd.bench.rows import QUICK, Row, Scale, all_rows, select

DESCRIPTION = """\
Measure natsd, alone or side by side with other NATS servers.

Load comes from raw sockets in processes of their own, with frames encoded beforehand. Servers
take turns, round by round, and the table shows medians; the ratio is natsd's median divided by
that of the best other server in the row. A run that loses a message does not count.
"""

EXAMPLES = """\
examples:
  natsd bench                                  natsd alone
  natsd bench --vs nats-server --goals         side by side, with the project's goals
  natsd bench --vs nats-server --row '1-1-*'   only some rows (--list names them)
  natsd bench --connect nats://127.0.0.1:4222  a server that runs already
  natsd bench --vs nats-server --cores         how many cores the other server needs to overtake
  natsd bench --sublist                        the routing trie alone, by number of subscriptions
  natsd bench --store --goals                  the store alone, by number of messages
  natsd bench --raft --goals                   RAFT alone: three processes on this machine
  natsd bench --jetstream --vs nats-server     streams and consumers, side by side
  natsd bench --vs nats-server --row 'r3-*'    streams with three replicas, side by side
  natsd bench --monitoring --vs nats-server    scrapes of the monitoring port, side by side
  natsd bench --spark --goals                  streams in Spark, beside nats-py and Parquet
"""

QUICK_PLAN = Plan(rounds=1, run_seconds=0.3)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="natsd bench",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    servers = result.add_argument_group("servers")
    servers.add_argument(
        "--vs",
        metavar="PROGRAM",
        action="append",
        default=[],
        help="also measure this server: a program that takes -p PORT and -a ADDRESS, or a "
        "command with {port} in it; may be given several times",
    )
    servers.add_argument(
        "--server",
        metavar="PROGRAM",
        default="natsd",
        help="measure this server in natsd's place",
    )
    servers.add_argument(
        "--connect", metavar="URL", help="measure a running server in natsd's place"
    )
    servers.add_argument(
        "--pin",
        metavar="N",
        type=int,
        help="give the servers the first N cores and the load the others (Linux)",
    )
    _add_what(result.add_argument_group("what to measure"))
    shown = result.add_argument_group("results")
    shown.add_argument("--goals", action="store_true", help="show goals; mark rows that miss one")
    shown.add_argument(
        "--check",
        action="store_true",
        help="exit with status 1 if a row misses its goal",
    )
    shown.add_argument("--json", metavar="FILE", type=Path, help="save everything measured")
    shown.add_argument("--plot", metavar="FILE", type=Path, help="save a plot as SVG")
    return result


def _add_what(what: "argparse._ArgumentGroup") -> None:
    what.add_argument(
        "--row",
        metavar="KEY",
        action="append",
        default=[],
        help="only rows whose key matches, e.g. 1-1-128 or '1-1-*'; may be given several times",
    )
    what.add_argument("--list", action="store_true", help="list the rows and stop")
    what.add_argument("--rounds", metavar="N", type=int, help="rounds per row (3)")
    what.add_argument("--seconds", metavar="S", type=float, help="aim at S seconds per run (1)")
    what.add_argument(
        "--clients",
        metavar="N",
        type=int,
        help="clients of the connection rows (10,000)",
    )
    what.add_argument("--quick", action="store_true", help="one short round of smaller rows")
    what.add_argument(
        "--cores",
        action="store_true",
        help="run the other server with 1, 2, … all cores",
    )
    what.add_argument("--sublist", action="store_true", help="measure the routing trie alone")
    what.add_argument("--store", action="store_true", help="measure the store alone")
    what.add_argument("--raft", action="store_true", help="measure RAFT alone, three processes")
    what.add_argument(
        "--jetstream",
        action="store_true",
        help="measure streams and consumers; --server and --vs are then programs",
    )
    what.add_argument(
        "--monitoring",
        action="store_true",
        help="measure scrapes of the monitoring endpoints",
    )
    what.add_argument(
        "--spark",
        action="store_true",
        help="measure the Spark data source; --server and --vs are then programs",
    )
    what.add_argument(
        "--directory",
        metavar="DIR",
        type=Path,
        help="where --store, --jetstream and --spark make their files (temporary)",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` and return the exit status."""
    options = parser().parse_args(argv)
    try:
        with ended_in_order():
            return carry_out(options)
    except ArmError as error:
        sys.stderr.write(f"natsd bench: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def carry_out(options: argparse.Namespace) -> int:
    """Run the part of the benchmark that the options select and return the exit status."""
    if options.sublist:
        return run_sublist(quick=options.quick)
    if options.store:
        return run_store(options)
    if options.raft:
        return run_raft(options)
    if options.spark:
        from natsd.bench.spark.command import run_spark

        return run_spark(options)
    every = every_row(options)
    rows = select(every, row_patterns(options))
    if not rows:
        raise ArmError("no row matches; --list shows them")
    if options.list:
        list_rows(rows if options.row else every)
        return 0
    return run(options, rows)


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C in the `with`, so that servers and load processes are stopped too.

    Outside the main thread this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(options: argparse.Namespace, rows: list[Row]) -> int:
    """Measure the rows, show them, and return the exit status."""
    if options.connect:
        rows = [row for row in rows if row.value not in ("idle_bytes", "start_ms")]
    status = report.Status()
    machine = Machine.here_and_now()
    results: list[RowResult] = []
    with contextlib.ExitStack() as stack:
        if options.pin:
            stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        for comparison, group in comparisons(options, rows, status):
            comparison.read_versions()
            results += [result for each in comparison.run(group) for result in each]
    status.clear()
    results.sort(key=lambda result: rows.index(result.row))
    show(options, machine, comparison, results)
    return 1 if options.check and any(result.misses_goal for result in results) else 0


def comparisons(
    options: argparse.Namespace, rows: list[Row], status: report.Status
) -> Iterator[tuple[Comparison, list[Row]]]:
    """Yield each comparison of servers, with the rows that it measures."""
    if options.jetstream:
        from natsd.bench.jetstream.arms import jetstream_arms
        from natsd.bench.jetstream.rows import by_sync

        if options.connect or options.cores:
            raise ArmError("--jetstream starts the servers itself, on all cores")
        for sync, group in by_sync(rows):
            starting = jetstream_arms([options.server, *options.vs], sync, options.directory)
            yield Comparison(pinned(starting, options), plan(options), status), group
    else:
        yield Comparison(pinned(chosen_arms(options), options), plan(options), status), rows


def show(
    options: argparse.Namespace,
    machine: Machine,
    comparison: Comparison,
    results: list[RowResult],
) -> None:
    """Print header, table and notes; then write the JSON and SVG files that the options name."""
    labels = comparison.labels
    compared, goals = len(labels) > 1, options.goals or options.check
    how = f"{comparison.plan.rounds} round(s), about {comparison.plan.run_seconds:g} s per run"
    if options.pin:
        how += f"; servers on {options.pin} core(s), load on the others"
    sys.stdout.write(f"{machine}\n{how}; medians\n")
    report.print_table(
        report.headings(labels, compared, goals),
        report.table_rows(results, compared, goals),
        sys.stdout,
    )
    lines = report.notes(results, labels)
    if options.cores:
        steps = cores.core_steps(options.pin or machine.cores)
        lines += cores.verdicts(results, steps, machine.cores)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if options.json:
        report.write_json(options.json, report.as_json(machine, comparison.plan, labels, results))
    if options.plot:
        plot.write_svg(options.plot, " vs ".join(labels), str(machine), results)


def scale(options: argparse.Namespace) -> Scale:
    """Return the sizes of the rows, with no more clients than this machine's file limit allows."""
    chosen = QUICK if options.quick else Scale()
    clients = options.clients or chosen.clients
    allowed = clients_max()
    if clients > allowed:
        sys.stderr.write(f"natsd bench: open files are limited here; {allowed:,} clients\n")
    return replace(chosen, clients=min(clients, allowed))


def plan(options: argparse.Namespace) -> Plan:
    """Return the number of rounds and the seconds per run."""
    chosen = QUICK_PLAN if options.quick else Plan()
    return Plan(options.rounds or chosen.rounds, options.seconds or chosen.run_seconds)


def row_patterns(options: argparse.Namespace) -> list[str]:
    """Return the patterns of the rows to measure; an empty list: all standard rows."""
    if options.cores and not options.row:
        return cores.ROW_PATTERNS
    patterns: list[str] = options.row
    return patterns


def chosen_arms(options: argparse.Namespace) -> list[AnyArm]:
    """Return our server first, then the servers it is compared with."""
    ours = remote_arm(options.connect) if options.connect else command_arm(options.server)
    others: list[AnyArm] = [command_arm(text) for text in options.vs]
    if not options.cores:
        return [ours, *others]
    if len(others) != 1:
        raise ArmError("--cores needs exactly one --vs")
    return cores.arms_by_cores(ours, others[0], options.pin or core_count())


def pinned(arms: Sequence[AnyArm], options: argparse.Namespace) -> list[AnyArm]:
    """Confine the servers to the first cores, and this process to the others (`--pin`).

    Load processes inherit the cores of this process. Raises ArmError if no core is left for the
    load, or on systems other than Linux.
    """
    count = options.pin
    if not count:
        return list(arms)
    if sys.platform != "linux":
        raise ArmError("--pin needs Linux")
    available = sorted(os.sched_getaffinity(0))
    if not 0 < count < len(available):
        raise ArmError(f"--pin must leave a core for the load: 1 to {len(available) - 1} here")
    servers, load = frozenset(available[:count]), available[count:]
    os.sched_setaffinity(0, load)
    return [arm.confined(servers) if isinstance(arm, Confinable) else arm for arm in arms]


def every_row(options: argparse.Namespace) -> list[Row]:
    """Return the rows of the table that the options select."""
    if options.jetstream:
        from natsd.bench.jetstream import rows

        return rows.all_rows(rows.QUICK if options.quick else rows.JetStreamScale())
    if options.monitoring:
        from natsd.bench import monitoring

        return monitoring.all_rows(scale(options))
    from natsd.bench.replicated import rows as replicated

    return all_rows(scale(options)) + replicated.all_rows(scale(options))


def list_rows(rows: list[Row]) -> None:
    """Print the key, title and goal of each row."""
    texts = [[row.key, row.title, row.goal_text] for row in rows]
    report.print_table(["key", "row", "goal"], texts, sys.stdout)


def run_sublist(*, quick: bool) -> int:
    """Run the micro-benchmark of the SubList and return the exit status."""
    from natsd.bench import sublist

    sizes = sublist.SIZES[:-1] if quick else sublist.SIZES
    rows = sublist.run(sizes)
    head = [field.name.replace("_", " ") for field in dataclasses.fields(rows[0])]
    texts = [[number_text(value) for value in dataclasses.astuple(row)] for row in rows]
    sys.stdout.write(f"{Machine.here_and_now()}\n")
    report.print_table(head, texts, sys.stdout)
    return 0


def number_text(value: float | str) -> str:
    """Return a number as the table shows it; a zero float means "not measured" and is empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if value else ""


def run_store(options: argparse.Namespace) -> int:
    """Measure the store, print the table, and return the exit status."""
    from natsd.bench import store

    sizes = store.QUICK_SIZES if options.quick else store.SIZES
    goals = options.goals or options.check
    sys.stdout.write(f"{Machine.here_and_now()}\n")
    results = store.run(sizes, options.directory)
    head = ["", *(f"{size:,}" for size in sizes), *(["goal"] if goals else [])]
    report.print_table(head, store.texts(results, goals=goals), sys.stdout)
    missed = any(store.misses_goal(row, results) for row in store.ROWS)
    return 1 if options.check and missed else 0


def run_raft(options: argparse.Namespace) -> int:
    """Measure RAFT alone, print the table, and return the exit status."""
    from natsd.bench.raft import measure

    goals = options.goals or options.check
    sys.stdout.write(f"{Machine.here_and_now()}\n")
    seconds = options.seconds or (measure.QUICK_SECONDS if options.quick else measure.SECONDS)
    values = measure.run(options.directory, seconds)
    head = ["", "", *(["goal"] if goals else [])]
    report.print_table(head, measure.texts(values, goals=goals), sys.stdout)
    return 1 if options.check and measure.misses_goal(values) else 0
