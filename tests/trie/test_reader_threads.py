"""Readers in threads of their own while one thread writes.

A cursor's `advance_to_content` walks without the GIL, and `update` writes without it, so both run
at the same time as the other threads, with or without the GIL.
"""

import struct
import threading
from collections.abc import Callable

from natsd.trie.errors import StaleCursor
from natsd.trie.in_memory import InMemoryTrie, RecordTrie
from tests.trie.plain_reader import check

READERS = 3


def while_writing(write: Callable[[], None], read: Callable[[], None]) -> None:
    """Run `read` over and over in threads until `write` has ended; no call may raise."""
    done = threading.Event()
    failures: list[BaseException] = []

    def reader() -> None:
        try:
            while not done.is_set():
                read()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=reader) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    try:
        write()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []


def subject(number: int) -> bytes:
    return b"orders.%d.item.%d" % (number % 50, number)


def test_what_is_not_written_to_is_always_seen_in_order_and_once() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie()
    stable = sorted(subject(number) for number in range(0, 1000, 2))
    coming_and_going = [subject(number) for number in range(1, 1000, 2)]
    for key in stable:
        trie.put(key, 1)

    def write() -> None:
        for _ in range(10):
            for key in coming_and_going:
                trie.put(key, 2)
            for key in coming_and_going:
                trie.delete(key)

    def read() -> None:
        seen = []
        with trie.cursor() as cursor:
            while cursor.advance_to_content() >= 0:
                seen.append(cursor.key())
        assert seen == sorted(set(seen))
        assert [key for key in seen if key in stable_keys] == stable

    stable_keys = set(stable)
    while_writing(write, read)
    check(trie)


def test_no_record_is_seen_half_written() -> None:
    """The fields first, last and count always belong together, in new and in changed records."""
    trie = RecordTrie(28)
    keys = [subject(number) for number in range(300)]
    versions = []
    for version in range(8):
        block = RecordTrie(28)
        for key in keys[version::2]:
            block.put(key, struct.pack("=3QI", version, version, version, version))
        versions.append(block)

    def write() -> None:
        for _ in range(60):
            for block in versions:
                trie.update(block)
            for key in keys[::7]:
                trie.delete(key)

    def read() -> None:
        for key in keys[::3]:
            record = trie.get(key)
            if record is not None:
                assert len(set(struct.unpack("=3QI", record))) == 1
        with trie.cursor() as cursor:
            while cursor.advance_to_content() >= 0:
                content = cursor.content()
                assert isinstance(content, bytes)
                assert len(set(struct.unpack("=3QI", content))) == 1

    while_writing(write, read)
    check(trie)


def test_a_cursor_is_whole_or_stale_never_wrong() -> None:
    """A cursor sees all stable keys or raises StaleCursor, and never shows a wrong content.

    The garbage limit is low, so cursors that rest between their steps often become stale.
    """
    trie: InMemoryTrie[bytes] = InMemoryTrie(garbage_bytes_max=32 * 64)
    stable = {subject(number) for number in range(0, 400, 2)}
    for key in stable:
        trie.put(key, key)
    ended = {"whole": 0, "stale": 0}

    def write() -> None:
        for _ in range(20):
            for number in range(1, 400, 2):
                trie.put(subject(number), subject(number))
            for number in range(1, 400, 2):
                trie.delete(subject(number))

    def read() -> None:
        seen = set()
        with trie.cursor() as cursor:
            try:
                while cursor.advance_to_content() >= 0:
                    assert cursor.content() == cursor.key()
                    seen.add(cursor.key())
            except StaleCursor:
                ended["stale"] += 1
            else:
                assert seen >= stable
                ended["whole"] += 1

    while_writing(write, read)
    check(trie)
    trie.recycle()
    assert trie.usage().waiting == 0


def test_readers_leave_nothing_behind() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie()
    for number in range(200):
        trie.put(subject(number), number)

    def write() -> None:
        for number in range(5000):
            trie.delete(subject(number % 200))
            trie.put(subject(number % 200), number)

    def read() -> None:
        for number in range(200):
            trie.get(subject(number))

    while_writing(write, read)
    trie.recycle()
    assert trie.usage().waiting == 0
    assert len(check(trie).contents) == 200
