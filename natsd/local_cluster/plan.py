"""The servers of a new cluster: their names, and the ports where they listen.

Clients, routes and monitoring have ports of their own, one after the other from three numbers on:

    n1   4222   6222   8222
    n2   4223   6223   8223
    n3   4224   6224   8224
"""

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.local_cluster.errors import LocalClusterError

NAME: Final = "local"
LOOPBACK: Final = "127.0.0.1"
PORT: Final = 4222
ROUTES_OFFSET: Final = 2000
MONITORING_OFFSET: Final = 4000
PORT_MAX: Final = 65535
FREE: Final = -1
"""Base port that has every port chosen among those that are free."""
LASTING: Final = range(10_000, 32_768)
"""Ports that systems seldom give to connections."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one server."""

    clients: int
    routes: int
    monitoring: int

    @property
    def all(self) -> tuple[int, int, int]:
        """All of them."""
        return self.clients, self.routes, self.monitoring


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the servers of a new cluster have in common."""

    name: str = NAME
    host: str = LOOPBACK
    port: int = PORT
    """Port of the first server's clients; FREE: all ports are chosen among those that are free."""
    include: Path | None = None
    """A configuration file that every server includes."""

    def check(self, count: int) -> None:
        """Raise LocalClusterError if `count` servers cannot be made so."""
        if count < 1:
            raise LocalClusterError("a cluster has at least one server")
        if not self.name or any(each.isspace() for each in self.name):
            raise LocalClusterError(f'"{self.name}" is no name of a cluster: it has spaces')
        if self.port != FREE and not 1 <= self.port <= PORT_MAX - MONITORING_OFFSET - count + 1:
            raise LocalClusterError(
                f"port {self.port} is no first port of {count} servers; use 1 to "
                f"{PORT_MAX - MONITORING_OFFSET - count + 1}, or {FREE} for free ports"
            )

    def ports(self, first: int, count: int) -> list[Ports]:
        """Return the ports of the servers from the number `first` (0: n1) on."""
        if self.port == FREE:
            numbers = free_ports(self.host, 3 * count)
            return [Ports(*numbers[3 * at : 3 * at + 3]) for at in range(count)]
        return [
            Ports(port, port + ROUTES_OFFSET, port + MONITORING_OFFSET)
            for port in range(self.port + first, self.port + first + count)
        ]


def free_ports(host: str, count: int) -> list[int]:
    """Return different ports that nothing listened on a moment ago.

    They stay free while servers restart: connections get other ports, as systems are mostly set.
    """
    first = int.from_bytes(os.urandom(4))
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for offset in range(len(LASTING)):
            if len(found) == count:
                return found
            trial = stack.enter_context(_socket(host))
            port = LASTING[(first + offset) % len(LASTING)]
            with contextlib.suppress(OSError):
                trial.bind((host, port))
                found.append(port)
    raise LocalClusterError(f"{count} ports are not free")


def taken_ports(host: str, ports: Sequence[int]) -> list[int]:
    """Return those of the ports on which nobody can listen now."""
    return [port for port in ports if not _is_free(host, port)]


def _is_free(host: str, port: int) -> bool:
    with _socket(host) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            trial.bind((host, port))
        except OSError:
            return False
        return True


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
