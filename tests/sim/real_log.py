"""The real log of natsd.raft.storage on a simulated disk, as the storage of a simulated member.

    python -m tests.sim --real-log …       or Simulation(seed, new_disk=RealLog)
    python -m tests.sim --encrypted …      or Simulation(seed, new_disk=EncryptedLog)

A crash comes in the middle of a write, as often as not: some steps of it are done, their sectors
survive or not, each by itself, and the next start has to make sense of that. Damage is a flipped
bit or an unreadable sector anywhere in the member's files.
"""

import contextlib
import random
from pathlib import Path

from natsd.raft.entry import NOBODY, NOTHING, Entry, HardState, Snapshot
from natsd.raft.storage.raft_logs import NO_KEYS, GroupWrite, RaftLogs
from natsd.raft.storage.recovery import RecoveredGroup
from natsd.store.crypto.keys import KEY_FILE, OperatorKeys
from tests.sim.disk import Recovered
from tests.store.faulty_disk import FaultyDisk, PowerLoss

ROOT = Path("/raft")
GROUP = "g"
SEGMENT_BYTES = 4096
STEPS_MAX = 12
FORGOTTEN = RecoveredGroup(HardState(0, NOBODY), None, [])


class RealLog:
    """One member's log."""

    keys = NO_KEYS

    def __init__(self, snapshot: Snapshot) -> None:
        self.disk = FaultyDisk(snapshot.index)
        self.chance = random.Random(snapshot.index)
        self.logs = self.open()
        self.reported = 0
        self.recovered: Recovered | None = None
        if snapshot.index:
            self.put(snapshot)
        first = snapshot if snapshot.index else None
        self.logs.write([GroupWrite(GROUP, HardState(0, NOBODY), first)], self.report)
        self.issued = 1
        self.sync_all()
        self.numbers: dict[int, int] = {}
        self.restart(self.disk.kill())

    def open(self) -> RaftLogs:
        return RaftLogs.open(
            self.disk,
            ROOT,
            self.chance.randbytes,
            segment_bytes_max=SEGMENT_BYTES,
            keys=self.keys,
        )

    def report(self, error: Exception | None) -> None:
        assert error is None
        self.reported += 1

    def sync_all(self) -> None:
        while self.reported < self.issued:
            self.logs.wait()

    def put(self, snapshot: Snapshot) -> None:
        done: list[Exception | None] = []
        self.logs.put_snapshot(GROUP, snapshot, done.append)
        while not done:
            self.logs.wait()
        assert done == [None]

    def begin(self, write: GroupWrite) -> None:
        self.recovered = None
        self.issued += 1
        self.logs.write([write], self.report)

    # Storage

    def write(
        self,
        number: int,
        hard_state: HardState | None,
        snapshot: Snapshot | None,
        entries: tuple[Entry, ...],
    ) -> None:
        if snapshot is not None:
            self.put(snapshot)
        replaces = snapshot is not None
        self.begin(GroupWrite(GROUP, hard_state, snapshot, replaces, entries))
        self.numbers[number] = self.issued

    def sync(self, number: int) -> None:
        wanted = self.numbers[number]
        self.numbers = {n: at for n, at in self.numbers.items() if n > number}
        while self.reported < wanted:
            self.logs.wait()

    def compact(self, snapshot: Snapshot) -> None:
        self.put(snapshot)
        self.begin(GroupWrite(GROUP, snapshot=snapshot))

    def crash(self, rng: random.Random) -> None:
        self.chance.seed(rng.randrange(1 << 30))
        self.disk.power_fails_at = rng.randrange(STEPS_MAX)
        with contextlib.suppress(PowerLoss):
            self.sync_all()
        self.restart(self.disk.crash(rng.randrange(1 << 30)))

    def damage(self, rng: random.Random) -> str:
        disk = self.disk.kill()
        names = [name for name in disk.listdir(ROOT) if not name.startswith(KEY_FILE)]
        paths = [ROOT / name for name in names if "." in name]
        paths += [ROOT / "snapshots" / name for name in disk.listdir(ROOT / "snapshots")]
        path = rng.choice([path for path in paths if disk.open(path).size()])
        file = disk.open(path)
        at = rng.randrange(file.size())
        try:
            byte = file.pread(1, at)[0]
        except OSError:
            byte = 0  # it has been unreadable before; now it holds something else
        if rng.random() < 0.3:
            disk.spoil(path, offset=at)
        else:
            file.pwrite(bytes([byte ^ 1 << rng.randrange(8)]), at)
            file.fsync()
        self.restart(disk)
        return f"{path} at {at}"

    def restart(self, disk: FaultyDisk) -> None:
        self.disk, self.recovered = disk, None
        self.numbers.clear()

    def recover(self) -> Recovered:
        if self.recovered is None:
            self.issued = self.reported = 0
            self.logs = self.open()
            found = self.logs.take_recovered().get(GROUP, FORGOTTEN)
            snapshot = found.snapshot or NOTHING
            self.recovered = Recovered(found.hard_state, snapshot, tuple(found.entries))
        return self.recovered


class EncryptedLog(RealLog):
    """One member's log, which is encrypted."""

    keys = OperatorKeys(b"key of the operator")


FLAGS: dict[object, str] = {RealLog: " --real-log", EncryptedLog: " --encrypted"}
"""Flags of `python -m tests.sim` that run a seed again with such logs."""
