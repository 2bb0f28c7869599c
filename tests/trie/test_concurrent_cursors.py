"""Cursors in threads of their own while a writer is at work: nothing is torn or lost.

Readers take no lock. Every walk sees each key that is there all the time once and in order, with a
content that was put there.
"""

import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice

import pytest

from natsd.trie.errors import StaleCursor
from natsd.trie.in_memory import InMemoryTrie, PatternCursor, RecordTrie
from natsd.trie.views import entries, subtrie

STABLE = [f"{region}.{n:03}.x".encode() for region in ("eu", "us") for n in range(0, 400, 2)]
WRITES = 60_000


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    """Let threads switch every few writes; otherwise a writer ends after two or three turns."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(20e-6)
    yield
    sys.setswitchinterval(interval)


def other_keys(seed: int) -> Iterator[bytes]:
    """Yield keys around the stable ones, so that every node that leads to these changes."""
    rng = random.Random(seed)
    while True:
        region = rng.choice(["eu", "us", "e", "eux", "z"])
        tail = rng.choice(["", ".x.y", ".w", ".y", "x"])
        yield f"{region}.{rng.randrange(400):03}{tail}".encode()


def record_of(n: int) -> bytes:
    return n.to_bytes(8, "big") * 2


def write(trie: RecordTrie | InMemoryTrie[bytes]) -> None:
    """Put and delete keys around the stable ones, and overwrite stable ones at times."""
    rng = random.Random(7)
    present: set[bytes] = set()
    for n, key in enumerate(islice(other_keys(11), WRITES)):
        if key in present and rng.random() < 0.7:
            trie.delete(key)
            present.discard(key)
        else:
            trie.put(key, record_of(n))
            present.add(key)
        if n % 50 == 0:
            trie.put(STABLE[n % len(STABLE)], record_of(n))


def until(done: threading.Event, walk: Callable[[], None]) -> int:
    """Walk until `done` is set, at least once, and return the number of walks."""
    rounds = 0
    while not done.is_set() or rounds == 0:
        walk()
        rounds += 1
    return rounds


def check(found: list[tuple[bytes, bytes]], expected: list[bytes]) -> None:
    """Assert that keys are in order, all stable ones are found, and no record is torn."""
    keys = [key for key, _ in found]
    assert keys == sorted(set(keys))
    assert [key for key in keys if key.endswith(b".x") and int(key[3:6]) % 2 == 0] == expected
    assert all(record[:8] == record[8:] for _, record in found)


def resumed(trie: RecordTrie | InMemoryTrie[bytes], pattern: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the matches of a pattern, with as many resumptions as it takes."""
    cursor = PatternCursor(trie, pattern)
    while True:
        try:
            while (entry := next(cursor, None)) is not None:
                yield entry  # other threads may run here, unlike in `yield from`
            return
        except StaleCursor:
            cursor.resume()


def run(trie: RecordTrie | InMemoryTrie[bytes], walks: list[Callable[[], None]]) -> None:
    """Run the walks in threads while the writer writes, and assert that all garbage is recycled."""
    for n, key in enumerate(STABLE):
        trie.put(key, record_of(n))
    done = threading.Event()
    with ThreadPoolExecutor(len(walks)) as threads:
        readers = [threads.submit(until, done, walk) for walk in walks]
        try:
            write(trie)
        finally:
            done.set()
        for reader in readers:
            reader.result()
    trie.recycle()
    assert trie.usage().waiting == 0


def test_patterns_over_records() -> None:
    trie = RecordTrie(16)

    def counted() -> None:
        assert PatternCursor(trie, "us.*.x").count() == len(STABLE) // 2

    def listed() -> None:
        check(list(resumed(trie, ">")), STABLE)

    run(trie, [counted, listed])


def test_a_cursor_is_used_by_one_thread_at_a_time() -> None:
    """A second thread cannot use a cursor while `count`, which lets other threads run, uses it."""
    trie = RecordTrie(16)
    for n in range(200_000):
        trie.put(b"%d" % n, record_of(n))

    def use(cursor: PatternCursor) -> int:
        found = 0
        while True:
            with suppress(RuntimeError):  # another thread counts
                counted = cursor.count(100)
                if counted == 0:
                    return found
                found += counted

    with ThreadPoolExecutor(8) as threads:
        for _ in range(8):
            cursor = PatternCursor(trie, ">")
            users = [threads.submit(use, cursor) for _ in range(8)]
            assert sum(user.result() for user in users) == 200_000


def test_walks_over_objects() -> None:
    trie: InMemoryTrie[bytes] = InMemoryTrie()
    backwards = subtrie(trie, b"eu.", b"eu/")

    def forward() -> None:
        check(list(entries(trie)), STABLE)

    def reverse() -> None:
        check(list(entries(backwards, reverse=True))[::-1], STABLE[:200])

    run(trie, [forward, reverse])


def test_readers_that_rest_while_nothing_may_wait_for_them() -> None:
    """A cursor that becomes stale at any rest resumes and loses no key.

    The limit of garbage is 0 bytes here.
    """
    trie = RecordTrie(16, garbage_bytes_max=0)

    def listed() -> None:
        check(list(resumed(trie, "*.*.x")), STABLE)

    run(trie, [listed, listed])
