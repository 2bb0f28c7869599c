"""What a connection means: clients, how they are accepted and what they negotiate."""

from natsd.clients.client import Client, ClientHost
from natsd.clients.closed import ClosedClient

__all__ = ["Client", "ClientHost", "ClosedClient"]
