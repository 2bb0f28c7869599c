"""Ranges over the network: each way of reading returns the published messages."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from natsd.core.routing import matches
from natsd.spark.errors import ClientError, JetStreamApiError
from natsd.spark.network.network_read import read_range
from natsd.spark.ranges import DataLoss, RangeRequest
from natsd.spark.rows.columns import NAMES, arrow_schema
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions
from tests.spark.rows.test_message_batch import rows_of
from tests.spark.serving import (
    create,
    go_server,
    go_serving,
    natsd_server,
    options,
    publish,
)

COUNT = 3000
HEADERS = [
    b"",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n",
    b"NATS/1.0\r\nNats-Stream: mine\r\nNats-Sequence: 7\r\n\r\n",
    b"NATS/1.0\r\nx: y\r\nNats-Num-Pending: 9\r\n\r\n",
]
EXPECTED_HEADERS = [
    None,
    {"A": ["1", "2"]},
    {"Nats-Stream": ["mine"], "Nats-Sequence": ["7"]},
    {"x": ["y"], "Nats-Num-Pending": ["9"]},
]


def messages_of(seed: int, count: int) -> list[tuple[str, bytes, bytes]]:
    chance = random.Random(seed)
    return [
        (
            f"s.{chance.randrange(4)}.{chance.randrange(5)}",
            HEADERS[at % len(HEADERS)],
            chance.randbytes(chance.choice([0, 1, 30, 300])),
        )
        for at in range(count)
    ]


MESSAGES = messages_of(1, COUNT)
DELETED = set(random.Random(2).sample(range(2, COUNT), 300))


def servers() -> list[Any]:
    go = go_server()
    mark = pytest.mark.skipif(go is None, reason="no Go nats-server on PATH")
    return [pytest.param("natsd"), pytest.param("go", marks=mark)]


@pytest.fixture(scope="module", params=servers())
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Yield a server with the streams FULL, HOLES (some deleted), and PLAIN without direct gets."""
    directory = tmp_path_factory.mktemp("filled")
    serving = natsd_server if request.param == "natsd" else go_serving
    with serving(directory) as url:
        with NatsClient(options(url)) as client:
            for name, settings in (("FULL", {}), ("HOLES", {}), ("PLAIN", {"allow_direct": False})):
                create(client, name, f"{name}.>", **settings)
                lead = f"{name}."
                publish(client, [(lead + s, h, d) for s, h, d in MESSAGES])
            for sequence in DELETED:
                client.api("STREAM.MSG.DELETE.HOLES", {"seq": sequence})
        yield url


def expected(stream: str, request: RangeRequest) -> list[dict[str, Any]]:
    rows = []
    for sequence, (subject, _, data) in enumerate(MESSAGES, 1):
        subject = f"{stream}.{subject}"
        wanted = not request.subjects or any(matches(subject, one) for one in request.subjects)
        inside = request.first_sequence <= sequence <= request.last_sequence
        if wanted and inside and not (stream == "HOLES" and sequence in DELETED):
            rows.append(
                {
                    "stream": stream,
                    "seq": sequence,
                    "subject": subject,
                    "headers": EXPECTED_HEADERS[(sequence - 1) % len(HEADERS)],
                    "data": data,
                }
            )
    return rows


def read(
    url: str | ClientOptions,
    request: RangeRequest,
    names: Sequence[str] = NAMES,
    **settings: Any,
) -> list[dict[str, Any]]:
    connect = options(url) if isinstance(url, str) else url
    rows: list[dict[str, Any]] = []
    for batch in read_range(connect, request, names, **settings):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(names))
        rows += rows_of(batch)
    return rows


TIMELESS = [name for name in NAMES if not name.startswith("time")]


@pytest.mark.parametrize("stream", ["FULL", "HOLES", "PLAIN"])
@pytest.mark.parametrize("size", [(10_000, 8 << 20), (100, 4096), (7, 8 << 20)])
@pytest.mark.parametrize("bounds", [(1, COUNT), (17, 17), (500, 2499), (COUNT - 1, COUNT + 50)])
def test_a_range(filled: str, stream: str, size: tuple[int, int], bounds: tuple[int, int]) -> None:
    request = RangeRequest(stream, *bounds)
    rows = read(filled, request, TIMELESS, max_rows=size[0], max_bytes=size[1])
    assert rows == expected(stream, request)


@pytest.mark.parametrize("stream", ["FULL", "HOLES", "PLAIN"])
@pytest.mark.parametrize(
    "filters", [("1.>",), ("*.3",), ("1.2",), ("9.>",), ("1.>", "*.3"), ("2.1", "3.3")]
)
def test_filters(filled: str, stream: str, filters: tuple[str, ...]) -> None:
    subjects = tuple(f"{stream}.s.{one}" for one in filters)
    if len(subjects) > 1 and is_old(filled):
        pytest.skip("several filters need 2.10")
    request = RangeRequest(stream, 100, 2900, subjects)
    assert read(filled, request, TIMELESS, max_bytes=20_000) == expected(stream, request)


def is_old(url: str) -> bool:
    with NatsClient(options(url)) as client:
        return bool(client.info["version"].startswith(("2.9", "2.8")))


@pytest.mark.parametrize(
    "names", [["seq", "headers"], ["subject"], ["seq", "data"], ["time_ns", "seq"]]
)
def test_a_choice_of_columns(filled: str, names: list[str]) -> None:
    """Unread payloads stay on the server; headers that it then adds are not part of the rows."""
    request = RangeRequest("HOLES", 1, COUNT)
    rows = read(filled, request, names)
    whole = expected("HOLES", request)
    kept = [name for name in names if name != "time_ns"]
    assert [{name: row[name] for name in kept} for row in rows] == [
        {name: row[name] for name in kept} for row in whole
    ]


def test_times(filled: str) -> None:
    request = RangeRequest("FULL", 1, COUNT)
    for stream in ("FULL", "PLAIN"):
        rows = read(filled, RangeRequest(stream, 1, COUNT), ["seq", "time", "time_ns"])
        assert all(row["time"] == row["time_ns"] // 1000 for row in rows)
        with NatsClient(options(filled)) as client:
            state = client.api(f"STREAM.INFO.{stream}")["state"]
        first = datetime.fromtimestamp(rows[0]["time_ns"] // 10**9, UTC)
        assert state["first_ts"].startswith(first.strftime("%Y-%m-%dT%H:%M:%S"))
    times = [row["time_ns"] for row in read(filled, request, ["time_ns"])]
    begin, end = times[1000], times[2000]
    request = RangeRequest("FULL", 1, COUNT, start_time_ns=begin, end_time_ns=end)
    rows = read(filled, request, ["seq", "time_ns", "data"])
    assert [row["time_ns"] for row in rows] == [time for time in times if begin <= time < end]


def test_data_loss(filled: str) -> None:
    with NatsClient(options(filled)) as client:
        create(client, "LOSS", "loss", max_msgs=100)
        publish(client, [("loss", b"", b"%d" % at) for at in range(150)])
    try:
        with pytest.raises(DataLoss) as error:
            read(filled, RangeRequest("LOSS", 20, 120))
        assert (error.value.first, error.value.last) == (20, 50)
        rows = read(filled, RangeRequest("LOSS", 20, 120, fail_on_data_loss=False), ["seq"])
        assert [row["seq"] for row in rows] == list(range(51, 121))
        assert read(filled, RangeRequest("LOSS", 20, 40, fail_on_data_loss=False)) == []
        assert len(read(filled, RangeRequest("LOSS", 51, 500))) == 100
    finally:
        with NatsClient(options(filled)) as client:
            client.api("STREAM.DELETE.LOSS")


def test_a_stream_that_is_purged_while_it_is_read(filled: str) -> None:
    with NatsClient(options(filled)) as client:
        create(client, "PURGED", "purged")
        publish(client, [("purged", b"", bytes(1000)) for at in range(3000)])
        batches = read_range(
            options(filled), RangeRequest("PURGED", 1, 3000), ["seq", "data"], max_bytes=100_000
        )
        next(batches)
        client.api("STREAM.PURGE.PURGED", {"seq": 2900})
        with pytest.raises(DataLoss):
            list(batches)
        client.api("STREAM.DELETE.PURGED")


def test_a_work_queue_is_read_without_a_consumer(filled: str) -> None:
    """Servers from 2.11 on are read by direct gets, which remove no message."""
    if is_old(filled):
        pytest.skip("that needs 2.11")
    with NatsClient(options(filled)) as client:
        create(client, "WORK", "work", retention="workqueue")
        publish(client, [("work", b"", b"%d" % at) for at in range(50)])
        rows = read(filled, RangeRequest("WORK", 1, 50), ["seq"])
        assert [row["seq"] for row in rows] == list(range(1, 51))
        assert client.api("STREAM.INFO.WORK")["state"]["messages"] == 50
        client.api("STREAM.DELETE.WORK")


def test_nothing_to_read(filled: str) -> None:
    assert read(filled, RangeRequest("FULL", 5, 4)) == []
    assert read(filled, RangeRequest("FULL", COUNT + 1, COUNT + 9)) == []
    with pytest.raises(JetStreamApiError, match="stream not found"):
        read(filled, RangeRequest("NONE", 1, 4))


def test_no_consumer_stays(filled: str) -> None:
    read(filled, RangeRequest("PLAIN", 1, COUNT), max_rows=10)
    with NatsClient(options(filled)) as client:
        client.flush()
        assert client.api("CONSUMER.NAMES.PLAIN")["total"] == 0


def test_several_filters_need_a_newer_server(filled: str) -> None:
    if not is_old(filled):
        pytest.skip("it is new enough")
    with pytest.raises(ClientError, match=r"2\.10"):
        read(filled, RangeRequest("FULL", 1, 4, ("FULL.a", "FULL.b")))


# The last message of each subject


def last_rows(stream: str, request: RangeRequest) -> list[dict[str, Any]]:
    """Return the expected last messages, of the history up to the range's end."""
    upto = RangeRequest(stream, 1, request.last_sequence, request.subjects)
    last = {row["subject"]: row for row in expected(stream, upto)}
    return sorted(
        (row for row in last.values() if row["seq"] >= request.first_sequence),
        key=lambda row: int(row["seq"]),
    )


@pytest.mark.parametrize("filters", [(), ("1.>",), ("1.>", "*.3"), ("9.9",)])
@pytest.mark.parametrize("bounds", [(1, COUNT), (2950, COUNT + 5), (1, 1500), (1480, 1500)])
def test_last_of_each_subject(
    filled: str, filters: tuple[str, ...], bounds: tuple[int, int]
) -> None:
    subjects = tuple(f"HOLES.s.{one}" for one in filters)
    request = RangeRequest("HOLES", *bounds, subjects, last_per_subject=True)
    if is_old(filled) and (len(subjects) != 1 or bounds[1] < COUNT):
        pytest.skip("2.9 has no multi_last, and forgets a subject whose last message is deleted")
    assert read(filled, request, TIMELESS, max_rows=6) == last_rows("HOLES", request)
    bare = read(filled, request, ["seq", "subject"])
    wanted = [{k: row[k] for k in ("seq", "subject")} for row in last_rows("HOLES", request)]
    assert sorted(bare, key=lambda row: int(row["seq"])) == wanted


def test_last_of_many_subjects(filled: str) -> None:
    """There are more subjects than one direct get answers; some change after the range."""
    with NatsClient(options(filled)) as client:
        create(client, "KEYS", "keys.>")
        first = [(f"keys.{at}", b"", b"1:%d" % at) for at in range(2500)]
        again = [(f"keys.{at}", b"", b"2:%d" % at) for at in range(0, 2500, 2)]
        publish(client, first + again)
    try:
        request = RangeRequest("KEYS", 1, 1 << 62, last_per_subject=True)
        now = [(s, d) for s, _, d in first[1::2] + again]
        names = ["subject", "data"]
        rows = read(filled, request, names, max_rows=99)
        assert [(row["subject"], row["data"]) for row in rows] == now
        request = RangeRequest("KEYS", 1, 2500, last_per_subject=True)
        if is_old(filled):
            with pytest.raises(ClientError, match="allow_direct"):
                read(filled, request, names)
        else:
            rows = read(filled, request, names, max_rows=99)
            assert sorted((row["subject"], row["data"]) for row in rows) == sorted(
                (s, d) for s, _, d in first
            )
    finally:
        with NatsClient(options(filled)) as client:
            client.api("STREAM.DELETE.KEYS")
