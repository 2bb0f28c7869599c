"""The composition root: builds, starts and stops the parts of a server."""

from natsd.server.server import Server

__all__ = ["Server"]
