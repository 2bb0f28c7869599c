"""What the blocks of connections between servers share: listener, login, URLs, compression.

Source: nats-server's `parseURLs`, `parseCompression` (server/opts.go),
`validateAndNormalizeCompressionOption` (server/server.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from natsd.config.authorization import AuthorizationOptions, read_authorization
from natsd.config.listen import with_listen
from natsd.config.sections import section_of
from natsd.config.settings import (
    OptionsError,
    Section,
    Settings,
    duration,
    optional,
    read_items,
    section_field,
    text,
    whole,
    word,
)
from natsd.config.tls_options import TlsOptions, read_tls
from natsd.core.durations import DurationError, format_duration, parse_duration

PORT_MAX: Final = 65535
WRITE_TIMEOUTS: Final = {"default": "default", "close": "close", "retry": "retry"}
AUTO: Final = ("auto", "s2_auto")
COMPRESSION: Final = (
    *("not supported", "not_supported", "disabled", "off", "false", "accept", "on", "enabled"),
    *("true", "fast", "s2_fast", "better", "s2_better", "best", "s2_best", *AUTO),
)
THRESHOLDS_MAX: Final = 4
COMPRESSION_ALIASES: Final = dict.fromkeys(("thresholds", "rtts", "rtt"), "rtt_thresholds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener(Settings):
    """Where connections of one kind are accepted."""

    host: str = text("", "address to listen on")
    port: int = whole(0, -1, PORT_MAX, "port to listen on; -1: the system picks, 0: none")
    tls: TlsOptions | None = optional(read_tls, "TLS of these connections")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerListener(Listener):
    """Where other servers are accepted."""

    advertise: str = text("", "address that other servers are told")
    write_deadline: timedelta = duration(timedelta(seconds=10), "how long a write may be blocked")
    write_timeout: str = word("default", WRITE_TIMEOUTS, "what happens after the write deadline")


def read_listener(kind: type[Section], given: object, aliases: Mapping[str, str]) -> Section:
    """Return a block of one of these classes from a mapping. Raises OptionsError."""
    if isinstance(given, Mapping):
        given = with_listen(given)
    return section_of(kind, given, aliases={**aliases, "net": "host", "listen": "port"})


def server_login() -> Any:
    """Declare a setting that is the login of other servers."""
    return section_field(AuthorizationOptions(), read_authorization, "credentials")


def check_login(kind: str, login: AuthorizationOptions) -> None:
    """Refuse logins that other servers cannot use. Raises OptionsError."""
    found = {
        "users": "does not allow multiple users",
        "token": "does not support tokens",
        "auth_callout": "does not support callouts",
    }
    for name, reason in found.items():
        if getattr(login, name):
            raise OptionsError(f"{kind} authorization {reason}", path=("authorization", name))


def check_name(kind: str, name: str) -> None:
    """Refuse the name of a cluster with spaces. Raises OptionsError."""
    if " " in name:
        raise OptionsError(f"{kind} name cannot contain spaces", setting="name")


def _read_threshold(given: object) -> timedelta:
    try:
        if not isinstance(given, str | timedelta):
            raise DurationError("write a text")
        return max(parse_duration(given), timedelta(0))
    except DurationError as error:
        raise OptionsError(f"is no duration such as '10ms': {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionOptions(Settings):
    """How messages between servers are compressed."""

    mode: str = text("accept", "how much, or who decides")
    rtt_thresholds: tuple[timedelta, ...] = section_field(
        (), partial(read_items, read_one=_read_threshold, what="durations"), "where s2_auto changes"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        mode, found = self.mode, self.rtt_thresholds
        if mode.lower() not in COMPRESSION:
            raise OptionsError(f'unsupported compression mode "{mode}"', setting="mode")
        if mode.lower() not in AUTO or not found:
            return
        shown = f"[{' '.join(map(format_duration, found))}]"
        positive = [each for each in found if each]
        if positive != sorted(positive):
            reason = f"RTT threshold values {shown} should be in ascending order"
        elif not positive:
            reason = f'compression mode "{mode}" requires at least one RTT threshold'
        elif found.index(positive[-1]) >= THRESHOLDS_MAX:
            reason = f'compression mode "{mode}" should have no more than 4 RTT thresholds: {shown}'
        else:
            return
        raise OptionsError(reason, setting="rtt_thresholds")


def _read_compression(given: object) -> CompressionOptions:
    if isinstance(given, bool):
        return CompressionOptions(mode="on" if given else "off")
    if isinstance(given, str):
        return CompressionOptions(mode=given)
    if not isinstance(given, Mapping | CompressionOptions):
        raise OptionsError("should be a boolean or a structure")
    return section_of(CompressionOptions, given, aliases=COMPRESSION_ALIASES)


def compression() -> Any:
    """Declare a setting that is a mode, a boolean, or a mode with thresholds."""
    return section_field(
        CompressionOptions(), _read_compression, "compression of these connections"
    )


def _read_url(given: object) -> str:
    from urllib.parse import urlsplit

    try:
        if isinstance(given, str) and urlsplit(given.strip()).netloc:
            return given.strip()
    except ValueError:
        pass
    raise OptionsError("must be a URL such as nats://host:port")


def _read_urls(given: object) -> tuple[str, ...]:
    return read_items([given] if isinstance(given, str) else given, _read_url, "URLs")


def urls() -> Any:
    """Declare a setting that is the URL of another server, or a list of them."""
    return section_field((), _read_urls, "addresses of other servers", is_secret=True)
