"""The simulator from the command line.

python -m tests.sim --seed 7 [--trace]       one seed; its history, event by event
python -m tests.sim --seeds 10000 --jobs 2   many seeds, from --first on (fresh ones by default)
python -m tests.sim --real-log …             members write natsd.raft.storage on simulated disks
python -m tests.sim --encrypted …            the same, with a key
python -m tests.sim --mutations              each planted bug, and the invariant that catches it
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.disk import ModelDisk, NewDisk
from tests.sim.mutations import MUTATIONS, hunt
from tests.sim.real_log import FLAGS, EncryptedLog, RealLog
from tests.sim.simulation import Result, Simulation, simulate

SHOWN_MAX = 10


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="run this seed")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--real-log", action="store_true", help="members write the real log")
    parser.add_argument("--encrypted", action="store_true", help="and encrypt it")
    parser.add_argument("--mutations", action="store_true", help="hunt the planted bugs")
    arguments = parser.parse_args()
    if arguments.mutations:
        return run_mutations(arguments.jobs)
    new_disk: NewDisk = RealLog if arguments.real_log else ModelDisk
    if arguments.encrypted:
        new_disk = EncryptedLog
    if arguments.seed is not None:
        return run_one(arguments.seed, arguments.trace, new_disk)
    first = arguments.first
    if first is None:
        first = int.from_bytes(os.urandom(6), "big")
    return run_many(first, arguments.seeds, arguments.jobs, new_disk)


def run_one(seed: int, trace: bool, new_disk: NewDisk) -> int:
    simulation = Simulation(seed, trace, new_disk)
    result = simulation.run()
    for line in simulation.world.lines or ():
        say(line)
    say(result)
    return bool(result.violation)


def run_many(first: int, count: int, jobs: int, new_disk: NewDisk) -> int:
    began = time.monotonic()
    kinds: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        run = partial(simulate, new_disk=new_disk)
        for result in pool.map(run, range(first, first + count), chunksize=20):
            add(totals, result)
            if result.violation:
                kinds[result.violation] += 1
                if kinds.total() <= SHOWN_MAX:
                    say(result.detail[:500])
                    flag = FLAGS.get(new_disk, "")
                    say(f"    python -m tests.sim{flag} --seed {result.seed} --trace")
    elapsed_s = time.monotonic() - began
    say(
        f"{count:,} seeds from {first} in {elapsed_s:.0f} s ({count / elapsed_s:.0f} a second): "
        + ", ".join(f"{number:,} {name}" for name, number in totals.items())
    )
    say("violations:", dict(kinds) or "none")
    return bool(kinds)


def add(totals: "Counter[str]", result: Result) -> None:
    totals["operations of clients"] += result.operations
    totals["committed entries"] += result.committed
    totals["leaders"] += result.leaders
    totals["groups stopped by damage"] += result.stopped
    totals["histories too long to decide"] += result.undecided


def run_mutations(jobs: int) -> int:
    missed = 0
    say("| planted bug | caught by | seeds needed |\n|---|---|---|")
    with ProcessPoolExecutor(jobs) as pool:
        for mutation, (result, tried) in zip(MUTATIONS, pool.map(hunt, MUTATIONS), strict=True):
            caught = result.violation if result else "nothing"
            missed += result is None
            say(f"| {MUTATIONS[mutation].says} | {caught} | {tried} |")
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
