"""Small files of a store directory, encrypted where there is a key: what assets are, message ids.

    a file    twice in it (doubled_file.py), as it would be without a key:
              magic of its kind │ body
    sealed    magic "NATSDSEA" │ cipher u16 · salt, 32 bytes · nonce, 12 bytes · ciphertext
              the plaintext is the magic of its kind and the body; what is authenticated with it is
              the file's place in the directory, so that none passes for another

Promise
- Nothing of a sealed file is told without a key. The operator's key is never stored: each file has
  a key of its own, derived from it with the salt.
- A file that is plain, that the previous key opens, or of which a copy is damaged, is written anew
  when it is read; a crash leaves the old file or the new one, and either is read again.
- A sealed file without the key, or with another, is an EncryptionError of one line that names it,
  and stays as it is.

Everything here blocks, and raises OSError. Source: nats-server 2.14 reference 2.8, 11.2.
"""

from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag

from natsd.store.disk import Disk
from natsd.store.doubled_file import Doubled, decode_doubled, read_file, replace_doubled
from natsd.store.errors import KeyMissing, KeyWrong
from natsd.store.keys import (
    NONCE_BYTES,
    SALT_BYTES,
    Cipher,
    OperatorKeys,
    Random,
    derive,
    make_aead,
)

MAGIC: Final = b"NATSDSEA"
HEAD: Final = Struct(f"<H{SALT_BYTES}s{NONCE_BYTES}s")
_MAGIC_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Vault:
    """Of the store directory `root`."""

    disk: Disk
    root: Path
    random: Random = field(repr=False)
    keys: OperatorKeys = field(default_factory=OperatorKeys)

    def write(self, path: Path, magic: bytes, body: bytes, *, place: Path | None = None) -> None:
        """Give the file this content, on disk on return. `place`: where it will be read."""
        assert len(magic) == _MAGIC_BYTES
        if self.keys.key is None:
            replace_doubled(self.disk, path, magic, body)
            return
        salt, nonce = self.random(SALT_BYTES), self.random(NONCE_BYTES)
        context = self._context(place or path)
        aead = make_aead(self.keys.cipher, _key(self.keys.key, salt, context))
        head = HEAD.pack(self.keys.cipher, salt, nonce)
        sealed = head + aead.encrypt(nonce, magic + body, context)
        replace_doubled(self.disk, path, MAGIC, sealed)

    def read(self, path: Path, magic: bytes) -> bytes | None:
        """The file's body; None if it says nothing, or is of another kind. Raises
        EncryptionError."""
        data = read_file(self.disk, path)
        sealed = decode_doubled(MAGIC, data)
        if sealed.body is None:
            return self._read_plain(path, magic, decode_doubled(magic, data))
        if len(sealed.body) < HEAD.size:
            return None
        opened, is_old = self._open(path, sealed.body)
        if opened[:_MAGIC_BYTES] != magic:
            return None
        body = opened[_MAGIC_BYTES:]
        if sealed.damage or is_old:
            self.write(path, magic, body)
        return body

    def _read_plain(self, path: Path, magic: bytes, plain: Doubled) -> bytes | None:
        if plain.body is not None and (plain.damage or self.keys.key is not None):
            self.write(path, magic, plain.body)
        return plain.body

    def _open(self, path: Path, sealed: bytes) -> tuple[bytes, bool]:
        """What is sealed, and whether that took the previous key."""
        if self.keys.key is None:
            raise KeyMissing(f"{path} is encrypted, but no key is given")
        number, salt, nonce = HEAD.unpack_from(sealed)
        context = self._context(path)
        for key in (self.keys.key, self.keys.previous):
            if key is None or number not in Cipher.__members__.values():
                continue
            aead = make_aead(Cipher(number), _key(key, salt, context))
            try:
                return aead.decrypt(nonce, sealed[HEAD.size :], context), key is not self.keys.key
            except InvalidTag:
                continue
        if self.keys.previous is None:
            raise KeyWrong(f"{path}: the key does not open it")
        raise KeyWrong(f"{path}: neither the key nor the previous one opens it")

    def _context(self, path: Path) -> bytes:
        return path.relative_to(self.root).as_posix().encode("utf-8", "surrogateescape")


def _key(secret: bytes, salt: bytes, context: bytes) -> bytes:
    return derive(secret, salt, b"natsd file " + context)
