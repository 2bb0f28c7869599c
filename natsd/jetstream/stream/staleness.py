"""How old the state of a read replica may be: an upper bound, which its answers carry.

    t0   the replica asks what is committed ─▶ the leader, which a majority confirms
    t1   all of that is applied here, and visible        ─▶ proven(t0)
    t2   an answer                                       ─▶ Natsd-Staleness: t2 - t0

Promise
- An answer contains everything that was acknowledged before the moment it names. That holds in any
  partition: a leader that was deposed gets no majority, so it proves nothing, and the age grows.
- Times are those of one monotonic clock, of this server. While the machine itself sleeps, that
  clock may stand still.

Source: docs/raft.md ("Reads").
"""

import math
from collections.abc import Callable
from typing import Final, TypeAlias

HEADER: Final = "Natsd-Staleness"

AgeLine: TypeAlias = Callable[[], bytes]
"""Returns the header line that says how old the state may be at this moment."""


class Staleness:
    """The age of a replica's state."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Measure with `clock`, which returns seconds; nothing is proven yet."""
        self._clock = clock
        self.proven_s = -math.inf
        """Time of the clock up to which everything committed is here; -inf: nothing is proven."""

    def proven(self, moment_s: float) -> None:
        """Note that the state has everything that was committed before a moment."""
        self.proven_s = moment_s

    def age(self) -> str:
        """Return how old the state may be at this moment, in seconds: `0.412s`."""
        return _shown(self._clock() - self.proven_s)

    def line(self) -> bytes:
        """Return the header line for what is read at this moment."""
        return self._line(self.proven_s)

    def pinned(self) -> AgeLine:
        """Return what makes the header lines of an answer whose reading begins now.

        Such an answer may take a while: what is proven meanwhile is no part of it.
        """
        moment_s = self.proven_s
        return lambda: self._line(moment_s)

    def _line(self, moment_s: float) -> bytes:
        return f"{HEADER}: {_shown(self._clock() - moment_s)}\r\n".encode()


def _shown(age_s: float) -> str:
    return f"{math.ceil(age_s * 1000) / 1000:.3f}s"
