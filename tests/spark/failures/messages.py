"""The messages of these tests: message n is always `message(n)`, whoever sends it.

    with Publisher(url, "orders", 0, 10_000, per_second=2_000):
        …                                   # all are acknowledged at the end

A publisher survives failures of the server: it reconnects and sends unacknowledged messages again.
Each message has an id, so that the stream stores it once.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from natsd.spark.errors import ClientError, NoResponders
from natsd.spark.wire.client import NatsClient, frame
from tests.spark.serving import options

REGIONS: Final = ("eu", "us", "asia")
SUBJECTS: Final = 21
SENT_AT_ONCE: Final = 1000
DEADLINE_S: Final = 60.0
PAUSE_S: Final = 0.05
FILLING: Final = b" of many, with a payload of some length" * 2


def message(number: int, prefix: str) -> tuple[str, bytes, bytes]:
    """Return subject, headers and data; every third has headers, one of them with two values."""
    subject = f"{prefix}.{REGIONS[number % len(REGIONS)]}.{number % SUBJECTS}"
    own = b"Kind: third\r\nNote: %d\r\nNote: twice\r\n" % number if number % 3 == 0 else b""
    headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n%b\r\n" % (number, own)
    return subject, headers, b"%d" % number + FILLING


def expected(numbers: pa.ChunkedArray, prefix: str) -> pa.Table:
    """Return subject and data of the messages with these numbers, in order."""
    region = pa.array([f"{prefix}.{name}." for name in REGIONS])
    by_remainder = pa.array([f"{region[n % len(REGIONS)]}{n % SUBJECTS}" for n in range(SUBJECTS)])
    assert SUBJECTS % len(REGIONS) == 0
    remainder = pc.subtract(
        numbers, pc.multiply(pc.divide(numbers, pa.scalar(SUBJECTS)), pa.scalar(SUBJECTS))
    )
    data = pc.binary_join_element_wise(
        pc.cast(numbers, pa.string()), FILLING.decode(), pa.scalar("")
    )
    return pa.table({"subject": by_remainder.take(remainder), "data": pc.cast(data, pa.binary())})


def number_of(data: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the number of the message with that payload."""
    text = pc.cast(data, pa.string())
    assert pc.all(pc.ends_with(text, FILLING.decode())).as_py()
    return pc.cast(pc.replace_substring(text, FILLING.decode(), ""), pa.int64())


class Publisher(threading.Thread):
    """A thread that publishes messages `first` to `last` - 1 in order, through all failures."""

    def __init__(
        self, url: str, prefix: str, first: int, last: int, *, per_second: float = 0
    ) -> None:
        super().__init__(daemon=True)
        self._options = options(url)
        self._prefix = prefix
        self._first = first
        self._last = last
        self._per_second = per_second
        self._progress_at = 0.0
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            return
        self.join()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        try:
            self._publish()
        except BaseException as error:
            self._error = error

    def _publish(self) -> None:
        began = self._progress_at = time.monotonic()
        client = NatsClient(self._options)
        done = self._first
        while done < self._last:
            upto = min(done + SENT_AT_ONCE, self._last)
            try:
                if not client.is_connected:
                    client.reconnect()
                self._send(client, done, upto)
            except ClientError:
                client.close()
                self._give_up_at(time.monotonic())
                time.sleep(PAUSE_S)
                continue
            done, self._progress_at = upto, time.monotonic()
            if self._per_second:
                due = began + (done - self._first) / self._per_second
                time.sleep(max(0.0, due - time.monotonic()))
        client.close()

    def _send(self, client: NatsClient, first: int, last: int) -> None:
        answers = client.subscribe(client.new_inbox())
        frames = []
        for number in range(first, last):
            subject, headers, data = message(number, self._prefix)
            frames.append(frame(subject, data, answers.subject, headers))
        client.send(b"".join(frames))
        for _ in range(first, last):
            answer = answers.next(DEADLINE_S)
            if answer is None or answer.status:
                raise NoResponders("the stream is not there yet")
            assert b'"error"' not in answer.data, answer.data
        answers.unsubscribe()

    def _give_up_at(self, now: float) -> None:
        assert now - self._progress_at < DEADLINE_S, "the server does not come back"
