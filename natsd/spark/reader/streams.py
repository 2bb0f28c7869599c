"""The driver's requests to servers: existing streams, their states, the sequence at a time.

- There is one connection, opened at the first request and reopened when it is lost. Every request
  can be repeated, and is repeated while JetStream has no leader, as often as the options say.
- A named stream that does not exist is an error; streams that match a pattern may appear and
  disappear.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from natsd.core.wall_time import timestamp
from natsd.spark.errors import ConnectionLost, JetStreamApiError, NoResponders, RequestTimeout
from natsd.spark.offsets import SourceStreamState, state_of
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions

STREAM_NOT_FOUND: Final = 10059
NO_MESSAGE_FOUND: Final = 10037
UNAVAILABLE: Final = 503
DOUBLINGS_MAX: Final = 6
GETS_BY_TIME: Final = (2, 11)
"""Oldest server version that finds the first message at a time itself (STREAM.MSG.GET)."""
PROBE_INACTIVE_NS: Final = 10_000_000_000

Answer = TypeVar("Answer")


class StreamMissing(Exception):
    """A stream that is to be read does not exist."""


@dataclass(frozen=True)
class StreamChoice:
    """The chosen streams: their names, or a regular expression that selects them."""

    names: tuple[str, ...]
    pattern: str | None = None


class ServerStreams:
    """Requests about the chosen streams, for use as a context manager.

    `with ServerStreams(options, choice) as streams: streams.states()`.
    """

    def __init__(
        self,
        connect: ClientOptions,
        choice: StreamChoice,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.connect = connect
        self._sleep = sleep
        self.choice = choice
        self._client: NatsClient | None = None

    def __enter__(self) -> ServerStreams:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later request opens it again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(self, question: Callable[[NatsClient], Answer]) -> Answer:
        """Return the result of `question`, a function that sends requests with the client.

        It is called again, up to `retries` times, if the connection is lost, a request times out,
        or JetStream is temporarily unavailable. Blocks.
        """
        attempt = 0
        while True:
            try:
                if self._client is None:
                    self._client = NatsClient(self.connect)
                return question(self._client)
            except (JetStreamApiError, ConnectionLost, NoResponders, RequestTimeout) as error:
                if isinstance(error, JetStreamApiError) and error.code != UNAVAILABLE:
                    raise
                if not isinstance(error, JetStreamApiError | NoResponders):
                    self.close()
                if attempt >= self.connect.retries:
                    raise
            self._sleep(self.connect.retry_interval_s * 2 ** min(attempt, DOUBLINGS_MAX))
            attempt += 1

    def api(self, name: str, body: object = None) -> dict[str, Any]:
        """Send a request to the JetStream API; return its answer.

        Raises JetStreamApiError, ClientError.
        """
        return self.ask(lambda client: client.api(name, body))

    def states(self) -> dict[str, SourceStreamState]:
        """Return the states of the chosen streams, by name.

        Raises StreamMissing if a named stream does not exist.
        """
        if self.choice.pattern is None:
            return {name: self.state(name) for name in self.choice.names}
        wanted = re.compile(self.choice.pattern)
        found = [stream for stream in self._all() if wanted.fullmatch(stream.name)]
        return {stream.name: stream for stream in sorted(found, key=lambda stream: stream.name)}

    def state(self, name: str) -> SourceStreamState:
        """Return the state of a stream. Raises StreamMissing."""
        found = self.find(name)
        if found is None:
            raise StreamMissing(
                f'there is no stream "{name}": it was never created, or it was deleted'
            )
        return found

    def find(self, name: str) -> SourceStreamState | None:
        """Return the state of a stream; None: it does not exist."""
        try:
            return state_of(self.api(f"STREAM.INFO.{name}"))
        except JetStreamApiError as error:
            if error.err_code == STREAM_NOT_FOUND:
                return None
            raise

    def _all(self) -> list[SourceStreamState]:
        found: list[SourceStreamState] = []
        while True:
            page = self.api("STREAM.LIST", {"offset": len(found)})
            streams: Sequence[dict[str, Any]] = page.get("streams") or ()
            found += map(state_of, streams)
            if not streams or len(found) >= int(page.get("total", 0)):
                return found

    def sequence_at(self, stream: SourceStreamState, time_ns: int) -> int:
        """Return the first sequence at or after a time in ns since the epoch.

        Returns the end of the stream if all its messages are older.
        """
        if stream.messages == 0:
            return stream.end
        version = self.ask(lambda client: str(client.info.get("version", "")))
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < GETS_BY_TIME:
            return self._probe(stream, time_ns)
        try:
            answer = self.api(
                f"STREAM.MSG.GET.{stream.name}",
                {"start_time": timestamp(time_ns), "next_by_subj": ">"},
            )
        except JetStreamApiError as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return stream.end
            raise
        return int(answer["message"]["seq"])

    def _probe(self, stream: SourceStreamState, time_ns: int) -> int:
        """Return the first sequence that a consumer starting at that time would deliver."""
        config = {
            "deliver_policy": "by_start_time",
            "opt_start_time": timestamp(time_ns),
            "ack_policy": "none",
            "inactive_threshold": PROBE_INACTIVE_NS,
        }
        answer = self.api(
            f"CONSUMER.CREATE.{stream.name}", {"stream_name": stream.name, "config": config}
        )
        self.api(f"CONSUMER.DELETE.{stream.name}.{answer['name']}")
        return int(answer["delivered"]["stream_seq"]) + 1
