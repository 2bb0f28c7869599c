"""A listening TCP socket, and the one line that says why there is none.

The kernel queues connections from the moment of `listen`, so whoever serves them may take its time.
"""

import socket


class ListenError(Exception):
    """The address cannot be listened on; the text is nats-server's."""


def listen(host: str, port: int, *, backlog: int = 128) -> socket.socket:
    """A non-blocking socket that listens on host and port; port -1 or 0 lets the system pick."""
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
        listener.bind(address)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        where = host_port(host, port)
        raise ListenError(f"listen tcp {where}: bind: {_reason(error)}") from None
    listener.setblocking(False)
    return listener


def bound_port(listener: socket.socket) -> int:
    """The port that was asked for, or picked."""
    port = listener.getsockname()[1]
    assert isinstance(port, int)
    return port


def host_port(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def lower_first(text: str) -> str:
    """The system's words as Go writes them: without a capital."""
    return text[:1].lower() + text[1:]


def _reason(error: OSError) -> str:
    """The system's words."""
    return lower_first(error.strerror or str(error))
