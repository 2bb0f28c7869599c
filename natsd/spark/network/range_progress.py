"""State of a task's read of one range: the stream, the position, and possible data loss.

Promise
- `last` only grows, and all rows up to it were yielded or are in `batch`: a retry after a failure
  continues behind it.
- No loss is silent. DataLoss is raised if the stream begins behind `last` when the read begins, or
  behind a gap after the gap was read over. A stream's beginning only moves up, so a gap behind the
  beginning is a hole. (A hole that the beginning passes while the same request is being read counts
  as a loss.)
- The leader decides about the end: if the last wanted message was not seen, the leader is asked for
  the next message. A replica that has not caught up raises Lagging.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pyarrow as pa

from natsd.spark.errors import ClientError, JetStreamApiError, RequestTimeout
from natsd.spark.network.range_decoders import RangeDecoder
from natsd.spark.ranges import DataLoss, RangeRequest
from natsd.spark.rows.arrow import BatchWrapper
from natsd.spark.rows.message_batch import MessageBatch
from natsd.spark.wire.client import ClientSubscription, NatsClient, decode_answer
from natsd.spark.wire.frames import FrameHandler, ReceivedMessage

NO_MESSAGE: Final = 10037
IDLE_BYTES_MAX: Final = 1024
"""Fewer received bytes than this within a request timeout are only heartbeats: no progress."""
ROW_BYTES: Final = 1024
"""Assumed size of a message in a stream without messages."""


class Lagging(ClientError):
    """The replica that answered does not have all messages yet."""


class StreamReadInfo:
    """The parts of an answer to STREAM.INFO that a read needs.

    `first` and `last` are sequences; `is_kept`: retention is by limits, so reads have no effect on
    it; `message_bytes` is the mean size; `server_version` is (major, minor).
    """

    def __init__(self, answer: dict[str, Any], server: dict[str, Any]) -> None:
        state, config = answer["state"], answer["config"]
        self.first = int(state["first_seq"])
        self.last = int(state["last_seq"])
        self.allow_direct = bool(config.get("allow_direct"))
        self.is_kept = config.get("retention", "limits") == "limits"
        messages = int(state["messages"])
        self.message_bytes = int(state["bytes"]) // messages if messages else ROW_BYTES
        self.server_version = version_of(str(server.get("version", "")))


class RangeProgress:
    """State of the read of one range, across reconnects.

    `last` is the last sequence that was read, `target` the last sequence to read.
    """

    def __init__(
        self,
        client: NatsClient,
        request: RangeRequest,
        names: tuple[str, ...],
        max_rows: int,
        max_bytes: int,
    ) -> None:
        self.client = client
        self.request = request
        self.names = names
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.last = request.first_sequence - 1
        self.batch = self.new_batch()
        self._wrapper = BatchWrapper(names)
        self.info: StreamReadInfo
        self.target = 0
        self._loss = LossWatch(self)

    @property
    def is_done(self) -> bool:
        """Whether the range is read to its end."""
        return self.last >= self.target

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subject filters; `>` if there are none."""
        return self.request.subjects or (">",)

    def new_batch(self) -> MessageBatch:
        """Return an empty batch for rows of this stream."""
        batch = MessageBatch(self.names, self.max_rows, self.max_bytes)
        batch.stream = self.request.stream
        return batch

    def take(self, batch: MessageBatch) -> pa.RecordBatch:
        """Return the rows of the batch as a record batch, and empty the batch."""
        return self._wrapper.take(batch)

    # The stream

    def begin(self) -> None:
        """Request the stream's state, at the start and after each failure.

        Raises DataLoss, JetStreamApiError, ClientError.
        """
        self.info = self.read_info(self.client.api(f"STREAM.INFO.{self.request.stream}"))
        self.target = min(self.request.last_sequence, self.info.last)
        if not self.request.last_per_subject:
            self._loss.check(self.last + 1, self.info.first)
            self._loss.begin()

    def read_info(self, answer: dict[str, Any]) -> StreamReadInfo:
        """Parse an answer to STREAM.INFO. Raises ClientError if it is malformed."""
        try:
            return StreamReadInfo(answer, self.client.info)
        except (KeyError, TypeError, ValueError):
            raise ClientError(
                f"{self.client.server_address}: the answer to STREAM.INFO is not understood"
            ) from None

    def verify_end(self) -> None:
        """Verify with the leader that no wanted message follows `last`, and mark the range as read.

        Raises Lagging if one follows: the replica that was read lags behind the leader.
        """
        for subject in self.subjects:
            found = self._next_of_leader(subject)
            if found is not None and found <= self.target:
                raise Lagging(
                    f'{self.client.server_address}: a replica of stream "{self.request.stream}" '
                    f"has not caught up: message {found} is missing there"
                )
        self.last = max(self.last, self.target)

    def _next_of_leader(self, subject: str) -> int | None:
        """Return the leader's sequence of the next message behind `last`; None: there is none."""
        body = {"seq": self.last + 1, "next_by_subj": subject}
        try:
            answer = self.client.api(f"STREAM.MSG.GET.{self.request.stream}", body)
            return int(answer["message"]["seq"])
        except JetStreamApiError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise
        except (KeyError, TypeError, ValueError):
            raise ClientError(
                f"{self.client.server_address}: the answer to STREAM.MSG.GET is not understood"
            ) from None

    # Received events

    def receive(self) -> FrameHandler | None:
        """Wait for the next event; return the decoder that stopped, or None for a message.

        Raises RequestTimeout if the server sends no data within a request timeout.
        """
        while True:
            connection = self.client.connection
            before = connection.received_bytes
            event = self.client.receive(time.monotonic() + self.client.options.request_timeout_s)
            if isinstance(event, ReceivedMessage):
                self._loss.answered()
                return None
            if event is not None:
                return event
            if connection.received_bytes - before < IDLE_BYTES_MAX:
                raise RequestTimeout(
                    f'{self.client.server_address}: stream "{self.request.stream}" does not '
                    "answer: if the server is slow, raise requestTimeout"
                )

    def passed(self, decoder: RangeDecoder) -> None:
        """Advance `last` to the decoder's last row, which is in the batch."""
        self.last = max(self.last, min(decoder.last, decoder.upto))

    def check_gaps(self, decoder: RangeDecoder) -> None:
        """Check at the end of a request whether missing sequences were holes or are lost."""
        minds = self.request.fail_on_data_loss and not self.request.last_per_subject
        if decoder.missing_from and minds:
            self._loss.ask(decoder.missing_from)
            decoder.missing_from = 0

    def leave(self, decoder: RangeDecoder) -> None:
        """Record the rows of a request that ended or failed, and its unchecked gap for later."""
        self.passed(decoder)
        if decoder.missing_from:
            self._loss.note(decoder.missing_from)

    def wait_for_gaps(self) -> None:
        """Wait until all gaps are checked. Raises DataLoss."""
        self._loss.answered()  # the answer may have arrived during another request
        while self._loss.is_waiting:
            self.receive()


class LossWatch:
    """Watch for data loss: a stream that begins behind a gap after the gap was read over.

    One STREAM.INFO request is pending at a time; gaps found meanwhile wait for the next one.
    """

    def __init__(self, progress: RangeProgress) -> None:
        self._progress = progress
        self._answers: ClientSubscription | None = None
        self._asked = 0
        self._next = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a request is pending."""
        return bool(self._asked)

    def begin(self) -> None:
        """Check the known gaps against the STREAM.INFO just received on a new connection."""
        for missing in (self._asked, self._next):
            if missing:
                self.check(missing, self._progress.info.first)
        self._answers = None
        self._asked = self._next = 0

    def note(self, missing: int) -> None:
        """Remember a gap that begins at `missing`, to be checked later."""
        self._next = self._next or missing

    def ask(self, missing: int) -> None:
        """Request the stream's state, to check the gap that begins at `missing`."""
        if self._asked:
            self._next = self._next or missing
            return
        client, stream = self._progress.client, self._progress.request.stream
        if self._answers is None:
            self._answers = client.subscribe(client.new_inbox())
        self._asked = missing
        client.publish(f"{client.options.api}.STREAM.INFO.{stream}", reply=self._answers.subject)

    def answered(self) -> None:
        """Check the pending gap if the answer has arrived. Raises DataLoss."""
        if self._answers is None or not self._answers.pending:
            return
        answer = decode_answer(self._answers.pending.popleft().data, "STREAM.INFO")
        asked, self._asked = self._asked, 0
        self.check(asked, self._progress.read_info(answer).first)
        if self._next:
            following, self._next = self._next, 0
            self.ask(following)

    def check(self, missing: int, first: int) -> None:
        """Raise DataLoss if the stream begins at `first`, behind the wanted sequence `missing`."""
        request = self._progress.request
        if request.fail_on_data_loss and missing < first and missing <= request.last_sequence:
            raise DataLoss(request.stream, missing, min(first - 1, request.last_sequence))


def version_of(text: str) -> tuple[int, int]:
    """Return (major, minor) of a version text; (0, 0): it is malformed."""
    parts = text.lstrip("v").split(".")
    numbers = [int(part) for part in parts[:2] if part.isdigit()]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)
