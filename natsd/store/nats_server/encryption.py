"""The encryption of nats-server's stores, opened: XChaCha20 or AES, with one key per file.

    key files   meta.key (of a stream, of a consumer), N.key (of a block):
                nonce · seed, 32 bytes, sealed with HMAC-SHA256(key, account · context)
    contexts    the stream's name · "<stream>.<consumer>" · "<stream>:<number of the block>"
    small files nonce · content, sealed with the seed
    blocks      XORed with the key stream of the seed and of the nonce in the key file: a block is
                not authenticated, but its records have checksums

Source: nats-server's `jsKeyGen`, `decryptMeta`, `genEncryptionKeys`, `genBlockEncryptionKey`;
draft-irtf-cfrg-xchacha (HChaCha20).
"""

import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as StreamCipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES, ChaCha20
from cryptography.hazmat.primitives.ciphers.modes import CTR
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from natsd.store.crypto.keys import Cipher

NONCE_BYTES: Final = {Cipher.CHACHA20_POLY1305: 24, Cipher.AES_256_GCM: 16}
_WORDS: Final = struct.Struct("<16I")
_CONSTANT: Final = struct.unpack("<4I", b"expand 32-byte k")


class KeyDoesNotOpen(Exception):
    """No given key opens a key file, or a file is damaged."""


@dataclass(frozen=True, slots=True)
class FileKey:
    """The key of one small file or of one block."""

    cipher: Cipher
    seed: bytes = field(repr=False)
    nonce: bytes

    def open(self, data: bytes) -> bytes:
        """Return the content of a small file. Raises KeyDoesNotOpen."""
        return _open(self.cipher, self.seed, data)

    def apply(self, data: bytes) -> bytes:
        """Return a block decrypted, or encrypted, which is the same operation."""
        if self.cipher is Cipher.AES_256_GCM:
            return StreamCipher(AES(self.seed), CTR(self.nonce)).encryptor().update(data)
        subkey = _hchacha20(self.seed, self.nonce[:16])
        # XChaCha20 counts blocks from 0; its nonce has four zero bytes before the rest.
        cipher = ChaCha20(subkey, bytes(8) + self.nonce[16:])
        return StreamCipher(cipher, mode=None).encryptor().update(data)


@dataclass(frozen=True, slots=True)
class Encryption:
    """The operator's keys, the present one and the previous ones, for the files of one account."""

    account: str
    keys: tuple[bytes, ...] = field(repr=False)

    def open_key(self, body: bytes, context: str) -> FileKey:
        """Return the key in a key file. Raises KeyDoesNotOpen."""
        for key in self.keys:
            wrapping = hmac.digest(key, (self.account + context).encode(), "sha256")
            for cipher, size in NONCE_BYTES.items():
                try:
                    return FileKey(cipher, _open(cipher, wrapping, body), body[:size])
                except KeyDoesNotOpen:
                    continue
        if not self.keys:
            raise KeyDoesNotOpen("it is encrypted, and no key of the source is given")
        raise KeyDoesNotOpen("it is damaged, or the key of the source is wrong")


def _open(cipher: Cipher, key: bytes, data: bytes) -> bytes:
    size = NONCE_BYTES[cipher]
    nonce, sealed = data[:size], data[size:]
    if len(sealed) < 16:  # shorter than the tag
        raise KeyDoesNotOpen("it is too short")
    try:
        if cipher is Cipher.AES_256_GCM:
            return AESGCM(key).decrypt(nonce, sealed, None)
        return crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, None, nonce, key)
    except (InvalidTag, CryptoError):
        raise KeyDoesNotOpen("it is damaged") from None


def seal(cipher: Cipher, key: bytes, nonce: bytes, content: bytes) -> bytes:
    """Return what `FileKey.open` opens: the nonce and the sealed content."""
    if cipher is Cipher.AES_256_GCM:
        return nonce + AESGCM(key).encrypt(nonce, content, None)
    return nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(content, None, nonce, key)


def _hchacha20(key: bytes, nonce: bytes) -> bytes:
    """Return the subkey that XChaCha20 derives from the first 16 bytes of its nonce.

    ChaCha20's first block is the permuted state plus the state before. HChaCha20 is eight words of
    the permuted state, so the words before, which are not secret, are subtracted again.
    """
    block = StreamCipher(ChaCha20(key, nonce), mode=None).encryptor().update(bytes(64))
    words = _WORDS.unpack(block)
    before = (*_CONSTANT, *struct.unpack("<4I", nonce))
    permuted = (*words[:4], *words[12:])
    return struct.pack(
        "<8I", *((a - b) & 0xFFFFFFFF for a, b in zip(permuted, before, strict=True))
    )
