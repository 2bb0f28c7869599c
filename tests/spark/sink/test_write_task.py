"""Tasks of a write against natsd and nats-server: crashes, twins, outages and refusals.

Targets have the shortest possible duplicate window (100 ms), so that it hides no error.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from natsd.core.wall_time import parse_timestamp
from natsd.spark.errors import AuthorizationError
from natsd.spark.ranges import RangeRequest
from natsd.spark.sink.begin_records import (
    BeginRecord,
    TakenOver,
    TaskLease,
    WriteError,
    WriteJob,
    raise_fence,
)
from natsd.spark.sink.state_bucket import StateBucket, token
from natsd.spark.sink.stored_ids import read_headers
from natsd.spark.sink.write_task import RowsDiffer, Written, write_task
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions
from tests.spark.conftest import StartServer
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, go_server, go_serving, natsd_server, options
from tests.spark.writing import BY_ID, PLAIN, batch, batches, numbered, stored, task, writing

WINDOW_NS = 100_000_000


@pytest.fixture(params=["natsd", "go"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "go" and go_server() is None:
        pytest.skip("no nats-server on PATH")
    serving = natsd_server if request.param == "natsd" else go_serving
    with serving(tmp_path) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[NatsClient]:
    with NatsClient(options(url)) as client:
        create(client, "ORDERS", "orders.>", duplicate_window=WINDOW_NS)
        yield client


def past_the_window() -> None:
    time.sleep(2 * WINDOW_NS / 1e9)


class Broken(Exception):
    pass


def broken(rows: list[Any], after: int, size: int = 10) -> Iterator[pa.RecordBatch]:
    """Yield batches of the first `after` rows, then raise, as an executor that dies."""
    yield from batches(rows[:after], size)
    raise Broken


def test_rows_are_stored_once_in_their_order(client: NatsClient) -> None:
    rows = [
        (f"orders.{at}", b"%d" % at, [("Kind", ["a", "b"])] if at % 2 else None) for at in range(95)
    ]
    written = write_task(writing(client.options), PLAIN, task(), batches(rows))
    assert (written.rows, written.sent, written.found, written.duplicates) == (95, 95, 0, 0)
    assert stored(client, "ORDERS") == [row[:2] for row in rows]
    message = client.api("STREAM.MSG.GET.ORDERS", {"seq": 2})["message"]
    block = base64.b64decode(message["hdrs"])
    assert block == b"NATS/1.0\r\nNats-Msg-Id: q:0:0:1\r\nKind: a\r\nKind: b\r\n\r\n"


def test_a_retry_sends_what_is_missing(client: NatsClient) -> None:
    rows = numbered(100)
    connect = writing(client.options)
    with pytest.raises(Broken):
        write_task(connect, PLAIN, task(), broken(rows, 60))
    past_the_window()
    before = len(stored(client, "ORDERS"))
    written = write_task(connect, PLAIN, task(attempt=1), batches(rows))
    assert (written.rows, written.sent, written.found) == (100, 100 - before, before)
    assert stored(client, "ORDERS") == rows
    again = write_task(connect, PLAIN, task(attempt=2), batches(rows))
    assert (again.sent, again.found) == (0, 100)
    assert len(stored(client, "ORDERS")) == 100


def test_others_write_to_the_same_stream(client: NatsClient) -> None:
    rows = numbered(50)
    connect = writing(client.options)
    with pytest.raises(Broken):
        write_task(connect, PLAIN, task(partition=1), broken(rows, 30))
    write_task(connect, PLAIN, task(partition=2), batches(rows))
    client.request("orders.foreign", b"!")
    past_the_window()
    write_task(connect, PLAIN, task(partition=1, attempt=1), batches(rows))
    assert sorted(stored(client, "ORDERS")) == sorted([*rows, *rows, ("orders.foreign", b"!")])


def test_other_rows_are_refused_with_advice(client: NatsClient) -> None:
    rows = numbered(50)
    connect = writing(client.options)
    with pytest.raises(Broken):
        write_task(connect, PLAIN, task(), broken(rows, 40))
    past_the_window()
    before = stored(client, "ORDERS")
    with pytest.raises(RowsDiffer, match=r"(?s)shuffle.*add a column id"):
        write_task(connect, PLAIN, task(attempt=1), batches(rows[::-1]))
    assert stored(client, "ORDERS") == before


def test_ids_may_come_in_any_order_and_partition(client: NatsClient) -> None:
    rows = [(f"orders.{at}", b"%d" % at, None, f"order {at}") for at in range(60)]
    connect = writing(client.options)
    write_task(connect, BY_ID, task(partition=0, run="one"), batches(rows[:20]))
    with pytest.raises(Broken):
        write_task(connect, BY_ID, task(partition=1, run="one"), broken(rows[20:], 20))
    past_the_window()
    shuffled = rows[::-1]
    again = [
        write_task(connect, BY_ID, task(partition=at, run="two"), batches(shuffled[at::2]))
        for at in range(2)
    ]
    assert sum(written.sent + written.found for written in again) == 60
    assert sorted(stored(client, "ORDERS")) == sorted(row[:2] for row in rows)
    message = client.api("STREAM.MSG.GET.ORDERS", {"seq": 1})["message"]
    assert b"Nats-Msg-Id: order 0\r\n" in base64.b64decode(message["hdrs"])


def test_ids_are_found_in_batches_larger_than_the_window(client: NatsClient) -> None:
    rows = [(f"orders.{at}", b"%d" % at, None, f"order {at}") for at in range(600)]
    others = [("orders.other", b"other", None, f"other {at}") for at in range(300)]
    first = batch(rows[:300])
    second = batch([*others, *rows[300:]]).slice(300)  # the other rows are before it in memory
    connect = writing(client.options, max_in_flight=4)
    write_task(connect, BY_ID, task(), [first])  # as if Spark had cancelled it
    past_the_window()
    written = write_task(connect, BY_ID, task(attempt=1), [first, second])
    assert (written.sent, written.found, written.duplicates) == (300, 300, 0)
    assert stored(client, "ORDERS") == [row[:2] for row in rows]


def test_a_fenced_batch_is_not_even_read(client: NatsClient) -> None:
    connect = writing(client.options)
    write_task(connect, PLAIN, task(version=7), batches(numbered(5)))
    bucket = StateBucket(client, "natsd_spark")
    raise_fence(bucket, WriteJob("q", 7))
    raise_fence(bucket, WriteJob("q", 6))  # the fence must not be lowered
    past_the_window()
    for version in (6, 7):
        written = write_task(connect, PLAIN, task(version=version), batches(numbered(5)))
        assert written.was_done
    assert not write_task(connect, PLAIN, task(version=8), batches(numbered(5))).was_done
    assert len(stored(client, "ORDERS")) == 10


def test_two_attempts_at_once_send_each_row_once(client: NatsClient) -> None:
    """The second attempt waits for the first, or resumes it; they never send both."""
    rows = numbered(3000)
    connect = writing(client.options)
    results: list[Written | Exception] = []

    def run(attempt: int) -> None:
        try:
            made = batches(rows, 100)
            results.append(write_task(connect, PLAIN, task(attempt=attempt), made))
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(result.rows for result in results if isinstance(result, Written)) == [3000, 3000]
    assert stored(client, "ORDERS") == rows


def test_an_attempt_that_lost_its_lease_stops(client: NatsClient) -> None:
    """The attempt paused for longer than its lease, and another attempt did its work meanwhile."""
    rows = numbered(100)
    connect = writing(client.options, lease_s=0.2)

    def stopped() -> Iterator[pa.RecordBatch]:
        yield from batches(rows[:30])
        write_task(connect, PLAIN, task(attempt=1), batches(rows))
        past_the_window()
        yield from batches(rows[30:])

    with pytest.raises(TakenOver, match=r"another attempt took over begin\.q\.0\.0"):
        write_task(connect, PLAIN, task(), stopped())
    assert stored(client, "ORDERS") == rows


def test_a_killed_attempt_is_waited_for(client: NatsClient) -> None:
    """The record of a killed attempt has no end, so only the end of its lease frees it."""
    bucket = StateBucket(client, "natsd_spark")
    record = BeginRecord(owner="killed", attempt=0, run="one", by_id=False)
    lease = TaskLease(bucket, "begin.q.0.0", record, 0.5)
    lease.begin()
    started = time.monotonic()
    heir = TaskLease(bucket, "begin.q.0.0", replace(record, owner="heir"), 0.5)
    heir.begin()
    assert time.monotonic() - started > 0.4
    assert heir.before is not None
    assert heir.before.owner == "killed"
    with pytest.raises(TakenOver):
        lease.change(rows=1)


def test_messages_that_are_gone_count_as_stored(client: NatsClient) -> None:
    create(client, "LATEST", "latest.>", max_msgs_per_subject=1, duplicate_window=WINDOW_NS)
    rows = numbered(60, "latest.{}")
    connect = writing(client.options)
    with pytest.raises(Broken):
        write_task(connect, PLAIN, task(), broken(rows, 40))
    past_the_window()
    write_task(connect, PLAIN, task(attempt=1), batches(rows))
    assert stored_now(client, "LATEST") == dict(rows)
    assert client.api("STREAM.INFO.LATEST")["state"]["last_seq"] == 60


def stored_now(client: NatsClient, stream: str) -> dict[str, bytes]:
    found = {}
    for at in range(5):
        body = {"last_by_subj": f"latest.{at}"}
        message = client.api(f"STREAM.MSG.GET.{stream}", body)["message"]
        found[message["subject"]] = base64.b64decode(message["data"])
    return found


def test_streams_are_found_by_subject(client: NatsClient) -> None:
    create(client, "BILLS", "bills.*", duplicate_window=WINDOW_NS)
    rows = [*numbered(20), *numbered(20, "bills.{}"), *numbered(20)]
    connect = writing(client.options)
    with pytest.raises(Broken):
        write_task(connect, PLAIN, task(), broken(rows, 50))
    past_the_window()
    write_task(connect, PLAIN, task(attempt=1), batches(rows))
    assert stored(client, "ORDERS") == [*numbered(20), *numbered(20)]
    assert stored(client, "BILLS") == numbered(20, "bills.{}")


@pytest.mark.parametrize(
    ("settings", "rows", "error"),
    [
        ({}, [("nobody.x", b"")], 'no stream has the subject "nobody.x": create one'),
        ({"stream": "NONE"}, [("a", b"")], 'there is no stream "NONE"'),
        (
            {"stream": "ORDERS"},
            [("orders.1", b""), ("bills.1", b"")],
            'the subject "bills.1" is not one of stream "ORDERS" .*change the option stream',
        ),
        ({}, [("orders.1", b"x" * (2 << 20))], "row 0 of partition 0: .*max_payload"),
        ({}, [("orders.1", b""), ("orders. x", b"")], "row 1 of partition 0: .*be published to"),
    ],
)
def test_refusals_are_one_line(
    client: NatsClient, settings: dict[str, Any], rows: list[Any], error: str
) -> None:
    with pytest.raises(WriteError, match=error) as raised:
        write_task(writing(client.options, **settings), PLAIN, task(), batches(rows))
    assert "\n" not in str(raised.value)
    assert stored(client, "ORDERS") == []


def test_limits_are_told_and_what_was_stored_is_known(client: NatsClient) -> None:
    create(client, "FULL", "full.>", max_msgs=30, discard="new", duplicate_window=WINDOW_NS)
    rows = numbered(50, "full.{}")
    with pytest.raises(WriteError, match=r"maximum messages exceeded \(503/10077\): make room"):
        write_task(writing(client.options), PLAIN, task(), batches(rows))
    past_the_window()
    config = {"name": "FULL", "subjects": ["full.>"], "max_msgs": 100, "discard": "new"}
    client.api("STREAM.UPDATE.FULL", config | {"allow_direct": True})
    write_task(writing(client.options), PLAIN, task(attempt=1), batches(rows))
    assert stored(client, "FULL") == rows


def test_a_task_without_rows_asks_nobody() -> None:
    nowhere = ClientOptions(servers=("nats://127.0.0.1:1",))
    assert write_task(writing(nowhere), PLAIN, task(), iter(())).rows == 0


def test_a_missing_permission_is_told(tmp_path: Path) -> None:
    if go_server() is None:
        pytest.skip("no nats-server on PATH")
    users = """authorization { users: [
        { user: admin, password: a }
        { user: spark, password: s, permissions: { publish: ["$JS.>", "$KV.>"] } }
    ] }"""
    with go_serving(tmp_path, users) as url:
        with NatsClient(options(url, user="admin", password="a")) as client:
            create(client, "ORDERS", "orders.>")
        connect = writing(options(url, user="spark", password="s"))
        with pytest.raises(AuthorizationError, match=r'Publish to "orders\.0"'):
            write_task(connect, PLAIN, task(), batches(numbered(3)))


def test_a_server_that_is_killed_while_rows_are_sent(start_server: StartServer) -> None:
    server = start_server()
    rows = numbered(40_000)
    with NatsClient(options(server.url)) as client:
        create(client, "ORDERS", "orders.>", duplicate_window=WINDOW_NS)
    connect = writing(options(server.url), ack_timeout_s=30.0, max_in_flight=2000)
    kills = iter((10_000, 25_000))
    kill_at = next(kills)

    def killing() -> Iterator[pa.RecordBatch]:
        nonlocal kill_at
        sent = 0
        for made in batches(rows, 1000):
            yield made
            sent += 1000
            if sent == kill_at:
                restart(server)
                kill_at = next(kills, 0)

    write_task(connect, PLAIN, task(), killing())
    with NatsClient(options(server.url)) as client:
        state = client.api("STREAM.INFO.ORDERS")["state"]
        assert state["messages"] == 40_000
        assert ids_of(client, connect.connect) == sorted(f"q:0:0:{at}" for at in range(40_000))


def restart(server: JetStreamServer) -> None:
    server.kill()
    server.start()


def ids_of(client: NatsClient, connect: ClientOptions) -> list[str]:
    last = client.api("STREAM.INFO.ORDERS")["state"]["last_seq"]
    made = read_headers(connect, RangeRequest("ORDERS", 1, last))
    return sorted(
        dict(headers)["Nats-Msg-Id"][0] for part in made for headers in part.column(0).to_pylist()
    )


def test_tokens_of_keys_are_one_to_one() -> None:
    texts = ["a", "a b", "a.b", "", "=YSBi", "é", "*", "A_b-1"]
    assert len({token(text) for text in texts}) == len(texts)
    assert all(set(token(text)).isdisjoint(". *>") for text in texts)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T01:00:00.000000001+01:00", 1),
        ("2026-11-21T13:10:12.80188912Z", 1_795_266_612_801_889_120),
    ],
)
def test_times_of_servers(text: str, wanted: int) -> None:
    assert parse_timestamp(text) == wanted
