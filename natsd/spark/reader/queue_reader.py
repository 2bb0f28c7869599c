"""mode=queue: batches of messages from a durable consumer, acknowledged after the batch's commit.

For streams that remove messages when they are acknowledged (work queue, interest), and for work
shared with consumers outside Spark. Delivery is at least once.

    server ──messages without payload──▶ driver: their sequences make a batch's offset
    server ──messages by sequence──────▶ tasks:  read as any range is
    server ◀──acknowledgements───────── driver: when the batch is in the commit log

- The offset of a batch lists its sequences: `{"ORDERS": {"batch": 7, "sequences": [[1, 500]],
  "unacked": []}}`. Spark writes it to the offset log before tasks read, so a batch that runs again
  after a crash has the same messages: they were not acknowledged, so the stream still has them.
- A message is acknowledged only after the commit of its batch: Spark requests the next offset, with
  the last one as its start, only when the last one is in the commit log.
- If the acknowledgement of a committed message was lost (a crash in between, a new connection), the
  message is redelivered after the consumer's ack wait. `unacked` lists such messages: they are
  acknowledged then, and not added to a batch again. `ackWait` must be longer than a batch takes if
  other clients share the consumer.
- Messages that were fetched for a batch whose offset was never written are redelivered after the
  ack wait.
- Two kinds of messages are read twice: those that another client of the same durable received after
  the ack wait, and those of batches whose checkpoint was removed.
- Tasks read by direct get: the stream needs allow_direct, and a server of 2.11 or newer.
- A batch has at most `maxMsgsPerTrigger` messages (MESSAGES_DEFAULT).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from natsd.spark.errors import JetStreamApiError
from natsd.spark.ranges import RangeRequest
from natsd.spark.reader.batch_reader import Tasks
from natsd.spark.reader.runs import Run, clusters, expanded, runs_of
from natsd.spark.reader.streams import ServerStreams, StreamChoice
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.frames import ReceivedMessage

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGES_DEFAULT: Final = 10_000
GAP_MAX: Final = 64
"""Maximum sequences between two runs that one request reads and drops, to avoid another request."""
CONSUMER_NOT_FOUND: Final = 10014
FETCH_EXPIRES_S: Final = 0.3
ACK: Final = b"+ACK"
LATER: Final = b'-NAK {"delay": 1000000000}'
"""Negative acknowledgement: the server redelivers the message after 1 s, not during this fetch."""
_ENDS_OF_FETCH: Final = (404, 408)
_PASSING: Final = ("leadership change", "server shutdown", "message size exceeds")

QueueOffset = dict[str, dict[str, Any]]


class QueueError(Exception):
    """A consumer or a stream cannot be read as a queue; the text is one line."""


@dataclass(frozen=True)
class QueuePlan:
    """The user's queue read as plain values.

    `ack_wait_s` is the consumer's ack wait in seconds; `messages_max` limits a batch.
    """

    stream: str
    consumer: str
    subjects: tuple[str, ...]
    ack_wait_s: float
    messages_max: int = MESSAGES_DEFAULT


class QueuePartition(InputPartition):
    """The messages that one task reads: those of `runs`, within the range of `request`."""

    def __init__(self, request: RangeRequest, runs: tuple[Run, ...]) -> None:
        super().__init__(None)
        self.request = request
        self.runs = runs


@dataclass(frozen=True)
class QueueDelivery:
    """Facts about a delivered message, from its ack subject.

    `sequence` is the stream's; `pending` is how many messages the consumer has yet to deliver.
    """

    sequence: int
    pending: int

    @staticmethod
    def of(reply: str) -> QueueDelivery:
        """Parse an ack subject, which is the reply subject of a delivery.

        Its form, in which newer servers insert a domain and an account behind `$JS.ACK`:

            $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer's>.<time>.<pending>

        Raises QueueError.
        """
        tokens = reply.split(".")
        at = 5 if len(tokens) == 9 else 7
        if len(tokens) < 9 or not tokens[at].isdigit() or not tokens[at + 3].isdigit():
            raise QueueError(f'"{reply}" is no subject to acknowledge a message on')
        return QueueDelivery(int(tokens[at]), int(tokens[at + 3]))


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming reader of a consumer.

    The driver's process keeps one during a query's run; executors get a copy that only reads.
    """

    def __init__(
        self, plan: QueuePlan, tasks: Tasks, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.plan = plan
        self.tasks = tasks
        self._clock = clock
        self._streams = ServerStreams(tasks.connect, StreamChoice((plan.stream,)))
        self._is_ready = False
        self._reply_of: dict[int, str] = {}
        self._committed: set[int] = set()
        self._pending = 0
        self._last_wanted: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan, "tasks": self.tasks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["plan"], state["tasks"])  # type: ignore[misc]  # no connection

    # Called by the driver

    def initialOffset(self) -> QueueOffset:
        """Return the offset before the first batch. Raises QueueError if reading is impossible."""
        self._make_ready()
        return {self.plan.stream: {"batch": 0, "sequences": [], "unacked": []}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the maximum number of messages in a batch."""
        return ReadMaxRows(self.plan.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the end of the stream: the query stops there."""
        self._last_wanted = self._streams.state(self.plan.stream).last

    def latestOffset(self, start: QueueOffset, limit: ReadLimit) -> QueueOffset:
        """Acknowledge the batch that ends at `start`, then fetch the next one.

        Returns `start` if no message waits. Blocks for at most FETCH_EXPIRES_S plus a request's
        time.
        """
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
        """Acknowledge the messages of a committed batch."""
        self._commit(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the messages that the consumer has not delivered yet, for the query's progress."""
        return {self.plan.stream: {"pending": self._pending}}

    def stop(self) -> None:
        """Close the connection."""
        self._streams.close()

    # The consumer

    def _make_ready(self) -> None:
        """Check that the consumer fits; create it if it does not exist. Raises QueueError."""
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
        except JetStreamApiError as error:
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

    def _fetch(self, client: NatsClient) -> list[int]:
        """Fetch a batch; return its sequences, without committed ones and duplicates."""
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

    def _take(self, client: NatsClient, message: ReceivedMessage, fetched: dict[int, None]) -> None:
        delivery = QueueDelivery.of(message.reply)
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
        """Acknowledge the messages of the batch and of `unacked`.

        Messages without a known ack subject are remembered until they are redelivered.
        """
        state = offset[self.plan.stream]
        done = set(expanded(state["sequences"])) | set(expanded(state["unacked"]))
        known = sorted(done & self._reply_of.keys())
        if known:
            self._streams.ask(lambda client: self._acknowledge(client, known))
        self._committed |= done - set(known) - self._acknowledged_before(done - set(known))

    def _acknowledge(self, client: NatsClient, sequences: Iterable[int]) -> None:
        """Acknowledge messages; forget their ack subjects after the server has read everything.

        An ack subject is valid on any connection.
        """
        for sequence in sequences:
            client.publish(self._reply_of[sequence], ACK)
        client.flush()
        for sequence in sequences:
            del self._reply_of[sequence]

    def _acknowledged_before(self, sequences: set[int]) -> set[int]:
        """Return the sequences up to the consumer's ack floor: an earlier run acknowledged them."""
        unsure = sequences | self._committed
        if not unsure:
            return set()
        info = self._streams.api(f"CONSUMER.INFO.{self.plan.stream}.{self.plan.consumer}")
        floor = int(info["ack_floor"]["stream_seq"])
        settled = {sequence for sequence in unsure if sequence <= floor}
        self._committed -= settled
        return settled

    # Read by tasks

    def partitions(self, start: QueueOffset, end: QueueOffset) -> Sequence[InputPartition]:
        """Return the partitions of a batch: one for each cluster of neighbouring runs."""
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
            fail_on_data_loss=False,  # acknowledged messages are gone: the stream's beginning moves
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the record batches of a partition; called on executors."""
        if not isinstance(partition, QueuePartition):
            return iter(())
        return read_runs(self.tasks, partition)


def is_end(message: ReceivedMessage) -> bool:
    """Return whether the message is a status that ends the fetch.

    Raises QueueError for a status that means an error.
    """
    if not message.status or message.reply.startswith("$JS.ACK."):
        return False
    if message.status in _ENDS_OF_FETCH or message.description.lower().startswith(_PASSING):
        return True
    raise QueueError(f"the consumer does not deliver: {message.status} {message.description}")


def read_runs(tasks: Tasks, partition: QueuePartition) -> Iterator[pa.RecordBatch]:
    """Read the range and yield the rows of the runs.

    Rows between the runs belong to another client, or do not match the consumer's filter.
    """
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
    """Return the rows of the batch whose sequence is in `sequences`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.is_in(batch.column("seq"), value_set=pa.array(sequences, pa.int64()))
    return batch.filter(found)
