"""Entry points of `storeDir`: a store directory that no server uses, or a snapshot of a stream.

    plans = plan_streams("/var/lib/nats", ["ORDERS"])
    ranges = plans[0].ranges(plans[0].request(), min_partitions=4)
    batches = read_store(ranges[0], ["seq", "subject"])      # in any process that sees the files

All functions block on the disk. They raise StoreNotReadable, StoreError, OSError.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from natsd.spark.stored.snapshot_plan import find_snapshot, plan_snapshot, stream_of
from natsd.spark.stored.store_plan import GLOBAL_ACCOUNT, StoreDirectory
from natsd.spark.stored.stored_ranges import (
    NO_KEYS,
    StoreKeys,
    StoreNotReadable,
)
from natsd.spark.stored.stored_stream_plan import StoredStreamPlan


def list_streams(
    path: str | Path, account: str = GLOBAL_ACCOUNT, keys: StoreKeys = NO_KEYS
) -> list[str]:
    """Return the names of the account's streams, sorted; a snapshot has one, for any account."""
    if find_snapshot(Path(path)) is not None:
        return [stream_of(path)]
    with StoreDirectory(path, keys) as directory:
        return directory.streams(account)


def plan_streams(
    path: str | Path,
    streams: Iterable[str] | None = None,
    account: str = GLOBAL_ACCOUNT,
    keys: StoreKeys = NO_KEYS,
) -> list[StoredStreamPlan]:
    """Return the plans of the streams, in that order; None: of all streams."""
    if find_snapshot(Path(path)) is None:
        with StoreDirectory(path, keys) as directory:
            wanted = directory.streams(account) if streams is None else streams
            return [directory.plan(stream, account) for stream in wanted]
    plan = plan_snapshot(path)
    for stream in streams or ():
        if stream != plan.stream:
            raise StoreNotReadable(f'there is no stream "{stream}" in {path}: it is {plan.stream}')
    return [plan]
