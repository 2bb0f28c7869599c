"""Run scenarios by hand.

python -m tests.cluster_proof leader-killed --seconds 60 --seed 7
python -m tests.cluster_proof --list
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop

from natsd.local_cluster.process import NATSD
from tests.clients.target import GO_SERVER
from tests.cluster_proof.run import run
from tests.cluster_proof.scenarios import SCENARIOS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_proof", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="names of scenarios, or `all`")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--seconds", type=float, default=10.0, help="time in which things break")
    parser.add_argument("--seed", type=int, help="seed of what is chosen at random")
    parser.add_argument("--servers", type=int, help="number of servers")
    parser.add_argument("--binary", default=GO_SERVER, help="nats-server; default: natsd")
    parser.add_argument(
        "--keep", type=Path, help="new directory for the servers' files, which stay"
    )
    return parser.parse_args()


async def main(options: argparse.Namespace) -> int:
    """Run the scenarios; return how many had problems."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    names = list(SCENARIOS) if options.scenario == ["all"] else options.scenario
    program = (options.binary,) if options.binary else NATSD
    seed = int.from_bytes(os.urandom(4), "big") if options.seed is None else options.seed
    failed = 0
    for name in names:
        chosen = SCENARIOS[name]
        if options.servers:
            chosen = replace(chosen, servers=options.servers)
        with tempfile.TemporaryDirectory(prefix="natsd-proof-") as made:
            directory = options.keep.absolute() / name if options.keep else Path(made)
            directory.mkdir(parents=True, exist_ok=directory == Path(made))
            try:
                report = await run(chosen, directory, program, options.seconds, seed)
            except AssertionError as error:
                text, has_failed = f"{name}, seed {seed}: FAILED: {error}", True
            else:
                text, has_failed = "\n".join(report.lines()), bool(report.problems)
        print(text, flush=True)  # noqa: T201 — it talks to a person
        failed += has_failed
    return failed


if __name__ == "__main__":
    given = arguments()
    logging.basicConfig(format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("tests.cluster_proof").setLevel(logging.INFO)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # tasks that nats-py leaves behind
    if given.list or not given.scenario:
        lines = [
            f"{each.name:26}{(each.play.__doc__ or '').splitlines()[0]}"
            for each in SCENARIOS.values()
        ]
        print("\n".join(lines))  # noqa: T201 — it talks to a person
        sys.exit(not given.list)
    sys.exit(uvloop.run(main(given)))
