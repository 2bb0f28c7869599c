"""Bytes of a server to a reading task: any bytes, whole and cut into pieces.

Messages of the subscriptions 1 and 2 are answers of direct gets and deliveries of a consumer.
Garbage raises ProtocolViolation and nothing else; rows, messages and control lines do not depend on
the cuts; rows come in order, each once, and are valid Arrow.
"""

from typing import Any

from natsd.spark.errors import ProtocolViolation
from natsd.spark.network.range_decoders import DirectDecoder, PullDecoder
from natsd.spark.rows.arrow import BatchWrapper
from natsd.spark.rows.columns import NAMES
from natsd.spark.rows.message_batch import MessageBatch
from natsd.spark.wire.frames import Control, FrameParser, ReceivedMessage

MODULES = [
    "natsd.spark.wire.frames",
    "natsd.spark.rows.message_batch",
    "natsd.spark.network.range_decoders",
]
DIRECT = (
    b"NATS/1.0\r\nA: 1\r\nNats-Stream: S\r\nNats-Subject: s.1\r\nNats-Sequence: 7\r\n"
    b"Nats-Time-Stamp: 2026-11-21T12:51:54.734214913Z\r\nNats-Num-Pending: 4\r\n"
    b"Nats-Last-Sequence: 6\r\n\r\n"
)
EOB = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 7\r\n\r\n"


def hmsg(sid: int, headers: bytes, data: bytes, subject: bytes = b"i", reply: bytes = b"") -> bytes:
    total = len(headers) + len(data)
    return b"HMSG %b %d %b%d %d\r\n%b%b\r\n" % (
        *(subject, sid, reply and reply + b" "),
        *(len(headers), total, headers, data),
    )


SEEDS = [
    b'INFO {"version":"2.14.5"}\r\nPING\r\n+OK\r\n-ERR \'Stale Connection\'\r\n',
    b"MSG a.b 3 5\r\nhello\r\nMSG a.b 3 _INBOX.1 0\r\n\r\n",
    hmsg(1, DIRECT, b"payload") + hmsg(1, EOB, b""),
    hmsg(1, DIRECT, b"") + hmsg(1, DIRECT.replace(b": 7", b": 9"), b"x"),
    b"MSG s.1 2 $JS.ACK.S.c.1.5.1.1700000000000000000.3 2\r\nhi\r\n",
    b"MSG s 2 $JS.ACK._.h.S.c.1.6.1.17.0.x 2\r\nhi\r\nMSG s 2 $JS.ACK.S.c.1.9.3.17.0 0\r\n\r\n",
    hmsg(2, b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b""),
    hmsg(2, b"NATS/1.0 409 Consumer Deleted\r\n\r\n", b""),
    hmsg(2, b"NATS/1.0\r\nA:b\r\nNats-Msg-Size: 7\r\n\r\n", b"", b"s", b"$JS.ACK.S.c.1.5.1.17.3@x"),
    b"HMSG i 1 4 4\r\n\r\n\r\n\r\nMSG i 1 0\r\n\r\n",
    b"MSG a 3 99999999999\r\n",
    b"MSG a 3\r\nMSG\r\nMSG a b c d e f\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
]


class Server:
    """A task's end of a connection to a server."""

    def __init__(self) -> None:
        self.parser = FrameParser()
        self.batches = [MessageBatch(NAMES, 3), MessageBatch(NAMES, 3)]
        self.direct = DirectDecoder(self.batches[0], 0, 1 << 62)
        self.pull = PullDecoder(self.batches[1], 0, 1 << 62)
        self.parser.attach(1, self.direct)
        self.parser.attach(2, self.pull)
        self.wrapper = BatchWrapper(NAMES)
        self.events: list[Any] = []
        self.rows: list[list[dict[str, Any]]] = [[], []]
        self.is_broken = False

    def say(self, data: bytes) -> None:
        self.parser.feed(data)
        while not self.is_broken:
            try:
                event = self.parser.next()
            except ProtocolViolation as error:
                self.events.append(str(error))
                self.is_broken = True
                return
            if event is None:
                return
            if isinstance(event, ReceivedMessage):
                self.events.append(
                    (event.sid, event.subject, event.reply, event.headers, event.data)
                )
                assert (event.status, event.description) is not None
            elif isinstance(event, Control):
                self.events.append((event.verb, event.text))
            else:
                assert isinstance(event, DirectDecoder | PullDecoder)
                self.events.append((event.status, event.status_text(), event.last))
                event.forget_status()
            self.take()

    def take(self, least: int = 3) -> None:
        for rows, batch in zip(self.rows, self.batches, strict=True):
            if batch.rows >= least:
                taken = self.wrapper.take(batch)
                taken.validate(full=True)
                # times far away are no datetime
                columns = taken.drop_columns(["time"]).to_pylist()
                rows.extend(columns)


def heard(pieces: list[bytes]) -> tuple[list[Any], list[list[dict[str, Any]]]]:
    server = Server()
    for piece in pieces:
        server.say(piece)
    server.take(1)
    for rows in server.rows:
        sequences = [row["seq"] for row in rows]
        assert sequences == sorted(set(sequences))
    return server.events, server.rows


def check(data: bytes) -> None:
    whole = heard([data])
    assert heard([data[at : at + 1] for at in range(len(data))]) == whole
    cut = len(data) // 2
    assert heard([data[:cut], data[cut:]]) == whole
