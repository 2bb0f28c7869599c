"""The lines a server writes when it starts and stops: nats-server's texts and their order.

Test harnesses and supervisors wait for `Listening for client connections on` and `Server is ready`.
"""

import logging
from typing import Protocol

from natsd.clients.listener import host_port
from natsd.config import Options
from natsd.config.options import MIB, PAYLOAD_WARN_BYTES
from natsd.version import NATS_VERSION, RUNTIME_VERSION, VERSION

_logger = logging.getLogger("natsd.server")


class Named(Protocol):
    """What the first lines tell of a server."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def options(self) -> Options: ...


def log_starting(server: Named) -> None:
    """Who starts, and what is unwise about its settings."""
    options = server.options
    _logger.info("Starting natsd")
    _logger.info("  Version:  %s (NATS %s)", VERSION, NATS_VERSION)
    _logger.info("  Git:      [not set]")
    _logger.debug("  Runtime:  %s", RUNTIME_VERSION)
    _logger.info("  Name:     %s", server.name)
    _logger.info("  ID:       %s", server.id)
    if options.password:
        _logger.warning("Plaintext passwords detected, use nkeys or bcrypt")
    if options.max_payload > PAYLOAD_WARN_BYTES:
        _logger.warning(
            "Maximum payloads over %.2f MB are generally discouraged "
            "and could lead to poor performance",
            PAYLOAD_WARN_BYTES / MIB,
        )


def log_listening(host: str, port: int) -> None:
    """Clients can connect."""
    _logger.info("Listening for client connections on %s", host_port(host, port))


def log_ready() -> None:
    """The last line of a start."""
    _logger.info("Server is ready")


def log_stopping() -> None:
    """The first line of an end."""
    _logger.info("Initiating Shutdown...")


def log_stopped() -> None:
    """The last line of all."""
    _logger.info("Server Exiting..")
