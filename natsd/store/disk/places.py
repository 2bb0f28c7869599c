"""The place of a file in a store directory: what its content, its copy and its key are bound to.

    <account>/streams/<stream>/…                  the place is the path below the store directory
    <account>/superseded/<stream>.<group>/…       the place is the one that it had among the streams

A replica's files are set aside like that, as a whole, when its group was rescued without it; they
must be readable afterwards, also if they are encrypted.
"""

from pathlib import Path
from typing import Final

STREAMS: Final = "streams"
"""Directory of an account for its streams."""
SUPERSEDED: Final = "superseded"
"""Directory of an account for the files of replicas whose group was rescued without them."""


def place_in(root: Path, path: Path) -> str:
    """Return the place of a file or directory in the store directory `root`."""
    below = path.relative_to(root)
    if len(below.parts) > 2 and below.parts[1] == SUPERSEDED:
        account, _, moved, *rest = below.parts
        below = Path(account, STREAMS, moved.rpartition(".")[0], *rest)
    return below.as_posix()
