"""Reads from servers that lag, fall silent, lie or disconnect; each row still comes once."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd.spark.errors import (
    AuthorizationError,
    ClientError,
    ConnectionLost,
    RequestTimeout,
)
from natsd.spark.network.network_read import read_range
from natsd.spark.network.range_progress import Lagging
from natsd.spark.ranges import DataLoss, RangeRequest
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions
from tests.spark.fake_server import Ask, FakeServer, stream_info
from tests.spark.serving import create, natsd_server, options, publish

NO_MESSAGE = {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}


def sequences(connect: ClientOptions, last: int, first: int = 1, **settings: object) -> list[int]:
    request = RangeRequest("S", first, last, **settings)  # type: ignore[arg-type]  # a test's
    return [
        sequence
        for batch in read_range(connect, request, ["seq", "data"], max_rows=50)
        for sequence in batch.column(0).to_pylist()
    ]


def is_direct(ask: Ask) -> bool:
    return ".DIRECT.GET." in ask.subject


def whole_answer(ask: Ask, last: int) -> bytes:
    """Return all messages from the requested sequence on."""
    begin, batch = ask.body["seq"], ask.body["batch"]
    end = min(last, begin + batch - 1)
    if begin > last:
        return ask.status("404 Message Not Found")
    rows = [ask.row(at, pending=last - at) for at in range(begin, end + 1)]
    return b"".join(rows) + ask.end(end, last - end)


def next_message(ask: Ask, last: int) -> bytes:
    begin = ask.body["seq"]
    return ask.json({"message": {"seq": begin, "subject": "s"}} if begin <= last else NO_MESSAGE)


def test_a_replica_that_lags_is_asked_again() -> None:
    asked: list[int] = []

    def answer(ask: Ask) -> bytes:
        if "STREAM.INFO" in ask.subject:
            return stream_info(ask, 100)
        if "MSG.GET" in ask.subject:
            return next_message(ask, 100)
        asked.append(ask.body["seq"])
        return whole_answer(ask, 60 if len(asked) < 3 else 100)

    with FakeServer(answer) as server:
        assert sequences(options(server.url), 100) == list(range(1, 101))
    assert asked == [1, 61, 61]


def test_a_replica_that_never_catches_up_fails_the_range() -> None:
    def answer(ask: Ask) -> bytes:
        if "STREAM.INFO" in ask.subject:
            return stream_info(ask, 100)
        return whole_answer(ask, 60) if is_direct(ask) else next_message(ask, 100)

    with FakeServer(answer) as server:
        with pytest.raises(Lagging, match='replica of stream "S" has not caught up: message 61'):
            sequences(options(server.url), 100)


def test_an_end_made_of_holes_is_an_end() -> None:
    def answer(ask: Ask) -> bytes:
        if "STREAM.INFO" in ask.subject:
            return stream_info(ask, 100)
        return whole_answer(ask, 60) if is_direct(ask) else next_message(ask, 60)

    with FakeServer(answer) as server:
        assert sequences(options(server.url), 100) == list(range(1, 61))


def test_answers_that_end_early_and_overtake_each_other() -> None:
    """The first request ends before the second begins, and the second's rows come first."""
    held: list[bytes] = []

    def answer(ask: Ask) -> bytes:
        if "STREAM.INFO" in ask.subject:
            return stream_info(ask, 1000)
        begin = ask.body["seq"]
        if begin == 1:  # without the end, so that the next range is requested
            rows = [ask.row(at) for at in range(1, ask.body["batch"] - 2)]
            held.append(ask.end(begin + len(rows) - 1, 5))
            return b"".join(rows)
        return whole_answer(ask, 1000) + (held.pop() if held else b"")

    request = RangeRequest("S", 1, 1000)
    with FakeServer(answer) as server:
        connect = options(server.url)
        rows = [
            sequence
            for batch in read_range(connect, request, ["seq", "data"], max_rows=7, max_bytes=20_000)
            for sequence in batch.column(0).to_pylist()
        ]
    assert rows == list(range(1, 1001))


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        ("408 Bad Request", ClientError, "408 Bad Request"),
        ("429 Too Many Requests", Lagging, "429 Too Many Requests"),
        ("500 broken disk", ClientError, "500 broken disk"),
        ("503", ClientError, "nobody answers direct gets"),
    ],
)
def test_what_a_status_says_is_raised(status: str, error: type[Exception], text: str) -> None:
    def answer(ask: Ask) -> bytes:
        return ask.status(status) if is_direct(ask) else stream_info(ask, 100)

    with FakeServer(answer) as server:
        with pytest.raises(error, match=text) as raised:
            sequences(options(server.url), 100)
    assert "\n" not in str(raised.value)


def test_silence_is_over_after_the_requests_time() -> None:
    def answer(ask: Ask) -> bytes:
        return ask.row(1) if is_direct(ask) else stream_info(ask, 100)

    with FakeServer(answer) as server:
        with pytest.raises(RequestTimeout, match='"S" does not answer'):
            sequences(options(server.url, request_timeout_s=0.05, retries=1), 100)
    assert server.connections >= 2


@pytest.mark.parametrize("garbage", [b"MSG\r\n", b"HMSG i 1 4 4\r\nabcd\r\n", b"hello\r\n"])
def test_garbage_is_answered_with_another_connection(garbage: bytes) -> None:
    def answer(ask: Ask) -> bytes:
        if not is_direct(ask):
            return stream_info(ask, 100)
        whole = whole_answer(ask, 100)
        return whole[: whole.index(b"HMSG", 2000)] + garbage if ask.connection == 1 else whole

    with FakeServer(answer) as server:
        connect = options(server.url, request_timeout_s=1)
        assert sequences(connect, 100) == list(range(1, 101))
        assert server.connections == 2


def test_a_missing_permission_is_said_in_the_servers_words() -> None:
    def answer(ask: Ask) -> bytes:
        return b"-ERR 'Permissions Violation for Publish to \"$JS.API.STREAM.INFO.S\"'\r\n"

    with FakeServer(answer) as server:
        with pytest.raises(AuthorizationError, match="Permissions Violation for Publish"):
            sequences(options(server.url), 100)


def test_a_gap_that_the_streams_beginning_overtakes_is_a_loss() -> None:
    """Sequences 41 to 60 existed at the start and were purged before the reader came to them."""
    infos: list[int] = []

    def answer(ask: Ask) -> bytes:
        if "STREAM.INFO" in ask.subject:
            infos.append(1)
            return stream_info(ask, 100, first=1 if len(infos) == 1 else 61)
        rows = [ask.row(at) for at in [*range(1, 41), *range(61, 101)]]
        return b"".join(rows) + ask.end(100, 0)

    with FakeServer(answer) as server:
        with pytest.raises(DataLoss, match="messages 41 to 60"):
            sequences(options(server.url), 100)
        infos.clear()
        rows = sequences(options(server.url), 100, fail_on_data_loss=False)
        assert rows == [*range(1, 41), *range(61, 101)]


@pytest.mark.parametrize("names", [["seq", "data"], ["seq"]])
def test_what_becomes_of_gaps_is_heard_among_other_answers(
    tmp_path: Path, names: list[str]
) -> None:
    """A gap is resolved by answers that came during the query for the consumer's end."""
    with natsd_server(tmp_path) as url:
        with NatsClient(options(url)) as client:
            create(client, "S", "s")
            publish(client, [("s", b"", b"x")] * 200)
            for sequence in (7, 50, 150, 200):
                client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
        request = RangeRequest("S", 1, 200)
        connect = options(url, request_timeout_s=20, retries=0)
        for _ in range(5):
            batches = list(read_range(connect, request, names, max_rows=20, max_bytes=3000))
            assert sum(batch.num_rows for batch in batches) == 196


def test_a_gap_before_a_connection_broke_off_is_looked_at_on_the_next() -> None:
    def answer(ask: Ask) -> bytes | None:
        if "STREAM.INFO" in ask.subject:
            return stream_info(ask, 100, first=1 if ask.connection == 1 else 61)
        if ask.connection == 1:
            rows = [ask.row(at) for at in [*range(1, 41), *range(61, 81)]]
            return b"".join(rows) + b"garbage\r\n"
        return whole_answer(ask, 100)

    with FakeServer(answer) as server:
        with pytest.raises(DataLoss, match="messages 41 to 60"):
            sequences(options(server.url), 100)


# Connections that break off


class Cutter:
    """A proxy that closes a connection after a number of bytes to the client."""

    def __init__(self, url: str, chance: random.Random, cuts: int, most: int) -> None:
        host, _, port = url.removeprefix("nats://").rpartition(":")
        self._target = (host, int(port))
        self._chance = chance
        self.least = 2000
        self.most = most
        self.cuts = cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        pumps: list[threading.Thread] = []
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                break
            server = socket.create_connection(self._target)
            left = self._chance.randrange(self.least, self.most) if self.cuts > 0 else 1 << 60
            self.cuts -= 1
            for source, target, size in ((client, server, 1 << 60), (server, client, left)):
                pumps.append(threading.Thread(target=pump, args=(source, target, size)))
                pumps[-1].start()
        for thread in pumps:
            thread.join()


def pump(source: socket.socket, target: socket.socket, left: int) -> None:
    with contextlib.suppress(OSError):
        while left > 0 and (data := source.recv(min(65536, left))):
            target.sendall(data)
            left -= len(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[Cutter]:
    with natsd_server(tmp_path) as url:
        with NatsClient(options(url)) as client:
            create(client, "S", "s.>")
            create(client, "P", "p.>", allow_direct=False)
            for lead in "sp":
                publish(client, [(f"{lead}.{at % 7}", b"", b"%d" % at) for at in range(1, 4001)])
        cutter = Cutter(url, random.Random(5), 12, 300_000)
        yield cutter
        cutter.close()


@pytest.mark.parametrize("stream", ["S", "P"])
def test_connections_that_break_off_anywhere(cut: Cutter, stream: str) -> None:
    for _ in range(4):
        request = RangeRequest(stream, 1, 4000)
        rows: list[tuple[int, bytes]] = []
        connect = options(cut.url, retries=20, retry_interval_s=0.001)
        for batch in read_range(connect, request, ["seq", "data"], max_rows=70, max_bytes=50_000):
            rows += [(row["seq"], row["data"]) for row in batch.to_pylist()]
        assert rows == [(at, b"%d" % at) for at in range(1, 4001)]
    assert cut.cuts <= 0


def test_a_connection_that_always_breaks_off_fails_the_range(cut: Cutter) -> None:
    cut.cuts, cut.least, cut.most = 1 << 60, 1000, 1001  # no row gets through
    with pytest.raises(ClientError) as error:
        sequences(options(cut.url, retries=1, retry_interval_s=0.001), 4000)
    assert "\n" not in str(error.value)


def test_another_server_goes_on_in_the_middle_of_a_range(tmp_path: Path) -> None:
    """Two servers have the same stream; the first ends while it is read."""
    messages = [(f"s.{at % 7}", b"", bytes(2000)) for at in range(1, 3001)]
    with natsd_server(tmp_path / "2") as second:
        with natsd_server(tmp_path / "1") as first:
            for url in (first, second):
                with NatsClient(options(url)) as client:
                    create(client, "S", "s.>")
                    publish(client, messages)
            request = RangeRequest("S", 1, 3000)
            connect = options(first, second, retry_interval_s=0.001)
            batches = read_range(connect, request, ["seq", "data"], max_rows=100, max_bytes=100_000)
            rows = next(batches).column(0).to_pylist()
        for batch in batches:
            rows += batch.column(0).to_pylist()
    assert rows == list(range(1, 3001))


def test_a_server_that_leaves_has_said_where_the_others_are() -> None:
    """Servers that INFO names later, as in lame duck mode, are used when the connection ends."""

    def answer(ask: Ask) -> bytes | None:
        if "STREAM.INFO" in ask.subject:
            return stream_info(ask, 100)
        return whole_answer(ask, 100)

    with FakeServer(answer) as other:

        def leave(ask: Ask) -> bytes | None:
            if is_direct(ask):
                return None
            urls = [other.url.removeprefix("nats://")]
            news = json.dumps({"version": "2.14.5", "ldm": True, "connect_urls": urls})
            return f"INFO {news}\r\n".encode() + stream_info(ask, 100)

        with FakeServer(leave) as server:
            connect = options(server.url, retries=0)
            with pytest.raises(ConnectionLost):
                sequences(connect, 100)
            assert sequences(options(server.url), 100) == list(range(1, 101))
        assert other.connections == 1


def test_who_reads_slowly_loses_nothing(tmp_path: Path) -> None:
    with natsd_server(tmp_path) as url:
        with NatsClient(options(url)) as client:
            create(client, "S", "s")
            publish(client, [("s", b"", bytes(5000))] * 3000)
        rows = 0
        for batch in read_range(options(url), RangeRequest("S", 1, 3000), ["data"], max_rows=250):
            rows += batch.num_rows
            time.sleep(0.005)  # a slow reader
        assert rows == 3000
