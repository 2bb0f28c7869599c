"""nkeys: ed25519 keys as text, and the signatures that they make.

    public key    base32( kind 1 B | key 32 B | CRC-16/XMODEM of these, little-endian 2 B )
    seed          base32( S and kind 2 B | secret 32 B | CRC-16 2 B )

    kind          O operator, A account, U user, N server, C cluster, X curve (x25519: xkeys.py)

- Decoding accepts exactly what encoding produces: another length, case, padding, checksum or kind
  raises BadNkey.
- A seed never appears in a `repr` or in the text of an exception.
- libsodium signs and verifies (PyNaCl): a verification takes about 80 µs, so it runs on the loop.

Source: nats-io/nkeys (strkey.go, crc16.go); its alphabet is RFC 4648's base32 without padding.
"""

import base64
import binascii
import enum
import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
PUBLIC_CHARACTERS: Final = 56
SEED_CHARACTERS: Final = 58
DECODED_MAX: Final = 4096
"""Public keys whose decoded form is remembered."""
_SEED_PREFIX: Final = 18 << 3


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
    return _encode(bytes([kind]) + key)


@lru_cache(DECODED_MAX)
def decode_public(text: str) -> tuple[Kind, bytes]:
    """Return the kind and the 32 bytes of a public key. Raises BadNkey."""
    if len(text) != PUBLIC_CHARACTERS:
        raise BadNkey("a public nkey has 56 characters")
    body = _decode(text)
    try:
        return Kind(body[0]), body[1:]
    except ValueError:
        raise BadNkey("the nkey is not a public key") from None


def is_public(text: str, kind: Kind) -> bool:
    """Return whether a text is a public key of a kind."""
    try:
        return decode_public(text)[0] is kind
    except BadNkey:
        return False


def verify(public_key: str, message: bytes, signature: bytes) -> bool:
    """Return whether the holder of a public key's seed signed the message.

    False too if the text is not a public key for signatures, or if the message is empty: a client
    whose INFO had no nonce has signed nothing that only this connection could know.
    """
    from nacl.bindings import crypto_sign_open
    from nacl.exceptions import CryptoError

    try:
        kind, key = decode_public(public_key)
    except BadNkey:
        return False
    if kind is Kind.CURVE or len(signature) != SIGNATURE_BYTES or not message:
        return False
    try:
        crypto_sign_open(signature + message, key)
    except CryptoError:
        return False
    return True


def decode_signature(text: str) -> bytes | None:
    """Return the bytes of a signature in CONNECT; None: it is neither base64url nor base64.

    base64url comes without padding, plain base64 with it.
    """
    try:
        if "=" not in text and "+" not in text and "/" not in text:
            return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key that can sign: its kind and its secret."""

    kind: Kind
    secret: bytes = field(repr=False)

    @classmethod
    def create(cls, kind: Kind) -> "KeyPair":
        """Return a new random key."""
        return cls(kind, os.urandom(KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: str) -> "KeyPair":
        """Return the key of a seed's text. Raises BadNkey."""
        if len(seed) != SEED_CHARACTERS:
            raise BadNkey("an nkey seed has 58 characters")
        body = _decode(seed)
        if body[0] & 0xF8 != _SEED_PREFIX or body[1] & 7:
            raise BadNkey("the nkey is not a seed")
        try:
            kind = Kind((body[0] & 7) << 5 | body[1] >> 3)
        except ValueError:
            raise BadNkey("the nkey is a seed of no known kind") from None
        return cls(kind, body[2:])

    @property
    def seed(self) -> str:
        """The text of the seed, which is a secret."""
        return _encode(
            bytes([_SEED_PREFIX | self.kind >> 5, (self.kind & 0x1F) << 3]) + self.secret
        )

    @property
    def public(self) -> str:
        """The text of the public key."""
        from nacl.bindings import crypto_scalarmult_base, crypto_sign_seed_keypair

        if self.kind is Kind.CURVE:
            return encode_public(self.kind, crypto_scalarmult_base(self.secret))
        return encode_public(self.kind, crypto_sign_seed_keypair(self.secret)[0])

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message. Raises BadNkey for a key of kind CURVE."""
        from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

        if self.kind is Kind.CURVE:
            raise BadNkey("a curve key does not sign")
        _, key = crypto_sign_seed_keypair(self.secret)
        return crypto_sign(message, key)[:SIGNATURE_BYTES]


def _encode(body: bytes) -> str:
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Return the bytes before the checksum. Raises BadNkey."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raise BadNkey("the nkey is not base32") from None
    body, checksum = raw[:-2], raw[-2:]
    if binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        raise BadNkey("the checksum of the nkey is wrong")
    if _encode(body) != text:
        raise BadNkey("the nkey is not in its only spelling")
    return body
