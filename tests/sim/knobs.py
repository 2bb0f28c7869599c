"""What a seed draws: which faults are on, and how strong. Each seed is another kind of bad day.

Times are in units; a nominal tick takes TICK units.
"""

import random
from dataclasses import dataclass

from natsd.raft.options import Options

TICK = 100


@dataclass(frozen=True, slots=True)
class Knobs:
    members: int
    clients: int
    keys: int
    options: Options
    ticks: int
    """How long faults last; what follows must heal."""
    delay_max: int
    straggle: float
    """Share of messages that take up to ten times as long."""
    loss: float
    duplicate: float
    skew: float
    """How much faster or slower than nominal a member's clock may run."""
    disk_delay_max: int
    """0: a sync returns at once."""
    fault_every: int
    """Mean time between faults."""
    faults: dict[str, float]
    """Weights of the kinds of faults that are on."""
    down_max: int
    """Longest time that a crashed member stays down."""
    quiesce: float
    """Chance that an idle leader tries to quiesce, at each tick."""
    compact_after: int
    """Entries behind the snapshot at which a member compacts; 0: never."""
    unlimited_damage: bool
    """Even a majority may be damaged; then the group may stop."""


KINDS = {
    "partition": 3.0,
    "asymmetric": 2.0,
    "isolate_leader": 2.0,
    "heal": 3.0,
    "crash": 4.0,
    "crash_leader": 2.0,
    "crash_all": 0.5,
    "damage": 3.0,
    "last_copy": 1.0,
    "transfer": 3.0,
    "add": 3.0,
    "promote": 4.0,
    "remove": 2.0,
    "pause": 2.0,
    "observer": 1.0,
}


def draw_knobs(rng: random.Random) -> Knobs:
    def maybe(chance: float, value: float) -> float:
        return value if rng.random() < chance else 0.0

    election_ticks = rng.choice([5, 8, 10])
    lease = rng.random() < 0.3
    skew = 0.045 if lease else maybe(0.5, rng.choice([0.05, 0.2, 0.5]))
    faults = {kind: weight for kind, weight in KINDS.items() if rng.random() < 0.6}
    if "add" in faults:
        faults["promote"] = KINDS["promote"]
    options = Options(
        election_ticks=election_ticks,
        heartbeat_ticks=rng.choice([1, 2, 2, 3]),
        append_bytes_max=rng.choice([4, 16, 64, 1 << 20]),
        in_flight_max=rng.choice([1, 2, 8, 64]),
        log_bytes_max=rng.choice([200, 1 << 20]),
        trailing_bytes_max=rng.choice([0, 20, 1000]),
        promotion_lag_max=rng.choice([0, 5, 1000]),
        snapshot_ticks=election_ticks * 2,
        lease_reads=lease,
        clock_drift_percent=10,
    )
    return Knobs(
        members=rng.choice([1, 2, 3, 3, 3, 3, 4, 5, 5, 7]),
        clients=rng.choice([1, 2, 3, 5]),
        keys=rng.choice([1, 2, 3]),
        options=options,
        ticks=rng.choice([60, 100, 150, 200, 300]),
        delay_max=rng.choice([10, 50, 100, 200]),
        straggle=maybe(0.5, rng.choice([0.01, 0.1])),
        loss=maybe(0.5, rng.choice([0.01, 0.05, 0.2])),
        duplicate=maybe(0.4, rng.choice([0.02, 0.2])),
        skew=skew,
        disk_delay_max=rng.choice([0, 0, 20, 100, 400]),
        fault_every=rng.choice([300, 600, 1000, 2000]),
        faults=faults,
        down_max=rng.choice([100, 500, 1500]),
        quiesce=maybe(0.3, rng.choice([0.02, 0.2])),
        compact_after=rng.choice([0, 5, 20]) if options.log_bytes_max > 200 else 20,
        unlimited_damage=rng.random() < 0.05,
    )
