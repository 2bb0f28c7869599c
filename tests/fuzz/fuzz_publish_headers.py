"""A publish with any headers is stored or refused, and answered once either way.

Input: a header block. The observed headers are those of the readable model; a stream with every
feature stores a message with the block, and its effects follow the headers. nats-server's
counterpart is `processJetStreamMsgWithBatch`.
"""

import json
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from natsd.accounts import Account
from natsd.core.network import Reactor
from natsd.jetstream.stream.checks import publish_headers, stripped
from natsd.jetstream.stream.publishing import Ingest, Usage
from natsd.jetstream.stream.settings import IngestSettings, Mapping, RepublishSettings
from natsd.jetstream.stream.state import Scheduler, StreamReaders
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits
from tests.jetstream.stream.plain_headers import plain_headers

MODULES = [
    "natsd.jetstream.stream.checks",
    "natsd.jetstream.stream.checks",
    "natsd.jetstream.stream.checks",
    "natsd.jetstream.stream.checks",
    "natsd.jetstream.stream.publishing",
    "natsd.jetstream.stream.publishing",
    "natsd.core.routing",
]
SEEDS = [
    b"",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 100 Idle\r\nA: b\r\nNats-Request-Info: {}\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: one\r\nNats-Expected-Last-Msg-Id: two\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Stream: S\r\nNats-Expected-Last-Sequence: 0\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 1\r\n"
    b"Nats-Expected-Last-Subject-Sequence-Subject: s.*\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n"
    b"Nats-Expected-Last-Subject-Sequence-Subject: \xff..>\r\n\r\n",
    b"NATS/1.0\r\nNats-Rollup: SUB\r\n\r\n",
    b"NATS/1.0\r\nNats-Rollup: al\xff\r\n\r\n",
    b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n",
    b"NATS/1.0\r\nNats-TTL: -1s\r\nNats-Incr: +1\r\n\r\n",
    b"NATS/1.0\r\nNats-Schedule: @every 1s\r\nNats-Schedule-Time-Zone:\r\n\r\n",
    b"NATS/1.0\r\nNats-Schedule-Next: purge\r\nNats-Scheduler: s.x\r\n\r\n",
    b"NATS/1.0\r\nNats-Batch-Id: b\r\n\r\n",
    b"\r\nNats-Msg-Id",
    b"5",
    b"garbage\r\nNats-Msg-Id: 5\r\n\r\n",
]
EMPTY = b"NATS/1.0\r\n\r\n"
TIME_NS = 1_700_000_000_000_000_000


class Loop:
    """An event loop that runs when the test says so; timers never fire."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None: ...
    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None: ...
    def call_at(self, when_s: float, call: Callable[..., None], *arguments: Any) -> "Loop":
        return self

    def time(self) -> float:
        return 0.0

    def cancel(self) -> None: ...
    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.waiting.append((call, arguments))

    def run(self) -> None:
        while self.waiting:
            call, arguments = self.waiting.popleft()
            call(*arguments)


def failed(text: str) -> None:
    """Raise AssertionError; the reactor calls this while it handles an exception."""
    raise AssertionError(f"{text}\n{traceback.format_exc()}")


LOOP = Loop()
REACTOR = Reactor(LOOP, failed)  # type: ignore[arg-type]  # the needed part of a loop


def stored_of(data: bytes) -> bytes:
    """Return a block as it is stored: without its status and without added headers."""
    if len(data) < len(EMPTY) or not data.startswith(b"NATS/1.0"):
        return b""
    has_status = data[8:9] != b"\r" and b"\r" in data[8:]
    return stripped(data) if has_status or "Request-Info" in plain_headers(data) else data


def check(data: bytes) -> None:
    assert publish_headers(data) == plain_headers(data)
    account = Account("$G", REACTOR)
    answers: list[bytes] = []
    account.internal_client.subscribe("inbox", lambda *message: answers.append(message[3]))
    store = MemStore(Limits(max_msgs=50, max_msgs_per_subject=2))
    core = StreamReaders("S", store, account.publisher, Scheduler(REACTOR, lambda: TIME_NS))
    settings = IngestSettings(
        name="S",
        is_memory=True,
        allows_rollup=True,
        duplicate_window_ns=1_000_000_000,
        subject_transform=Mapping("s.*", "kept.$1"),
        republish=RepublishSettings(Mapping("kept.>", "out.>")),
    )
    ingest = Ingest(core, settings, Usage(Usage()))
    ingest.resume()
    for number, subject in enumerate(("s.a", "s.b", "s.a"), 1):
        last = store.log.last_sequence
        ingest.publish_internal(subject, data, b"payload", b"inbox")
        LOOP.run()
        assert len(answers) == number
        answer = json.loads(answers[-1])
        if store.log.last_sequence == last:
            assert "error" in answer or answer["duplicate"]
            continue
        assert answer == {"stream": "S", "seq": last + 1}
        message = store.load_cached(last + 1)
        assert message is not None
        assert (message.headers or b"") == stored_of(data)
    ingest.close()
    core.close()
