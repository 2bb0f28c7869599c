"""The addresses of this machine, at which a server on 0.0.0.0 can be reached.

The standard library does not list them; this module calls libc's `getifaddrs`.
"""

import ctypes
import socket
import sys
from typing import Final


class _InterfaceAddress(ctypes.Structure):
    """The first fields of `struct ifaddrs`; the others are not read."""


_InterfaceAddress._fields_ = [
    ("next", ctypes.POINTER(_InterfaceAddress)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]

# Offset and size of the address in `struct sockaddr_in` and `sockaddr_in6`.
_ADDRESS_AT: Final = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}
_HAS_LENGTH_BYTE: Final = sys.platform == "darwin" or "bsd" in sys.platform


def local_addresses() -> list[str]:
    """Return the IPv4 and IPv6 addresses of all interfaces; 127.0.0.1 if the system call fails."""
    libc = ctypes.CDLL(None)
    first = ctypes.POINTER(_InterfaceAddress)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        return ["127.0.0.1"]
    try:
        return _collect(first)
    finally:
        libc.freeifaddrs(first)


def _collect(entry: "ctypes._Pointer[_InterfaceAddress]") -> list[str]:
    addresses = []
    while bool(entry):
        if text := _text(entry.contents.address):
            addresses.append(text)
        entry = entry.contents.next
    return addresses


def _text(sockaddr: int | None) -> str:
    """Return the address in a sockaddr as text; empty if it is neither IPv4 nor IPv6."""
    if not sockaddr:
        return ""
    head = ctypes.string_at(sockaddr, 2)
    family = head[1] if _HAS_LENGTH_BYTE else int.from_bytes(head, sys.byteorder)
    if family not in _ADDRESS_AT:
        return ""
    offset, size = _ADDRESS_AT[socket.AddressFamily(family)]
    return socket.inet_ntop(family, ctypes.string_at(sockaddr + offset, size))
