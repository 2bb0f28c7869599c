"""Numbers of counters: a number is added as in Python, any other text is refused.

Input: two texts, separated by the first newline (ADR-49, `Nats-Incr`).
"""

import re

from natsd.jetstream.stream.checks import sum_of

MODULES = ["natsd.jetstream.stream.checks"]
SEEDS = [
    b"1\n2",
    b"+1\n-1",
    b"-0\n+00",
    b"-999999999999999999999999\n1",
    b"1000000000000000000000\n-1",
    b"18446744073709551615\n9223372036854775808",
    b"\n",
    b"+\n-",
    b"1_0\n 1",
    b"1.0\n1e3",
]
NUMBER = re.compile(rb"[+-]?[0-9]+")
DIGITS_MAX = 4000  # Python reads no longer numbers


def check(data: bytes) -> None:
    one, _, other = data.partition(b"\n")
    if max(len(one), len(other)) > DIGITS_MAX:
        return
    total = sum_of(one, other)
    assert total == sum_of(other, one)
    if NUMBER.fullmatch(one) is None or NUMBER.fullmatch(other) is None:
        assert total is None
    else:
        assert total == b"%d" % (int(one) + int(other))
