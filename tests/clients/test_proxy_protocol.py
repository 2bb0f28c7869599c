r"""PROXY headers: the addresses they carry, their limits, and what follows them.

The PROXY protocol of HAProxy, sections 2.1 and 2.2; nats-server's server/client_proxyproto.go.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.clients.proxy_protocol import V2_SIGNATURE, BadHeader, Header, read_header
from tests.clients.conftest import StartThreadedServer
from tests.clients.secure import QUIET, Trust, secure
from tests.clients.target import NatsdTarget
from tests.clients.wire import Wire

OpenWire = Callable[..., Wire]
V1 = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 4222\r\n"
PORTS = st.integers(0, 65535)


def v2(
    command: int = 0x21, kind: int = 0x11, addresses: bytes = b"", size: int | None = None
) -> bytes:
    length = len(addresses) if size is None else size
    return V2_SIGNATURE + bytes([command, kind]) + length.to_bytes(2, "big") + addresses


def v2_address(source: str, port: int) -> bytes:
    address = ipaddress.ip_address(source)
    ports = port.to_bytes(2, "big") + (4222).to_bytes(2, "big")
    kind = 0x11 if address.version == 4 else 0x21
    return v2(kind=kind, addresses=address.packed * 2 + ports)


# ---- the header


@given(st.ip_addresses(), PORTS, st.binary(max_size=20), st.integers(0, 200))
def test_every_address_in_every_split(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, rest: bytes, cut: int
) -> None:
    mapped = getattr(address, "ipv4_mapped", None)
    shown = str(mapped or address)
    first = b"PROXY TCP%d %s %s %d 4222\r\n" % (
        address.version,
        str(address).encode(),
        str(address).encode(),
        port,
    )
    for header in (first, v2_address(str(address), port)):
        assert read_header(header + rest) == Header(len(header), shown, port)
        for end in range(len(header)):
            assert read_header(header[:end]) is None


@given(st.binary(max_size=300))
def test_any_bytes_have_one_answer(data: bytes) -> None:
    """Whole or byte by byte: the first answer that is not "more" is the same."""

    def answer(data: bytes) -> object:
        try:
            return read_header(data)
        except BadHeader as error:
            return str(error)

    whole = answer(data)
    for end in range(len(data)):
        early = answer(data[:end])
        if early is not None:
            assert whole is not None
            assert type(early) is type(whole)
            break
    if isinstance(whole, Header):
        assert whole.size <= len(data)


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (b"PROXY UNKNOWN\r\n", Header(15)),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\nPING", Header(35)),
        (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", Header(37, "192.0.2.1", 1)),
        (v2(0x20, 0x00, b"anything"), Header(24)),
        (v2(0x21, 0x01, b"xyz"), Header(19)),
        (v2(0x21, 0x11, bytes(12) + b"TLV" * 9), Header(55, "0.0.0.0", 0)),
        (v2(0x20, 0x00, bytes(65535)), Header(65551)),
        (b"CONNECT {}\r\n", Header(0)),
        (b"\x16\x03\x01", Header(0)),
        (b"PROXYX", Header(0)),
        (b"PRO", None),
        (b"\r\n", None),
        (b"", None),
        (V2_SIGNATURE, None),
    ],
)
def test_headers(data: bytes, header: Header | None) -> None:
    assert read_header(data) == header


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PROXY " + b"x" * 101, "invalid PROXY protocol header: v1 line too long"),
        (b"PROXY \r\n", "invalid PROXY protocol header: invalid v1 format"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "invalid PROXY protocol header: invalid v1 format"),
        (b"PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n", "invalid PROXY protocol header: invalid address"),
        (b"PROXY TCP6 fe80::1%lo ::1 1 2\r\n", "invalid PROXY protocol header: invalid address"),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n", "invalid PROXY protocol header: TCP4 with IPv6 address"),
        (
            b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            "invalid PROXY protocol header: TCP6 with IPv4 address",
        ),
        (
            b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "invalid PROXY protocol header: invalid protocol UDP4",
        ),
        (
            b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
            'invalid source port: strconv.ParseUint: parsing "-1": invalid syntax',
        ),
        (
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            'invalid dest port: strconv.ParseUint: parsing "65536": value out of range',
        ),
        (b"\r\n\r\n\0\rX", "invalid PROXY protocol header: invalid signature"),
        (v2(0x11), "invalid PROXY protocol header: invalid version 0x10"),
        (v2(0x22), "unknown PROXY protocol command: 0x02"),
        (
            v2(0x21, 0x12, bytes(12)),
            "unsupported PROXY protocol feature: only STREAM protocol supported",
        ),
        (
            v2(0x21, 0x31, bytes(216)),
            "unsupported PROXY protocol feature: unsupported address family 0x30",
        ),
        (v2(0x21, 0x11, bytes(11)), "IPv4 address data too short: 11 bytes"),
        (v2(0x21, 0x21, bytes(35)), "IPv6 address data too short: 35 bytes"),
    ],
)
def test_bad_headers(data: bytes, text: str) -> None:
    with pytest.raises(BadHeader) as caught:
        read_header(data)
    assert str(caught.value) == text


def test_the_longest_line() -> None:
    line = b"PROXY UNKNOWN" + b" " * 92 + b"\r\n"
    assert len(line) == 107
    assert read_header(line) == Header(107)
    with pytest.raises(BadHeader):
        read_header(b"PROXY UNKNOWN" + b" " * 93 + b"\r\n")


# ---- connections

pytestmark = pytest.mark.natsd_only


def address_of(target: object) -> tuple[str, int]:
    assert isinstance(target, NatsdTarget)
    (client,) = target.server.clients.values()
    return client.ip, client.port


@pytest.mark.served_every_way
@pytest.mark.parametrize(
    "header", [V1, v2_address("192.0.2.1", 56324)], ids=["version-1", "version-2"]
)
def test_the_clients_address_is_that_of_the_header(
    start_threaded_server: StartThreadedServer, open_wire: OpenWire, header: bytes
) -> None:
    target = start_threaded_server(proxy_protocol=True)
    wire = open_wire(target)
    assert "client_ip" not in wire.info
    wire.send(header + QUIET + b"PING\r\n")
    assert wire.read_frame() == b"PONG\r\n"
    assert address_of(target) == ("192.0.2.1", 56324)
    assert b'"client_ip":"192.0.2.1"' in wire.read_frame()  # the INFO after the first PONG


def test_a_header_in_pieces(
    start_threaded_server: StartThreadedServer, open_wire: OpenWire
) -> None:
    target = start_threaded_server(proxy_protocol=True)
    wire = open_wire(target)
    for byte in V1:
        wire.send(bytes([byte]))
    wire.send(QUIET)
    wire.sync()
    assert address_of(target) == ("192.0.2.1", 56324)


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", v2(0x20, 0, bytes(9)), b""])
def test_without_an_address_the_connections_own_is_kept(
    start_threaded_server: StartThreadedServer, open_wire: OpenWire, header: bytes
) -> None:
    target = start_threaded_server(proxy_protocol=True)
    wire = open_wire(target)
    wire.send(header + QUIET)
    wire.sync()
    assert address_of(target) == wire.socket.getsockname()


@pytest.mark.served_every_way
def test_tls_behind_a_header(
    start_threaded_server: StartThreadedServer, open_wire: OpenWire, tmp_path: Path
) -> None:
    trust = Trust(tmp_path)
    target = start_threaded_server(proxy_protocol=True, tls=trust.settings, allow_non_tls=True)
    wire = open_wire(target)
    wire.send(V1)
    secure(wire, trust.client())
    assert wire.sync() == []
    assert address_of(target) == ("192.0.2.1", 56324)
    assert isinstance(wire.socket, ssl.SSLSocket)
    plain = open_wire(target)
    plain.send(V1 + QUIET)
    assert plain.sync() == []


def test_tls_first_behind_a_header(
    start_threaded_server: StartThreadedServer, open_wire: OpenWire, tmp_path: Path
) -> None:
    trust = Trust(tmp_path)
    target = start_threaded_server(
        proxy_protocol=True, tls={**trust.settings, "handshake_first": True}
    )
    wire = open_wire(target, read_info=False)
    wire.send(V1)
    secure(wire, trust.client())
    assert b'"client_ip":"192.0.2.1"' in wire.read_frame()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"PROXY TCP4 x\r\n", "invalid PROXY protocol header: invalid v1 format"),
        (v2(0x41), "invalid PROXY protocol header: invalid version 0x40"),
    ],
    ids=["version-1", "version-2"],
)
def test_a_bad_header_closes(
    start_threaded_server: StartThreadedServer,
    open_wire: OpenWire,
    caplog: pytest.LogCaptureFixture,
    said: bytes,
    text: str,
) -> None:
    target = start_threaded_server(proxy_protocol=True)
    wire = open_wire(target)
    wire.send(said)
    assert wire.read_until_closed() == b""
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warnings == [
        "Error reading PROXY protocol header from {}:{}: {}".format(
            *wire.socket.getsockname(), text
        )
    ]
    assert isinstance(target, NatsdTarget)
    assert target.server.closed_clients[-1].reason == "Protocol Violation"


def test_a_header_that_does_not_come(
    start_threaded_server: StartThreadedServer,
    open_wire: OpenWire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("natsd.clients.openings.PROXY_TIMEOUT_S", 0.2)
    target = start_threaded_server(proxy_protocol=True)
    wire = open_wire(target)
    wire.send(b"PROX")
    assert wire.read_until_closed() == b""
    assert isinstance(target, NatsdTarget)
    assert target.server.closed_clients[-1].reason == "Protocol Violation"
