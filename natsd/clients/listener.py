"""Listening TCP sockets, and a one-line error if an address cannot be listened on.

The kernel queues connections from the call of `listen` on, so they may be accepted later.
"""

import socket


class ListenError(Exception):
    """The address cannot be listened on; the text is that of nats-server."""


def listen(host: str, port: int, *, backlog: int = 128) -> socket.socket:
    """Return a non-blocking socket that listens on `host` and `port`.

    An empty host stands for all addresses; port -1 or 0 lets the system pick one. Connections send
    small messages at once (TCP_NODELAY). Raises ListenError. May block the thread to resolve the
    host name.
    """
    port = max(port, 0)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ListenError(f"listen tcp: lookup {host}: {_reason(error)}") from None
    try:
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"listen tcp {host_port(host, port)}: {_reason(error)}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Connections inherit it, but only if it is set before they arrive in the queue.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        where = host_port(host, port)
        raise ListenError(f"listen tcp {where}: bind: {_reason(error)}") from None
    listener.setblocking(False)
    return listener


def bound_port(listener: socket.socket) -> int:
    """Return the port on which a socket listens."""
    port = listener.getsockname()[1]
    assert isinstance(port, int)
    return port


def host_port(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def lower_first(text: str) -> str:
    """Return a text with its first letter in lower case, as Go writes system errors."""
    return text[:1].lower() + text[1:]


def _reason(error: OSError) -> str:
    """Return the system's error text, with its first letter in lower case."""
    return lower_first(error.strerror or str(error))
