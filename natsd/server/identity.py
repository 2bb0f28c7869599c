"""Server ids: public nkeys of the server kind, `N` and 55 more characters.

Source: nats-io/nkeys: base32 of a prefix byte, 32 bytes and a little-endian CRC-16/XMODEM.
"""

import base64
import binascii
import os
from typing import TYPE_CHECKING, Final

from natsd.config import Options

if TYPE_CHECKING:
    from natsd.auth.callout.service import ServerKeys

_SERVER_PREFIX: Final = 13 << 3


def new_server_id() -> str:
    """Return a random server id."""
    body = bytes([_SERVER_PREFIX]) + os.urandom(32)
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode().rstrip("=")


def new_server_keys(options: Options) -> "ServerKeys | None":
    """Return the keys of a server that signs requests; None: the settings have no auth callout.

    Then the server id is the public key of the pair.
    """
    if not (
        options.operators or options.trusted_keys or options.authorization.auth_callout is not None
    ):
        return None
    from natsd.auth.callout.service import ServerKeys

    return ServerKeys.create()
