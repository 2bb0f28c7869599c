"""TLS for clients: after INFO, before it, or as the client likes; certificates of both sides.

nats-server's `doTLSHandshake` (server/client.go) and `createClientEx` (server/server.go).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import nats
import pytest

from natsd.testing.certificates import Authority, rsa_key
from tests.clients.conftest import StartServer, StartThreadedServer
from tests.clients.secure import QUIET, Trust, open_secure, secure
from tests.clients.target import NatsdTarget
from tests.clients.wire import Closed, Wire
from tests.waiting import eventually_within

OpenWire = Callable[..., Wire]
MIB = 1024 * 1024
AUTO = {"handshake_first": "auto"}


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path)


@pytest.mark.served_every_way
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_messages_of_all_sizes(
    start_threaded_server: StartThreadedServer, trust: Trust, version: ssl.TLSVersion
) -> None:
    target = start_threaded_server(tls=trust.settings)
    context = trust.client()
    context.minimum_version = context.maximum_version = version
    with open_secure(target, context) as alice, open_secure(target, context) as bob:
        assert alice.info["tls_required"] is True
        bob.send(QUIET + b"SUB foo 1\r\n")
        bob.sync()
        alice.send(QUIET)
        for size in (0, 1, 8190, 20_000, 300_000, MIB):
            payload = bytes(number % 251 for number in range(size))
            alice.send(b"PUB foo %d\r\n%b\r\n" % (size, payload))
            assert bob.read_message() == b"MSG foo 1 %d\r\n%b\r\n" % (size, payload)


@pytest.mark.served_every_way
def test_a_flood_in_both_directions(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    target = start_threaded_server(tls=trust.settings)
    count = 30_000
    with open_secure(target, trust.client()) as wire:
        wire.send(QUIET + b"SUB foo 1\r\n")
        for _ in range(30):
            wire.send(b"PUB foo 128\r\n%b\r\n" % (b"x" * 128) * (count // 30))
        wire.send(b"PING\r\n")
        frames = 0
        while wire.read_frame() != b"PONG\r\n":
            frames += 1
        assert frames == count


async def test_nats_py(start_server: StartServer, trust: Trust) -> None:
    target = await start_server(tls=trust.settings)
    client = await nats.connect(target.url, tls=trust.client(), tls_hostname="localhost")
    subscription = await client.subscribe("foo")
    await client.publish("foo", b"hello")
    assert (await subscription.next_msg(timeout=20)).data == b"hello"
    await client.close()


@pytest.mark.parametrize("how", [True, "auto"])
async def test_nats_py_with_the_handshake_first(
    start_server: StartServer, trust: Trust, how: object
) -> None:
    target = await start_server(tls={**trust.settings, "handshake_first": how})
    client = await nats.connect(
        target.url.replace("nats:", "tls:"),
        tls=trust.client(),
        tls_hostname="localhost",
        tls_handshake_first=True,
    )
    await client.flush()
    await client.close()


# ---- before INFO, and without TLS


@pytest.mark.served_every_way
def test_info_follows_the_handshake(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    target = start_threaded_server(tls={**trust.settings, "handshake_first": True})
    with open_secure(target, trust.client(), first=True) as wire:
        assert wire.info["tls_required"] is True
        wire.send(QUIET)
        assert wire.sync() == []


@pytest.mark.served_every_way
def test_auto_takes_both_kinds_of_clients(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    """A client that is silent for 50 ms waits for INFO, and gets it."""
    target = start_threaded_server(tls={**trust.settings, **AUTO})
    with open_secure(target, trust.client(), first=True) as wire:
        assert wire.sync() == []
    with open_secure(target, trust.client()) as wire:
        assert wire.sync() == []


@pytest.mark.served_every_way
def test_clients_without_tls_on_the_same_port(
    start_threaded_server: StartThreadedServer, trust: Trust, open_wire: OpenWire
) -> None:
    target = start_threaded_server(tls=trust.settings, allow_non_tls=True)
    plain = open_wire(target)
    assert "tls_required" not in plain.info
    assert plain.info["tls_available"] is True
    plain.send(QUIET + b"SUB foo 1\r\n")
    plain.sync()
    with open_secure(target, trust.client()) as wire:
        wire.send(QUIET + b"PUB foo 2\r\nhi\r\n")
        assert plain.read_message() == b"MSG foo 1 2\r\nhi\r\n"


def test_a_silent_client_without_tls_is_served_after_the_timeout(
    start_threaded_server: StartThreadedServer, trust: Trust, open_wire: OpenWire
) -> None:
    target = start_threaded_server(tls={**trust.settings, "timeout": "100ms"}, allow_non_tls=True)
    listener = open_wire(target)
    listener.socket.settimeout(1)
    with pytest.raises(TimeoutError):
        listener.read_frame()
    listener.send(QUIET)
    assert listener.sync() == []


def test_a_silent_client_is_closed_if_the_handshake_may_end_before_info_is_sent(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    settings = {**trust.settings, "handshake_first": "30s", "timeout": "100ms"}
    target = start_threaded_server(tls=settings)
    with socket.create_connection(("127.0.0.1", target.port), timeout=20) as silent:
        assert silent.recv(4096) == b""


@pytest.mark.parametrize("whole", [True, False])
def test_half_handshakes_are_counted_and_end(
    start_threaded_server: StartThreadedServer, trust: Trust, whole: bool
) -> None:
    """Each counts as a connection, and lasts no longer than a handshake may."""
    target = start_threaded_server(tls={**trust.settings, "timeout": "2s"}, max_connections=3)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        trust.client().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    with ExitStack() as stack:
        half = [stack.enter_context(Wire(target.address)) for _ in range(3)]
        for wire in half:
            wire.send(hello if whole else hello[:100])
        with Wire(target.address) as refused:
            assert b"maximum connections exceeded" in refused.read_until_closed()
        for wire in half:
            with contextlib.suppress(ConnectionResetError):
                while wire.socket.recv(65536):
                    pass
        with open_secure(target, trust.client()) as wire:
            wire.send(QUIET)
            assert wire.sync() == []


def test_auto_with_clients_without_tls(
    start_threaded_server: StartThreadedServer, trust: Trust, open_wire: OpenWire
) -> None:
    target = start_threaded_server(tls={**trust.settings, **AUTO}, allow_non_tls=True)
    plain = open_wire(target)
    plain.send(QUIET)
    assert plain.sync() == []
    with open_secure(target, trust.client()) as late:
        assert late.sync() == []


# ---- certificates of clients


def refused(target: object, context: ssl.SSLContext) -> bool:
    """Return whether the server closes the connection because of its handshake."""
    assert isinstance(target, NatsdTarget)
    try:
        with open_secure(target, context) as wire:
            wire.read_frame()
    except (ssl.SSLError, Closed, OSError):
        return True
    return False


@pytest.mark.natsd_only
def test_a_client_needs_a_certificate_of_the_authority(
    start_threaded_server: StartThreadedServer,
    trust: Trust,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = start_threaded_server(tls=trust.verifying)
    assert isinstance(target, NatsdTarget)
    good = trust.authority.sign("client")
    with open_secure(target, trust.client(good)) as wire:
        assert wire.info["tls_verify"] is True
        assert wire.sync() == []
    (tmp_path / "else").mkdir()
    stranger = Authority(tmp_path / "else", "else").sign("stranger")
    expired = trust.authority.sign("expired", from_days=-9, days=-1)
    for pair, text in [
        (None, "tls: client didn't provide a certificate"),
        (stranger, "x509: certificate signed by unknown authority"),
        (expired, "x509: certificate has expired or is not yet valid"),
    ]:
        caplog.clear()
        assert refused(target, trust.client(pair))
        errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
        assert len(errors) == 1
        assert "TLS handshake error: tls: " in errors[0]
        assert errors[0].endswith(text)
    assert {each.reason for each in list(target.server.closed_clients)[-3:]} == {
        "TLS Handshake Failure"
    }


@pytest.mark.natsd_only
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_presented_certificates_are_known(
    start_server: StartServer, trust: Trust, version: ssl.TLSVersion
) -> None:
    target = await start_server(tls=trust.verifying)
    assert isinstance(target, NatsdTarget)
    pair = trust.authority.sign("client", key=rsa_key())
    context = trust.client(pair)
    context.maximum_version = version
    client = await nats.connect(target.url, tls=context, tls_hostname="localhost")
    (served,) = target.server.clients.values()
    assert served.peer_certificates()[0] == pair.der
    await client.close()


@pytest.mark.natsd_only
def test_only_pinned_keys(start_threaded_server: StartThreadedServer, trust: Trust) -> None:
    from natsd.tls.peer import public_key_digest

    good, other = trust.authority.sign("good"), trust.authority.sign("other")
    pins = [public_key_digest(good.der)]
    target = start_threaded_server(tls={**trust.verifying, "pinned_certs": pins})
    with open_secure(target, trust.client(good)) as wire:
        assert wire.sync() == []
    assert refused(target, trust.client(other))


VIOLATION = b"-ERR 'Authorization Violation'\r\n"
AS_IVAN = (
    b'CONNECT {"user":"ivan.test","pass":"p","verbose":false,"pedantic":false,"protocol":0}\r\n'
)
PROXY_HEADER = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 4222\r\n"


@pytest.mark.natsd_only
@pytest.mark.served_every_way
@pytest.mark.parametrize("is_proxied", [False, True], ids=["direct", "proxied"])
def test_a_reload_of_verify_and_map_changes_who_connected_clients_are(
    start_threaded_server: StartThreadedServer, trust: Trust, is_proxied: bool
) -> None:
    """They are whom CONNECT names, then whom their certificates name; one names nobody."""
    rules = {"publish": {"deny": "x"}, "subscribe": {"deny": "b"}}
    target = start_threaded_server(
        authorization={
            "users": [
                {"user": "derek.test", "password": "p", "permissions": rules},
                {"user": "ivan.test", "password": "p"},
            ]
        },
        tls=trust.verifying,
        proxy_protocol=is_proxied,
    )
    assert isinstance(target, NatsdTarget)

    def logged_in(name: str) -> Wire:
        wire = Wire(target.address)
        if is_proxied:
            wire.send(PROXY_HEADER)
        pair = trust.authority.sign(name, names=(f"{name}.test",))
        secure(wire, trust.client(pair)).send(AS_IVAN)
        return wire

    def published(wire: Wire) -> list[bytes]:
        wire.send(b"PUB x 0\r\n\r\n")
        return wire.sync()

    mapped = {**trust.verifying, "verify_and_map": True}
    with logged_in("derek") as derek, logged_in("nobody") as nobody:
        assert [published(derek), published(nobody)] == [[], []]
        derek.send(b"SUB b 1\r\n")
        assert derek.sync() == []
        target.server.reload(tls=mapped)
        dropped = b'Subscription to "b" (sid "1")'
        denied = b'Publish to "x"'
        told = derek.sync() + published(derek)
        assert told == [b"-ERR 'Permissions Violation for %b'\r\n" % w for w in (dropped, denied)]
        assert nobody.read_until_closed() == VIOLATION
        with logged_in("nobody") as again:
            assert again.read_until_closed() == VIOLATION
        with logged_in("derek") as again:
            assert published(again) == [b"-ERR 'Permissions Violation for %b'\r\n" % denied]
        target.server.reload(tls=trust.verifying)
        assert published(derek) == []


# ---- limits, monitoring


@pytest.mark.natsd_only
def test_handshakes_are_limited_per_second(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    target = start_threaded_server(tls={**trust.settings, "connection_rate_limit": 3})
    answers = []
    for _ in range(6):
        with Wire(target.address) as wire:
            wire.half_close()
            answers.append(wire.read_until_closed())
    throttled = b"-ERR 'Connection throttling is active. Please try again later.'\r\n"
    assert throttled in answers
    assert answers[0] == b""
    assert isinstance(target, NatsdTarget)
    assert "Maximum Connections Exceeded" in {each.reason for each in target.server.closed_clients}


@pytest.mark.natsd_only
async def test_what_monitoring_shows(start_server: StartServer, trust: Trust) -> None:
    from natsd.monitor.clock import Clock
    from natsd.monitor.connz import ConnzParameters, connz
    from natsd.monitor.query import Query
    from natsd.monitor.turns import Turns

    target = await start_server(tls={**trust.verifying, "handshake_first": "auto"})
    assert isinstance(target, NatsdTarget)
    pair = trust.authority.sign("client")
    client = await nats.connect(
        target.url.replace("nats:", "tls:"),
        tls=trust.client(pair),
        tls_hostname="localhost",
        tls_handshake_first=True,
    )

    async def row(state: str) -> dict[str, object]:
        query = Query({"auth": "true", "state": state})
        answer = await connz(target.server, ConnzParameters.of(query), Clock(), Turns())
        (only,) = answer["connections"]
        return dict(msgspec.to_builtins(only))

    shown = await row("open")
    assert shown["tls_version"] == "1.3"
    assert str(shown["tls_cipher_suite"]).startswith("TLS_")
    assert shown["tls_first"] is True
    certificate, *_ = shown["tls_peer_certs"]  # type: ignore[misc]  # a list of dicts
    assert certificate["subject"] == r"CN=client,O=natsd\, tests"
    assert set(certificate) == {"subject", "spki_sha256", "cert_sha256"}
    await client.close()
    await eventually_within(lambda: not target.server.clients)
    closed = await row("closed")
    assert closed["tls_peer_certs"] == shown["tls_peer_certs"]
    assert closed["tls_version"] == "1.3"


def test_the_deadline_for_connect_begins_after_the_handshake(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    target = start_threaded_server(
        tls=trust.settings, authorization={"user": "a", "password": "b", "timeout": 0.3}
    )
    with open_secure(target, trust.client()) as wire:
        assert b"-ERR 'Authentication Timeout'\r\n" in wire.read_until_closed()


def test_by_default_login_may_take_a_second_more_than_the_handshake(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    target = start_threaded_server(
        tls={**trust.settings, "timeout": "100ms"}, authorization={"user": "a", "password": "b"}
    )
    began = time.monotonic()
    with open_secure(target, trust.client()) as wire:
        assert b"-ERR 'Authentication Timeout'\r\n" in wire.read_until_closed()
    assert time.monotonic() - began > 1


# ---- reload


def reload(target: object, **settings: object) -> None:
    assert isinstance(target, NatsdTarget)
    target.server.reload(**settings)


@pytest.mark.natsd_only
@pytest.mark.served_every_way
def test_a_new_certificate_drops_nobody(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    """The files have changed, their names have not: the next connection gets the new one."""
    target = start_threaded_server(tls=trust.settings)
    with open_secure(target, trust.client()) as old:
        old.send(QUIET + b"SUB foo 1\r\n")
        old.sync()
        replacement = trust.authority.sign("server")
        reload(target)
        with open_secure(target, trust.client()) as new:
            assert isinstance(new.socket, ssl.SSLSocket)
            assert new.socket.getpeercert(binary_form=True) == replacement.der
            new.send(QUIET + b"PUB foo 2\r\nhi\r\n")
            assert old.read_message() == b"MSG foo 1 2\r\nhi\r\n"


@pytest.mark.natsd_only
def test_a_bad_certificate_is_refused_by_a_reload(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    from natsd.server.reload import ReloadError

    target = start_threaded_server(tls=trust.settings)
    key = trust.server.key_file.read_bytes()
    trust.server.key_file.write_text("hello")
    with pytest.raises(ReloadError, match="tls: failed to find any PEM data in key input"):
        reload(target, debug=True)
    assert isinstance(target, NatsdTarget)
    assert not target.server.options.debug
    with open_secure(target, trust.client()) as wire:
        assert wire.sync() == []
    trust.server.key_file.write_bytes(key)
    reload(target, debug=True)
    assert target.server.options.debug


@pytest.mark.natsd_only
def test_a_reload_switches_tls_on_and_off(
    start_threaded_server: StartThreadedServer, trust: Trust, open_wire: OpenWire
) -> None:
    target = start_threaded_server()
    plain = open_wire(target)
    plain.send(QUIET)
    plain.sync()
    reload(target, tls=trust.settings)
    assert any(b"tls_required" in frame for frame in plain.sync())
    with open_secure(target, trust.client()) as wire:
        assert wire.sync() == []
        reload(target, tls=None)
        later = open_wire(target)
        assert "tls_required" not in later.info
        assert later.sync() == []
        assert b"PONG" not in b"".join(wire.sync())


@pytest.mark.natsd_only
def test_a_reload_closes_clients_that_are_no_longer_pinned(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    from natsd.tls.peer import public_key_digest

    good, other = trust.authority.sign("good"), trust.authority.sign("other")
    target = start_threaded_server(tls=trust.verifying)
    with open_secure(target, trust.client(good)) as kept:
        with open_secure(target, trust.client(other)) as lost:
            assert kept.sync() == lost.sync() == []
            reload(target, tls={**trust.verifying, "pinned_certs": [public_key_digest(good.der)]})
            lost.read_until_closed()
        assert b"".join(kept.sync()).count(b"INFO") <= 1


@pytest.mark.natsd_only
def test_a_start_with_a_bad_certificate_leaves_nothing(tmp_path: Path) -> None:
    from natsd.config.settings import OptionsError
    from natsd.server import Server

    server = Server(
        port=-1,
        thread=True,
        tls={"cert_file": str(tmp_path / "a"), "key_file": str(tmp_path / "b")},
    )
    with pytest.raises(OptionsError, match="no such file or directory"), server:
        pass


def test_tls_is_not_resumed(start_threaded_server: StartThreadedServer, trust: Trust) -> None:
    """A resumed session would keep a client's certificate past a reload."""
    target = start_threaded_server(tls=trust.settings)
    with open_secure(target, trust.client()) as wire:
        wire.sync()
        assert isinstance(wire.socket, ssl.SSLSocket)
        assert not wire.socket.session.has_ticket


def test_upgrading_twice_is_not_possible(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    target = start_threaded_server(tls=trust.settings)
    with open_secure(target, trust.client()) as wire:
        wire.send(b"\x16\x03\x01\x00\xc8")
        assert b"Unknown Protocol Operation" in wire.read_until_closed()
    assert secure
