"""The offsets of a streaming read, without Spark, with fake streams and a fake clock."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from natsd.spark.offsets import OffsetError, SourceStreamState
from natsd.spark.ranges import DataLoss
from natsd.spark.reader.batch_reader import RangePartition, Tasks
from natsd.spark.reader.planning import Cutting
from natsd.spark.reader.stream_reader import (
    MicroBatchLimits,
    StreamingPlan,
    StreamReader,
    StreamReplaced,
)
from natsd.spark.reader.streams import StreamChoice, StreamMissing
from natsd.spark.wire.connecting import ClientOptions

TASKS = Tasks(ClientOptions(), ("seq",), 1000, 1 << 20)


class FakeStreams:
    """The answers of a server."""

    def __init__(self, choice: StreamChoice) -> None:
        self.choice = choice
        self.there: dict[str, SourceStreamState] = {}

    def set(self, name: str, first: int, last: int, **more: Any) -> None:
        state = SourceStreamState(
            name, first, last, last + 1 - first, 100 * (last + 1 - first), "monday", True, False
        )
        self.there[name] = replace(state, **more)

    def find(self, name: str) -> SourceStreamState | None:
        return self.there.get(name)

    def states(self) -> dict[str, SourceStreamState]:
        names = sorted(self.there) if self.choice.pattern else self.choice.names
        for name in names:
            if name not in self.there:
                raise StreamMissing(name)
        return {name: self.there[name] for name in names}

    def sequence_at(self, stream: SourceStreamState, time_ns: int) -> int:
        return min(stream.end, max(stream.first, time_ns))

    def close(self) -> None:
        pass


class Reading:
    """A reader with its fakes."""

    def __init__(
        self,
        *names: str,
        limits: MicroBatchLimits = MicroBatchLimits(),  # noqa: B008 - frozen
        fail: bool = True,
        **plan: Any,
    ) -> None:
        choice = StreamChoice(names) if names else StreamChoice((), ".*")
        settings = {"start": "latest", "start_ns": None} | plan
        self.now_s = 100.0
        self.limit = limits.as_read_limit()
        self.reader = StreamReader(
            StreamingPlan(choice, (), Cutting(), limits, fail_on_data_loss=fail, **settings),
            TASKS,
            clock=lambda: self.now_s,
        )
        self.streams = FakeStreams(choice)
        self.reader._streams = self.streams  # type: ignore[assignment]  # a fake

    def latest(self, start: dict[str, int]) -> dict[str, int]:
        return self.reader.latestOffset(start, self.limit)

    def ranges(self, start: dict[str, int], end: dict[str, int]) -> list[tuple[str, int, int]]:
        parts = self.reader.partitions(start, end)
        requests = [part.request for part in parts if isinstance(part, RangePartition)]
        return [(r.stream, r.first_sequence, r.last_sequence) for r in requests]


def test_where_a_query_begins() -> None:
    for start, expected in [
        ("latest", {"A": 11, "B": 1}),
        ("earliest", {"A": 4, "B": 1}),
        ({"A": 7, "B": -1}, {"A": 7, "B": 1}),
    ]:
        reading = Reading("A", "B", start=start)
        reading.streams.set("A", 4, 10)
        reading.streams.set("B", 1, 0)
        assert reading.reader.initialOffset() == expected


def test_where_a_query_begins_by_time() -> None:
    reading = Reading("A", start_ns=6)
    reading.streams.set("A", 4, 10)
    assert reading.reader.initialOffset() == {"A": 6}


def test_offsets_for_streams_that_are_not_read_are_refused() -> None:
    reading = Reading("A", start={"A": 1, "B": 1})
    reading.streams.set("A", 1, 5)
    with pytest.raises(OffsetError, match='names stream "B", which is not among'):
        reading.reader.initialOffset()


def test_a_batch_is_what_came_since() -> None:
    reading = Reading("A", "B")
    reading.streams.set("A", 1, 10)
    reading.streams.set("B", 1, 5)
    assert reading.latest({"A": 4, "B": 6}) == {"A": 11, "B": 6}
    assert reading.ranges({"A": 4, "B": 6}, {"A": 11, "B": 6}) == [("A", 4, 10)]
    assert reading.reader.reportLatestOffset() == {"A": 11, "B": 6}


def test_nothing_new_is_the_same_offset() -> None:
    reading = Reading("A")
    reading.streams.set("A", 1, 10)
    assert reading.latest({"A": 11}) == {"A": 11}
    assert reading.ranges({"A": 11}, {"A": 11}) == []


def test_a_limit_is_shared_by_what_waits_in_each_stream() -> None:
    reading = Reading("A", "B", limits=MicroBatchLimits(messages_max=100))
    assert reading.reader.getDefaultReadLimit() == ReadMaxRows(100)
    reading.streams.set("A", 1, 900)
    reading.streams.set("B", 1, 100)
    assert reading.latest({"A": 1, "B": 1}) == {"A": 91, "B": 11}
    everything = reading.reader.latestOffset({"A": 1, "B": 1}, ReadAllAvailable())
    assert everything == {"A": 901, "B": 101}


def test_a_limit_of_bytes_reckons_with_the_mean_size() -> None:
    reading = Reading("A", limits=MicroBatchLimits(bytes_max=1000))
    assert reading.reader.getDefaultReadLimit() == ReadMaxBytes(1000)
    reading.streams.set("A", 1, 900)
    assert reading.latest({"A": 1}) == {"A": 11}
    reading.streams.set("A", 1, 900, size=900 * 5000)
    assert reading.latest({"A": 1}) == {"A": 2}, "one at least"


def test_it_waits_for_the_least_number_but_not_for_ever() -> None:
    reading = Reading("A", limits=MicroBatchLimits(messages_min=10, delay_s_max=60))
    reading.streams.set("A", 1, 5)
    assert reading.latest({"A": 1}) == {"A": 1}
    reading.now_s += 59
    assert reading.latest({"A": 1}) == {"A": 1}
    reading.now_s += 1
    assert reading.latest({"A": 1}) == {"A": 6}
    reading.streams.set("A", 1, 14)
    assert reading.latest({"A": 6}) == {"A": 6}
    reading.streams.set("A", 1, 15)
    assert reading.latest({"A": 6}) == {"A": 16}


def test_available_now_ends_where_it_was_told() -> None:
    reading = Reading(limits=MicroBatchLimits(messages_max=6, messages_min=5))
    reading.streams.set("A", 1, 8)
    reading.reader.prepareForTriggerAvailableNow()
    reading.streams.set("A", 1, 50)
    reading.streams.set("B", 1, 50)
    offset, steps = {"A": 1}, []
    while (latest := reading.latest(offset)) != offset:
        offset = latest
        steps.append(offset)
    assert [step["A"] for step in steps] == [7, 9]
    assert offset == {"A": 9, "B": 1}, "one that came later is known, and not read"


def test_a_stream_that_comes_later_is_written_down_and_then_read() -> None:
    reading = Reading()
    reading.streams.set("A", 1, 5)
    reading.streams.set("B", 3, 7)
    first = reading.latest({"A": 1})
    assert first == {"A": 6, "B": 3}
    assert reading.ranges({"A": 1}, first) == [("A", 1, 5)]
    second = reading.latest(first)
    assert second == {"A": 6, "B": 8}
    assert reading.ranges(first, second) == [("B", 3, 7)]


def test_what_was_purged_before_it_was_read() -> None:
    reading = Reading("A")
    reading.streams.set("A", 6, 10)
    with pytest.raises(DataLoss, match='messages 3 to 5 of stream "A" are gone'):
        reading.latest({"A": 3})
    assert reading.latest({"A": 6}) == {"A": 11}


def test_what_was_purged_is_a_warning_where_it_may_be_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reading = Reading("A", fail=False, limits=MicroBatchLimits(messages_max=2))
    reading.streams.set("A", 6, 10)
    with caplog.at_level(logging.WARNING):
        assert reading.latest({"A": 3}) == {"A": 8}
        assert reading.latest({"A": 3}) == {"A": 8}
    (record,) = caplog.records
    assert record.getMessage().startswith('messages 3 to 5 of stream "A" are gone')


def test_older_values_of_a_key_going_are_no_loss() -> None:
    reading = Reading("A")
    reading.streams.set("A", 6, 10, overwrites=True)
    assert reading.latest({"A": 3}) == {"A": 11}
    (part,) = reading.reader.partitions({"A": 3}, {"A": 11})
    assert isinstance(part, RangePartition)
    assert not part.request.fail_on_data_loss


def test_a_stream_that_was_deleted() -> None:
    reading = Reading("A", "B")
    reading.streams.set("A", 1, 5)
    with pytest.raises(StreamMissing):
        reading.latest({"A": 1, "B": 9})
    by_pattern = Reading()
    by_pattern.streams.set("A", 1, 5)
    with pytest.raises(StreamMissing, match='stream "B" was deleted after it was read up to seq'):
        by_pattern.latest({"A": 1, "B": 9})


def test_a_stream_that_was_deleted_and_may_be_lost() -> None:
    reading = Reading("A", "B", fail=False)
    reading.streams.set("A", 1, 5)
    assert reading.latest({"A": 1, "B": 9}) == {"A": 6, "B": 9}
    reading.streams.set("B", 1, 3)
    entered = reading.latest({"A": 6, "B": 9})
    assert entered == {"A": 6, "B": 1}, "it is back: begun anew"
    assert reading.ranges({"A": 6, "B": 9}, entered) == []
    assert reading.latest(entered) == {"A": 6, "B": 4}


def test_a_stream_that_was_made_anew() -> None:
    reading = Reading("A")
    reading.streams.set("A", 1, 5)
    with pytest.raises(StreamReplaced, match=r"made anew: it ends with sequence 5, .* is at 9"):
        reading.latest({"A": 9})
    assert reading.latest({"A": 1}) == {"A": 6}
    reading.streams.set("A", 1, 50, created="tuesday")
    with pytest.raises(StreamReplaced):
        reading.latest({"A": 6})


def test_a_stream_left_out_after_a_restart_keeps_its_offset() -> None:
    reading = Reading("A")
    reading.streams.set("A", 1, 5)
    reading.streams.set("B", 1, 5)
    assert reading.latest({"A": 1, "B": 3}) == {"A": 6, "B": 3}


def test_executors_get_a_copy_without_the_connection() -> None:
    reader = StreamReader(Reading("A").reader.plan, TASKS)
    copy = pickle.loads(pickle.dumps(reader))
    assert (copy.plan, copy.tasks) == (reader.plan, reader.tasks)
    assert b"socket" not in pickle.dumps(reader)
