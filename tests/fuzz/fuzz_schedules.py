"""Times of schedules (ADR-51): any text is a time, a pattern or a delay, or is refused.

Input: five bytes of the time, in seconds; a `Nats-Schedule-Time-Zone`, a newline; the text, which
is read as `Nats-Schedule`, as `Nats-Delay` and as `Nats-TTL`. A repeating pattern has a next time,
and the calendar has no earlier one after the given time; the next time written as text is the same
time.
"""

import contextlib
from datetime import datetime

from natsd.jetstream.models.times import TIME_NS_MAX, TIME_NS_MIN
from natsd.jetstream.schedules.delay import InvalidDelay, due_ns
from natsd.jetstream.schedules.pattern import (
    Calendar,
    InvalidPattern,
    InvalidTimeZone,
    Pattern,
    format_next,
    parse_pattern,
)
from natsd.jetstream.stream.lifetimes import NEVER, InvalidLifetime, parse_lifetime

MODULES = ["natsd.jetstream.stream.state"]
SECOND_NS = 1_000_000_000
FIRST_S, SECONDS = 1_000_000_000, 6_000_000_000  # the years 2001 to 2191
CLOCK = b"\x00\x40\x00\x00\x00"
SEEDS = [
    b"",
    CLOCK + b"\n@at 2030-01-01T12:00:00Z",
    CLOCK + b"\n@at 0001-01-01T00:00:00.000000001-23:59",
    CLOCK + b"\n@every 1h30m0.5s",
    CLOCK + b"\n@every 2562047h47m16.854775807s",
    CLOCK + b"Europe/Berlin\n@daily",
    CLOCK + b"Australia/Lord_Howe\n0 45 1 * * *",
    CLOCK + b"America/New_York\n0 30 1,2 29 feb mon-fri/2",
    CLOCK + b"UTC\n*/7 ?/3 5-7 31 */2 ?",
    b"\xf3\0\0\0\x1c\n1 30 2 29 feb fri",
    CLOCK + b"../UTC\n, ,1,, +3 * * *",
    CLOCK + b"\xff\n\xff * * * * *",
    CLOCK + b"\n10s",
    CLOCK + b"\n1.5h-3",
    CLOCK + b"\n.5us+0",
    CLOCK + b"\nNever",
    CLOCK + b"\n99999999999999999999",
    CLOCK + b"\n2262-04-11T23:47:16.854775808+00:00",
]


def check(data: bytes) -> None:
    now_ns = (FIRST_S + int.from_bytes(data[:5]) % SECONDS) * SECOND_NS + 1
    zone, _, text = data[5:].partition(b"\n")
    with contextlib.suppress(InvalidDelay):
        assert TIME_NS_MIN <= due_ns(text, now_ns) <= TIME_NS_MAX
    with contextlib.suppress(InvalidLifetime):
        assert parse_lifetime(text) >= NEVER
    with contextlib.suppress(InvalidPattern, InvalidTimeZone):
        pattern = parse_pattern(text, zone or None)
        if pattern is not None:
            check_next(pattern, now_ns)


def check_next(pattern: Pattern, now_ns: int) -> None:
    next_ns = pattern.next_ns(now_ns, now_ns)
    if pattern.repeats:
        assert next_ns > now_ns
    if isinstance(pattern, Calendar):
        assert next_ns % SECOND_NS == 0
        assert pattern.next_ns(next_ns - SECOND_NS, 0) == next_ns
        told = datetime.fromisoformat(format_next(pattern, next_ns))
        assert int(told.timestamp()) * SECOND_NS == next_ns
