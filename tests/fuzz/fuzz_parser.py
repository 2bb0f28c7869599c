"""The parser: whole, in two parts, byte by byte and suspended after each operation.

In each way a stream gives the result of the readable model, and the bytes kept between reads are
bounded.

Input: a byte that chooses limits, a byte that says where to cut, then the bytes of a client. Two
bytes 0x7F stand for 33,000 of them: a payload larger than the largest input. nats-server's
counterpart is `parse` in parser.go.
"""

from natsd.core.network import OpRecorder
from tests.core.plain_parser import Operation, PlainParser

MODULES = ["natsd.core.network"]
LIMITS = [
    {},
    {"max_control_line": 24, "max_payload": 40},
    {"headers": False, "max_payload": 100_000},
    {"awaiting_connect": True, "max_control_line": 0, "max_payload": 0},
]
SEEDS = [
    b"\0\x80" + stream
    for stream in (
        b"CONNECT {}\r\nPING\r\nPONG\r\n+OK\r\nINFO {}\r\n-ERR 'x'\r\n",
        b"PUB foo 5\r\nhello\r\nPUB foo.bar reply 0\r\n\r\n",
        b"HPUB foo 12 17\r\nNATS/1.0\r\n\r\nhello\r\nHPUB foo answer 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"HPUB foo 0 2\r\nhi\r\nhpub\tfoo\tr 00 002 \nhi\r\n",
        b"SUB foo 1\r\nSUB foo q 2\r\nUNSUB 1\r\nUNSUB 2 5\r\nsub\ta\rb c\r\n",
        b"PUB foo 33000\r\n\x7f\x7f\r\nPUB big 33002\r\nxx\x7f\x7f\r\nPING\r\n",
        b"PUB foo 33001\r\n\x7f\x7f\r\r\n",
        b"PUB foo -1\r\n",
        b"PUB foo 0000000001\r\nx\r\n",
        b"HPUB foo 5 3\r\nabc\r\n",
        b"PUB  " + b" \t" * 50 + b"foo \r\n",
        b"PING" + b"x" * 99 + b"\r\nPING\n",
        b"GET / HTTP/1.0\r\n\r\n",
    )
]
SEEDS += [
    b"\1\1SUB 123456789012345678901 1\r\nSUB 123456789012345678901 12\r\n",
    b"\1\xff" + b"PUB foo 40\r\n" + b"x" * 40 + b"\r\nPUB foo 41\r\n",
    b"\2\x40HPUB foo 1 1\r\nx\r\n",
    b"\2\x40PUB foo 999999\r\nx\r\n",
    b"\3\x20connect {}\r\nPING\r\n",
    b"\3\x20PING\r\n",
]
LARGE = b"\x7f" * 33_000
LARGE_MAX = 1  # of them in one input
BYTEWISE_MAX = 1024
TAIL_MAX = 32 * 1024 + 4096


def check(data: bytes) -> None:
    limits = LIMITS[data[0] % len(LIMITS)] if data else {}
    stream = data[2:].replace(b"\x7f\x7f", LARGE, LARGE_MAX)
    expected = PlainParser(**limits).feed(stream)
    cut = data[1] * len(stream) // 255 if len(data) > 1 else 0
    assert parsed([stream], limits) == expected
    assert parsed([stream[:cut], stream[cut:]], limits) == expected
    assert parsed([stream[:cut], b"", stream[cut:]], limits | {"step_by_step": True}) == expected
    singles = [stream[at : at + 1] for at in range(min(len(stream), BYTEWISE_MAX))]
    assert parsed([*singles, stream[BYTEWISE_MAX:]], limits) == expected


def parsed(pieces: list[bytes], limits: dict[str, int]) -> list[Operation]:
    parser = OpRecorder(**limits)
    operations = []
    for piece in pieces:
        operations += parser.feed(piece)
        assert parser.tail_bytes <= TAIL_MAX
    assert parser.violated == (operations[-1:] != [] and operations[-1][0] == "violation")
    return operations
