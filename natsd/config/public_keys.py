"""Public nkeys: the text of a public key, and what it stands for.

    public key    base32( kind 1 B | key 32 B | CRC-16/XMODEM of these, little-endian 2 B )

    kind          O operator, A account, U user, N server, C cluster, X curve

- Decoding accepts exactly what encoding produces: another length, case, padding, checksum or kind
  raises BadNkey.
- Seeds, which are secret, are only recognized here; natsd.auth.nkeys reads them and signs.

Source: nats-io/nkeys (strkey.go, crc16.go); its alphabet is RFC 4648's base32 without padding.
"""

import base64
import binascii
import enum
from functools import lru_cache
from typing import Final

KEY_BYTES: Final = 32
PUBLIC_CHARACTERS: Final = 56
DECODED_MAX: Final = 4096
"""Public keys whose decoded form is remembered."""


class Kind(enum.IntEnum):
    """The kind of a key; the value is the byte before the key, which makes its first letter."""

    ACCOUNT = 0 << 3
    CLUSTER = 2 << 3
    SERVER = 13 << 3
    OPERATOR = 14 << 3
    USER = 20 << 3
    CURVE = 23 << 3


class BadNkey(ValueError):
    """A text is not an nkey, or not one of the kind that is expected."""


def encode_public(kind: Kind, key: bytes) -> str:
    """Return the text of a public key."""
    assert len(key) == KEY_BYTES
    return encode_checked(bytes([kind]) + key)


@lru_cache(DECODED_MAX)
def decode_public(text: str) -> tuple[Kind, bytes]:
    """Return the kind and the 32 bytes of a public key. Raises BadNkey."""
    if len(text) != PUBLIC_CHARACTERS:
        raise BadNkey("a public nkey has 56 characters")
    body = decode_checked(text)
    try:
        return Kind(body[0]), body[1:]
    except ValueError:
        raise BadNkey("the nkey is not a public key") from None


def is_public(text: str, kind: Kind | None = None) -> bool:
    """Return whether a text is a public key of a kind; None: of any kind."""
    try:
        return kind in (None, decode_public(text)[0])
    except BadNkey:
        return False


def is_user_seed(text: str) -> bool:
    """Return whether a text is the seed of a user's key, which has two bytes before the key."""
    try:
        return text.startswith("SU") and len(decode_checked(text)) == 2 + KEY_BYTES
    except BadNkey:
        return False


def encode_checked(body: bytes) -> str:
    """Return the text of some bytes and their checksum."""
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode().rstrip("=")


def decode_checked(text: str) -> bytes:
    """Return the bytes before the checksum. Raises BadNkey."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raise BadNkey("the nkey is not base32") from None
    body, checksum = raw[:-2], raw[-2:]
    if binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        raise BadNkey("the checksum of the nkey is wrong")
    if encode_checked(body) != text:
        raise BadNkey("the nkey is not in its only spelling")
    return body
