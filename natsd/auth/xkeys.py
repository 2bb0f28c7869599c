"""xkeys: messages that only the holder of an x25519 key can read.

    sealed message    "xkv1" 4 B | nonce 24 B | NaCl box: XSalsa20-Poly1305 of the plain text

- The box is made with the sender's secret and the recipient's public key, so opening it proves
  both. A message that was changed, or is for another key, raises BadSealed.

Source: nats-io/nkeys (xkeys.go).
"""

import os
from typing import Final

from natsd.auth.nkeys import KeyPair
from natsd.config.public_keys import BadNkey, Kind, decode_public

VERSION: Final = b"xkv1"
NONCE_BYTES: Final = 24


class BadSealed(ValueError):
    """A message cannot be opened with these keys."""


def seal(message: bytes, sender: KeyPair, recipient: str) -> bytes:
    """Return a message that only `recipient`, a public key, can open. Raises BadNkey."""
    from nacl.bindings import crypto_box

    nonce = os.urandom(NONCE_BYTES)
    box: bytes = crypto_box(message, nonce, _public(recipient), _secret(sender))
    return VERSION + nonce + box


def unseal(sealed: bytes, recipient: KeyPair, sender: str) -> bytes:
    """Return the message that `sender`, a public key, sealed. Raises BadSealed or BadNkey."""
    from nacl.bindings import crypto_box_open
    from nacl.exceptions import CryptoError

    start = len(VERSION) + NONCE_BYTES
    if not sealed.startswith(VERSION) or len(sealed) <= start:
        raise BadSealed("the message is not sealed in a version that is known")
    nonce = sealed[len(VERSION) : start]
    try:
        message: bytes = crypto_box_open(sealed[start:], nonce, _public(sender), _secret(recipient))
    except CryptoError:
        raise BadSealed("the message cannot be opened with these keys") from None
    return message


def _public(text: str) -> bytes:
    kind, key = decode_public(text)
    if kind is not Kind.CURVE:
        raise BadNkey("the nkey is not a curve key")
    return key


def _secret(pair: KeyPair) -> bytes:
    if pair.kind is not Kind.CURVE:
        raise BadNkey("the nkey is not a curve key")
    return pair.secret
