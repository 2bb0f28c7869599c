"""Client connections: accepting them, INFO and CONNECT, transports."""

from natsd.clients.client import Client, ClientHost
from natsd.clients.closed import ClosedClient

__all__ = ["Client", "ClientHost", "ClosedClient"]
