"""The protocol of routes line by line: a model with which the compiled parser is compared.

It follows nats-server's `processRoutedMsgArgs` and `processRemoteSub`. A frame is looked at when
its line is complete; a payload when it is there. Operations are:

    ("RS+", origin, account, subject, queue, weight)      the account is None on a dedicated route
    ("RS-", origin, account, subject, queue)
    ("MSG", account, subject, reply, queues, headers, payload)
    ("INFO" or "CONNECT" or "-ERR", text)      ("PING",)      ("PONG",)      ("violation",)
"""

import re

Operation = tuple[object, ...]

IDLE = (b"PING", b"PONG", b"+OK")
TEXTS = (b"CONNECT", b"INFO", b"-ERR")
OF_CLIENTS = (b"PUB", b"HPUB", b"SUB", b"UNSUB")
SPACED = (b"-ERR", *OF_CLIENTS)
BLANKS = (b" ", b"\t")
PAYLOAD_MAX = 65 * 1024 * 1024
LOOKED_AT = 5
"""Bytes by which operations of routes are known."""


class Violation(Exception):
    """Invalid input, which ends the stream."""


class PlainRoutes:
    """What a stream of a route means."""

    def __init__(self, *, is_open: bool = True, is_dedicated: bool = False) -> None:
        """Without `is_open` the handshake is not over."""
        self.is_open = is_open
        self.is_dedicated = is_dedicated

    def parse(self, stream: bytes) -> list[Operation]:
        """Return the operations of a stream; the rest of an incomplete frame is left out."""
        operations: list[Operation] = []
        try:
            while stream:
                operation, used = self.frame(stream)
                if used == 0:
                    break
                if operation is not None:
                    operations.append(operation)
                stream = stream[used:]
        except Violation:
            operations.append(("violation",))
        return operations

    def frame(self, stream: bytes) -> tuple[Operation | None, int]:
        """Return the operation at the start and its size, which is 0 if it is incomplete."""
        if self.is_open and stream[:1].upper() in (b"R", b"H", b"L"):
            if len(stream) < LOOKED_AT:
                return None, 0
            head = stream[:LOOKED_AT].upper()
            if head[1:2] == b"S" and head[:1] != b"H" and head[3:4] in BLANKS:
                return self.interest(stream)
            if head[1:4] == b"MSG" and head[4:] in BLANKS:
                return self.message(stream)
        return self.common(stream)

    def common(self, stream: bytes) -> tuple[Operation | None, int]:
        """Return an operation that clients have too; its name is checked byte by byte."""
        for name in IDLE + TEXTS + OF_CLIENTS:
            size = min(len(name), len(stream))
            if stream[:size].upper() != name[:size]:
                continue
            if stream[size:] and (
                name in OF_CLIENTS or (name in SPACED and stream[size : size + 1] not in BLANKS)
            ):
                break
            end = stream.find(b"\n", len(name))
            if end < 0:
                return None, 0
            text = stream[len(name) : end].lstrip(b" \t").removesuffix(b"\r")
            if name in TEXTS:
                return (name.decode(), text), end + 1
            return (None if name == b"+OK" else (name.decode(),)), end + 1
        raise Violation

    def words(self, stream: bytes) -> tuple[list[bytes], int]:
        """Return the words behind the name of an operation, and the size of the line; 0: no end."""
        end = stream.find(b"\n")
        line = stream[:end].removesuffix(b"\r")
        return [word for word in re.split(rb"[ \t]+", line)[1:] if word], end + 1

    # ---- interest

    def interest(self, stream: bytes) -> tuple[Operation | None, int]:
        words, size = self.words(stream)
        if size == 0:
            return None, 0
        if stream[2:3] not in (b"+", b"-"):
            raise Violation
        origin = b""
        if stream[:1].upper() == b"L" and words:
            origin = words.pop(0)
        account = None if self.is_dedicated else self.taken(words)
        subject = self.taken(words)
        queue = words.pop(0) if words else None
        if stream[2:3] == b"-":
            return ("RS-", origin, account, subject, queue), size
        weight = number(self.taken(words)) if queue is not None else 1
        return ("RS+", origin, account, subject, queue, weight), size

    def taken(self, words: list[bytes]) -> bytes:
        """Remove and return the first word, which must be there."""
        if not words:
            raise Violation
        return words.pop(0)

    # ---- messages

    def message(self, stream: bytes) -> tuple[Operation | None, int]:
        words, size = self.words(stream)
        if size == 0:
            return None, 0
        kind = stream[:1].upper()
        if kind == b"L" and words:
            del words[0]  # the leaf cluster of the origin
        account = None if self.is_dedicated else self.taken(words)
        subject = self.taken(words)
        numbers = 1 if kind == b"R" else 2
        if len(words) < numbers:
            raise Violation
        sizes = [number(word) for word in words[-numbers:]]
        data_size, header_size = sizes[-1], sizes[0] if numbers == 2 else 0
        reply, queues = self.recipients(words[:-numbers])
        if header_size > data_size or data_size > PAYLOAD_MAX:
            raise Violation
        data = stream[size : size + data_size]
        ending = stream[size + data_size : size + data_size + 2]
        if not b"\r\n".startswith(ending):
            raise Violation
        if len(ending) < 2:
            return None, 0
        message = ("MSG", account, subject, reply, queues, data[:header_size], data[header_size:])
        return message, size + data_size + 2

    def recipients(self, words: list[bytes]) -> tuple[bytes | None, tuple[bytes, ...]]:
        """Return the reply subject and the queue groups that a frame names."""
        if len(words) < 2:
            return (words[0] if words else None), ()
        if words[0] == b"|":
            return None, tuple(words[1:])
        if words[0] == b"+":
            return words[1], tuple(words[2:])
        raise Violation


def number(word: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,9}", word):
        raise Violation
    return int(word)
