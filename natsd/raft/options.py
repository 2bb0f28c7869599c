"""Limits and times of a group; all members of a group have the same."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Times are in ticks, which the driver makes."""

    election_ticks: int = 10
    """A follower that hears nothing for this long, and up to as long again, begins an election."""
    heartbeat_ticks: int = 2
    append_bytes_max: int = 1 << 20
    """Payload in one Append; a single larger entry goes alone."""
    in_flight_max: int = 64
    """Appends to one follower that are not acknowledged."""
    in_flight_bytes_max: int = 16 << 20
    log_bytes_max: int = 256 << 20
    """Payload in the log; a leader whose log is full takes no proposals until it is compacted.

    A follower takes no entries beyond twice as much.
    """
    trailing_bytes_max: int = 4 << 20
    """Payload behind a snapshot that stays in memory for followers that lag a little."""
    promotion_lag_max: int = 1000
    """Entries that a learner may lack when it becomes a voter."""
    snapshot_ticks: int = 100
    """A follower that does not acknowledge a snapshot for this long is probed again."""
    lease_reads: bool = False
    """A leader answers reads without asking, as long as no other can have been elected."""
    clock_drift_percent: int = 10
    """Largest difference between the speeds of two members' clocks; lease reads depend on it."""

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ticks < self.election_ticks
        assert self.in_flight_max > 0 and self.append_bytes_max > 0

    @property
    def lease_ticks(self) -> int:
        """Return how long a lease lasts, from sending the heartbeats that earned it."""
        return self.election_ticks * 100 // (100 + self.clock_drift_percent) - 1
