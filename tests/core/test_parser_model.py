"""The parser against its readable model: random streams, well-formed and damaged, cut anywhere.

Whole, cut, byte by byte, and suspended after each operation, a stream must give the same operations
as `PlainParser`.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from natsd.core.network import OpRecorder
from tests.core.plain_parser import Operation, PlainParser

BYTEWISE_MAX = 3000
TAIL_MAX = 32 * 1024 + 4096  # a small frame, or a line without its end

words = st.one_of(
    st.sampled_from([b"foo", b"a.b.c", b"*", b">", b"12", b"0", b"999999999", b"1 1"]),
    st.binary(min_size=1, max_size=8),
)
blanks = st.sampled_from([b" ", b" ", b" ", b"  ", b"\t", b" \t ", b" " * 50])
endings = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"])
sizes = st.one_of(st.integers(0, 40), st.sampled_from([254, 32_700, 32_768, 40_000]))
size_formats = st.sampled_from([b"%d", b"%d", b"%d", b"%03d", b"%09d", b"%010d", b"+%d", b"-%d"])


@st.composite
def in_any_case(draw: st.DrawFn, name: bytes) -> bytes:
    return draw(st.sampled_from([name, name, name.lower(), name.title()]))


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    """Draw a PUB or HPUB frame; most are well-formed."""
    size = draw(sizes)
    arguments = [draw(words), *draw(st.lists(words, max_size=1))]
    name = draw(st.sampled_from([b"PUB", b"HPUB"]))
    if name == b"HPUB":
        arguments.append(draw(size_formats) % draw(st.integers(0, size + 1)))
    arguments.append(draw(size_formats) % size)
    payload = draw(st.sampled_from([b"\0PING\r\n", b"x", b"\r", b"\n", b"\r\n"])) * size
    return b"".join(
        (
            draw(in_any_case(name)) + draw(blanks),
            draw(blanks).join(arguments),
            draw(endings),
            payload[:size],
            draw(st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r\r\n", b"", b"x\r\n"])),
        )
    )


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Draw an operation of one line, with any number of arguments."""
    names = [b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR"]
    name = draw(in_any_case(draw(st.sampled_from(names))))
    arguments = draw(st.lists(words, max_size=4))
    return (
        name
        + draw(blanks)
        + draw(blanks).join(arguments)
        + draw(st.sampled_from([b"", b" ", b"\r"]))
        + draw(endings)
    )


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Draw a sequence of operations; in some of them a few bytes are lost, added or exchanged."""
    stream = bytearray(b"".join(draw(st.lists(st.one_of(publishes(), lines()), max_size=6))))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(stream[: draw(st.integers(0, len(stream)))] if draw(st.booleans()) else stream)


limits = st.fixed_dictionaries(
    {
        "max_control_line": st.sampled_from([4096, 4096, 20, 0]),
        "max_payload": st.sampled_from([1024 * 1024, -1, 30, 0, 32_768]),
        "headers": st.sampled_from([True, True, False]),
        "awaiting_connect": st.sampled_from([False, False, True]),
    }
)


@settings(max_examples=600, deadline=None)
@given(stream=streams(), limits=limits, cuts=st.lists(st.integers(0, 1 << 20), max_size=6))
@example(stream=b"PUB " + b" " * 5000 + b"a 1\r\nx\r\n", limits={}, cuts=[10, 4000, 5005])
@example(stream=b"SUB a" + b" " * 4096 + b"\r\n", limits={}, cuts=[4100])
def test_however_it_is_cut(stream: bytes, limits: dict[str, int], cuts: list[int]) -> None:
    expected = PlainParser(**limits).feed(stream)  # type: ignore[arg-type]  # bool and int
    places = sorted(cut % (len(stream) + 1) for cut in cuts)
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert parsed([stream], limits) == expected
    assert parsed(pieces, limits) == expected
    assert parsed(pieces, limits, step_by_step=True) == expected
    head, tail = stream[:BYTEWISE_MAX], stream[BYTEWISE_MAX:]
    assert parsed([head[at : at + 1] for at in range(len(head))] + [tail], limits) == expected


@settings(max_examples=400, deadline=None)
@given(garbage=st.binary(max_size=200))
def test_garbage(garbage: bytes) -> None:
    expected = PlainParser().feed(garbage)
    assert parsed([garbage], {}) == expected
    assert parsed([garbage[at : at + 1] for at in range(len(garbage))], {}) == expected


def parsed(
    pieces: list[bytes], limits: dict[str, int], *, step_by_step: bool = False
) -> list[Operation]:
    parser = OpRecorder(**limits, step_by_step=step_by_step)  # type: ignore[arg-type]  # likewise
    operations = []
    for piece in pieces:
        operations += parser.feed(piece)
        assert parser.tail_bytes <= TAIL_MAX
    return operations
