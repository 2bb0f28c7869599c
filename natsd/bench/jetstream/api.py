"""Requests to a server's JetStream API, for what a run needs to be set up.

They are too slow for measured work: each request waits for its answer, which is parsed as JSON.
"""

import itertools
import json
import os
import re
import socket
from types import TracebackType
from typing import Any, Final, Self

from natsd.bench import wire
from natsd.bench.frames import PING, pub, sub

INBOX: Final = b"_INBOX.api"
ANSWER_SECONDS_MAX: Final = 60.0
RECEIVE_BYTES: Final = 1 << 16
_MESSAGE: Final = re.compile(rb"MSG \S+ 1 (\d+)\r\n")
NOT_FOUND: Final = 404
_numbers: Final = itertools.count()


class Api:
    """A connection for API requests; they raise LoadError for an error answer."""

    def __init__(self, host: str, port: int, seconds_max: float = ANSWER_SECONDS_MAX) -> None:
        """Connect; an answer that takes longer than `seconds_max` is an error, too."""
        self._inbox = b"%s.%d.%d" % (INBOX, os.getpid(), next(_numbers))  # others may be open
        self._sock: socket.socket = wire.connect(host, port, sub(self._inbox))
        self._sock.settimeout(seconds_max)

    def request(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to `$JS.API.<subject>`; raises LoadError if the answer is an error."""
        answer = self._ask(subject, body)
        if "error" in answer:
            raise wire.LoadError(f"{subject}: {answer['error'].get('description')}")
        return answer

    def _ask(self, subject: str, body: dict[str, Any] | None) -> dict[str, Any]:
        payload = b"" if body is None else json.dumps(body).encode()
        self._sock.sendall(pub(f"$JS.API.{subject}".encode(), payload, self._inbox))
        received = b""
        while True:
            try:
                piece = self._sock.recv(RECEIVE_BYTES)
            except TimeoutError:
                raise wire.LoadError(f"{subject}: JetStream gives no answer") from None
            if not piece:
                raise wire.LoadError("the server closed the connection")
            received = (received + piece).replace(PING, b"")
            if received.startswith(b"HMSG"):  # 503: no responders
                raise wire.LoadError(f"{subject}: JetStream does not answer")
            match = _MESSAGE.match(received)
            if match and len(received) >= match.end() + int(match[1]) + 2:
                answer: dict[str, Any] = json.loads(received[match.end() : -2])
                return answer

    def remake_stream(self, config: dict[str, Any]) -> None:
        """Create an empty stream with this configuration; delete a stream of that name first."""
        self.delete_stream(config["name"])
        self.request(f"STREAM.CREATE.{config['name']}", config)

    def delete_stream(self, name: str) -> None:
        """Delete the stream if it exists."""
        answer = self._ask(f"STREAM.DELETE.{name}", None)
        error = answer.get("error")
        if error and error["code"] != NOT_FOUND:
            raise wire.LoadError(f"STREAM.DELETE: {error.get('description')}")

    def messages(self, stream: str) -> int:
        """Return the number of messages in the stream; 0 if the stream does not exist."""
        answer = self._ask(f"STREAM.INFO.{stream}", None)
        return 0 if "error" in answer else int(answer["state"]["messages"])

    def close(self) -> None:
        """Close the connection."""
        wire.close_with_reset(self._sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
