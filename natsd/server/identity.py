"""Server ids: public nkeys of the server kind, `N` and 55 more characters.

Source: nats-io/nkeys: base32 of a prefix byte, 32 bytes and a little-endian CRC-16/XMODEM.
"""

import base64
import binascii
import os
from typing import Final

_SERVER_PREFIX: Final = 13 << 3


def new_server_id() -> str:
    """Return a random server id."""
    body = bytes([_SERVER_PREFIX]) + os.urandom(32)
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode().rstrip("=")
