r"""PROXY headers: any bytes are a header, no header, the beginning of one, or refused.

Whole or byte by byte, the answer is the same. Input: the first bytes of a connection.
"""

from natsd.clients.proxy_protocol import V2_SIGNATURE, BadHeader, Header, read_header

MODULES: list[str] = []  # read by Python, whose coverage run.py measures
SEEDS = [
    b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 4222\r\nCONNECT {}\r\n",
    b"PROXY TCP6 2001:db8::1 ::ffff:192.0.2.1 1 65535\r\n",
    b"PROXY UNKNOWN\r\n",
    b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
    b"PROXY \xff\r\n",
    V2_SIGNATURE + b"\x21\x11\x00\x0c" + bytes(range(12)) + b"PING\r\n",
    V2_SIGNATURE + b"\x21\x21\x00\x27" + bytes(range(39)),
    V2_SIGNATURE + b"\x20\x00\x00\x03abc",
    V2_SIGNATURE + b"\x21\x11\x00\x05hello",
    V2_SIGNATURE + b"\x32\x00\xff\xff",
    b"\x16\x03\x01\x00\x05hello",
    b"PRO",
    b"",
]
HEADER_BYTES_MAX = 16 + 65535
EARLY_BYTES = 130  # every decision but the end of the addresses is made by then


def check(data: bytes) -> None:
    whole = answer(data)
    for end in range(min(len(data), EARLY_BYTES)):
        early = answer(data[:end])
        if early is not None:
            assert type(early) is type(whole)
            assert not isinstance(early, Header) or early == whole
            break
    if whole is None:
        assert len(data) < HEADER_BYTES_MAX
    elif isinstance(whole, Header):
        assert whole.size <= min(len(data), HEADER_BYTES_MAX)
        assert 0 <= whole.port <= 65535


def answer(data: bytes) -> Header | BadHeader | None:
    try:
        return read_header(data)
    except BadHeader as error:
        return error
