"""natsd and nats-server with one configuration, each in its own process, under the same load.

The load comes over real sockets: clients with names, users, accounts, queue groups and TLS, a slow
consumer, refused and closed connections, streams, consumers, mirrors, sources and a KV bucket.
Its clients are named, and named alike at both servers, so that their rows can be compared.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from natsd.monitor.dashboard import HEADERS
from tests.clients.secure import Trust, secure
from tests.clients.target import ProcessTarget
from tests.clients.wire import Wire
from tests.spark.servers import version_of

OLDEST: Final = (2, 14)
DEADLINE_S: Final = 30.0

TENANTS: Final = """
server_name: beside
listen: "127.0.0.1:-1"
http: "127.0.0.1:-1"
max_pending: 4MB
max_subscriptions: 500
write_deadline: "5s"
server_tags: ["region:eu", "ssd"]
server_metadata: {{rack: "7"}}
allow_non_tls: true
tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{ca}" }}
jetstream {{
  store_dir: "{store}", max_memory_store: 64MB, max_file_store: 256MB
  limits {{ max_ack_pending: 1000, duplicate_window: "1m" }}
}}
system_account: SYS
accounts {{
  A {{
    jetstream {{ max_memory: 8MB, max_file: 64MB, max_streams: 20, max_consumers: 50 }}
    users: [
      {{user: ann, password: right}}
      {{user: amy, password: right, permissions: {{publish: "a.>"}}}}
    ]
    exports: [{{service: "help.>", response_type: stream}}, {{stream: "news.>", accounts: [B]}}]
    mappings: {{"old.*": "new.{{{{wildcard(1)}}}}"}}
  }}
  B {{
    jetstream: enabled
    users: [{{user: ben, password: right}}]
    imports: [
      {{service: {{account: A, subject: "help.>"}}, to: "ask.>"}}
      {{stream: {{account: A, subject: "news.>"}}, prefix: from_a}}
    ]
  }}
  C {{ users: [{{user: cat, password: right}}] }}
  SYS {{ users: [{{user: sys, password: right}}] }}
}}
"""
PLAIN: Final = """
server_name: plain
listen: "127.0.0.1:-1"
http: "127.0.0.1:-1"
http_base_path: "/nats/mon"
"""


def newer_go_server() -> str | None:
    """Return the nats-server on PATH; None: there is none, or it is older than 2.14."""
    path = shutil.which("nats-server")
    return path if path is not None and version_of(path) >= OLDEST else None


OTHER_HEADERS: Final = (
    *("Date", "Content-Length", "Transfer-Encoding", "Connection"),  # of the transfer
    "X-Content-Type-Options",  # only natsd has it
    *HEADERS,  # of the dashboard
)
"""Headers that are not compared."""


class Answer:
    """The answer to one HTTP request; a JSON body is decoded."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.kind = response.headers.get_content_type()
        self.headers = {
            name.lower(): value
            for name, value in response.headers.items()
            if name not in OTHER_HEADERS
        }
        self.text = response.read().decode()
        is_json = self.kind == "application/json" and self.text[:1] == "{"
        self.body: Any = json.loads(self.text) if is_json else self.text


class Side:
    """One of the servers, with the clients of the load."""

    def __init__(self, command: list[str], config: str, directory: Path, trust: Trust) -> None:
        directory.mkdir()
        path = directory / "server.conf"
        path.write_text(
            config.format(
                store=directory / "store",
                cert=trust.server.cert_file,
                key=trust.server.key_file,
                ca=trust.authority.ca_file,
            )
        )
        self.trust = trust
        self.server = ProcessTarget([*command, "-c", str(path)], {})
        self.wires: dict[str, Wire] = {}

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()
        self.server.stop()

    # ---- monitoring

    def ask(self, path: str, method: str = "GET") -> Answer:
        """Return the answer to a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, DEADLINE_S)
        with contextlib.closing(connection):
            connection.request(method, path)
            return Answer(connection.getresponse())

    def wait_for(self, path: str, name: str, value: object) -> None:
        """Wait until a field of an answer has this value."""
        ends = time.monotonic() + DEADLINE_S
        while (seen := self.ask(path).body[name]) != value:
            assert time.monotonic() < ends, f"{path}: {name} is {seen}, not {value}"
            time.sleep(0.01)

    def cids(self) -> dict[int, str]:
        """Return the names of the connections of the load, by the server's numbers."""
        rows = self.ask("/connz?state=all").body["connections"]
        return {row["cid"]: row.get("name", "") for row in rows}

    # ---- the load

    def open(self, name: str, user: str = "", *, tls: bool = False, **connect: Any) -> Wire:
        """Open a connection with this name and keep it."""
        wire = Wire(self.server.address)
        if tls:
            secure(wire, self.trust.client(self.trust.authority.sign(f"client-{name}")))
        login = {"user": user, "pass": "right"} if user else {}
        sent = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1}
        sent |= {"name": name, "lang": "wire", "version": "1.2.3", **login, **connect}
        wire.send(f"CONNECT {json.dumps(sent)}\r\n".encode())
        self.wires[name] = wire
        return wire

    def request(self, wire: Wire, subject: str, body: object = None) -> Any:
        """Return the decoded reply; the subscription for it ends with it."""
        data = b"" if body is None else json.dumps(body).encode()
        wire.send(b"SUB _INBOX.beside 900\r\nUNSUB 900 1\r\n")
        wire.send(f"PUB {subject} _INBOX.beside {len(data)}\r\n".encode() + data + b"\r\n")
        message = wire.read_message()
        return json.loads(message.partition(b"\r\n")[2])

    def jetstream(self, wire: Wire, request: str, body: object = None) -> Any:
        """Return the reply of JetStream, which must not be an error."""
        reply = self.request(wire, f"$JS.API.{request}", body)
        assert "error" not in reply, reply
        return reply


@contextlib.contextmanager
def both(config: str, directory: Path, trust: Trust) -> Iterator[tuple[Side, Side]]:
    """Yield natsd and nats-server with this configuration."""
    go_server = newer_go_server()
    assert go_server is not None
    with contextlib.ExitStack() as stack:
        sides = [
            Side(command, config, directory / name, trust)
            for name, command in (
                ("natsd", [sys.executable, "-m", "natsd"]),
                ("go", [go_server]),
            )
        ]
        for side in sides:
            stack.callback(side.close)
        yield sides[0], sides[1]


# ---- what the clients do


def put_load(side: Side) -> None:
    """Do all of the load, and wait until the server shows it."""
    put_clients(side)
    put_closed(side)
    put_streams(side)
    for wire in side.wires.values():
        wire.sync()
    side.wait_for("/connz?state=closed", "num_connections", 6)


def put_clients(side: Side) -> None:
    alpha = side.open("alpha", "ann")
    alpha.send(b"SUB a.b 1\r\nSUB q.* workers 2\r\nSUB x.> 3\r\nUNSUB 3 5\r\nSUB help.> 4\r\n")
    alpha.sync()
    beta = side.open("beta", "amy")
    beta.send(b"SUB q.* workers 7\r\nPUB a.b 5\r\nhello\r\nPUB a.b 0\r\n\r\n")
    beta.sync()
    gamma = side.open("gamma", "ben", tls=True)
    gamma.send(b"SUB from_a.news.> 1\r\nSUB late.* group 2\r\n")
    gamma.sync()
    alpha.send(b"PUB news.now 3\r\nnew\r\nPUB old.one 1\r\nx\r\n")
    alpha.sync()
    side.open("delta", "cat", lang="", version="").sync()
    side.open("<script>&", "sys").sync()


def put_closed(side: Side) -> None:
    """Open connections that end for different reasons."""
    gone = side.open("gone", "ann")
    gone.send(b"SUB g.* 1\r\nSUB h q 2\r\nPUB a.b 2\r\nok\r\n")
    gone.sync()
    side.wires.pop("gone").leave()
    refused = side.open("refused", "ann", **{"pass": "wrong"})
    refused.read_until_closed()
    confused = side.open("confused", "ben")
    confused.send(b"NONSENSE\r\n")
    confused.read_until_closed()
    greedy = side.open("greedy", "ben")
    greedy.send(b"PUB a 99999999\r\n")
    greedy.read_until_closed()
    slow = side.open("slow", "cat")
    slow.send(b"SUB flood 1\r\n")
    slow.sync()
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    flooder = side.open("flooder", "cat")
    payload = b"PUB flood 100000\r\n" + b"x" * 100_000 + b"\r\n"
    for _ in range(200):
        flooder.send(payload)
    flooder.sync()
    for name in ("refused", "confused", "greedy", "slow"):
        side.wires.pop(name).close()
    side.wires.pop("flooder").leave()


STREAMS: Final[list[dict[str, Any]]] = [
    {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 100, "description": "<b>&"},
    {"name": "MEM", "subjects": ["mem.*"], "storage": "memory", "retention": "interest"},
    {"name": "COPY", "mirror": {"name": "ORDERS"}},
    {"name": "SUM", "sources": [{"name": "ORDERS"}, {"name": "MEM", "filter_subject": "mem.a"}]},
    {
        "name": "KV_box",
        "subjects": ["$KV.box.>"],
        "max_msgs_per_subject": 5,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    },
]
CONSUMERS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("ORDERS", {"durable_name": "pull", "ack_policy": "explicit", "filter_subject": "orders.a"}),
    ("ORDERS", {"durable_name": "push", "deliver_subject": "push.to", "ack_policy": "none"}),
    ("ORDERS", {"durable_name": "held", "ack_policy": "explicit", "paused": True}),
    ("KV_box", {"durable_name": "all", "ack_policy": "all", "max_deliver": 3}),
]


def put_streams(side: Side) -> None:
    alpha = side.open("asker", "ann")
    for stream in STREAMS:
        side.jetstream(alpha, f"STREAM.CREATE.{stream['name']}", stream)
    for index in range(6):
        side.request(alpha, f"orders.{'ab'[index % 2]}", {"number": index})
    for name in ("COPY", "SUM"):
        wait_for_messages(side, name, 6)
    side.request(alpha, "$KV.box.key", "value")
    side.jetstream(alpha, "STREAM.MSG.DELETE.ORDERS", {"seq": 3})
    for stream_name, given in CONSUMERS:
        config = dict(given)
        if config.pop("paused", False):
            config["pause_until"] = "2099-01-01T00:00:00Z"
        path = f"{stream_name}.{config['durable_name']}"
        if filter_subject := config.get("filter_subject"):
            path += f".{filter_subject}"
        body = {"stream_name": stream_name, "config": config}
        side.jetstream(alpha, f"CONSUMER.CREATE.{path}", body)
    reply = side.request(alpha, "$JS.API.STREAM.INFO.NONE")
    assert reply["error"]["code"] == 404
    gamma = side.open("other asker", "ben")
    side.jetstream(gamma, "STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["other"]})
    side.request(gamma, "other", 1)


def wait_for_messages(side: Side, name: str, count: int) -> None:
    """Wait until a stream of account A has this many messages."""
    ends = time.monotonic() + DEADLINE_S
    while True:
        (account,) = side.ask("/jsz?acc=A&streams=1").body["account_details"]
        states = {each["name"]: each["state"] for each in account["stream_detail"]}
        if states[name]["messages"] == count:
            return
        assert time.monotonic() < ends, f"{name} does not get its messages"
        time.sleep(0.05)
