"""Sender: sends the rows of one task, many at a time, until all are acknowledged.

    add ─▶ [ rows of incomplete batches ] ─▶ SendWindow ─▶ socket
                                                  ▲  answers: done, or refused

Promise
- A row is sent only while this attempt holds the lease, and is released from memory only after it
  is acknowledged.
- After a lost connection or silence, no stored row is sent again: the messages behind the record's
  stream ends are read first, however long the outage was.
- Rows that the server refuses temporarily (429, 503, no leader) are sent again, with growing
  pauses, until nothing was acknowledged for `ack_timeout_s`; such a row may then be behind later
  rows. A permanent refusal raises WriteError.
- Memory: the batches with pending rows, and at most 128 KiB (or one message) of frames.

Source: nats-server's `JSPubAckResponse`; errors.json of nats-server.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from natsd.spark.errors import (
    AuthorizationError,
    ClientError,
    ConnectError,
    ConnectionLost,
    JetStreamApiError,
    NoResponders,
    ProtocolViolation,
    RequestTimeout,
)
from natsd.spark.sink.begin_records import REFUSED_MAX, StreamEnd, TaskLease, WriteError
from natsd.spark.sink.publishing import FoundIds, RowBatch, SendWindow
from natsd.spark.sink.targets import TargetStreams, no_stream, stream_of
from natsd.spark.wire.client import NatsClient

WAIT_S: Final = 0.25
PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
NO_RESPONDERS: Final = b"NATS/1.0 503"
STORE_FAILED: Final = 10077
LOST: Final = (ConnectionLost, RequestTimeout, ProtocolViolation, NoResponders)
ADVICE: Final = {
    10047: "the server has no more room: free some, or raise max_file_store",
    10054: "raise the stream's max_msg_size, or send less",
    10060: "another stream took the subject",
    10077: "make room in the stream, or raise its limits (max_msgs, max_bytes), or let it discard "
    "old messages",
    10002: "raise the account's limits, or delete what it does not need",
}


class Sender:
    """Sender of one task. Methods raise WriteError, ClientError, TakenOver."""

    def __init__(
        self,
        client: NatsClient,
        targets: TargetStreams,
        lease: TaskLease,
        window: SendWindow,
        find: Callable[[], FoundIds],
        ack_timeout_s: float,
    ) -> None:
        self.client = client
        self.targets = targets
        self.lease = lease
        self.window = window
        self.found: FoundIds | None = None
        self._find = find
        self._ack_timeout_s = ack_timeout_s
        self._batches: deque[tuple[int, RowBatch]] = deque()
        self._end = window.first
        self._is_in_order = True
        self._progress_at = time.monotonic()
        self._acknowledged = 0
        self._pause_s = PAUSE_S
        self._resend_at: float | None = None
        self._attach()

    def add(self, base: int, rows: RowBatch) -> None:
        """Add rows to be sent; the first of them is row `base` of the task."""
        for target in self.targets.found.values():
            self.window.add_target(target.wire_name)
        self._batches.append((base, rows))
        self._end = base + rows.count

    def send_up_to(self, row: int) -> None:
        """Block until every row below `row` is sent or done."""
        self._progress_at = time.monotonic()
        while self.window.next < row:
            self._step(must_wait=True)
        self._step(must_wait=False)

    def drain(self) -> None:
        """Block until every row is acknowledged."""
        self._progress_at = time.monotonic()
        while self.window.first < self._end:
            self._step(must_wait=True)

    def state(self) -> dict[str, Any]:
        """Return the fields for the record: acknowledged rows, stream ends, refused rows."""
        rows = max(self.window.first, self.lease.record.rows)
        return {
            "rows": rows,
            "targets": self._stream_ends(),
            "refused": tuple(self.window.refused_rows()[:REFUSED_MAX]),
        }

    def _stream_ends(self) -> dict[str, StreamEnd]:
        """Return the stream ends, advanced to the acknowledged rows while these came in order."""
        known = self.lease.record.targets
        stream_ends = {
            name: known.get(name) or target.stream_end
            for name, target in self.targets.found.items()
        }
        if self.lease.record.takeovers or self.lease.record.by_id or not self._is_in_order:
            return known | stream_ends
        last = self.window.last_sequences()
        for name, target in self.targets.found.items():
            sequence = last.get(target.wire_name, 0)
            if sequence > stream_ends[name].sequence:
                stream_ends[name] = StreamEnd(sequence, stream_ends[name].created)
        return stream_ends

    # One step of sending and receiving

    def _step(self, must_wait: bool) -> None:
        try:
            self._send()
            self._receive(must_wait)
            self._answer_refusals()
            if self.lease.is_due:
                self.lease.change(**self.state())
        except LOST as error:
            self.resume(error)
        self._check_progress()

    def _send(self) -> None:
        window = self.window
        if self._resend_at is None:
            for base, rows in self._batches:
                if base <= window.next < base + rows.count:
                    window.fill(rows, base, base + rows.count, self.found)
        elif time.monotonic() >= self._resend_at and not window.in_flight:
            for base, rows in self._batches:
                window.resend(rows, base)
            if not window.refused:
                self._resend_at = None
        while self._batches and self._batches[0][0] + self._batches[0][1].count <= window.first:
            self._batches.popleft()
        if not window.outgoing():
            return
        if self.lease.age_s > 0.8 * self.lease.seconds:
            self.lease.change(**self.state())
        self.client.send(window.outgoing())
        window.sent_all()

    def _receive(self, must_wait: bool) -> None:
        """Receive answers.

        Returns at once if more rows can be sent, else waits until half of the pending ones are
        answered.
        """
        window = self.window
        is_last = window.next >= self._end
        window.wake_below = 0 if is_last else max(window.in_flight // 2, 1)
        can_send = self._resend_at is None and not is_last and not window.is_full
        wait = WAIT_S if must_wait and not can_send else 0.0
        if self._resend_at is not None and not window.in_flight:
            wait = min(wait, max(self._resend_at - time.monotonic(), 0.0))
        elif must_wait and not window.in_flight:
            wait = 0.0
        self.client.receive(time.monotonic() + wait)

    def _check_progress(self) -> None:
        now = time.monotonic()
        window = self.window
        if window.acknowledged != self._acknowledged or window.first >= self._end:
            self._acknowledged = window.acknowledged
            self._progress_at = now
            self._pause_s = PAUSE_S if self._resend_at is None else self._pause_s
            return
        silent_s = now - self._progress_at
        if silent_s > self._ack_timeout_s:
            raise WriteError(
                f"{self.client.server_address}: nothing was acknowledged for {silent_s:.0f} s, "
                f"{window.in_flight} messages wait for it: is the stream's leader well? "
                "(ackTimeout says how long to wait)"
            )

    # Refusals

    def _answer_refusals(self) -> None:
        refusals = self.window.take_refusals()
        if not refusals:
            return
        asked: set[str] = set()
        for row, headers, data in refusals:
            self._handle_refusal(row, headers, data, asked)
        if not self.window.refused:
            return
        self._is_in_order = False
        self.lease.change(**self.state())
        self._resend_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def _handle_refusal(self, row: int, headers: bytes, data: bytes, asked: set[str]) -> None:
        """Handle one refusal: return if the row may be sent again or is stored, else raise."""
        subject = self._subject(row)
        if headers.startswith(NO_RESPONDERS) and not data:
            if not asked and stream_of(self.client, subject) is None:
                raise no_stream(subject)
            asked.add(subject)
            return
        try:
            answer = json.loads(data or b"{}")
        except ValueError:
            answer = {}
        error = answer.get("error")
        if error:
            self._handle_error(subject, error)
            return
        if headers.startswith(b"NATS/1.0 429"):
            return
        stream = answer.get("stream")
        if stream is None or not answer.get("seq"):
            raise WriteError(f'the answer for "{subject}" is no acknowledgement: {data[:80]!r}')
        target = self.targets.found.get(stream)
        if target is None:
            raise WriteError(
                f'stream "{stream}" stored "{subject}", which was another one\'s when the write '
                "began: its subjects changed; start the write again"
            )
        self.window.acknowledge(
            row, target.wire_name, int(answer["seq"]), bool(answer.get("duplicate"))
        )

    def _handle_error(self, subject: str, error: dict[str, Any]) -> None:
        code, reason = int(error.get("code", 500)), int(error.get("err_code", 0))
        if code in (429, 503) and reason != STORE_FAILED:
            return
        advice = ADVICE.get(reason, "")
        raise WriteError(
            f'the stream refuses "{subject}": {error.get("description", "unknown error")} '
            f"({code}/{reason}){': ' + advice if advice else ''}"
        )

    def _subject(self, row: int) -> str:
        for base, rows in self._batches:
            if base <= row < base + rows.count:
                return rows.subject(row - base)
        raise AssertionError(f"row {row} was sent and is not held")

    # Connections

    def _attach(self) -> None:
        inbox = self.client.new_inbox()
        self.client.subscribe(f"{inbox}.*", self.window)
        self.window.connected(f"{inbox}.".encode())
        self._resend_at = None

    def resume(self, error: ClientError) -> None:
        """Reconnect, renew the lease, and read which rows were stored meanwhile. Blocks."""
        started = time.monotonic()
        pause_s = PAUSE_S
        self._is_in_order = False
        while True:
            if time.monotonic() - started > self._ack_timeout_s:
                raise WriteError(
                    f"{error}: no server took it up again for {self._ack_timeout_s:.0f} s"
                )
            try:
                self.client.reconnect()
                self.lease.confirm(**self.state())
                self.found = self._find()
                self._attach()
                return
            except AuthorizationError:
                raise
            except (*LOST, ConnectError) as again:
                error = again
            except JetStreamApiError as again:
                if again.code not in (429, 503):
                    raise
                error = again
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
