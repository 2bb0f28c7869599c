"""Addresses of listeners: `listen: "host:port"` or `listen: port`, for `host` and `port`.

Source: nats-server's `parseListen` (server/opts.go).
"""

from collections.abc import Mapping
from typing import Any, Final

from natsd.config.settings import OptionsError, in_words

LISTEN: Final = {"listen": ("host", "port")}


def split_listen(given: object) -> tuple[str | None, int]:
    """Return host and port; the host is None if only a port is given. Raises OptionsError."""
    if isinstance(given, int) and not isinstance(given, bool):
        return None, given
    if not isinstance(given, str):
        raise OptionsError(f"expected port or host:port, not {in_words(given)}")
    host, colon, port = given.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not is_bracketed):
        raise OptionsError(f'could not parse address string "{given}"')
    try:
        number = int(port)
    except ValueError:
        raise OptionsError(f'could not parse port "{port}"') from None
    return host.removeprefix("[").removesuffix("]"), number


def with_listen(
    given: Mapping[str, Any], names: Mapping[str, tuple[str, str]] = LISTEN
) -> dict[str, Any]:
    """Return the settings with each address split into a host and a port.

    `names` has the two settings of each address. The new names stand where the address stood.
    """
    settings: dict[str, Any] = {}
    for spelling, value in given.items():
        if str(spelling).lower() not in names:
            settings[spelling] = value
            continue
        host_name, port_name = names[str(spelling).lower()]
        try:
            host, port = split_listen(value)
        except OptionsError as error:
            raise error.at(spelling) from None
        if host is not None:
            settings[_placed(host_name, spelling)] = host
        settings[_placed(port_name, spelling)] = port
    return settings


def _placed(name: str, spelling: str) -> str:
    """Return the name as a key that stands where another one stands."""
    from natsd.config.language import Key

    if not isinstance(spelling, Key):
        return name
    key = Key(name)
    key.source, key.offset, key.is_variable = spelling.source, spelling.offset, False
    return key
