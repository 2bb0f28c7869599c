"""Client connections: accepting them, INFO and CONNECT, transports."""

from natsd.clients.client import Client, ClientHost

__all__ = ["Client", "ClientHost"]
