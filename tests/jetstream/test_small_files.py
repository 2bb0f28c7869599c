"""Damage to any small file of a store costs no acknowledged message (docs/store.md).

Each small file is lost, cut, emptied, zeroed, flipped, replaced by its older version and by another
asset's file; the store starts with everything that was acknowledged.

With NATSD_TORTURE each file is damaged alone. Otherwise one file of each stream is damaged at a
time, and only a selection of files.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest

from natsd.jetstream.jetstream import JetStream
from natsd.store.disk.twin_file import COPY_SUFFIX, copy_of
from tests.jetstream.serving import serving
from tests.jetstream.small_stores import StoppedStore, check, make_store
from tests.store.crash import TORTURE

pytestmark = pytest.mark.torture

SETTINGS: Final[dict[str, dict[str, Any]]] = {"plain": {}, "encrypted": {"key": "a key"}}
ROUNDS: Final = 2
"""Starts of each kind of damage, if files are not damaged alone."""

Change = Callable[[StoppedStore, Path], bytes | None]
"""A function from a file's path in the store to its damaged bytes; None: the file is removed."""


def flipped(store: StoppedStore, name: Path) -> bytes:
    data = bytearray((store.root / name).read_bytes())
    data[min(40, len(data) - 1)] ^= 4
    return bytes(data)


def older(store: StoppedStore, name: Path) -> bytes | None:
    path = store.older / name
    return path.read_bytes() if path.exists() else (store.root / name).read_bytes()


def anothers(store: StoppedStore, name: Path) -> bytes | None:
    """Return the file of the same name of the next stream or consumer."""
    same = sorted(path for path in store.root.rglob(name.name) if path.is_file())
    return same[(same.index(store.root / name) + 1) % len(same)].read_bytes()


def size_of(store: StoppedStore, name: Path) -> int:
    return (store.root / name).stat().st_size


WOUNDS: Final[dict[str, Change]] = {
    "missing": lambda store, name: None,
    "empty": lambda store, name: b"",
    "cut": lambda store, name: (store.root / name).read_bytes()[: size_of(store, name) // 3],
    "zeros": lambda store, name: bytes(size_of(store, name)),
    "flipped": flipped,
    "older": older,
    "another's": anothers,
}


def small_files(root: Path) -> list[Path]:
    """Return all files except the blocks, which hold messages, and the lock."""
    found = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return sorted(name for name in found if name.suffix not in (".blk", ".lock"))


def groups(root: Path) -> Iterator[list[Path]]:
    """Yield each file alone, or the first file of each stream, then the second, and so on."""
    names = small_files(root)
    if TORTURE > 1:
        yield from ([name] for name in names)
        return
    by_stream = defaultdict[str, list[Path]](list)
    for name in names:
        by_stream[name.parts[3]].append(name)
    together = [[name for name in row if name] for row in zip_longest(*by_stream.values())]
    yield from together


@pytest.fixture(params=SETTINGS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoppedStore:
    return await make_store(tmp_path, **SETTINGS[request.param])


@asynccontextmanager
async def wounded(
    store: StoppedStore, root: Path, wound: str, names: list[Path]
) -> AsyncIterator[JetStream]:
    """Yield a server on a copy of the store in which these files are damaged."""
    store.copy_to(root)
    for name in names:
        data = WOUNDS[wound](store, name)
        if data is None:
            (root / name).unlink()
        else:
            (root / name).write_bytes(data)
    async with serving(root, **store.settings) as jetstream:
        yield jetstream


def must_be_told(store: StoppedStore, wound: str, name: Path) -> bool:
    """Return whether the log must report the damage.

    A log's end may be torn without a report, and index.db only speeds up the start.
    """
    if name.name == "index.db" or (name.suffix == ".log" and wound not in ("missing", "another's")):
        return False
    return WOUNDS[wound](store, name) != (store.root / name).read_bytes()


@pytest.mark.parametrize("wound", WOUNDS)
async def test_no_small_file_takes_anything_with_it(
    store: StoppedStore, wound: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, chosen = tmp_path / "wounded", list(groups(store.root))
    if TORTURE == 1:
        first = list(WOUNDS).index(wound)
        chosen = [chosen[(first + 3 * each) % len(chosen)] for each in range(ROUNDS)]
    for names in chosen:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            async with wounded(store, root, wound, names) as jetstream:
                forgetful = {name.parts[5] for name in names if name.suffix == ".log"}
                await check(jetstream, store.expected, repeated=forgetful)
        for name in names:
            if must_be_told(store, wound, name):
                assert any(str(root / name) in line for line in caplog.messages), name
        twins = list(root.rglob(f"*{COPY_SUFFIX}"))
        assert twins
        for path in twins:
            first_file = path.with_name(path.name.removesuffix(COPY_SUFFIX))
            assert copy_of(first_file).read_bytes() == first_file.read_bytes(), path


async def test_every_kind_of_file_is_wounded(store: StoppedStore) -> None:
    """Every kind of stored file is damaged here: a new kind must be added to this test."""
    kinds = {"0.log" if name.suffix == ".log" else name.name for name in small_files(store.root)}
    twins = {"meta.json", "duplicates.db", "schedules.db", "sources.db", "state.db"}
    if store.settings:
        twins.add("key.db")
    assert kinds == {"0.log", "index.db"} | twins | {name + COPY_SUFFIX for name in twins}


async def test_another_streams_index_costs_no_block(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If index.db and the only block disagree, the stream that index.db names decides."""
    store = await make_store(tmp_path)
    name = next(name for name in small_files(store.root) if name.match("LIMITS/msgs/index.db"))
    async with wounded(store, tmp_path / "wounded", "another's", [name]) as jetstream:
        await check(jetstream, store.expected, repeated=set())
    assert any(f"{name}: of another stream" in line for line in caplog.messages)
