"""The client protocol byte by byte: a readable model with which the compiled parser is compared.

It follows nats-server's `client.parse`. The name of an operation is checked at every byte; the
length of a line is counted from its first argument, without the CR at its end; sizes and the number
of arguments are checked when the line ends; the CRLF behind a payload is checked at every byte. Two
peculiarities of nats-server are left out, because its own answer depends on how the stream is cut
into reads: here a LF always ends the line, and a CR inside a line is an ordinary byte.

Operations have the form in which `natsd.core.network.OpRecorder` writes them.
"""

import re
from collections.abc import Callable

Operation = tuple[str | bytes | None, ...]

BLANKS = b" \t"
NAMES = (b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR")
SPACED = (b"PUB", b"HPUB", b"SUB", b"UNSUB", b"-ERR")
IDLE = (b"PING", b"PONG", b"+OK")


class Violation(Exception):
    """A protocol violation, which ends the stream; the argument is its name."""


class PlainParser:
    def __init__(
        self,
        *,
        max_control_line: int = 4096,
        max_payload: int = 1024 * 1024,
        headers: bool = True,
        awaiting_connect: bool = False,
    ) -> None:
        self.max_control_line = max_control_line
        self.max_payload = max_payload
        self.headers = headers
        self.awaiting_connect = awaiting_connect
        self.operations: list[Operation] = []
        self.violated = False
        self.begin()

    def feed(self, data: bytes) -> list[Operation]:
        """Return the operations that these bytes complete."""
        try:
            while data and not self.violated:
                taken = max(1, self.opaque_bytes())
                self.state(data[:taken])
                data = data[taken:]
        except Violation as violation:
            self.violated = True
            self.operations.append(("violation", str(violation)))
        operations, self.operations = self.operations, []
        return operations

    def opaque_bytes(self) -> int:
        """Return how many payload bytes are still missing; these are not checked one by one."""
        return self.size - len(self.payload) if self.state == self.in_payload else 0

    # ---- states: each takes the next byte

    def begin(self) -> None:
        self.name = self.argument = b""
        self.payload = bytearray()
        self.state: Callable[[bytes], None] = self.in_name

    def in_name(self, byte: bytes) -> None:
        self.name += byte.upper()
        if self.awaiting_connect and not self.name.startswith(b"C"):
            raise Violation("CONNECT_REQUIRED")
        if not any(name.startswith(self.name) for name in NAMES):
            raise Violation("UNKNOWN_OPERATION")
        if self.name in SPACED:
            self.state = self.behind_name
        elif self.name in IDLE:
            self.state = self.in_idle_line
        elif self.name in NAMES:
            self.state = self.in_blanks

    def behind_name(self, byte: bytes) -> None:
        if byte not in BLANKS:
            raise Violation("UNKNOWN_OPERATION")
        self.state = self.in_blanks

    def in_blanks(self, byte: bytes) -> None:
        if byte not in BLANKS:
            self.state = self.in_argument
            self.state(byte)

    def in_argument(self, byte: bytes) -> None:
        if byte == b"\n":
            self.argument = self.argument.removesuffix(b"\r")
            self.line_ended()
            return
        self.argument += byte
        if len(self.argument.removesuffix(b"\r")) > self.max_control_line:
            raise Violation("CONTROL_LINE")

    def in_idle_line(self, byte: bytes) -> None:
        if byte == b"\n":
            if self.name != b"+OK":
                self.operations.append((self.name.decode(),))
            self.begin()

    def in_payload(self, data: bytes) -> None:
        position = len(self.payload) - self.size
        if (position == 0 and data != b"\r") or (position == 1 and data != b"\n"):
            raise Violation("UNKNOWN_OPERATION")
        self.payload += data
        if position == 1:
            self.published()
            self.begin()

    # ---- the meaning of a whole line

    def line_ended(self) -> None:
        match self.name:
            case b"PUB" | b"HPUB":
                self.publish_announced()
                self.state = self.in_payload
                return
            case b"SUB":
                words = self.words(rb"[ \t\r]+", 2, 3)
                queue = words[1] if len(words) == 3 else None
                self.operations.append(("SUB", words[0], queue, words[-1]))
            case b"UNSUB":
                self.operations.append(("UNSUB", *self.words(rb"[ \t\r]+", 1, 2)))
            case _:
                self.operations.append((self.name.decode(), self.argument))
        if self.name == b"CONNECT":
            self.awaiting_connect = False
        self.begin()

    def words(self, separators: bytes, fewest: int, most: int) -> list[bytes]:
        words = [word for word in re.split(separators, self.argument) if word]
        if not fewest <= len(words) <= most:
            raise Violation("BAD_ARGUMENTS")
        return words

    def publish_announced(self) -> None:
        sizes = 1
        if self.name == b"HPUB":
            sizes = 2
            if not self.headers:
                raise Violation("HEADERS_NOT_SUPPORTED")
        words = self.words(rb"[ \t]+", 1 + sizes, 2 + sizes)
        if not all(re.fullmatch(rb"[0-9]{1,9}", size) for size in words[-sizes:]):
            raise Violation("BAD_ARGUMENTS")
        self.size = int(words[-1])
        self.header_size = int(words[-2]) if sizes == 2 else 0
        if self.header_size > self.size:
            raise Violation("BAD_ARGUMENTS")
        if 0 <= self.max_payload < self.size:
            raise Violation("MAX_PAYLOAD")
        if sizes == 2 and not self.header_size:
            del words[-2]  # without headers it is delivered as MSG
        self.subject = words[0]
        self.reply = words[1] if len(words) > (3 if self.header_size else 2) else None
        self.line = b" ".join(words[1:]) + b"\r\n"

    def published(self) -> None:
        headers = bytes(self.payload[: self.header_size])
        payload = bytes(self.payload[self.header_size : -2])
        if headers:
            self.operations.append(("HPUB", self.subject, self.reply, headers, payload, self.line))
        else:
            self.operations.append(("PUB", self.subject, self.reply, payload, self.line))
