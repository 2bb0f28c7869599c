"""The client protocol's parser, example by example, each cut at every byte."""

import pytest

from natsd.core.network import OpRecorder
from tests.core.plain_parser import Operation, PlainParser

HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
UNKNOWN = ("violation", "UNKNOWN_OPERATION")
BAD_ARGUMENTS = ("violation", "BAD_ARGUMENTS")
CONTROL_LINE = ("violation", "CONTROL_LINE")
MAX_PAYLOAD = ("violation", "MAX_PAYLOAD")

EXAMPLES: dict[str, tuple[bytes, list[Operation]]] = {
    "connect": (b'CONNECT {"verbose":false}\r\n', [("CONNECT", b'{"verbose":false}')]),
    "connect without a blank": (b"CONNECT{}\r\n", [("CONNECT", b"{}")]),
    "connect without anything": (b"CONNECT\r\n", [("CONNECT", b"")]),
    "publish": (b"PUB foo 5\r\nhello\r\n", [("PUB", b"foo", None, b"hello", b"5\r\n")]),
    "publish with a reply": (
        b"PUB foo.bar inbox 5\r\nhello\r\n",
        [("PUB", b"foo.bar", b"inbox", b"hello", b"inbox 5\r\n")],
    ),
    "publish nothing": (b"PUB foo 0\r\n\r\n", [("PUB", b"foo", None, b"", b"0\r\n")]),
    "a payload is opaque": (
        b"PUB foo 16\r\nPING\r\nPUB x 1\r\n\0\r\n",
        [("PUB", b"foo", None, b"PING\r\nPUB x 1\r\n\0", b"16\r\n")],
    ),
    "sizes are echoed as they came": (
        b"PUB foo 007\r\n1234567\r\nPUB foo a 000000001\r\n1\r\n",
        [
            ("PUB", b"foo", None, b"1234567", b"007\r\n"),
            ("PUB", b"foo", b"a", b"1", b"a 000000001\r\n"),
        ],
    ),
    "a reply may be a number": (
        b"PUB foo 12 1\r\nx\r\nPUB foo 1234567890 1\r\nx\r\nHPUB foo 1 1 2\r\nab\r\n",
        [
            ("PUB", b"foo", b"12", b"x", b"12 1\r\n"),
            ("PUB", b"foo", b"1234567890", b"x", b"1234567890 1\r\n"),
            ("HPUB", b"foo", b"1", b"a", b"b", b"1 1 2\r\n"),
        ],
    ),
    "headers": (
        b"HPUB foo 18 20\r\n" + HEADERS + b"hi\r\n",
        [("HPUB", b"foo", None, HEADERS, b"hi", b"18 20\r\n")],
    ),
    "headers with a reply": (
        b"HPUB foo inbox 18 18\r\n" + HEADERS + b"\r\n",
        [("HPUB", b"foo", b"inbox", HEADERS, b"", b"inbox 18 18\r\n")],
    ),
    "no headers after all": (
        b"HPUB foo 0 2\r\nhi\r\nHPUB foo a 00 2\r\nhi\r\n",
        [("PUB", b"foo", None, b"hi", b"2\r\n"), ("PUB", b"foo", b"a", b"hi", b"a 2\r\n")],
    ),
    "subscribe": (
        b"SUB foo 1\r\nSUB foo.* workers 2\r\n",
        [("SUB", b"foo", None, b"1"), ("SUB", b"foo.*", b"workers", b"2")],
    ),
    "unsubscribe": (b"UNSUB 1\r\nUNSUB 2 5\r\n", [("UNSUB", b"1"), ("UNSUB", b"2", b"5")]),
    "ping and pong": (b"PING\r\nPONG\r\n", [("PING",), ("PONG",)]),
    "what stands behind a ping is ignored": (
        b"PING foo\r\nPINGX\nPONG 1 2 3\r\n+OK\r\n+OKfoo bar\r\nPING\r\n",
        [("PING",), ("PING",), ("PONG",), ("PING",)],
    ),
    "from a client": (
        b"INFO {}\r\n-ERR 'no'\r\n+OK\r\n",
        [("INFO", b"{}"), ("-ERR", b"'no'")],
    ),
    "any case": (
        b"pub a 1\r\nx\r\nhPuB a 1 2\r\nxy\r\nSuB a 1\r\nunsub 1\r\npINg\r\nconnect {}\r\n+ok\r\n",
        [
            ("PUB", b"a", None, b"x", b"1\r\n"),
            ("HPUB", b"a", None, b"x", b"y", b"1 2\r\n"),
            ("SUB", b"a", None, b"1"),
            ("UNSUB", b"1"),
            ("PING",),
            ("CONNECT", b"{}"),
        ],
    ),
    "spaces and tabs": (
        b"PUB\tfoo\t 1\t \r\nx\r\nHPUB  a  b 1\t2\r\nxy\r\nSUB \t foo  q\t1  \r\nUNSUB  1\t\r\n",
        [
            ("PUB", b"foo", None, b"x", b"1\r\n"),
            ("HPUB", b"a", b"b", b"x", b"y", b"b 1 2\r\n"),
            ("SUB", b"foo", b"q", b"1"),
            ("UNSUB", b"1"),
        ],
    ),
    "trailing blanks stay with JSON": (b"CONNECT {} \t\r\n", [("CONNECT", b"{} \t")]),
    "a line feed alone ends a line": (
        b"PUB foo 1\nx\r\nSUB foo 1\nPING\n",
        [("PUB", b"foo", None, b"x", b"1\r\n"), ("SUB", b"foo", None, b"1"), ("PING",)],
    ),
    "any byte in a subject": (
        b"PUB a\0b\xff\x01 1\r\nx\r\nSUB \0\x7f\x80 \xfe\r\n",
        [("PUB", b"a\0b\xff\x01", None, b"x", b"1\r\n"), ("SUB", b"\0\x7f\x80", None, b"\xfe")],
    ),
    "a carriage return is a blank for SUB": (
        b"SUB ta\ril 1\r\nUNSUB \r1\r\r\n",
        [("SUB", b"ta", b"il", b"1"), ("UNSUB", b"1")],
    ),
    "unknown operation": (b"PING\r\nfoo", [("PING",), UNKNOWN]),
    "unknown at its last letter": (b"UNSUX", [UNKNOWN]),
    "blank line": (b"\r\n", [UNKNOWN]),
    "leading blank": (b" PING\r\n", [UNKNOWN]),
    "a NUL": (b"PING\r\n\0\0\0\0\0\0\0\0", [("PING",), UNKNOWN]),
    "no blank behind PUB": (b"PUBfoo 1\r\nx\r\n", [UNKNOWN]),
    "PUB alone": (b"PUB\r\n", [UNKNOWN]),
    "ERR alone": (b"-ERR\r\n", [UNKNOWN]),
    "PUB and a blank": (b"PUB \r\n", [BAD_ARGUMENTS]),
    "a subject only": (b"PUB foo\r\n", [BAD_ARGUMENTS]),
    "four arguments": (b"PUB foo bar baz 1\r\n", [BAD_ARGUMENTS]),
    "one size for HPUB": (b"HPUB foo 1\r\n", [BAD_ARGUMENTS]),
    "five arguments for HPUB": (b"HPUB a b 1 2 3\r\n", [BAD_ARGUMENTS]),
    "more headers than all": (b"HPUB foo 3 2\r\nabc\r\n", [BAD_ARGUMENTS]),
    "SUB without sid": (b"SUB foo\r\n", [BAD_ARGUMENTS]),
    "SUB of four": (b"SUB foo bar 1 2\r\n", [BAD_ARGUMENTS]),
    "UNSUB of none": (b"UNSUB \r\n", [BAD_ARGUMENTS]),
    "UNSUB of three": (b"UNSUB 1 2 3\r\n", [BAD_ARGUMENTS]),
    "negative": (b"PUB foo -1\r\n", [BAD_ARGUMENTS]),
    "plus": (b"PUB foo +1\r\n", [BAD_ARGUMENTS]),
    "fraction": (b"PUB foo 1.0\r\n", [BAD_ARGUMENTS]),
    "ten digits": (b"PUB foo 0000000001\r\n", [BAD_ARGUMENTS]),
    "beyond 64 bits": (b"PUB foo 18446744073709551617\r\nx\r\n", [BAD_ARGUMENTS]),
    "beyond 64 bits in headers": (b"HPUB foo 18446744073709551617 5\r\n", [BAD_ARGUMENTS]),
    "negative headers": (b"HPUB foo -1 1\r\nx\r\n", [BAD_ARGUMENTS]),
    "two carriage returns": (b"PUB foo 1\r\r\nx\r\n", [BAD_ARGUMENTS]),
    "huge": (b"PUB foo 999999999\r\n", [MAX_PAYLOAD]),
    "one too many": (b"PUB foo 1048577\r\n", [MAX_PAYLOAD]),
    "one too many with headers": (b"HPUB foo 1 1048577\r\n", [MAX_PAYLOAD]),
    "payload too short": (b"PUB foo 5\r\nhell\r\nPING\r\n", [UNKNOWN]),
    "payload too long": (b"PUB foo 5\r\nhelloo\r\n", [UNKNOWN]),
    "payload without CR": (b"PUB foo 5\r\nhello\n", [UNKNOWN]),
    "payload without LF": (b"PUB foo 5\r\nhello\r\r\n", [UNKNOWN]),
    "nothing after a violation": (b"PUB foo x\r\nPING\r\nfoo\r\n", [BAD_ARGUMENTS]),
}


@pytest.mark.parametrize(("stream", "operations"), EXAMPLES.values(), ids=EXAMPLES)
def test_example(stream: bytes, operations: list[Operation]) -> None:
    assert OpRecorder().feed(stream) == operations
    assert PlainParser().feed(stream) == operations
    assert fed([stream], OpRecorder(step_by_step=True)) == operations


@pytest.mark.parametrize(("stream", "operations"), EXAMPLES.values(), ids=EXAMPLES)
def test_example_cut_at_every_byte(stream: bytes, operations: list[Operation]) -> None:
    for at in range(len(stream)):
        assert fed([stream[:at], stream[at:]], OpRecorder()) == operations
    assert fed(single_bytes(stream), OpRecorder()) == operations


def fed(pieces: list[bytes], parser: OpRecorder) -> list[Operation]:
    return [operation for piece in pieces for operation in parser.feed(piece)]


def single_bytes(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def test_violations_are_seen_at_the_first_wrong_byte() -> None:
    for stream in (b"X", b"PUC", b"PUBx", b"PUB a 2\r\nxyz", b"PUB a 2\r\nxy\rz", b"-ERR\r"):
        parser = OpRecorder()
        assert parser.feed(stream[:-1]) == []
        assert parser.feed(stream[-1:]) == [UNKNOWN]
        assert parser.violated


def test_nothing_but_connect_is_welcome_before_authentication() -> None:
    stream = b"CONNECT {}\r\nPING\r\n"
    assert OpRecorder(awaiting_connect=True).feed(stream) == [("CONNECT", b"{}"), ("PING",)]
    for first in (b"P", b"PUB foo 1\r\nx\r\n", b"\r\n", b"-", b"\0"):
        parser = OpRecorder(awaiting_connect=True)
        assert parser.feed(first) == [("violation", "CONNECT_REQUIRED")]
    assert OpRecorder(awaiting_connect=True).feed(b"CX") == [UNKNOWN]


def test_headers_must_have_been_negotiated() -> None:
    stream = b"HPUB foo 0 0\r\n\r\n"
    assert OpRecorder(headers=False).feed(stream) == [("violation", "HEADERS_NOT_SUPPORTED")]


class TestControlLine:
    """The limit counts the bytes from the first argument to the CRLF.

    Blanks before the first argument do not count, those behind the arguments do.
    """

    @pytest.mark.parametrize("name", [b"CONNECT ", b"INFO ", b"-ERR ", b"SUB a ", b"UNSUB "])
    @pytest.mark.parametrize("ending", [b"\r\n", b"\n"])
    def test_longest(self, name: bytes, ending: bytes) -> None:
        room = 40 - len(name.partition(b" ")[2])
        for filling, violated in ((b"x" * room, False), (b"x" * (room + 1), True)):
            stream = name + filling + ending
            for pieces in ([stream], single_bytes(stream)):
                operations = fed(pieces, OpRecorder(max_control_line=40))
                assert (operations == [CONTROL_LINE]) == violated
                assert len(operations) == 1

    @pytest.mark.parametrize("name", [b"PUB", b"HPUB"])
    @pytest.mark.parametrize("blank", [b" ", b"  ", b"\t"])
    def test_longest_publish(self, name: bytes, blank: bytes) -> None:
        sizes = b" 1 1" if name == b"HPUB" else b" 1"
        for length in (39, 40, 41):
            argument = (b"x" * 60)[: length - len(sizes)] + sizes
            stream = name + blank + argument + b"\r\n!\r\n"
            for pieces in ([stream], single_bytes(stream)):
                operations = fed(pieces, OpRecorder(max_control_line=40))
                assert (operations == [CONTROL_LINE]) == (length > 40)
                assert len(operations) == 1

    def test_an_endless_line_is_not_kept(self) -> None:
        parser = OpRecorder(max_control_line=40)
        assert parser.feed(b"SUB " + b"x" * 40) == []
        assert parser.feed(b"\r") == []
        assert parser.feed(b"\r") == [CONTROL_LINE]
        assert parser.tail_bytes == 0

    @pytest.mark.parametrize("name", [b"PUB ", b"SUB\t", b"CONNECT", b"PING", b"+OK"])
    def test_blanks_before_the_arguments_are_endless(self, name: bytes) -> None:
        parser = OpRecorder()
        assert parser.feed(name) == []
        for _ in range(100):
            assert parser.feed(b" \t" * 5000) == []
            assert parser.tail_bytes == 0

    def test_what_comes_behind_endless_blanks(self) -> None:
        blanks = b" " * 9000
        for name, rest, operation in (
            (b"PUB", b"foo 1\r\nx\r\n", ("PUB", b"foo", None, b"x", b"1\r\n")),
            (b"SUB", b"foo 1\r\n", ("SUB", b"foo", None, b"1")),
            (b"PING", b"foo\r\n", ("PING",)),
        ):
            for cut in range(len(rest)):
                pieces = [name + blanks, rest[:cut], rest[cut:] + b"PING\r\n"]
                assert fed(pieces, OpRecorder()) == [operation, ("PING",)]
                assert fed([b"".join(pieces)], OpRecorder()) == [operation, ("PING",)]

    def test_trailing_blanks_count(self) -> None:
        assert OpRecorder(max_control_line=40).feed(b"UNSUB 1" + b" " * 40 + b"\r\n") == [
            CONTROL_LINE
        ]


class TestPayload:
    @pytest.mark.parametrize("size", [0, 1, 32_745, 32_746, 32_747, 32_768, 70_000])
    @pytest.mark.parametrize("head", [b"PUB foo %d\r\n", b"HPUB foo in 2 %d\r\n", b"pub\tfoo %d\n"])
    def test_cut_anywhere(self, head: bytes, size: int) -> None:
        """Large payloads are collected outside the read buffer: the cuts are around its borders."""
        payload = bytes(range(256)) * (size // 256 + 1)
        head %= max(size, 2)
        stream = head + payload[: max(size, 2)] + b"\r\nPING\r\n"
        whole = OpRecorder().feed(stream)
        assert len(whole) == 2
        assert whole == PlainParser().feed(stream)
        seams = {0, 1, len(head), len(head) + 1, len(stream) // 2, *range(1, 12)}
        for at in sorted(seams | {len(stream) - near for near in seams}):
            assert fed([stream[:at], stream[at:]], OpRecorder()) == whole
            assert fed([stream[:at], b"", stream[at:]], OpRecorder(step_by_step=True)) == whole

    def test_it_is_allocated_once_and_filled_in_pieces(self) -> None:
        parser = OpRecorder()
        assert parser.feed(b"PUB foo 100000\r\nxyz") == []
        assert (parser.large_bytes, parser.tail_bytes) == (3, 0)
        for number in range(1, 10):
            assert parser.feed(b"x" * 11_000) == []
            assert (parser.large_bytes, parser.tail_bytes) == (3 + number * 11_000, 0)
        whole = parser.feed(b"y" * 997 + b"\r\nPIN")
        assert whole == [("PUB", b"foo", None, b"xyz" + b"x" * 99_000 + b"y" * 997, b"100000\r\n")]
        assert (parser.large_bytes, parser.tail_bytes) == (0, 3)

    @pytest.mark.parametrize("ending", [b"x", b"\n", b"\rx", b"\r\r"])
    def test_a_large_one_must_end_with_crlf(self, ending: bytes) -> None:
        stream = b"PUB foo 40000\r\n" + b"x" * 40_000 + ending
        for pieces in ([stream], [stream[:30_000], stream[30_000:]], [stream[:-1], stream[-1:]]):
            assert fed([*pieces, b"PING\r\n"], OpRecorder()) == [UNKNOWN]
        assert OpRecorder().feed(stream[:-1]) == []

    def test_max_payload(self) -> None:
        for limit, size, accepted in ((5, 5, True), (5, 6, False), (0, 1, False), (-1, 9, True)):
            stream = b"PUB foo %d\r\n" % size
            operations = OpRecorder(max_payload=limit).feed(stream)
            assert operations == ([] if accepted else [MAX_PAYLOAD])

    def test_without_a_limit_nothing_is_reserved_but_memory(self) -> None:
        parser = OpRecorder(max_payload=-1)
        assert parser.feed(b"PUB foo 99999999\r\n") == []
        assert parser.feed(b"x" * 1000) == []
        assert parser.large_bytes == 1000


def test_what_is_kept_is_bounded() -> None:
    """Small payloads and lines are kept in the read buffer until they are whole, within a bound."""
    parser = OpRecorder()
    stream = b"PUB " + b"s" * 4089 + b" 28650\r\n" + b"x" * 28_650
    most = 0
    for at in range(0, len(stream), 100):
        assert parser.feed(stream[at : at + 100]) == []
        most = max(most, parser.tail_bytes)
    assert most <= 32 * 1024
