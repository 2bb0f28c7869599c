"""The log lines of a server's start and stop, with nats-server's texts in nats-server's order.

Test harnesses and supervisors wait for `Listening for client connections on` and `Server is ready`.
"""

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from natsd.auth import Authenticator
from natsd.clients.listener import host_port
from natsd.config import Options
from natsd.config.jetstream_options import JetStreamOptions
from natsd.config.options import MIB, PAYLOAD_WARN_BYTES
from natsd.config.resources import is_default_store_dir
from natsd.core.durations import format_duration
from natsd.core.program import is_stand_in, program_name
from natsd.core.quoting import quoted
from natsd.core.sizes import friendly_bytes
from natsd.version import API_LEVEL, NATS_VERSION, RUNTIME_VERSION, VERSION

if TYPE_CHECKING:
    from natsd.config.loaded import LoadedConfig

_logger = logging.getLogger("natsd.server")

VERSION_SHOWN: Final = f"{VERSION} (NATS {NATS_VERSION})"
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
    def authenticator(self) -> Authenticator:
        """What decides over each CONNECT."""
        ...

    @property
    def config(self) -> "LoadedConfig | None":
        """Configuration file that the settings come from, if there is one."""
        ...


def log_starting(server: ServerIdentity) -> None:
    """Log versions, name and id of a server that starts, and warnings about its settings."""
    options = server.options
    _logger.info("Starting %s", program_name())
    _logger.info("  Version:  %s", NATS_VERSION if is_stand_in() else VERSION_SHOWN)
    _logger.info("  Git:      [not set]")
    _logger.debug("  Runtime:  %s", RUNTIME_VERSION)
    if options.has_cluster and options.cluster is not None and options.cluster.name:
        _logger.info("  Cluster:  %s", options.cluster.name)
    _logger.info("  Name:     %s", server.name)
    _logger.info("  ID:       %s", server.id)
    logins = getattr(server.authenticator, "inner", server.authenticator)  # a callout asks them
    if getattr(logins, "has_plain_passwords", False) or _is_plain(options.http_password):
        _logger.warning("Plaintext passwords detected, use nkeys or bcrypt")
    if server.config is not None and server.config.path is not None:
        _logger.info("Using configuration file: %s (%s)", server.config.path, server.config.digest)
    if options.operators:
        _log_operators(options)
    if options.max_payload > PAYLOAD_WARN_BYTES:
        _logger.warning(
            "Maximum payloads over %.2f MB are generally discouraged "
            "and could lead to poor performance",
            PAYLOAD_WARN_BYTES / MIB,
        )


def _is_plain(password: str) -> bool:
    """Return whether there is a password, and it is not a hash."""
    if not password:
        return False
    from natsd.auth.passwords import bcrypt_cost

    return not bcrypt_cost(password)


def _log_operators(options: Options) -> None:
    from natsd.auth.jwt.decode import decode_as
    from natsd.auth.jwt.operator import OperatorClaims

    _logger.info("Trusted Operators")
    system = options.system_account
    for jwt in options.operators:
        claims = decode_as(OperatorClaims, jwt)
        system = system or claims.body.system_account
        _logger.info("  System  : %s", quoted(claims.audience))
        _logger.info("  Operator: %s", quoted(claims.name))
        _logger.info("  Issued  : %s", _local_time(claims.issued_at))
        _logger.info("  Expires : %s", _local_time(claims.expires) if claims.expires else "Never")
    if not system:
        _logger.warning("Trusted Operators should utilize a System Account")


def _local_time(unix_s: int) -> str:
    """Return a time as Go prints it: `2026-11-23 16:27:05 +0000 UTC`."""
    return datetime.fromtimestamp(unix_s).astimezone().strftime("%F %T %z %Z")


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


def log_listening(host: str, port: int, options: Options) -> None:
    """Log the address on which clients can connect, and whether they need TLS."""
    _logger.info("Listening for client connections on %s", host_port(host, port))
    if options.tls is None:
        return
    _logger.info("TLS required for client connections")
    if options.tls.handshake_first == timedelta(0):
        _logger.warning(
            'Clients that are not using "TLS Handshake First" option will fail to connect'
        )


def log_ready() -> None:
    """Log the last line of a start."""
    _logger.info("Server is ready")


def log_stopping() -> None:
    """Log the first line of a stop."""
    _logger.info("Initiating Shutdown...")


def log_stopped() -> None:
    """Log the last line of a stop."""
    _logger.info("Server Exiting..")
