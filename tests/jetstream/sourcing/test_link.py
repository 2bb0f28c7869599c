"""Links to an origin that does as the test says, with a clock that the test sets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from natsd.accounts import Account
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.stream import (
    ExternalStream,
    StreamConsumerSource,
    StreamSource,
    StreamSourceInfo,
)
from natsd.jetstream.models.times import format_time
from natsd.jetstream.sourcing.positions import POSITIONS_FILE
from natsd.jetstream.stream.stream import Stream
from natsd.jetstream.tiers import UNLIMITED
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import remove_twins
from tests.jetstream.clock import Clock
from tests.jetstream.serving import ACCOUNT, build, create
from tests.waiting import eventually_within

SECOND = 1_000_000_000
API = "far"
CONSUMER = "C"
LEVEL_ERROR = {"code": 412, "err_code": 10185, "description": "JetStream minimum api level"}

Json = dict[str, Any]


@dataclass
class FakeOrigin:
    """An origin that records requests, answers them, and delivers messages on demand."""

    account: Account
    answers: list[Json] = field(default_factory=list)
    requests: list[tuple[str, Json, bytes]] = field(default_factory=list)
    flow: list[bytes] = field(default_factory=list)
    delivered: int = 0

    def __post_init__(self) -> None:
        client = self.account.internal_client
        client.subscribe(f"{API}.CONSUMER.CREATE.>", self._asked)
        client.subscribe(f"{API}.CONSUMER.RESET.>", self._asked)
        client.subscribe("flow.*", lambda _s, _r, headers, _d: self.flow.append(headers))

    def _asked(self, subject: str, reply: str | None, headers: bytes, data: bytes) -> None:
        assert reply is not None
        body = json.loads(data or b"{}")
        self.requests.append((subject, body, headers))
        answer = {"name": CONSUMER, "config": body.get("config", {})}
        if self.answers:
            answer = self.answers.pop(0)
        self.delivered = 0
        self.account.internal_client.publish(reply, json.dumps(answer).encode())

    @property
    def deliver_subject(self) -> str:
        return str(self.requests[-1][1]["config"]["deliver_subject"])

    def send(self, sequence: int, *, consumer_sequence: int = 0, pending: int = 0) -> None:
        """Deliver a message, by default with the consumer's next sequence."""
        self.delivered = consumer_sequence or self.delivered + 1
        reply = f"$JS.ACK.O.{CONSUMER}.1.{sequence}.{self.delivered}.{sequence * SECOND}.{pending}"
        self.account.internal_client.publish(self.deliver_subject, b"x", reply=reply)

    def ask_flow(self, tag: str) -> None:
        self.account.internal_client.publish(
            self.deliver_subject,
            reply=f"flow.{tag}",
            headers=b"NATS/1.0 100 FlowControl Request\r\n\r\n",
        )

    def beat(self, delivered: int, stalled: str = "") -> None:
        """Send an idle heartbeat."""
        lines = f"Nats-Last-Consumer: {delivered}\r\nNats-Last-Stream: 0\r\n"
        if stalled:
            lines += f"Nats-Consumer-Stalled: {stalled}\r\n"
        block = f"NATS/1.0 100 Idle Heartbeat\r\n{lines}\r\n".encode()
        self.account.internal_client.publish(self.deliver_subject, headers=block)


@dataclass
class Bench:
    jetstream: JetStream
    origin: FakeOrigin
    clock: Clock

    async def mirror(self, **source: Any) -> Stream:
        return await create(self.jetstream, "M", mirror=external(**source))

    async def sourced(self, **source: Any) -> Stream:
        return await create(self.jetstream, "S", sources=[external(**source)])

    async def asked(self, count: int) -> None:
        """Let time pass until `count` requests have been made."""
        await self.passing(lambda: len(self.origin.requests) >= count)
        assert len(self.origin.requests) == count

    async def passing(self, condition: Callable[[], object]) -> None:
        """Let time pass until the condition holds."""

        def passes() -> object:
            self.clock.now_ns += SECOND // 10
            return condition()

        await eventually_within(passes)


def external(**source: Any) -> StreamSource:
    return StreamSource(name="O", external=ExternalStream(api=API), **source)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benched(tmp_path) as made:
        yield made


@asynccontextmanager
async def benched(directory: Path) -> AsyncIterator[Bench]:
    clock = Clock()
    jetstream = build(directory, clock=clock)
    account = Account(ACCOUNT, jetstream.reactor)
    await jetstream.start([])
    origin = FakeOrigin(account)
    await jetstream.configure_account(account, UNLIMITED)
    yield Bench(jetstream, origin, clock)
    await jetstream.stop()
    account.close()
    jetstream.reactor.close()


def told(stream: Stream) -> StreamSourceInfo:
    """Return the info about the mirror or the only source."""
    mirror = stream.sourcing.mirror_info()
    sources = stream.sourcing.sources_info()
    assert (mirror is None) is bool(sources)  # a mirror is not one of the sources
    return mirror if mirror is not None else sources[0]


def start_of(request: tuple[str, Json, bytes]) -> int:
    """Return the start sequence of the request."""
    return int(request[1]["config"].get("opt_start_seq", 0))


async def listening(bench: Bench, stream: Stream, requests: int = 1) -> None:
    await bench.asked(requests)
    subject = bench.origin.deliver_subject
    await eventually_within(lambda: stream.account.account.sublist.has_interest(subject))


async def stored(stream: Stream, last: int) -> None:
    await eventually_within(lambda: stream.readers.visible >= last)
    assert stream.readers.visible == last


async def test_a_message_that_is_missing_is_asked_for_again(bench: Bench) -> None:
    mirror = await bench.mirror()
    await listening(bench, mirror)
    bench.origin.send(1)
    bench.origin.send(3, consumer_sequence=3)
    await listening(bench, mirror, 2)
    assert start_of(bench.origin.requests[1]) == 2
    bench.origin.send(2)
    bench.origin.send(3)
    await stored(mirror, 3)


async def test_what_the_origin_has_not_is_skipped(bench: Bench) -> None:
    mirror = await bench.mirror()
    await listening(bench, mirror)
    bench.origin.send(1)
    bench.origin.send(1_000_000)
    await stored(mirror, 1_000_000)
    assert mirror.store.state().msgs == 2


async def test_what_came_already_is_passed_over(bench: Bench) -> None:
    mirror = await bench.mirror()
    await listening(bench, mirror)
    for sequence in (1, 1, 2, 1, 2, 3):
        bench.origin.send(sequence)
    await stored(mirror, 3)


async def test_a_heartbeat_tells_of_missing_messages(bench: Bench) -> None:
    stream = await bench.sourced()
    await listening(bench, stream)
    bench.origin.send(7)
    bench.origin.beat(1)
    await stored(stream, 1)
    bench.origin.beat(2)
    await listening(bench, stream, 2)
    assert start_of(bench.origin.requests[1]) == 8


async def test_silence_is_noticed(bench: Bench) -> None:
    stream = await bench.sourced()
    await listening(bench, stream)
    heard_ns = bench.clock.now_ns
    bench.clock.now_ns += 5 * SECOND
    bench.origin.beat(0)
    await eventually_within(lambda: told(stream).active < 5 * SECOND)
    await bench.asked(2)
    assert bench.clock.now_ns - heard_ns >= 15 * SECOND


async def test_flow_control_is_answered_with_what_is_durable(bench: Bench) -> None:
    stream = await bench.sourced()
    await listening(bench, stream)
    bench.origin.send(5)
    bench.origin.send(9)
    bench.origin.ask_flow("a")
    await eventually_within(lambda: bench.origin.flow)
    assert stream.readers.visible == 2
    assert bench.origin.flow == [
        b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 9\r\n\r\n"
    ]
    bench.origin.beat(2, stalled="flow.b")
    await eventually_within(lambda: len(bench.origin.flow) == 2)


async def test_an_old_server_is_asked_as_it_understands(bench: Bench) -> None:
    bench.origin.answers.append({"error": LEVEL_ERROR})
    mirror = await bench.mirror()
    await listening(bench, mirror, 2)
    (_, first, level), (_, second, none) = bench.origin.requests
    assert first["config"]["sourcing"]
    assert level == b"NATS/1.0\r\nNats-Required-Api-Level: 4\r\n\r\n"
    assert "sourcing" not in second["config"]
    assert second["config"]["name"].startswith(first["config"]["name"] + "_")
    assert none == b""


async def test_refusals_are_told_until_it_works(bench: Bench) -> None:
    gone = {"code": 404, "err_code": 10059, "description": "stream not found"}
    bench.origin.answers += [{"error": gone}] * 3
    stream = await bench.sourced()
    await bench.asked(1)
    await eventually_within(lambda: told(stream).error is not None)
    error = told(stream).error
    assert error is not None
    assert (error.err_code, error.description) == (10059, "stream not found")
    assert told(stream).active == -1
    await listening(bench, stream, 4)
    assert told(stream).error is None
    assert told(stream).active >= 0


@pytest.mark.parametrize(("is_mirror", "code"), [(True, 10029), (False, 10045)])
async def test_an_answer_of_no_use(bench: Bench, is_mirror: bool, code: int) -> None:
    bench.origin.answers.append({"type": "what"})
    stream = await (bench.mirror() if is_mirror else bench.sourced())
    await bench.asked(1)
    await eventually_within(lambda: told(stream).error is not None)
    error = told(stream).error
    assert error is not None
    assert (error.err_code, error.description) == (code, "invalid consumer create response")


@pytest.mark.parametrize("is_mirror", [True, False])
async def test_not_such_a_consumer(bench: Bench, is_mirror: bool) -> None:
    bench.origin.answers.append({"name": "D", "config": {"ack_policy": "explicit"}})
    consumer = StreamConsumerSource(name="D", deliver_subject="to.me")
    make = bench.mirror if is_mirror else bench.sourced
    stream = await make(consumer=consumer)
    await bench.asked(1)
    assert bench.origin.requests[0][0] == f"{API}.CONSUMER.RESET.O.D"
    await eventually_within(lambda: told(stream).error is not None)
    error = told(stream).error
    assert error is not None
    assert "flow control" in error.description.lower()


async def test_a_consumer_of_another_name_is_not_listened_to(bench: Bench) -> None:
    stream = await bench.sourced()
    await listening(bench, stream)
    publish = bench.origin.account.internal_client.publish
    publish(bench.origin.deliver_subject, b"x", reply="$JS.ACK.O.OTHER.1.1.1.1.0")
    publish(bench.origin.deliver_subject, b"x", reply="$JS.ACK.O.C.1.x.1.1.0")
    publish(bench.origin.deliver_subject, b"x", reply="nonsense")
    publish(bench.origin.deliver_subject, b"x")
    bench.origin.send(1)
    await stored(stream, 1)


async def test_where_it_was_after_a_restart(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        stream = await bench.sourced()
        await listening(bench, stream)
        bench.origin.send(41)
        await stored(stream, 1)
        await stream.purge()
    async with benched(tmp_path) as bench:
        await bench.asked(1)
        assert start_of(bench.origin.requests[0]) == 42


async def test_when_nobody_knows_where_it_was(tmp_path: Path) -> None:
    """Without sources.db the copy starts at the time of its last message, as in nats-server."""
    async with benched(tmp_path) as bench:
        stream = await bench.sourced()
        await listening(bench, stream)
        bench.origin.send(41)
        await stored(stream, 1)
        await stream.purge()
        last_ns = stream.store.state().last_time_ns
        directory = stream.directory
    remove_twins(RealDisk(), directory / POSITIONS_FILE)
    async with benched(tmp_path) as bench:
        await bench.asked(1)
        config = bench.origin.requests[0][1]["config"]
        assert config["deliver_policy"] == "by_start_time"
        assert config["opt_start_time"] == format_time(last_ns)


async def test_its_consumer_goes_with_it(bench: Bench) -> None:
    gone: list[str] = []
    bench.origin.account.internal_client.subscribe(
        f"{API}.CONSUMER.DELETE.>", lambda subject, _r, _h, _d: gone.append(subject)
    )
    stream = await bench.sourced()
    await listening(bench, stream)
    await stream.account.delete_stream("S")
    await eventually_within(lambda: gone == [f"{API}.CONSUMER.DELETE.O.{CONSUMER}"])


async def test_asked_in_another_way_it_begins_anew(bench: Bench) -> None:
    """A changed source starts anew from its position, even during a request."""
    stream = await bench.sourced()
    await listening(bench, stream)
    bench.origin.send(7)
    await stored(stream, 1)
    changed = ExternalStream(api=API, deliver="there")
    for deliver in ("here", "there"):
        external = ExternalStream(api=API, deliver=deliver)
        sources = [StreamSource(name="O", external=external)]
        await stream.account.update_stream(stream.config.model_copy(update={"sources": sources}))
    await bench.passing(lambda: bench.origin.deliver_subject.startswith("there.S."))
    assert start_of(bench.origin.requests[-1]) == 8
    await eventually_within(lambda: told(stream).external == changed)


async def test_nobody_answers(bench: Bench) -> None:
    """The info names no error, and the request is repeated."""
    stream = await create(
        bench.jetstream,
        "S",
        sources=[StreamSource(name="O", external=ExternalStream(api="nowhere"))],
    )
    await asyncio.sleep(0)
    assert told(stream).error is None
    answered: list[str] = []
    bench.origin.account.internal_client.subscribe(
        "nowhere.>", lambda subject, _r, _h, _d: answered.append(subject)
    )
    await bench.passing(lambda: answered)
