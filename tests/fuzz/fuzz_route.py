"""The parser of routes: whole, in two parts and byte by byte, as its readable model says.

Input: a byte that chooses the kind of route (of all accounts, of one, before the end of the
handshake), a byte that says where to cut, then the bytes of another server. Two bytes 0x7F stand
for 33,000 of them: a payload larger than the largest input. nats-server's counterpart is `parse`
in parser.go.
"""

from natsd.core.routing import live_counts
from tests.core.route_effects import KINDS, cuts, effects, expected_effects

MODULES = ["natsd.core.network", "natsd.core.routing"]
SEEDS = [
    b"\0\x80" + stream
    for stream in (
        b"RS+ $G foo\r\nRS+ $G foo.* q 3\r\nRS+ $G foo.* q 0\r\nRS- $G foo\r\nRS- $G foo.* q\r\n",
        b"LS+ leaf $G foo\r\nLS+ leaf ACC foo q 2\r\nLS- leaf $G foo\r\nLS- leaf ACC foo q\r\n",
        b"RMSG $G foo 5\r\nhello\r\nRMSG ACC foo reply 0\r\n\r\nRMSG NOBODY foo 1\r\nx\r\n",
        b"RMSG $G foo | q r 2\r\nhi\r\nRMSG $G foo + re q 2\r\nhi\r\nRMSG $G foo + re 2\r\nhi\r\n",
        b"RMSG $G foo | _rerouted_ q 2\r\nhi\r\n",
        b"HMSG $G foo 12 17\r\nNATS/1.0\r\n\r\nhello\r\nHMSG $G a | q 0 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"HMSG $G foo + re q r 12 14\r\nNATS/1.0\r\n\r\nhi\r\nhmsg\t$G  foo re 00 002 \nhi\r\n",
        b"LMSG leaf $G foo 0 2\r\nhi\r\nLMSG leaf $G foo re 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
        b"RMSG $G foo $JS.ACK.S.C.1.2.3.4.5@orders.new 2\r\nhi\r\nRMSG $G a $JS.ACK.S@C 1\r\nx\r\n",
        b"RMSG $G foo 33000\r\n\x7f\x7f\r\nRMSG $G foo | q 33002\r\nxx\x7f\x7f\r\nPING\r\n",
        b"RMSG $G foo 33001\r\n\x7f\x7f\r\r\n",
        b"RMSG $G foo -1\r\n",
        b"RMSG $G foo ! q r s 1\r\nx\r\n",
        b"HMSG $G foo 5 3\r\nabc\r\n",
        b"RS+ $G a..b\r\nRS+ $G foo q\r\n",
        b"RS* $G foo\r\n",
        b"INFO {}\r\nCONNECT {}\r\nPING\r\nPONG\r\n+OK\r\n-ERR 'x'\r\n",
        b"PUB foo 2\r\nhi\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
    )
]
SEEDS += [
    b"\1\x40RS+ foo\r\nRS+ foo q 2\r\nRMSG foo 2\r\nhi\r\nRMSG foo + re q 2\r\nho\r\nRS- foo\r\n",
    b"\2\x40INFO {}\r\nCONNECT {}\r\nPING\r\nRS+ $G foo\r\n",
    b"\2\x40RMSG $G foo 2\r\nhi\r\n",
]
LARGE = b"\x7f" * 33_000
LARGE_MAX = 1  # of them in one input
BYTEWISE_MAX = 512


def check(data: bytes) -> None:
    before = live_counts()
    kind = KINDS[data[0] % len(KINDS)] if data else {}
    stream = data[2:].replace(b"\x7f\x7f", LARGE, LARGE_MAX)
    cut = data[1] * len(stream) // 255 if len(data) > 1 else 0
    expected = expected_effects(stream, kind)
    assert effects([stream], kind) == expected
    assert effects(cuts(stream, [cut]), kind) == expected
    singles = [stream[at : at + 1] for at in range(min(len(stream), BYTEWISE_MAX))]
    assert effects([*singles, stream[BYTEWISE_MAX:]], kind) == expected
    assert live_counts() == before
