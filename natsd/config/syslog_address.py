"""The address of a syslog service: `udp://host:514`, `tcp://host:514` or `unix:///dev/log`.

Source: nats-server's `getNetworkAndAddr` (logger/syslog.go). In addition, the port may be missing.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from natsd.config.settings import OptionsError

SYSLOG_PORT: Final = 514


@dataclass(frozen=True, slots=True)
class SyslogAddress:
    """Where a syslog service listens; `LOCAL` is the one of this machine."""

    network: str  # "udp", "tcp" or "unix"
    host: str = ""
    port: int = 0
    paths: tuple[str, ...] = ()  # of sockets of this machine; none: the usual ones

    @property
    def is_local(self) -> bool:
        """Whether the service has a socket of this machine."""
        return self.network == "unix"

    def __str__(self) -> str:
        if self.is_local:
            return self.paths[0] if self.paths else "syslog of this machine"
        return f"{self.host}:{self.port}"


LOCAL: Final = SyslogAddress("unix")


def read_syslog_address(url: str) -> SyslogAddress:
    """Return the address that a URL names. Raises OptionsError."""
    try:
        parts = urlsplit(url)
        port = parts.port or SYSLOG_PORT
    except ValueError as error:
        raise _mistake(f'"{url}" is no URL: {error}') from None
    network = parts.scheme
    if network not in ("udp", "tcp", "unix"):
        raise _mistake(f'invalid network type: "{network}"; there are udp, tcp and unix')
    if not (parts.path if network == "unix" else parts.hostname):
        raise _mistake(f'"{url}" lacks a {"path" if network == "unix" else "host"}')
    if network == "unix":
        return SyslogAddress(network, paths=(parts.path,))
    return SyslogAddress(network, parts.hostname or "", port)


def _mistake(text: str) -> OptionsError:
    return OptionsError(f"remote_syslog: {text}", setting="remote_syslog")
