"""The log lines of a server's start and stop, with nats-server's texts in nats-server's order.

Test harnesses and supervisors wait for `Listening for client connections on` and `Server is ready`.
"""

import logging
from typing import TYPE_CHECKING, Protocol

from natsd.clients.listener import host_port
from natsd.config import Options
from natsd.config.jetstream_options import JetStreamOptions
from natsd.config.options import MIB, PAYLOAD_WARN_BYTES
from natsd.config.resources import is_default_store_dir
from natsd.core.durations import format_duration
from natsd.core.sizes import friendly_bytes
from natsd.version import API_LEVEL, NATS_VERSION, RUNTIME_VERSION, VERSION

if TYPE_CHECKING:
    from natsd.config.loaded import LoadedConfig

_logger = logging.getLogger("natsd.server")

_RULE = "-------------------------------------------"


class ServerIdentity(Protocol):
    """The part of a server that the first log lines show."""

    @property
    def id(self) -> str:
        """Server id: a public nkey."""
        ...

    @property
    def name(self) -> str:
        """Server name."""
        ...

    @property
    def options(self) -> Options:
        """Settings of the server."""
        ...

    @property
    def config(self) -> "LoadedConfig | None":
        """Configuration file that the settings come from, if there is one."""
        ...


def log_starting(server: ServerIdentity) -> None:
    """Log versions, name and id of a server that starts, and warnings about its settings."""
    options = server.options
    _logger.info("Starting natsd")
    _logger.info("  Version:  %s (NATS %s)", VERSION, NATS_VERSION)
    _logger.info("  Git:      [not set]")
    _logger.debug("  Runtime:  %s", RUNTIME_VERSION)
    _logger.info("  Name:     %s", server.name)
    _logger.info("  ID:       %s", server.id)
    if server.config is not None and server.config.path is not None:
        _logger.info("Using configuration file: %s (%s)", server.config.path, server.config.digest)
    if options.max_payload > PAYLOAD_WARN_BYTES:
        _logger.warning(
            "Maximum payloads over %.2f MB are generally discouraged "
            "and could lead to poor performance",
            PAYLOAD_WARN_BYTES / MIB,
        )


def log_jetstream(options: JetStreamOptions) -> None:
    """Log the settings with which JetStream starts."""
    if is_default_store_dir(options.store_dir):
        _logger.warning("Temporary storage directory used, data could be lost on system reboot")
    _logger.info(f"{' JETSTREAM ':-^{len(_RULE)}}")
    if options.strict:
        _logger.info("  Strict:          true")
    _logger.info("  Max Memory:      %s", friendly_bytes(options.max_memory_store))
    _logger.info("  Max Storage:     %s", friendly_bytes(options.max_file_store))
    _logger.info('  Store Directory: "%s"', options.directory)
    interval = "always" if options.syncs_always else format_duration(options.sync_interval)
    _logger.info("  Sync Interval:   %s", interval)
    if options.domain:
        _logger.info("  Domain:          %s", options.domain)
    if options.key:
        _logger.info("  Encryption:      %s", options.cipher)
    _logger.info("  API Level:       %d", API_LEVEL)
    _logger.info(_RULE)
    _logger.debug("  Exports:")
    _logger.debug("     $JS.API.>")


def log_listening(host: str, port: int) -> None:
    """Log the address on which clients can connect."""
    _logger.info("Listening for client connections on %s", host_port(host, port))


def log_ready() -> None:
    """Log the last line of a start."""
    _logger.info("Server is ready")


def log_stopping() -> None:
    """Log the first line of a stop."""
    _logger.info("Initiating Shutdown...")


def log_stopped() -> None:
    """Log the last line of a stop."""
    _logger.info("Server Exiting..")
