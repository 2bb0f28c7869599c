"""The parser of routes against its readable model: random streams, well-formed and damaged.

Whole, cut anywhere, and byte by byte, a stream must have the effects that plain_routes.py says.
"""

from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.route_effects import KINDS, cuts, effects, expected_effects

BYTEWISE_MAX = 400

accounts = st.sampled_from([b"$G", b"$G", b"$G", b"ACC", b"NOBODY"])
subjects = st.one_of(
    st.sampled_from([b"foo", b"foo", b"a.b.c", b"a.*", b">", b"a..b", b".", b"12", b"|", b"+"]),
    st.binary(min_size=1, max_size=6),
)
replies = st.sampled_from(
    [
        b"reply",
        b"9",
        b"$JS.ACK.S.C.1.2.3.4.5@orders.new",
        b"$JS.ACK.S@1.C.1.2.3.4.5@orders.new",
        b"$JS.ACK.S.C.1.2.3.4.5@",
        b"$JS.ACK.S@1.C",
    ]
)
queues = st.sampled_from([b"q", b"r", b"other", b"7", b"_rerouted_", b"\xff"])
blanks = st.sampled_from([b" ", b" ", b" ", b"  ", b"\t", b" \t "])
endings = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"])
sizes = st.one_of(st.integers(0, 40), st.sampled_from([254, 32_700, 32_768, 40_000]))
size_formats = st.sampled_from([b"%d", b"%d", b"%d", b"%03d", b"%09d", b"%010d", b"-%d"])
CASES: list[Callable[[bytes], bytes]] = [bytes, bytes, bytes, bytes.lower, bytes.title]
cases = st.sampled_from(CASES)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Draw an RMSG, HMSG or LMSG frame; most are well-formed."""
    size = draw(sizes)
    name = draw(st.sampled_from([b"RMSG", b"RMSG", b"HMSG", b"LMSG"]))
    words = [b"leaf"] if name == b"LMSG" else []
    words += [draw(accounts)] if draw(st.sampled_from([True, True, True, False])) else []
    words.append(draw(subjects))
    form = draw(st.sampled_from(["plain", "reply", "queues", "reply and queues", "anything"]))
    if form.startswith("reply"):
        words += ([b"+"] if "queues" in form else []) + [draw(replies)]
    elif form == "queues":
        words.append(b"|")
    if "queues" in form:
        words += draw(st.lists(queues, min_size=1, max_size=3))
    elif form == "anything":
        words += draw(st.lists(st.one_of(subjects, queues), max_size=4))
    if name != b"RMSG":
        words.append(draw(size_formats) % draw(st.integers(0, size + 1)))
    words.append(draw(size_formats) % size)
    payload = (draw(st.sampled_from([b"\0PING\r\n", b"x", b"\r\n"])) * size)[:size]
    return b"".join(
        (
            draw(cases)(name) + draw(blanks) + draw(blanks).join(words),
            draw(endings) + payload,
            draw(st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r\r\n", b"", b"x\r\n"])),
        )
    )


@st.composite
def interests(draw: st.DrawFn) -> bytes:
    """Draw a line that tells of interest; most are well-formed."""
    name = draw(st.sampled_from([b"RS+", b"RS+", b"RS-", b"LS+", b"LS-"]))
    words = [draw(st.sampled_from([b"leaf", b"twig"]))] if name[:1] == b"L" else []
    words += [draw(accounts), draw(subjects)]
    if draw(st.booleans()):
        words.append(draw(queues))
        if name[-1:] == b"+":
            words.append(draw(st.sampled_from([b"1", b"3", b"0", b"70000", b"999999999", b"x"])))
    words += draw(st.sampled_from([[], [], [], [b"more"]]))
    line = draw(cases)(name) + draw(blanks) + draw(blanks).join(words)
    return line + draw(st.sampled_from([b"", b" ", b"\r"])) + draw(endings)


lines = st.sampled_from(
    [
        b"PING\r\n",
        b"pong\r\n",
        b"+OK\r\n",
        b"INFO {}\r\n",
        b'INFO\t{"server_id":"X"} \r\n',
        b"CONNECT {}\n",
        b"-ERR 'no'\r\n",
        b"PUB foo 2\r\nhi\r\n",
        b"SUB foo 1\r\n",
        b"RS* $G foo\r\n",
        b"RSET\r\n",
        b"HELO\r\n",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Draw a sequence of operations; in some of them a few bytes are lost, added or exchanged."""
    some = st.lists(st.one_of(messages(), messages(), interests(), lines), max_size=6)
    stream = bytearray(b"".join(draw(some)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(stream[: draw(st.integers(0, len(stream)))] if draw(st.booleans()) else stream)


@settings(max_examples=200, deadline=None)
@given(
    stream=streams(),
    kind=st.sampled_from(KINDS[:1] * 4 + KINDS),
    places=st.lists(st.integers(0, 1 << 20), max_size=6),
)
@example(stream=b"RMSG $G foo + q 2\r\nhi\r\nRMSG $G foo + 2\r\nhi\r\n", kind={}, places=[4])
@example(stream=b"RMSG $G foo 40000\r\n" + b"x" * 40_000 + b"\r\nPING\r\n", kind={}, places=[99])
@example(stream=b"RMSG $G a | q 40000\r\n" + b"x" * 40_000 + b"\r\n", kind={}, places=[30, 60])
def test_however_it_is_cut(stream: bytes, kind: dict[str, bool], places: list[int]) -> None:
    expected = expected_effects(stream, kind)
    assert effects([stream], kind) == expected
    assert effects(cuts(stream, places), kind) == expected
    head, tail = stream[:BYTEWISE_MAX], stream[BYTEWISE_MAX:]
    assert effects([*(head[at : at + 1] for at in range(len(head))), tail], kind) == expected


@settings(max_examples=150, deadline=None)
@given(garbage=st.binary(max_size=200), first=st.sampled_from([b"", b"R", b"RMSG ", b"LS+ ", b"H"]))
def test_garbage(garbage: bytes, first: bytes) -> None:
    stream = first + garbage
    expected = expected_effects(stream, {})
    assert effects([stream], {}) == expected
    assert effects([stream[at : at + 1] for at in range(len(stream))], {}) == expected
