"""Requests of the driver: streams by name and pattern, sequences by time, retries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd.spark.errors import ConnectionLost, JetStreamApiError, NoResponders
from natsd.spark.reader.streams import ServerStreams, StreamChoice, StreamMissing
from natsd.spark.times import parse_time_ns
from natsd.spark.wire.client import NatsClient
from tests.spark.servers import JetStreamServer, find_go_server
from tests.spark.serving import create, natsd_server, options, publish


def time_ns_of(text: str) -> int:
    time_ns = parse_time_ns(text)
    assert isinstance(time_ns, int)
    return time_ns


@pytest.fixture(params=["natsd", "go", "old go"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "natsd":
        with natsd_server(tmp_path) as url:
            yield url
        return
    program = find_go_server(batched_gets=request.param == "go")
    if program is None:
        pytest.skip("no such nats-server on PATH")
    server = JetStreamServer(tmp_path, [program])
    yield server.url
    server.stop()


def test_streams_and_times(url: str) -> None:
    with NatsClient(options(url)) as client:
        for name in ("B1", "A1", "C"):
            create(client, name, f"{name}.>")
        publish(client, [("A1.x", b"", b"%d" % n) for n in range(50)])
        client.api("STREAM.MSG.DELETE.A1", {"seq": 20})
        times = [
            time_ns_of(client.api("STREAM.MSG.GET.A1", {"seq": seq})["message"]["time"])
            for seq in (19, 21, 50)
        ]
    with ServerStreams(options(url), StreamChoice((), "[AB]1")) as streams:
        states = streams.states()
        assert [(name, state.first, state.end) for name, state in states.items()] == [
            ("A1", 1, 51),
            ("B1", 1, 1),
        ]
        state = states["A1"]
        assert streams.sequence_at(state, times[0]) == 19
        assert streams.sequence_at(state, times[0] + 1) in (20, 21)
        assert streams.sequence_at(state, times[1]) == 21
        assert streams.sequence_at(state, times[2] + 1) == 51
        assert streams.sequence_at(state, 0) == 1
        assert streams.sequence_at(states["B1"], 0) == 1
    with ServerStreams(options(url), StreamChoice(("C", "D"))) as streams:
        with pytest.raises(StreamMissing, match='there is no stream "D"'):
            streams.states()


class Failing:
    """A server that fails a few requests."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = 0

    def __call__(self, client: NatsClient) -> int:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return int(client.info["max_payload"])


def test_questions_are_asked_again(tmp_path: Path) -> None:
    slept: list[float] = []
    with natsd_server(tmp_path) as url:
        streams = ServerStreams(options(url), StreamChoice(("A",)), sleep=slept.append)
        with streams:
            passing = Failing(ConnectionLost("x"), JetStreamApiError(503, 10008, "for now"))
            assert streams.ask(passing) > 0
            assert (passing.asked, slept) == (3, [0.02, 0.04])
            with pytest.raises(NoResponders):
                streams.ask(Failing(*[NoResponders("x")] * 9))
            refused = Failing(JetStreamApiError(404, 10059, "no stream"))
            with pytest.raises(JetStreamApiError):
                streams.ask(refused)
            assert refused.asked == 1
