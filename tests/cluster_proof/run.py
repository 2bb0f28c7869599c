"""One run: a cluster, its load, faults, healing and checks."""

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster_proof import check
from tests.cluster_proof.journal import Journal
from tests.cluster_proof.key_value import BUCKET
from tests.cluster_proof.load import Load
from tests.cluster_proof.publishing import STREAM
from tests.cluster_proof.scenarios import Proof, Scenario, play
from tests.cluster_proof.servers import Servers, running_servers
from tests.cluster_proof.stored import Stored, read_replicas, sizes, states

SHOWN = 20


@dataclass(slots=True)
class Report:
    """What a run has shown."""

    scenario: str
    seed: int
    journal: Journal
    faults: int = 0
    stored: int = 0
    replicas_read: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        journal, recoveries = self.journal, sorted(self.journal.recoveries_s)
        yield f"{self.scenario}, seed {self.seed}: {self.faults} rounds in {self.seconds:.1f} s"
        yield (
            f"  {len(journal.acked)} publishes acknowledged of {len(journal.publishes)}, "
            f"{self.stored} stored, {self.replicas_read} replicas read"
        )
        yield f"  {len(journal.deliveries)} deliveries, {len(journal.confirmed_ns)} acks confirmed"
        reads = sum(map(len, journal.key_reads.values()))
        yield f"  {len(journal.key_writes)} compare-and-sets, {reads} reads of keys"
        if journal.aged_reads:
            oldest_s = max(each.age_ns for each in journal.aged_reads) / 1e9
            yield f"  {len(journal.aged_reads)} reads of a read replica, up to {oldest_s:.3f} s old"
        if recoveries:
            yield (
                f"  recovery: median {statistics.median(recoveries):.3f} s, "
                f"{recoveries[0]:.3f} to {recoveries[-1]:.3f} s, {len(recoveries)} times"
            )
        failures = ", ".join(f"{name} {number}" for name, number in journal.failures.items())
        yield f"  failures that clients saw: {failures or 'none'}"
        for note in self.notes:
            yield f"  note: {note}"
        for problem in self.problems[:SHOWN]:
            yield f"  PROBLEM {problem}"
        kinds = Counter(problem.partition(":")[0] for problem in self.problems)
        yield "  " + (", ".join(f"{kind} {n}" for kind, n in kinds.items()) or "no problem")


async def run(
    chosen: Scenario, directory: Path, program: Sequence[str], seconds: float, seed: int
) -> Report:
    """Run a scenario and check what clients were promised."""
    began = time.monotonic()
    async with running_servers(
        directory, chosen.servers, program, disk_bytes=chosen.disk_bytes
    ) as servers:
        load = Load(servers.urls, seed)
        report = Report(chosen.name, seed, load.journal)
        try:
            await load.create_streams(chosen.replicas, chosen.read_replicas)
            proof = Proof(servers, load, seed)
            with failures_alone():
                async with load.running():
                    await play(proof, chosen, seconds)
                    await servers.make_whole()
                    report.faults = proof.faults
            await judge(report, servers, load)
        finally:
            await load.close()
    report.seconds = time.monotonic() - began
    return report


@contextlib.contextmanager
def failures_alone() -> Iterator[None]:
    """Raise the first failure of an exception group, without the group."""
    try:
        yield
    except ExceptionGroup as group:
        failure = group.exceptions[0]
        raise failure from None


async def judge(report: Report, servers: Servers, load: Load) -> None:
    """Read all replicas, and add the problems to the report."""
    journal, problems = load.journal, report.problems
    streams = await _replicas(report, servers, load, STREAM)
    report.replicas_read = len(streams)
    for name, stored in streams.items():
        report.stored = len(stored)
        problems += (f"{each} (replica of {name})" for each in check.check_stream(journal, stored))
    problems += check.check_aged_reads(journal)
    problems += check.check_deliveries(journal, next(iter(streams.values())))
    buckets = await _replicas(report, servers, load, BUCKET)
    problems += check.check_keys(journal, next(iter(buckets.values())))
    report.notes += (f"reads: {each}" for each in check.check_key_reads(journal))
    if again := check.delivered_again(journal):
        report.notes.append(f"{again} deliveries of messages whose ack was confirmed before")


async def _replicas(
    report: Report, servers: Servers, load: Load, stream: str
) -> dict[str, list[Stored]]:
    """Return the content of each replica of a stream; problem: replicas that differ."""
    replicas = await read_replicas(servers, load.client, stream, load.replicas[stream])
    report.problems += (f"{each} ({stream})" for each in check.check_replicas(replicas))
    if len(replicas) < load.replicas[stream]:
        report.notes.append(f"{stream}: only the replicas of {', '.join(replicas)} were read")
    seen = {name: sizes(state) for name, state in (await states(servers, stream)).items()}
    if len(set(seen.values())) > 1:
        report.problems.append(f"replicas: {stream} has messages, first, last: {seen}")
    return replicas
