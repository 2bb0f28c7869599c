r"""Wire transcripts: text files of what clients send and the server answers; and their player.

    # An auto-unsubscribe counts from the SUB.
    options: max_payload=1024
    A> CONNECT {"verbose":false,"pedantic":false}
    A> SUB foo 1
    A> PING
    A< PONG
    B> PUB foo 5
    B> hello
    A< MSG foo 1 5
    A< hello

- The first line states the rule that the transcript proves. Further `#` lines are comments; blank
  lines separate.
- `A> text` sends text and CRLF on connection A, `A< text` expects exactly that. Connections are
  capital letters, opened in the order in which they first appear; a transcript with one connection
  leaves the letter out. The INFO greeting is read when a connection opens and is not shown.
- Escapes: `\r \n \t \0 \\ \xHH`; a single `\` at the end of a line leaves the CRLF out;
  `{x*4096}` is x repeated. `A~ regex` expects one frame that matches, without its CRLF.
- `A! closed` expects the server to close without sending more; `A! half-close` ends A's sending.
- At the end every open connection gets a PING and must answer PONG and nothing else.
- `options:` gives server options; `whole: reason` plays the transcript only as it is, never split;
  `go-whole: reason` does so for nats-server only.

All sends up to the next line of another kind are sent in one piece. `play` can cut the sent bytes
in two at a position, or send them byte by byte. The server has read each piece before the next one
is sent, because it has answered another connection's PING that was sent after the piece.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.wire import Address, Closed, Wire

LINE = re.compile(r"^([A-Z]?)([><~!]) ?(.*)$")
REPEAT = re.compile(rb"\{([^{}\"*]+)\*(\d+)\}")
ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)")
ESCAPES = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


@dataclass(frozen=True)
class Step:
    """One step of a connection: `>` send, `<` expect, `~` match, `!` an event."""

    connection: str
    kind: str
    data: bytes


@dataclass
class Transcript:
    """The contents of a transcript file."""

    title: str
    options: dict[str, Any] = field(default_factory=dict)
    whole: str = ""
    go_whole: str = ""
    steps: list[Step] = field(default_factory=list)

    @property
    def sent_bytes(self) -> int:
        return sum(len(step.data) for step in self.steps if step.kind == ">")


def read_transcript(path: Path) -> Transcript:
    """Read a transcript; consecutive lines of one kind on one connection become one step."""
    first, *lines = path.read_text().splitlines()
    assert first.startswith("# "), f"{path.name} does not open with the rule that it proves"
    transcript = Transcript(first[2:])
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.startswith("#"):
            continue
        if match := LINE.match(line):
            _add(transcript.steps, Step(match[1] or "A", match[2], _bytes(match[2], match[3])))
        else:
            _set(transcript, line, f"{path.name}:{number}")
    return transcript


def _set(transcript: Transcript, line: str, where: str) -> None:
    name, _, value = (part.strip() for part in line.partition(":"))
    if name == "options":
        for setting in value.split():
            option, _, text = setting.partition("=")
            transcript.options[option] = ast.literal_eval(text)
    elif name in ("whole", "go-whole"):
        setattr(transcript, name.replace("-", "_"), value)
    else:
        raise ValueError(f"{where}: not a transcript line: {line!r}")


def _add(steps: list[Step], step: Step) -> None:
    last = steps[-1] if steps else None
    if last and step.kind in "><" and (last.connection, last.kind) == (step.connection, step.kind):
        steps[-1] = Step(step.connection, step.kind, last.data + step.data)
    else:
        steps.append(step)


def _bytes(kind: str, text: str) -> bytes:
    if kind in "~!":
        return text.encode()
    raw = text.encode()
    without_escapes = raw.replace(rb"\\", b"")
    if without_escapes.endswith(b"\\"):
        raw, end = raw[:-1], b""
    else:
        end = b"\r\n"
    raw = REPEAT.sub(lambda match: match[1] * int(match[2]), raw)
    return ESCAPE.sub(_unescape, raw) + end


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code[1:], 16)]) if code[:1] == b"x" else ESCAPES[code]


Cut = Callable[[bytes], list[bytes]]


def whole(data: bytes) -> list[bytes]:
    """Leave each send in one piece."""
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    """Cut each send into single bytes."""
    return [data[i : i + 1] for i in range(len(data))]


def cut_at(position: int) -> Cut:
    """Return a cut of everything that a transcript sends in two at `position`."""
    sent = 0

    def cut(data: bytes) -> list[bytes]:
        nonlocal sent
        start, sent = sent, sent + len(data)
        if start < position < sent:
            return [data[: position - start], data[position - start :]]
        return [data]

    return cut


def cuts(sent_bytes: int, every_cut_up_to: int = 600) -> Iterator[tuple[str, Cut]]:
    """Yield the ways to split a transcript: byte by byte, and in two at every position.

    A long transcript is cut at fewer positions.
    """
    if sent_bytes <= every_cut_up_to:
        yield "byte by byte", byte_by_byte
        positions: Any = range(1, sent_bytes)
    else:
        edge = range(1, 100)
        positions = sorted({*edge, *range(100, sent_bytes, 97), *(sent_bytes - k for k in edge)})
    for position in positions:
        yield f"cut at {position}", cut_at(position)


class Player:
    """A player of transcripts against one server.

    The `metronome` is a connection that tells when the server has read what was sent.
    """

    def __init__(self, address: Address, metronome: Wire | None = None) -> None:
        self._address = address
        self._metronome = metronome
        self._wires: dict[str, Wire] = {}

    def play(self, transcript: Transcript, cut: Cut = whole) -> None:
        self._wires = {}
        try:
            for step in transcript.steps:
                self._play_step(step, cut)
            for letter, wire in self._wires.items():
                self._expect_nothing_more(letter, wire)
                wire.leave()
        finally:
            for wire in self._wires.values():
                wire.close()

    def _play_step(self, step: Step, cut: Cut) -> None:
        if step.connection not in self._wires:
            self._wires[step.connection] = Wire(self._address)
        wire = self._wires[step.connection]
        if step.kind == ">":
            self._send(wire, cut(step.data))
        elif step.kind == "<":
            expect(wire, step.data)
        elif step.kind == "~":
            frame = wire.read_frame()
            assert re.fullmatch(step.data, frame.removesuffix(b"\r\n")), frame
        elif step.data == b"closed":
            assert wire.read_until_closed() == b""
            self._wires.pop(step.connection).close()
        else:
            assert step.data == b"half-close", step
            wire.half_close()

    def _send(self, wire: Wire, pieces: list[bytes]) -> None:
        for piece in pieces[:-1]:
            wire.send(piece)
            assert self._metronome, "to split a transcript, the player needs a metronome"
            self._metronome.sync()
        wire.send(pieces[-1])

    @staticmethod
    def _expect_nothing_more(letter: str, wire: Wire) -> None:
        more = [frame for frame in wire.sync() if not frame.startswith(b"INFO ")]
        assert more == [], f"{letter} received more than the transcript tells"


def expect(wire: Wire, expected: bytes) -> None:
    """Read exactly these bytes, frame by frame."""
    received = b""
    while len(received) < len(expected):
        try:
            received += wire.read_frame()
        except (Closed, TimeoutError) as error:
            raise AssertionError(
                f"expected {expected!r}, received {received!r}, {error}"
            ) from error
        if not expected.startswith(received):
            break
    assert received == expected, f"expected {expected!r}, received {received!r}"
