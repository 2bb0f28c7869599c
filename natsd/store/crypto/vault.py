"""Small files of a store directory (configurations, message ids), encrypted if there is a key.

    a file    two files (twin_file.py), and without a key in each of them:
              magic of its kind │ body
    sealed    magic "NATSDSEA" │ cipher u16 · salt, 32 bytes · nonce, 12 bytes · ciphertext
              the plaintext is the magic of its kind and the body; authenticated with it is the
              file's place in the directory, so that no file passes for another

Promise
- A sealed file reveals nothing without a key. The operator's key is never stored: each file has a
  key of its own, derived from it with the salt.
- A file is written anew when it is read if it is plain, if the previous key opened it, or if a copy
  of it is damaged or missing; a crash leaves the old file or the new one, and either is read
  again. Damage is logged once: the file, the offset, and that it was written anew.
- A file that cannot be written anew is read all the same.
- A sealed file without the key, or with another key, raises an EncryptionError of one line that
  names it, and stays as it is; but if the second file opens, the first was damaged.

Everything here blocks on the disk, and raises OSError. Source: docs/store.md; nats-server's
`decryptMeta`, which opens metafiles with `key` or `prev_key`.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag

from natsd.store.crypto.keys import (
    GIVE_KEY,
    GIVE_OTHER,
    NONCE_BYTES,
    SALT_BYTES,
    Cipher,
    OperatorKeys,
    Random,
    derive,
    make_aead,
)
from natsd.store.disk.disk import Disk
from natsd.store.disk.doubled_file import Content
from natsd.store.disk.places import place_in
from natsd.store.disk.twin_file import (
    TwinDamage,
    Twins,
    new_twins,
    read_twins,
    replace_twins,
    twins_exist,
)
from natsd.store.errors import EncryptionError, KeyMissing, KeyWrong

MAGIC: Final = b"NATSDSEA"
HEAD: Final = Struct(f"<H{SALT_BYTES}s{NONCE_BYTES}s")
_MAGIC_BYTES: Final = 8

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Vault:
    """The small files of the store directory `root`, with the operator's keys."""

    disk: Disk
    root: Path
    random: Random = field(repr=False)
    keys: OperatorKeys = field(default_factory=OperatorKeys)

    def write(self, path: Path, magic: bytes, body: bytes, *, place: Path | None = None) -> None:
        """Give the file this content; it is on disk on return.

        `place` is the path where the file will be read, if not `path`. Raises OSError, with the old
        content still there.
        """
        replace_twins(self.disk, path, *self._content(place or path, magic, body))

    def new_files(self, path: Path, magic: bytes, body: bytes) -> dict[str, bytes]:
        """Return the files that `write` would make, by name, for a directory yet to be made."""
        return new_twins(path.name, *self._content(path, magic, body))

    def _content(self, path: Path, magic: bytes, body: bytes) -> tuple[bytes, bytes, str]:
        """Return magic, body and place as they are written, encrypted if there is a key."""
        assert len(magic) == _MAGIC_BYTES
        place = self._place(path)
        if self.keys.key is None:
            return magic, body, place
        salt, nonce = self.random(SALT_BYTES), self.random(NONCE_BYTES)
        context = _encoded(place)
        aead = make_aead(self.keys.cipher, _key(self.keys.key, salt, context))
        head = HEAD.pack(self.keys.cipher, salt, nonce)
        return MAGIC, head + aead.encrypt(nonce, magic + body, context), place

    def read(self, path: Path, magic: bytes) -> bytes | None:
        """Return the file's body, and write the file anew if that is needed.

        Return None if neither file verifies, or if they are of another kind. Raises
        EncryptionError.
        """
        found = read_twins(self.disk, path, self._place(path))
        try:
            opened = self._open_any(path, magic, found)
        except EncryptionError:
            _log(found.damage, "left as it is")
            raise
        if opened is None:
            _log(found.damage, "nothing of it can be used")
            return None
        body, is_outdated = opened
        if is_outdated or not found.is_whole:
            self._write_anew(path, magic, body, found)
        return body

    def recall(self, path: Path, magic: bytes, instead: str) -> bytes | None:
        """Return the body of a file that is useful but not necessary.

        Return None if the file does not exist or cannot be used; the latter is logged. `instead`
        says in the log what is done without the file.
        """
        if not twins_exist(self.disk, path):
            return None
        try:
            body = self.read(path, magic)
        except (EncryptionError, OSError) as error:
            _logger.error("%s: %s; %s", path, error, instead)
            return None
        if body is None:
            _logger.error("%s is damaged: no copy of it verifies; %s", path, instead)
        return body

    def refusal(self, path: Path, magic: bytes) -> EncryptionError | None:
        """Return why the key does not open the file, None if it does; nothing is changed."""
        try:
            self._open_any(path, magic, read_twins(self.disk, path, self._place(path)))
        except EncryptionError as error:
            return error
        return None

    def is_sealed(self, path: Path) -> bool:
        """Return whether the file is encrypted; nothing is changed."""
        found = read_twins(self.disk, path, self._place(path))
        return any(version.magic == MAGIC for version in found.versions)

    def _write_anew(self, path: Path, magic: bytes, body: bytes, found: Twins) -> None:
        try:
            self.write(path, magic, body)
        except OSError as error:
            _log(found.damage, f"could not be written anew: {error}")
        else:
            _log(found.damage, "written anew")

    def _open_any(self, path: Path, magic: bytes, found: Twins) -> tuple[bytes, bool] | None:
        """Return the newest readable body, and whether to write it anew with the current key."""
        refusal: EncryptionError | None = None
        for version in found.versions:
            try:
                opened = self._open_version(path, magic, version)
            except EncryptionError as error:
                refusal = refusal or error
                continue
            if opened is not None:
                return opened
        if refusal is not None:
            raise refusal
        return None

    def _open_version(
        self, path: Path, magic: bytes, version: Content
    ) -> tuple[bytes, bool] | None:
        if version.magic == magic:
            return version.body, self.keys.key is not None
        if version.magic != MAGIC or len(version.body) < HEAD.size:
            return None
        opened, is_old = self._open(path, version.body)
        return (opened[_MAGIC_BYTES:], is_old) if opened[:_MAGIC_BYTES] == magic else None

    def _open(self, path: Path, sealed: bytes) -> tuple[bytes, bool]:
        """Return the decrypted magic and body, and whether that took the previous key."""
        if self.keys.key is None:
            raise KeyMissing(f"{path} is encrypted, but no key is given{GIVE_KEY}")
        number, salt, nonce = HEAD.unpack_from(sealed)
        context = _encoded(self._place(path))
        for key in (self.keys.key, self.keys.previous):
            if key is None or number not in Cipher.__members__.values():
                continue
            aead = make_aead(Cipher(number), _key(key, salt, context))
            try:
                return aead.decrypt(nonce, sealed[HEAD.size :], context), key is not self.keys.key
            except InvalidTag:
                continue
        if self.keys.previous is None:
            raise KeyWrong(f"{path}: the key does not open it{GIVE_OTHER}")
        raise KeyWrong(f"{path}: neither the key nor the previous one opens it{GIVE_OTHER}")

    def _place(self, path: Path) -> str:
        return place_in(self.root, path)


def _encoded(place: str) -> bytes:
    return place.encode("utf-8", "surrogateescape")


def _key(secret: bytes, salt: bytes, context: bytes) -> bytes:
    return derive(secret, salt, b"natsd file " + context)


def _log(damage: tuple[TwinDamage, ...], done: str) -> None:
    for each in damage:
        _logger.error("%s; %s", each, done)
