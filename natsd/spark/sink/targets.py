"""The streams that a task writes to: found by subject, or named by the option `stream`.

Promise
- Before a row is sent, its stream and the end of that stream are known. A row whose subject is in
  no stream, or not in the named stream, is refused before the batch is sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from natsd.spark.errors import JetStreamApiError
from natsd.spark.sink.begin_records import StreamEnd, WriteError
from natsd.spark.sink.publishing import RowBatch
from natsd.spark.wire.client import NatsClient

NO_STREAM = 10059


@dataclass(frozen=True)
class TargetStream:
    """A target stream as it was when STREAM.INFO was requested."""

    name: str
    subjects: tuple[bytes, ...]
    stream_end: StreamEnd
    first_sequence: int

    @property
    def wire_name(self) -> bytes:
        """The stream's name as it is written in the JSON of an acknowledgement."""
        return json.dumps(self.name)[1:-1].encode()


class TargetStreams:
    """The target streams of one task. Methods raise ClientError and WriteError."""

    def __init__(self, client: NatsClient, stream: str | None) -> None:
        self.client = client
        self.stream = stream
        self.found: dict[str, TargetStream] = {}

    def cover(self, rows: RowBatch) -> bool:
        """Find the stream of each row; return whether a new stream was found."""
        grew = False
        if self.stream is not None and not self.found:
            self.found[self.stream] = self.ask(self.stream)
            grew = True
        patterns = self._patterns()
        row = rows.first_outside(patterns, 0)
        while row < rows.count:
            subject = rows.subject(row)
            name = self._stream_of(subject)
            if name in self.found:
                raise WriteError(
                    f'the subjects of stream "{name}" changed while it was written to: '
                    f'"{subject}" is new; start the write again'
                )
            self.found[name] = self.ask(name)
            grew = True
            patterns = self._patterns()
            row = rows.first_outside(patterns, row)
        return grew

    def _patterns(self) -> list[bytes]:
        return [subject for target in self.found.values() for subject in target.subjects]

    def _stream_of(self, subject: str) -> str:
        if self.stream is not None:
            subjects = b", ".join(self.found[self.stream].subjects).decode("utf-8", "replace")
            raise WriteError(
                f'the subject "{subject}" is not one of stream "{self.stream}" '
                f"({subjects or 'it has none'}): change the option stream, or the row"
            )
        name = stream_of(self.client, subject)
        if name is None:
            raise no_stream(subject)
        return name

    def ask(self, name: str) -> TargetStream:
        """Request the stream's current state."""
        try:
            info = self.client.api(f"STREAM.INFO.{name}")
        except JetStreamApiError as error:
            if error.err_code == NO_STREAM:
                raise WriteError(f'there is no stream "{name}": create it first') from None
            raise
        config, state = info["config"], info["state"]
        for obstacle in ("mirror", "sealed"):
            if config.get(obstacle):
                raise WriteError(f'the stream "{name}" is {WORDS[obstacle]}: nothing can be added')
        return TargetStream(
            name,
            tuple(subject.encode() for subject in config.get("subjects") or ()),
            StreamEnd(int(state["last_seq"]), str(info["created"])),
            int(state["first_seq"]),
        )


WORDS = {"mirror": "a mirror", "sealed": "sealed"}


def stream_of(client: NatsClient, subject: str) -> str | None:
    """Return the stream of the subject; None: no stream has it. Raises ClientError."""
    names: list[Any] = client.api("STREAM.NAMES", {"subject": subject}).get("streams") or []
    return str(names[0]) if names else None


def no_stream(subject: str) -> WriteError:
    """Return the error for a subject that no stream has."""
    return WriteError(
        f'no stream has the subject "{subject}": create one with it, '
        "or see whether domain and apiPrefix are right"
    )
