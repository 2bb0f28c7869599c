"""What a task knows of the range it reads: its stream, how far it is, and what may be lost.

Promise
- `last` only grows, and all rows up to it were given or are in `batch`: who starts again after a
  failure goes on behind it.
- Nothing is lost in silence: a stream that begins behind `last` when reading starts, or behind a
  gap when the gap has been read over, raises DataLoss. A stream's beginning only moves up, so that
  a gap behind it is a hole. (A hole that it overtakes while the same request is being read counts
  as a loss.)
- The end is the leader's word: where the last message that is wanted was not seen, the leader
  is asked what follows. A replica that has not caught up raises Lagging.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pyarrow as pa

from natsd.spark.errors import ApiError, ClientError, RequestTimeout
from natsd.spark.network.range_intakes import RangeIntake
from natsd.spark.ranges import DataLoss, RangeRequest
from natsd.spark.rows.arrow import BatchWrapper
from natsd.spark.rows.message_batch import MessageBatch
from natsd.spark.wire.client import Client, Subscription, decode_answer
from natsd.spark.wire.frames import Intake, Message

NO_MESSAGE: Final = 10037
IDLE_BYTES_MAX: Final = 1024
"""Less than that in a request's time is no progress: heartbeats."""
ROW_BYTES: Final = 1024
"""Of an unknown message."""


class Lagging(ClientError):
    """A replica answered that has not got everything yet."""


class StreamInfo:
    """What matters here of STREAM.INFO."""

    def __init__(self, answer: dict[str, Any], server: dict[str, Any]) -> None:
        state, config = answer["state"], answer["config"]
        self.first = int(state["first_seq"])
        self.last = int(state["last_seq"])
        self.allow_direct = bool(config.get("allow_direct"))
        self.is_kept = config.get("retention", "limits") == "limits"
        messages = int(state["messages"])
        self.message_bytes = int(state["bytes"]) // messages if messages else ROW_BYTES
        self.server_version = version_of(str(server.get("version", "")))


class Reading:
    """The state of one range's reading, over however many connections it takes."""

    def __init__(
        self,
        client: Client,
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
        self.info: StreamInfo
        self.target = 0
        self._loss = LossWatch(self)

    @property
    def is_done(self) -> bool:
        """All of it was read."""
        return self.last >= self.target

    @property
    def subjects(self) -> tuple[str, ...]:
        """The filters; one that lets everything through where there are none."""
        return self.request.subjects or (">",)

    def new_batch(self) -> MessageBatch:
        """For rows of this stream."""
        batch = MessageBatch(self.names, self.max_rows, self.max_bytes)
        batch.stream = self.request.stream
        return batch

    def take(self, batch: MessageBatch) -> pa.RecordBatch:
        """Its rows."""
        return self._wrapper.take(batch)

    # The stream

    def begin(self) -> None:
        """Look at the stream; anew after each failure. Raises DataLoss, ApiError, ClientError."""
        self.info = self.read_info(self.client.api(f"STREAM.INFO.{self.request.stream}"))
        self.target = min(self.request.last_sequence, self.info.last)
        if not self.request.last_per_subject:
            self._loss.check(self.last + 1, self.info.first)
            self._loss.begin()

    def read_info(self, answer: dict[str, Any]) -> StreamInfo:
        """Raises ClientError."""
        try:
            return StreamInfo(answer, self.client.info)
        except (KeyError, TypeError, ValueError):
            raise ClientError(
                f"{self.client.where}: the answer to STREAM.INFO is not understood"
            ) from None

    def verify_end(self) -> None:
        """Everything that is wanted was read, if the leader agrees. Raises Lagging."""
        for subject in self.subjects:
            found = self._next_of_leader(subject)
            if found is not None and found <= self.target:
                raise Lagging(
                    f'{self.client.where}: a replica of stream "{self.request.stream}" has not '
                    f"caught up: message {found} is missing there"
                )
        self.last = max(self.last, self.target)

    def _next_of_leader(self, subject: str) -> int | None:
        """The sequence of the next message behind `last`."""
        body = {"seq": self.last + 1, "next_by_subj": subject}
        try:
            answer = self.client.api(f"STREAM.MSG.GET.{self.request.stream}", body)
            return int(answer["message"]["seq"])
        except ApiError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise
        except (KeyError, TypeError, ValueError):
            raise ClientError(
                f"{self.client.where}: the answer to STREAM.MSG.GET is not understood"
            ) from None

    # What comes

    def receive(self) -> Intake | None:
        """Wait for the next thing. Raises RequestTimeout where the server falls silent."""
        while True:
            connection = self.client.connection
            before = connection.received_bytes
            event = self.client.receive(time.monotonic() + self.client.options.request_timeout_s)
            if isinstance(event, Message):
                self._loss.answered()
                return None
            if event is not None:
                return event
            if connection.received_bytes - before < IDLE_BYTES_MAX:
                raise RequestTimeout(
                    f'{self.client.where}: stream "{self.request.stream}" does not answer: '
                    "if the server is slow, raise requestTimeout"
                )

    def passed(self, intake: RangeIntake) -> None:
        """Rows up to the intake's last one are in the batch."""
        self.last = max(self.last, min(intake.last, intake.upto))

    def look_at_gaps(self, intake: RangeIntake) -> None:
        """At the end of a request: what did not come was a hole, or is lost."""
        minds = self.request.fail_on_data_loss and not self.request.last_per_subject
        if intake.missing_from and minds:
            self._loss.ask(intake.missing_from)
            intake.missing_from = 0

    def leave(self, intake: RangeIntake) -> None:
        """It breaks off, or is over: its rows count, and so do its gaps that were not looked at."""
        self.passed(intake)
        if intake.missing_from:
            self._loss.note(intake.missing_from)

    def wait_for_gaps(self) -> None:
        """Until it is known what the gaps were. Raises DataLoss."""
        self._loss.answered()  # while something else was asked
        while self._loss.is_waiting:
            self.receive()


class LossWatch:
    """Whether the stream began behind a gap when the gap had been read over.

    One question at a time is under way; gaps that are found meanwhile wait for the next.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._answers: Subscription | None = None
        self._asked = 0
        self._next = 0

    @property
    def is_waiting(self) -> bool:
        """A question is under way."""
        return bool(self._asked)

    def begin(self) -> None:
        """On a new connection, whose STREAM.INFO has just been looked at."""
        for missing in (self._asked, self._next):
            if missing:
                self.check(missing, self._reading.info.first)
        self._answers = None
        self._asked = self._next = 0

    def note(self, missing: int) -> None:
        """Ask when reading begins again."""
        self._next = self._next or missing

    def ask(self, missing: int) -> None:
        """Whether the sequence `missing` was lost."""
        if self._asked:
            self._next = self._next or missing
            return
        client, stream = self._reading.client, self._reading.request.stream
        if self._answers is None:
            self._answers = client.subscribe(client.new_inbox())
        self._asked = missing
        client.publish(f"{client.options.api}.STREAM.INFO.{stream}", reply=self._answers.subject)

    def answered(self) -> None:
        """Perhaps. Raises DataLoss."""
        if self._answers is None or not self._answers.pending:
            return
        answer = decode_answer(self._answers.pending.popleft().data, "STREAM.INFO")
        asked, self._asked = self._asked, 0
        self.check(asked, self._reading.read_info(answer).first)
        if self._next:
            following, self._next = self._next, 0
            self.ask(following)

    def check(self, missing: int, first: int) -> None:
        """Whether a stream that begins with `first` had `missing`. Raises DataLoss."""
        request = self._reading.request
        if request.fail_on_data_loss and missing < first and missing <= request.last_sequence:
            raise DataLoss(request.stream, missing, min(first - 1, request.last_sequence))


def version_of(text: str) -> tuple[int, int]:
    """Major and minor; (0, 0): it says none."""
    parts = text.lstrip("v").split(".")
    numbers = [int(part) for part in parts[:2] if part.isdigit()]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)
