"""When to try again what failed: soon at first, then ever later.

    1st to 5th try again   0.25 s, 0.5 s, 1 s, 2 s, 2 s
    from the 6th on        10 s, 20 s, … 2 minutes

Up to 100 ms more by chance, so that a thousand streams do not ask at once. Source: reference §6.12
(10 s for each failure, no more than 2 minutes); that the first tries are quick is ours.
"""

from typing import Final

SECOND_NS: Final = 1_000_000_000
QUICK_NS: Final = (250_000_000, 500_000_000, SECOND_NS, 2 * SECOND_NS, 2 * SECOND_NS)
STEP_NS: Final = 10 * SECOND_NS
LONGEST_NS: Final = 120 * SECOND_NS
JITTER_NS: Final = 100_000_000


def retry_delay_ns(fails: int, chance: int) -> int:
    """After so many failures in a row, one at least; `chance` is any number."""
    assert fails > 0
    late = fails - len(QUICK_NS)
    delay_ns = QUICK_NS[fails - 1] if late <= 0 else min(STEP_NS * late, LONGEST_NS)
    return delay_ns + chance % JITTER_NS


def resume_delay_ns(setbacks: int, chance: int) -> int:
    """What worked was interrupted, so many times in a row: never longer than the quick tries."""
    return retry_delay_ns(min(max(setbacks, 1), len(QUICK_NS)), chance)
