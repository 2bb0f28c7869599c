r"""The header of the PROXY protocol, versions 1 and 2: the client's address behind a proxy.

    v1   PROXY TCP4 192.0.2.1 198.51.100.1 56324 4222\r\n            107 bytes at most
    v2   \r\n\r\n\0\r\nQUIT\n  version|command  family|transport  length (2)  addresses  more

Promise
- `read_header` is a function of the first bytes of a connection: it returns the header once it is
  whole, None while more bytes are needed, and raises BadHeader. It gives the same answer however
  the bytes are split into reads.
- A header takes 65,551 bytes at most. Nothing behind it is looked at.
- A connection that begins otherwise has no header: 0 bytes of it are used.
- A header without an address (LOCAL, UNKNOWN, UNSPEC) leaves the connection its own address.

Sources: the PROXY protocol of HAProxy; nats-server's server/client_proxyproto.go, whose texts these
are.
"""

import ipaddress
from typing import Final, NamedTuple

V1_PREFIX: Final = b"PROXY "
V1_BYTES_MAX: Final = 107
V1_WORDS: Final = 5
V2_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
V2_HEAD_BYTES: Final = 16
SNIFFED_BYTES: Final = 6
PORT_MAX: Final = 65535

LOCAL: Final = 0
PROXY: Final = 1
STREAM: Final = 1
UNSPECIFIED, IPV4, IPV6 = 0, 1, 2


class BadHeader(Exception):
    """A connection begins with a header that is invalid; the text is for the log."""


class Header(NamedTuple):
    """The bytes that the header takes, and the client's address; an empty `ip`: there is none."""

    size: int
    ip: str = ""
    port: int = 0


def read_header(data: bytes) -> Header | None:
    """Return the header at the beginning of `data`; None: more bytes are needed.

    Raises BadHeader.
    """
    begun = data[:SNIFFED_BYTES]
    if begun == V1_PREFIX:
        return _read_v1(data)
    if begun == V2_SIGNATURE[:SNIFFED_BYTES]:
        return _read_v2(data)
    if V1_PREFIX.startswith(begun) or V2_SIGNATURE.startswith(begun):
        return None
    return Header(0)


# ---- version 1


def _read_v1(data: bytes) -> Header | None:
    end = data.find(b"\r\n", len(V1_PREFIX), V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise BadHeader("invalid PROXY protocol header: v1 line too long")
        return None
    words = data[len(V1_PREFIX) : end].decode("latin-1").split()
    size = end + len(b"\r\n")
    if words[:1] == ["UNKNOWN"]:
        return Header(size)
    if len(words) != V1_WORDS:
        raise BadHeader("invalid PROXY protocol header: invalid v1 format")
    kind, source, target, source_port, target_port = words
    address = _address(source)
    _address(target)
    port = _port(source_port, "source")
    _port(target_port, "dest")
    if kind == "TCP4" and (":" in source or ":" in target):
        raise BadHeader("invalid PROXY protocol header: TCP4 with IPv6 address")
    if kind == "TCP6" and not (":" in source and ":" in target):
        raise BadHeader("invalid PROXY protocol header: TCP6 with IPv4 address")
    if kind not in ("TCP4", "TCP6"):
        raise BadHeader(f"invalid PROXY protocol header: invalid protocol {kind}")
    return Header(size, address, port)


def _address(text: str) -> str:
    try:
        if "%" in text:
            raise ValueError
        return _shown(ipaddress.ip_address(text))
    except ValueError:
        raise BadHeader("invalid PROXY protocol header: invalid address") from None


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return an address as text; an IPv4 address within an IPv6 one is shown alone."""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _port(text: str, which: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadHeader(
            f'invalid {which} port: strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    number = int(text)
    if number > PORT_MAX:
        raise BadHeader(
            f'invalid {which} port: strconv.ParseUint: parsing "{text}": value out of range'
        )
    return number


# ---- version 2


def _read_v2(data: bytes) -> Header | None:
    begun = data[: len(V2_SIGNATURE)]
    if not V2_SIGNATURE.startswith(begun):
        raise BadHeader("invalid PROXY protocol header: invalid signature")
    if len(data) < V2_HEAD_BYTES:
        return None
    version, command = data[12] & 0xF0, data[12] & 0x0F
    family, transport = data[13] >> 4, data[13] & 0x0F
    size = V2_HEAD_BYTES + int.from_bytes(data[14:16], "big")
    if version != 0x20:
        raise BadHeader(f"invalid PROXY protocol header: invalid version 0x{version:02x}")
    if command not in (LOCAL, PROXY):
        raise BadHeader(f"unknown PROXY protocol command: 0x{command:02x}")
    if command == PROXY:
        _check_v2(family, transport, size - V2_HEAD_BYTES)
    if len(data) < size:
        return None
    at = V2_HEAD_BYTES
    if command == LOCAL or family == UNSPECIFIED:
        return Header(size)
    if family == IPV4:
        return Header(
            size,
            str(ipaddress.IPv4Address(data[at : at + 4])),
            int.from_bytes(data[at + 8 : at + 10], "big"),
        )
    return Header(
        size,
        _shown(ipaddress.IPv6Address(data[at : at + 16])),
        int.from_bytes(data[at + 32 : at + 34], "big"),
    )


def _check_v2(family: int, transport: int, size: int) -> None:
    """Check the kind of address and its size. Raises BadHeader."""
    if transport != STREAM:
        raise BadHeader("unsupported PROXY protocol feature: only STREAM protocol supported")
    if family not in (UNSPECIFIED, IPV4, IPV6):
        raise BadHeader(
            f"unsupported PROXY protocol feature: unsupported address family 0x{family << 4:02x}"
        )
    if family == IPV4 and size < 12:
        raise BadHeader(f"IPv4 address data too short: {size} bytes")
    if family == IPV6 and size < 36:
        raise BadHeader(f"IPv6 address data too short: {size} bytes")
