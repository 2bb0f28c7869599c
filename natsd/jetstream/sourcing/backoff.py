"""Delays before retries: short at first, then growing.

    1st to 5th retry     0.25 s, 0.5 s, 1 s, 2 s, 2 s
    from the 6th on      10 s, 20 s, … 2 minutes

Up to 100 ms are added at random, so that a thousand streams do not ask at once. The growth (10 s
for each failure, at most 2 minutes) is that of nats-server's `calculateRetryBackoff`; the quick
first retries are natsd's own.
"""

from typing import Final

SECOND_NS: Final = 1_000_000_000
QUICK_NS: Final = (250_000_000, 500_000_000, SECOND_NS, 2 * SECOND_NS, 2 * SECOND_NS)
STEP_NS: Final = 10 * SECOND_NS
LONGEST_NS: Final = 120 * SECOND_NS
JITTER_NS: Final = 100_000_000


def retry_delay_ns(fails: int, chance: int) -> int:
    """Return the delay after `fails` consecutive failures, at least one; `chance` is any number."""
    assert fails > 0
    late = fails - len(QUICK_NS)
    delay_ns = QUICK_NS[fails - 1] if late <= 0 else min(STEP_NS * late, LONGEST_NS)
    return delay_ns + chance % JITTER_NS


def resume_delay_ns(setbacks: int, chance: int) -> int:
    """Return the delay after `setbacks` consecutive interruptions of a working link.

    It is never longer than the delays of the quick retries.
    """
    return retry_delay_ns(min(max(setbacks, 1), len(QUICK_NS)), chance)
