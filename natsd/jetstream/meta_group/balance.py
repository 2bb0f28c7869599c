"""Balance: a server that leads more than its share of streams hands some over.

After a server was restarted it leads nothing, and the others lead what it did. The first server of
an assignment is the one that should lead, because placement spread these. A leader that somebody
moved on purpose stays where it is as long as its server has no more than its share.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from natsd.jetstream.meta_group.assignments import Assignment

BALANCED_EVERY_S: Final = 15.0


def to_hand_over(
    server: str,
    led: Iterable[Assignment],
    share: int,
    may_lead: Callable[[Assignment], bool],
) -> list[Assignment]:
    """Return the streams that a server hands over to the first of their servers.

    `led` are those that it leads; `share` is how many it should lead. `may_lead` tells whether the
    first server of a stream is there, and lacks nothing.
    """
    streams = list(led)
    too_many = max(len(streams) - share, 0)
    others = (each for each in streams if each.servers[0] != server and may_lead(each))
    return list(islice(others, too_many))
