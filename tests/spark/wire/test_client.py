"""The blocking client against a server: requests, errors, authentication, other servers."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd.spark.errors import (
    AuthorizationError,
    ConnectError,
    ConnectionLost,
    JetStreamApiError,
    NoResponders,
    RequestTimeout,
)
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import Address, ClientOptions, InvalidServer, parse_server
from tests.spark.serving import (
    create,
    go_server,
    go_serving,
    natsd_server,
    options,
    publish,
)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with natsd_server(tmp_path) as url:
        yield url


def test_a_request_is_answered_by_a_subscriber(url: str) -> None:
    with NatsClient(options(url)) as asker, NatsClient(options(url)) as helper:
        asked = helper.subscribe("help")
        helper.flush()
        asker.publish("help", b"?", "answers.here", b"NATS/1.0\r\nA: 1\r\n\r\n")
        question = asked.next(5)
        assert question is not None
        assert (question.data, question.reply, question.header("a")) == (b"?", "answers.here", "1")


def test_errors_of_requests(url: str) -> None:
    with NatsClient(options(url)) as client:
        with pytest.raises(NoResponders, match="nobody answers"):
            client.request("nobody.here")
        client.subscribe("silence")
        with pytest.raises(RequestTimeout, match="silence"):
            client.request("silence", timeout_s=0.05)
        with pytest.raises(JetStreamApiError, match="stream not found") as error:
            client.api("STREAM.INFO.NONE")
        assert (error.value.code, error.value.err_code) == (404, 10059)
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
        assert client.request("$JS.API.INFO").data  # the connection goes on


def test_another_domain_is_named_in_the_error(url: str) -> None:
    with NatsClient(options(url, domain="hub")) as client:
        with pytest.raises(NoResponders, match=r'"\$JS.hub.API"'):
            client.api("INFO")


def test_many_messages_go_both_ways(url: str) -> None:
    with NatsClient(options(url)) as client:
        create(client, "S", "s.>")
        publish(client, [(f"s.{at}", b"", b"x" * at) for at in range(3000)])
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 3000


def test_a_frame_larger_than_the_buffer(tmp_path: Path) -> None:
    with natsd_server(tmp_path, max_payload=8 << 20) as url, NatsClient(options(url)) as client:
        inbox = client.subscribe("large")
        for size in (7 << 20, 1, 3 << 20):
            client.publish("large", b"x" * size)
            message = inbox.next(10)
            assert message is not None
            assert len(message.data) == size


@pytest.mark.skipif(go_server() is None, reason="no Go nats-server on PATH")
def test_wrong_password_is_said_in_one_line_without_it(tmp_path: Path) -> None:
    with go_serving(tmp_path, "authorization { user: a, password: secret }") as url:
        with pytest.raises(AuthorizationError, match="Authorization Violation") as error:
            NatsClient(options(url, user="a", password="hunter2"))
        assert "hunter2" not in str(error.value)
        host = url.removeprefix("nats://")
        with NatsClient(options(f"nats://a:secret@{host}")) as client:
            client.flush()


def test_secrets_are_not_shown() -> None:
    shown = repr(
        ClientOptions(servers=("nats://a:hunter2@h",), password="hunter3", token="hunter4")
    ) + repr(parse_server("nats://a:hunter2@h"))
    assert "hunter" not in shown
    with pytest.raises(InvalidServer) as error:
        parse_server("http://a:hunter2@h")
    assert "hunter" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", Address("localhost", 4222)),
        ("nats://h:1", Address("h", 1)),
        ("tls://[::1]:7", Address("::1", 7, tls=True)),
        ("nats://a:b%40c@h:1", Address("h", 1, user="a", password="b@c")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_server(text) == address


@pytest.mark.parametrize("text", ["", "nats://", "nats://h:x", "nats://h:99999"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidServer):
        parse_server(text)


def test_the_next_server_is_tried(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"nats://127.0.0.1:{closed.getsockname()[1]}"
    with NatsClient(options(nobody, url)) as client:
        client.flush()
    with pytest.raises(ConnectError, match="refused"):
        NatsClient(options(nobody))


def test_a_lost_connection_is_said_and_can_be_made_anew(tmp_path: Path) -> None:
    with natsd_server(tmp_path / "1") as first, natsd_server(tmp_path / "2") as second:
        with NatsClient(options(first, second)) as client:
            client.connection.socket.shutdown(socket.SHUT_RDWR)
            with pytest.raises(ConnectionLost):
                client.receive(time.monotonic() + 5)
            client.reconnect()
            assert client.server_address == second.removeprefix("nats://")
            client.api("INFO")


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n", b"INFO [1]\r\n", b""])
def test_who_does_not_speak_nats(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"nats://127.0.0.1:{listener.getsockname()[1]}"
        listener.settimeout(5)

        def greet() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(ConnectError):
            NatsClient(options(url, retries=0))
        thread.join()
