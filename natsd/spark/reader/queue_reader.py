"""mode=queue: a durable consumer says what is next, and is acknowledged when a batch has committed.

For streams whose messages go when they are acknowledged (work queue, interest), and for work shared
with consumers outside Spark. At least once.

    server ──messages without payload──▶ driver: their sequences make a batch's offset
    server ──messages by sequence──────▶ tasks:  read as any range is
    server ◀──acknowledgements───────── driver: when the batch stands in the commit log

- The offset of a batch names its sequences: `{"ORDERS": {"batch": 7, "sequences": [[1, 500]],
  "unacked": []}}`. Spark writes it down before tasks read, so a batch that is run again after a
  crash has the same messages: they were not acknowledged, therefore they are still there.
- A message is acknowledged only after the commit of its batch: Spark asks for the next offset,
  naming the last one as its start, when that one is in the commit log, and not before.
- Messages of a committed batch whose acknowledgement was lost (a crash in between, a new
  connection) come again after the consumer's ack wait; they are known by `unacked` and
  acknowledged then, not given to a batch again. `ackWait` must be longer than a batch takes if
  others share the consumer.
- What was fetched for a batch that was never written down comes again after the ack wait.
- Given twice: messages that another client of the same durable took over after the ack wait, and
  those of batches after which the checkpoint was removed.
- Tasks read by direct get: the stream needs allow_direct, and a server of 2.11 or newer.
- Bounded: a batch has at most `maxMsgsPerTrigger` messages (MESSAGES_DEFAULT).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from natsd.spark.errors import ApiError
from natsd.spark.ranges import RangeRequest
from natsd.spark.reader.batch_reader import Tasks
from natsd.spark.reader.runs import Run, clusters, expanded, runs_of
from natsd.spark.reader.streams import Choice, Streams
from natsd.spark.wire.client import Client
from natsd.spark.wire.frames import Message

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGES_DEFAULT: Final = 10_000
GAP_MAX: Final = 64
"""Sequences that are read and dropped rather than begin another request."""
CONSUMER_NOT_FOUND: Final = 10014
FETCH_EXPIRES_S: Final = 0.3
ACK: Final = b"+ACK"
LATER: Final = b'-NAK {"delay": 1000000000}'
"""Not to come again while this is asked."""
_ENDS_OF_FETCH: Final = (404, 408)
_PASSING: Final = ("leadership change", "server shutdown", "message size exceeds")

QueueOffset = dict[str, dict[str, Any]]


class QueueError(Exception):
    """A consumer or a stream that cannot be read as a queue, in one line."""


@dataclass(frozen=True)
class QueuePlan:
    """What a user asked for, as plain values."""

    stream: str
    consumer: str
    subjects: tuple[str, ...]
    ack_wait_s: float
    messages_max: int = MESSAGES_DEFAULT


class QueuePartition(InputPartition):
    """What one task reads: of the request's range, the messages of these runs."""

    def __init__(self, request: RangeRequest, runs: tuple[Run, ...]) -> None:
        super().__init__(None)
        self.request = request
        self.runs = runs


@dataclass(frozen=True)
class Delivery:
    """What the subject that acknowledges a message tells of it."""

    sequence: int
    pending: int

    @staticmethod
    def of(reply: str) -> Delivery:
        """`$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<its own>.<time>.<pending>`;
        behind `$JS.ACK` newer ones have a domain and an account."""
        tokens = reply.split(".")
        at = 5 if len(tokens) == 9 else 7
        if len(tokens) < 9 or not tokens[at].isdigit() or not tokens[at + 3].isdigit():
            raise QueueError(f'"{reply}" is no subject to acknowledge a message on')
        return Delivery(int(tokens[at]), int(tokens[at + 3]))


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's process keeps one for a query's run; executors get a copy that only reads."""

    def __init__(
        self, plan: QueuePlan, tasks: Tasks, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.plan = plan
        self.tasks = tasks
        self._clock = clock
        self._streams = Streams(tasks.connect, Choice((plan.stream,)))
        self._is_ready = False
        self._reply_of: dict[int, str] = {}
        self._committed: set[int] = set()
        self._pending = 0
        self._last_wanted: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan, "tasks": self.tasks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["plan"], state["tasks"])  # type: ignore[misc]  # a connection stays here

    # What the driver asks

    def initialOffset(self) -> QueueOffset:
        self._make_ready()
        return {self.plan.stream: {"batch": 0, "sequences": [], "unacked": []}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.plan.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last_wanted = self._streams.state(self.plan.stream).last

    def latestOffset(self, start: QueueOffset, limit: ReadLimit) -> QueueOffset:
        self._make_ready()
        self._commit(start)
        fetched = self._streams.ask(self._fetch)
        if not fetched:
            return start
        return {
            self.plan.stream: {
                "batch": start[self.plan.stream]["batch"] + 1,
                "sequences": runs_of(fetched),
                "unacked": runs_of(self._committed),
            }
        }

    def commit(self, end: QueueOffset) -> None:
        self._commit(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {self.plan.stream: {"pending": self._pending}}

    def stop(self) -> None:
        self._streams.close()

    # The consumer

    def _make_ready(self) -> None:
        """The consumer is there and fits; made where there is none."""
        if self._is_ready:
            return
        stream = self._streams.state(self.plan.stream)
        if not stream.allow_direct:
            raise QueueError(
                f'stream "{stream.name}" does not allow direct gets, by which tasks read: set'
                " allow_direct (nats stream edit --allow-direct)"
            )
        where = f"{self.plan.stream}.{self.plan.consumer}"
        try:
            config = self._streams.api(f"CONSUMER.INFO.{where}")["config"]
        except ApiError as error:
            if error.err_code != CONSUMER_NOT_FOUND:
                raise
            body = {"stream_name": self.plan.stream, "config": self._config()}
            config = self._streams.api(f"CONSUMER.CREATE.{where}", body)["config"]
        if config.get("ack_policy") != "explicit" or config.get("deliver_subject"):
            raise QueueError(
                f'consumer "{self.plan.consumer}" of stream "{self.plan.stream}" is not a pull'
                " consumer with ack policy explicit: choose another name, and it is made so"
            )
        self._is_ready = True

    def _config(self) -> dict[str, Any]:
        subjects = self.plan.subjects
        filters: dict[str, Any] = {}
        if subjects:
            one = len(subjects) == 1
            filters = (
                {"filter_subject": subjects[0]} if one else {"filter_subjects": list(subjects)}
            )
        return {
            "durable_name": self.plan.consumer,
            "name": self.plan.consumer,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": int(self.plan.ack_wait_s * 1e9),
            "max_ack_pending": max(1000, 3 * self.plan.messages_max),
            "headers_only": True,
            **filters,
        }

    def _fetch(self, client: Client) -> list[int]:
        """Sequences for a batch: delivered to us, in none that was committed, none twice."""
        inbox = client.new_inbox()
        subscription = client.subscribe(inbox)
        where = f"{client.options.api}.CONSUMER.MSG.NEXT.{self.plan.stream}.{self.plan.consumer}"
        expires_ns = int(FETCH_EXPIRES_S * 1e9)
        body = f'{{"batch": {self.plan.messages_max}, "expires": {expires_ns}}}'
        client.publish(where, body.encode(), reply=inbox)
        deadline = self._clock() + FETCH_EXPIRES_S + client.options.request_timeout_s
        fetched: dict[int, None] = {}
        received = 0
        while received < self.plan.messages_max:
            message = subscription.next(max(0.0, deadline - self._clock()))
            if message is None or is_end(message):
                break
            received += 1
            self._take(client, message, fetched)
        subscription.unsubscribe()
        client.flush()
        return list(fetched)

    def _take(self, client: Client, message: Message, fetched: dict[int, None]) -> None:
        delivery = Delivery.of(message.reply)
        sequence = delivery.sequence
        self._pending = delivery.pending
        if sequence in self._committed:
            client.publish(message.reply, ACK)
            self._committed.discard(sequence)
        elif self._last_wanted is not None and sequence > self._last_wanted:
            client.publish(message.reply, LATER)
        else:
            self._reply_of[sequence] = message.reply
            fetched[sequence] = None

    def _commit(self, offset: QueueOffset) -> None:
        """Acknowledge what that batch and those before it gave, and remember what cannot be yet."""
        state = offset[self.plan.stream]
        done = set(expanded(state["sequences"])) | set(expanded(state["unacked"]))
        known = sorted(done & self._reply_of.keys())
        if known:
            self._streams.ask(lambda client: self._acknowledge(client, known))
        self._committed |= done - set(known) - self._acknowledged_before(done - set(known))

    def _acknowledge(self, client: Client, sequences: Iterable[int]) -> None:
        """The subjects are good on any connection; forgotten when the server has read all."""
        for sequence in sequences:
            client.publish(self._reply_of[sequence], ACK)
        client.flush()
        for sequence in sequences:
            del self._reply_of[sequence]

    def _acknowledged_before(self, sequences: set[int]) -> set[int]:
        """Those that an earlier run has acknowledged: below the consumer's floor."""
        unsure = sequences | self._committed
        if not unsure:
            return set()
        info = self._streams.api(f"CONSUMER.INFO.{self.plan.stream}.{self.plan.consumer}")
        floor = int(info["ack_floor"]["stream_seq"])
        settled = {sequence for sequence in unsure if sequence <= floor}
        self._committed -= settled
        return settled

    # What tasks read

    def partitions(self, start: QueueOffset, end: QueueOffset) -> Sequence[InputPartition]:
        runs = [(first, last) for first, last in end[self.plan.stream]["sequences"]]
        if start == end:
            return []
        return [
            QueuePartition(self._request(cluster), cluster) for cluster in clusters(runs, GAP_MAX)
        ]

    def _request(self, runs: Sequence[Run]) -> RangeRequest:
        return RangeRequest(
            stream=self.plan.stream,
            first_sequence=runs[0][0],
            last_sequence=runs[-1][1],
            subjects=self.plan.subjects,
            fail_on_data_loss=False,  # what is acknowledged is gone, and a beginning moves
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, QueuePartition):
            return iter(())
        return read_runs(self.tasks, partition)


def is_end(message: Message) -> bool:
    """Whether that ends what was asked for. Raises QueueError."""
    if not message.status or message.reply.startswith("$JS.ACK."):
        return False
    if message.status in _ENDS_OF_FETCH or message.description.lower().startswith(_PASSING):
        return True
    raise QueueError(f"the consumer does not deliver: {message.status} {message.description}")


def read_runs(tasks: Tasks, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
    """Of the range, the rows of the runs: those between them are another client's, or filtered."""
    from natsd.spark.network.network_read import read_range

    names = tasks.names if "seq" in tasks.names else (*tasks.names, "seq")
    wanted = expanded(partition.runs)
    batches = read_range(
        tasks.connect, partition.request, names, tasks.batch_rows, tasks.batch_bytes
    )
    for batch in batches:
        if len(partition.runs) > 1:
            batch = rows_of(batch, wanted)
        if len(names) > len(tasks.names):
            batch = batch.select(list(tasks.names))
        if batch.num_rows:
            yield batch


def rows_of(batch: pa.RecordBatch, sequences: Sequence[int]) -> pa.RecordBatch:
    """Those of the batch that are among them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.is_in(batch.column("seq"), value_set=pa.array(sequences, pa.int64()))
    return batch.filter(found)
