"""The files of a server's store, and damage to them while the server does not run.

    MESSAGES    blocks with the messages of the stream
    SNAPSHOTS   snapshots of RAFT groups, the meta group's among them
    RAFT        logs and states of RAFT groups

The patterns hold for natsd and for nats-server.
"""

import random
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from tests.cluster_proof.publishing import STREAM

FLIPS_MAX = 8

MESSAGES = (f"jetstream/**/streams/{STREAM}/msgs/*.blk",)
SNAPSHOTS = ("jetstream/**/snapshots/*",)
RAFT = (
    "jetstream/**/log.[0-9]*",  # natsd
    "jetstream/**/state.[0-9]*",
    "jetstream/**/_js_/*/msgs/*.blk",  # nats-server
    "jetstream/**/_js_/*/*.idx",
)


class Damage(Enum):
    """What happens to a file."""

    FLIP = "flip"
    TRUNCATE = "truncate"
    DELETE = "delete"


def matching(store: Path, patterns: Iterable[str]) -> list[Path]:
    """Return the files of these kinds that are not empty."""
    found = {path for pattern in patterns for path in store.glob(pattern) if path.is_file()}
    return sorted(path for path in found if path.stat().st_size)


def damage(path: Path, kind: Damage, chance: random.Random) -> None:
    """Damage one file."""
    if kind is Damage.DELETE:
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    if kind is Damage.TRUNCATE:
        del data[chance.randrange(len(data)) :]
    else:
        for _ in range(chance.randint(1, FLIPS_MAX)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
