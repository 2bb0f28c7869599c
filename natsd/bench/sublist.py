"""The cost of the SubList, from a thousand to a million subscriptions.

The subscriptions are those of a fleet of devices. Of every ten subscriptions

    seven   fleet.<region>.<device>.<metric>        one subject each
    two     fleet.*.<device>.<metric>               `*` before the selective token
    one     fleet.<region>.<device>.>               all subjects of one device

so a published subject, always of four tokens, follows two branches and matches one or two
subscriptions. Published subjects are spread over all devices, so that with a million subscriptions
every step misses the processor's caches; "10 k subjects" is the same measurement with only that
many subjects.

Insert and remove are called one by one from Python; match is called in a compiled loop, as
connections do. The cached match repeats 200 subjects. Bytes per subscription are the growth of the
resident set, including the Subscription objects and their texts.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from natsd.core.routing import SubList, Subscription

SIZES = (1_000, 100_000, 1_000_000)
PUBLISHED_SUBJECTS = 100_000
CACHED_SUBJECTS = 200
STRIDE = 7_919  # prime, so that successive subjects are not neighbours in the trie


@dataclass(frozen=True)
class SubListRow:
    """One measured operation, at one number of subscriptions."""

    subscriptions: int
    operation: str
    ns_per_op: float
    fanout: float = 0.0
    bytes_per_subscription: float = 0.0


def run(sizes: tuple[int, ...] = SIZES) -> list[SubListRow]:
    """Measure every size and return the rows.

    Earlier subscriptions are kept alive, so that freed memory is not reused and hidden from the
    count.
    """
    rows: list[SubListRow] = []
    populations: list[list[Subscription]] = []
    for size in sizes:
        populations.append(measure(size, rows))
    return rows


def measure(size: int, rows: list[SubListRow]) -> list[Subscription]:
    """Measure one size, append its rows, and return the subscriptions."""
    patterns = [pattern_of(number * STRIDE % size) for number in range(size)]
    gc.collect()
    rss_before = rss_bytes()
    subs = [Subscription(pattern, sid=b"1") for pattern in patterns]
    cached, uncached = SubList(), SubList(cache=False)

    insert_ns = timed(lambda: insert_all(cached, subs)) / size
    per_sub = (rss_bytes() - rss_before) / size
    rows.append(SubListRow(size, "insert", insert_ns, bytes_per_subscription=per_sub))
    cached_row(cached, size, rows)
    rows.append(SubListRow(size, "remove", timed(lambda: remove_all(cached, subs)) / size))

    insert_all(uncached, subs)
    uncached_rows(uncached, size, rows)
    rows.append(SubListRow(size, "remove_batch", timed(lambda: uncached.remove_batch(subs)) / size))
    return subs


def cached_row(sublist: SubList, size: int, rows: list[SubListRow]) -> None:
    """Append the row of matches that the cache answers."""
    asked = [subject_of(number, size) for number in range(CACHED_SUBJECTS)]
    sublist.match_all(asked)
    rows.append(match_row(sublist, size, "match cached", asked * 5_000))


def uncached_rows(sublist: SubList, size: int, rows: list[SubListRow]) -> None:
    """Append the rows of matches without a cache."""
    asked = [subject_of(number, size) for number in range(PUBLISHED_SUBJECTS)]
    rows.append(match_row(sublist, size, "match uncached", asked))
    few = asked[:10_000] * 10
    rows.append(match_row(sublist, size, "match uncached, 10 k subjects", few))
    nobody = [b"_INBOX.%022d.%d" % (number, number) for number in range(PUBLISHED_SUBJECTS)]
    rows.append(match_row(sublist, size, "match nobody", nobody))


def match_row(sublist: SubList, size: int, operation: str, subjects: list[bytes]) -> SubListRow:
    """Return the row of matching `subjects`: the best of three passes, in ns per subject."""
    total = sublist.match_all(subjects)
    ns = min(timed(lambda: sublist.match_all(subjects)) for _ in range(3))
    return SubListRow(size, operation, ns / len(subjects), fanout=total / len(subjects))


def pattern_of(number: int) -> bytes:
    """Return the pattern of subscription `number`."""
    region, device, metric = place_of(number)
    kind = number % 10
    if kind < 7:
        return b"fleet.%s.%s.%s" % (region, device, metric)
    if kind < 9:
        return b"fleet.*.%s.%s" % (device, metric)
    return b"fleet.%s.%s.>" % (region, device)


def subject_of(number: int, size: int) -> bytes:
    """Return the literal subject of publish `number` among `size` subscriptions."""
    return b"fleet.%s.%s.%s" % place_of(number * STRIDE % size)


def place_of(number: int) -> tuple[bytes, bytes, bytes]:
    """Return the tokens of region, device and metric for `number`."""
    return b"region-%d" % (number % 8), b"device-%d" % (number // 10), b"metric-%d" % (number % 10)


def insert_all(sublist: SubList, subs: list[Subscription]) -> None:
    """Insert the subscriptions one by one."""
    insert = sublist.insert
    for sub in subs:
        insert(sub)


def remove_all(sublist: SubList, subs: list[Subscription]) -> None:
    """Remove the subscriptions one by one."""
    remove = sublist.remove
    for sub in subs:
        remove(sub)


def timed(work: Callable[[], object]) -> int:
    """Return how many ns a call of `work` takes."""
    start = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - start


def rss_bytes() -> int:
    """Return this process's resident memory in bytes; without /proc its peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
