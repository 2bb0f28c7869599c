"""The composition root: builds the parts of a server, starts and stops them."""

from natsd.server.server import Server

__all__ = ["Server"]
