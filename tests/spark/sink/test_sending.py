"""A sender without a server: when it sends, and when it waits for answers."""

from __future__ import annotations

import re
import time
from typing import Any, cast

from natsd.spark.sink.begin_records import StreamEnd, TaskLease
from natsd.spark.sink.publishing import SendWindow
from natsd.spark.sink.sending import Sender
from natsd.spark.sink.targets import TargetStream, TargetStreams
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.frames import FrameParser
from tests.spark.writing import PLAIN, batch

ROWS = 5_000
IN_FLIGHT = 1_000
SID = 7


class AnswersWhenAwaited:
    """A client whose server answers nothing until the sender waits, and then half of the rows."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.awaited: list[int] = []
        self.parser = FrameParser()
        self.window: SendWindow

    def new_inbox(self) -> str:
        return "inbox"

    def subscribe(self, subject: str, handler: SendWindow) -> None:
        self.window = handler
        self.parser.attach(SID, handler)

    def send(self, data: memoryview) -> None:
        self.sent += map(int, re.findall(rb"HPUB orders inbox\.(\d+) ", data))

    def receive(self, deadline: float) -> None:
        if deadline <= time.monotonic():
            return
        self.awaited.append(len(self.sent))
        half = (len(self.sent) + 1) // 2
        answered, self.sent = self.sent[:half], self.sent[half:]
        for row in answered:
            data = b'{"stream":"ORDERS", "seq":%d}' % (row + 1)
            self.parser.feed(b"MSG inbox.%d %d %d\r\n%b\r\n" % (row, SID, len(data), data))
        while self.parser.next() is not None:
            pass


def test_it_waits_only_with_as_many_rows_in_flight_as_it_may() -> None:
    client = AnswersWhenAwaited()
    targets = TargetStreams(cast(NatsClient, client), "ORDERS")
    targets.found["ORDERS"] = TargetStream("ORDERS", (b">",), StreamEnd(0, ""), 1)
    window = SendWindow(b"q:1:0:", max_rows=IN_FLIGHT, max_bytes=1 << 30)
    sender = Sender(cast(NatsClient, client), targets, cast(TaskLease, Lease()), window, never, 5)
    sender.add(0, PLAIN.rows(batch([("orders", b"x" * 500) for _ in range(ROWS)])))
    sender.send_up_to(ROWS)
    assert set(client.awaited) == {IN_FLIGHT}
    sender.drain()
    assert (window.acknowledged, window.first) == (ROWS, ROWS)


class Lease:
    """A lease that needs no renewal."""

    age_s = 0.0
    seconds = 5.0
    is_due = False


def never() -> Any:
    raise AssertionError("nothing is looked for")
