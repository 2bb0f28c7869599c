"""A hundred million overwrites and deletes over a million keys: memory stays flat.

    python -m tests.trie.soak [--operations 100000000] [--keys 1000000]

Keys are visited in a scrambled order. Half of the visits overwrite the record; the others delete
the key or put it back. All the while one cursor rests at the root, and is replaced when it has
become stale, so that recycling has to get past readers. Two arrays tell which keys are there and
what their records hold, and the trie is compared with them at the end. Two figures of memory are
reported: the resident size of the process, and the bytes that the trie has touched. Memory is flat
if the second half of the run adds less than 2 % (GROWTH_MAX).
"""

import argparse
import array
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from natsd.trie.errors import StaleCursor
from natsd.trie.in_memory import RecordTrie, TrieCursor

RECORD_BYTES = 28
REPORTS = 10
GROWTH_MAX = 1.02  # touched bytes at the end, relative to those at half the run


@dataclass
class Soak:
    """A trie under test, and the arrays with its expected content."""

    keys: list[bytes]
    trie: RecordTrie
    present: bytearray  # 1: the key is there
    versions: "array.array[int]"  # the first field of each key's record
    cursor: TrieCursor
    stale: int = 0

    def run(self, operations: int, start: int) -> None:
        """Overwrite, delete or put back one key per operation."""
        trie, present, versions, keys = self.trie, self.present, self.versions, self.keys
        tail = bytes(RECORD_BYTES - 8)
        count = len(keys)
        for number in range(start, start + operations):
            index = number * 7_368_787 % count
            if number & 1 or not present[index]:
                trie.put(keys[index], number.to_bytes(8, "little") + tail)
                present[index] = 1
                versions[index] = number
            else:
                trie.delete(keys[index])
                present[index] = 0

    def replace_cursor(self) -> None:
        """Replace the resting cursor if it has become stale."""
        try:
            self.cursor.advance()
        except StaleCursor:
            self.stale += 1
            self.cursor = self.trie.cursor()

    def check(self) -> None:
        """Assert that every key has the expected record."""
        for index, key in enumerate(self.keys):
            record = self.trie.get(key)
            assert (record is not None) == self.present[index], key
            if record is not None:
                assert int.from_bytes(record[:8], "little") == self.versions[index], key
        assert len(self.trie) == sum(self.present)


def prepared(key_count: int) -> Soak:
    """Return a trie with all keys."""
    keys = [b"orders.eu.%05d.item.%08d" % (i % 100_000, i) for i in range(key_count)]
    trie = RecordTrie(RECORD_BYTES)
    for key in keys:
        trie.put(key, bytes(RECORD_BYTES))
    return Soak(
        keys,
        trie,
        bytearray(b"\1") * key_count,
        array.array("Q", bytes(8 * key_count)),
        trie.cursor(),
    )


def touched_bytes(trie: RecordTrie) -> int:
    """Return the bytes of memory that the trie has touched."""
    usage = trie.usage()
    return usage.cell_bytes + usage.slot_bytes + usage.bookkeeping_bytes


def soak(operations: int, key_count: int) -> Iterator[str]:
    """Yield one line for each part of the run; raise AssertionError if memory or a key is wrong."""
    run = prepared(key_count)
    touched = [touched_bytes(run.trie)]
    yield f"{key_count:,} keys: {touched[0] / key_count:.1f} bytes each"
    part = operations // REPORTS
    for number in range(REPORTS):
        began = time.monotonic()
        run.run(part, number * part)
        run.replace_cursor()
        touched.append(touched_bytes(run.trie))
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield (
            f"{(number + 1) * part:,} operations: {touched[-1]:,} bytes touched, process at most "
            f"{resident:,} KiB, {part / (time.monotonic() - began):,.0f}/s, "
            f"{run.stale} cursors stale"
        )
    run.check()
    assert touched[-1] <= touched[REPORTS // 2] * GROWTH_MAX, touched
    yield "all keys are right, memory is flat"


def main() -> None:
    """Run the soak and print its lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--operations", type=int, default=100_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    arguments = parser.parse_args()
    for line in soak(arguments.operations, arguments.keys):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
