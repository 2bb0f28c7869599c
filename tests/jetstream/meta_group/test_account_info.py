"""The info of an account in a cluster, made of what each server knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from natsd.jetstream.meta_group.account_info import (
    NO_SHARE,
    LedStream,
    Share,
    cluster_info,
    read_shares,
)
from natsd.jetstream.meta_group.assignments import Assignment
from natsd.jetstream.models.account import AccountLimits, Tier
from natsd.jetstream.tiers import AccountTiers
from tests.jetstream.serving import account_of, serving

ONE = LedStream(replicas=1, copies=2, is_memory=False, bytes=10, consumers={1: 2})
THREE = LedStream(replicas=3, copies=4, is_memory=False, bytes=100, consumers={3: 1, 1: 3})
IN_MEMORY = LedStream(replicas=3, copies=3, is_memory=True, bytes=1000, consumers={})
SHARES = [Share([ONE, THREE], 5, 1), Share([IN_MEMORY], 7, 0)]


def assigned(name: str, **config: Any) -> Assignment:
    return Assignment("$G", name, msgspec.Raw(json.dumps(config).encode()), 1, ("n1",))


ASSIGNED = [
    assigned("A", num_replicas=0, max_bytes=20),
    assigned("B", num_replicas=3, max_bytes=-1),
    assigned("C", num_replicas=3, max_bytes=3000, storage="memory"),
    assigned("D", num_replicas=3, max_bytes=400),  # nobody leads it
]
TIERS: AccountTiers = {"R1": AccountLimits(max_storage=50), "R3": AccountLimits()}


async def test_all_replicas_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        info = cluster_info(account_of(jetstream), ASSIGNED, SHARES)
    assert (info.storage, info.memory) == (2 * 10 + 4 * 100, 3 * 1000)
    assert (info.reserved_storage, info.reserved_memory) == (420, 3000)
    assert (info.streams, info.consumers) == (4, 6)
    assert (info.api.total, info.api.errors, info.tiers) == (12, 1, {})


async def test_each_tier_has_its_part(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=TIERS) as jetstream:
        info = cluster_info(account_of(jetstream), ASSIGNED, SHARES)
    assert info.tiers == {
        "R1": Tier(storage=10, reserved_storage=20, streams=1, consumers=5, limits=TIERS["R1"]),
        "R3": Tier(
            storage=300,
            memory=3000,
            reserved_storage=400,
            reserved_memory=3000,
            streams=3,
            consumers=1,
            limits=TIERS["R3"],
        ),
    }
    assert (info.streams, info.consumers) == (4, 6)


def test_answers_that_are_not_understood_are_left_out() -> None:
    good = msgspec.json.encode(SHARES[0])
    nonsense = [
        b"",
        b"[]",
        b"\xff",
        b'{"streams":[]}',
        good.replace(b'"bytes":10,', b'"bytes":-10,'),
        good.replace(b'"bytes":10,', b'"bytes":10000000000000000000000,'),
    ]
    assert read_shares([nonsense[0], good, *nonsense, NO_SHARE]) == [SHARES[0], Share([], 0, 0)]
