"""Keys that sign: ed25519 seeds as text, and the signatures that they make.

    seed    base32( S and kind 2 B | secret 32 B | CRC-16/XMODEM of these, little-endian 2 B )

- natsd.config.public_keys has the text of public keys, and the kinds; a seed decodes as strictly.
- A seed never appears in a `repr` or in the text of an exception.
- libsodium signs and verifies (PyNaCl): a verification takes about 80 µs, so it runs on the loop.
- Keys of kind CURVE (x25519) do not sign: xkeys.py encrypts with them.

Source: nats-io/nkeys (strkey.go).
"""

import base64
import os
from dataclasses import dataclass, field
from typing import Final

from natsd.config.public_keys import (
    KEY_BYTES,
    BadNkey,
    Kind,
    decode_checked,
    decode_public,
    encode_checked,
    encode_public,
)

SIGNATURE_BYTES: Final = 64
SEED_CHARACTERS: Final = 58
_SEED_PREFIX: Final = 18 << 3


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
        body = decode_checked(seed)
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
        return encode_checked(
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
